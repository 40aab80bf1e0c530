"""A pager for long output: on a terminal, a command's output goes through ``less``, as in git."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import wraps
from io import TextIOWrapper
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LESS = {"LESS": "FRX", "LV": "-c"}
"""Less exits at once if one screen is enough, shows colours, and does not clear the screen."""

_size: os.terminal_size | None = None
"""The size of the terminal behind the pager, which the pipe to it does not tell; None if no pager is open."""


def is_open() -> bool:
    """Whether stdout goes to a pager, and so to a terminal."""
    return _size is not None


def terminal_size() -> os.terminal_size:
    """The size of the terminal that stdout goes to, through a pager or not; ``COLUMNS`` and ``LINES`` come first."""
    return _size or shutil.get_terminal_size()


def paged(command: Callable[P, T]) -> Callable[P, T]:
    """Make a command print through the pager if stdout is a terminal."""

    @wraps(command)
    def through_pager(*args: P.args, **kwargs: P.kwargs) -> T:
        program = _program() if sys.stdout.isatty() else None
        if program is None:
            return command(*args, **kwargs)
        with _stdout_to(program):
            return command(*args, **kwargs)

    return through_pager


def _program() -> list[str] | None:
    """The pager's command: ``CTXFS_PAGER``, ``PAGER`` or less; None if it is empty, ``cat`` or not installed."""
    given = os.environ.get("CTXFS_PAGER", os.environ.get("PAGER", "less"))
    try:
        words = shlex.split(given)
    except ValueError:
        return None
    return words if words and words != ["cat"] and shutil.which(words[0]) else None


@contextmanager
def _stdout_to(program: list[str]) -> Iterator[None]:
    """Print to the pager.

    ``sys.stdout`` is replaced, and its descriptor is not: processes that are started meanwhile would inherit that, and
    the pager waits until the last one has closed it.
    """
    global _size  # noqa: PLW0603 - a process has one stdout
    sys.stdout.flush()
    encoding = sys.stdout.encoding
    size = shutil.get_terminal_size()
    with subprocess.Popen(program, stdin=subprocess.PIPE, env=_LESS | os.environ) as process:  # noqa: S603 - the user's
        assert process.stdin is not None
        _size = size
        try:
            with TextIOWrapper(process.stdin, encoding, errors="replace") as to_pager, redirect_stdout(to_pager):
                yield
        finally:
            _size = None
            _wait_for(process)


def _wait_for(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the user has left the pager, which handles interrupts itself."""
    while process.returncode is None:
        with suppress(KeyboardInterrupt):
            process.wait()
