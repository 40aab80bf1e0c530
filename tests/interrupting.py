"""Raises ``KeyboardInterrupt`` where the main thread enters a chosen function of ctxfs, as a second Ctrl-C does.

Python looks for signals there. It does not where a coroutine goes on after an ``await``: whatever is below it would be
dropped.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import trio

import ctxfs

__all__ = ["Interrupt", "interrupted_by", "press_ctrl_c_on_trio"]

_SOURCE = str(Path(ctxfs.__file__).parent)


class Interrupt:
    """An interrupt that is raised at one of the calls that follow; ``number``: which one, from 1.

    ``where``: the function in which it was raised; None: there were not so many calls. ``on_trio``: it is raised later
    where trio holds it back.
    """

    def __init__(self, number: int, *, on_trio: bool = False) -> None:
        self.where: str | None = None
        self._left = number
        self._on_trio = on_trio

    def trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        """Be told of a call."""
        code = frame.f_code
        begins = frame.f_lineno == code.co_firstlineno  # a coroutine that goes on is called, too
        is_ours = code.co_filename.startswith(_SOURCE) and code.co_name != "<genexpr>"  # one may be called to be closed
        if self.where is not None or not begins or not is_ours:
            return
        self._left -= 1
        if not self._left:
            self.where = f"{code.co_filename.removeprefix(_SOURCE)}: {code.co_qualname}"
            if self._on_trio:
                signal.raise_signal(signal.SIGINT)
            else:
                raise KeyboardInterrupt


@contextmanager
def interrupted_by(interrupt: Interrupt) -> Iterator[None]:
    """Raise ``interrupt`` at its call into ctxfs that this thread makes inside of the block."""
    before = sys.gettrace()
    sys.settrace(interrupt.trace)
    try:
        yield
    finally:
        sys.settrace(before)


@trio.lowlevel.enable_ki_protection
def press_ctrl_c_on_trio() -> None:
    """Press Ctrl-C while trio's own code runs: it raises the interrupt where the main task waits next."""
    signal.raise_signal(signal.SIGINT)
