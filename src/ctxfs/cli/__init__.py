"""The ``ctxfs`` command. All of it but this module needs the extra ``cli``; some commands need another one."""

import os
import sys
from importlib.util import find_spec

from ctxfs.cli.directory import ROOT_VARIABLE, sessions_directory
from ctxfs.errors import ConfigError
from ctxfs.version import VERSION_LINE

__all__ = ["main"]

_EXTRAS = {
    **dict.fromkeys(("rich", "typer"), "cli"),
    **dict.fromkeys(("httpx2", "starlette", "uvicorn"), "proxy"),
}
"""The extra that brings each package that the command line needs."""
_PLUG_IN = ["mcp", "--claude-code"]
"""The arguments with which the plug-in of Claude Code starts this command."""
_ITS_VARIABLES = ("CTXFS_STORE", "CTXFS_PREVIEW_ABOVE_TOKENS")


def main() -> None:
    """Run the command line; the exit code is 0, 1 for a check that failed or nothing found, 2 for wrong use."""
    if sys.argv[1:] == ["--version"]:  # answered here: it needs no extra, and typer would load pydantic for it
        sys.stdout.write(VERSION_LINE)
        return
    if sys.argv[1:] == _PLUG_IN and _nothing_to_refuse():
        from ctxfs.adapters.serve.protocol import greet_once  # noqa: PLC0415 - nothing else needs it here

        greet_once()  # typer and pydantic are most of a start, and Claude Code waits for the answer
    try:
        from ctxfs.cli.app import run  # noqa: PLC0415 — typer and rich are an extra

        code = run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        code = _missing(package)
    sys.exit(code)


def _nothing_to_refuse() -> bool:
    """Whether the plug-in can greet before its settings are read: typer is there, and no setting may be wrong."""
    if any(name in os.environ for name in _ITS_VARIABLES) or sys.stdin is None or sys.stdin.isatty():
        return False
    if find_spec("typer") is None:
        return False
    try:
        sessions_directory(os.environ.get(ROOT_VARIABLE) or None, may_be_new=True)  # "": as if it were not set
    except ConfigError:
        return False  # the command refuses it with words
    return True


def _missing(package: str) -> int:
    what = "the command line" if _EXTRAS[package] == "cli" else "this command"
    sys.stderr.write(f"ctxfs: {what} needs {package}: pip install 'ctxfs[{_EXTRAS[package]}]'\n")
    return 2
