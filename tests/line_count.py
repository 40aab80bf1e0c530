"""How much code runs, in lines: what grows with its input is told by them, and never by time."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Lines", "counted_lines"]


class Lines:
    """``run``: how many lines of the chosen files have run."""

    def __init__(self, files: str) -> None:
        self.run = 0
        self._files = files

    def call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Be told of a call, in the form of ``sys.settrace``."""
        return self._line if frame.f_code.co_filename.startswith(self._files) else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        self.run += event == "line"
        return self._line


@contextmanager
def counted_lines(files: str) -> Iterator[Lines]:
    """Count the lines of the files whose paths begin with ``files``, here and in threads that begin from here on."""
    lines = Lines(files)
    before = sys.gettrace()
    before_in_threads = threading.gettrace()
    threading.settrace(lines.call)
    sys.settrace(lines.call)
    try:
        yield lines
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)
