"""The ``ctxfs`` command. All of it but this module needs the extra ``cli``; some commands need another one."""

import sys

from ctxfs.version import VERSION_LINE

__all__ = ["main"]

_EXTRAS = {
    **dict.fromkeys(("rich", "typer"), "cli"),
    **dict.fromkeys(("httpx2", "starlette", "uvicorn"), "proxy"),
}
"""The extra that brings each package that the command line needs."""


def main() -> None:
    """Run the command line; the exit code is 0, 1 for a check that failed or nothing found, 2 for wrong use."""
    if sys.argv[1:] == ["--version"]:  # answered here: it needs no extra, and typer would load pydantic for it
        sys.stdout.write(VERSION_LINE)
        return
    try:
        from ctxfs.cli.app import run  # noqa: PLC0415 — typer and rich are an extra

        code = run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        code = _missing(package)
    sys.exit(code)


def _missing(package: str) -> int:
    what = "the command line" if _EXTRAS[package] == "cli" else "this command"
    sys.stderr.write(f"ctxfs: {what} needs {package}: pip install 'ctxfs[{_EXTRAS[package]}]'\n")
    return 2
