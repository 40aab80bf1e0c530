"""The ``ctxfs`` command. Everything in it but this function needs the extra ``cli``."""

import sys

__all__ = ["main"]

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command line; the exit code is 0, 1 for a check that failed or nothing found, 2 for wrong use."""
    try:
        from ctxfs.cli.app import run  # noqa: PLC0415 — typer and rich are an extra
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.exit(_missing(package))
    sys.exit(run())


def _missing(package: str) -> int:
    sys.stderr.write(f"ctxfs: the command line needs {package}: pip install 'ctxfs[cli]'\n")
    return 2
