"""Raises ``KeyboardInterrupt`` where the main thread runs a chosen line of ctxfs, as a second Ctrl-C does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import ctxfs

__all__ = ["Interrupt", "interrupted_at"]

_SOURCE = str(Path(ctxfs.__file__).parent)


class Interrupt:
    """The interrupt at line ``number`` of those that run, from 1; ``where``: the line at which it was raised."""

    def __init__(self, number: int) -> None:
        self.where: str | None = None
        self._left = number

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Follow a call into ctxfs."""
        if self.where is None and frame.f_code.co_filename.startswith(_SOURCE):
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line" and self.where is None:
            self._left -= 1
            if not self._left:
                self.where = f"{frame.f_code.co_filename.removeprefix(_SOURCE)}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


@contextmanager
def interrupted_at(number: int) -> Iterator[Interrupt]:
    """Raise an interrupt at the line ``number`` of ctxfs that this thread runs inside of the block."""
    interrupt = Interrupt(number)
    before = sys.gettrace()
    sys.settrace(interrupt.trace)
    try:
        yield interrupt
    finally:
        sys.settrace(before)
