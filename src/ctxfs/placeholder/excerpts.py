r"""The parts of a text that are shown in its place: its head, its tail, and the passages with errors. Pure.

Every line stands with its number (1-based; "\n" is the only separator), so that nothing in a snippet can be taken for
anything else, and a reader can ask for that place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ctxfs.placeholder.lines import clean_line, error_lines, line_count

__all__ = ["Ends", "Snippets"]

_PASSAGE_LINES = 12
_TRACE = re.compile(r"[ \t]|at |Caused by|\.\.\. \d+ more|Traceback|File \"|[\w.]*(?:Error|Exception)\b|E  ")


class _Rows:
    """Numbered lines under two bounds: how many, and how many bytes."""

    def __init__(self, lines: int, size_bytes: int) -> None:
        self.rows: dict[int, str] = {}
        self._lines = lines
        self._bytes = size_bytes

    def add(self, number: int, text: str, *, left: bool = False) -> bool:
        """Add a line, or as much of it as fits: its begin, or its end (``left``: cut there). False when full."""
        if self._lines <= 0:
            return False
        prefix = f"{number}: "
        room = self._bytes - len(prefix) - 4  # a newline and the mark of a cut
        if room <= 0:
            return False
        row = clean_line(text).encode("utf-8", "replace")
        whole = len(row) <= room
        if not whole:
            row = row[-room:] if left else row[:room]
        shown = row.decode("utf-8", "ignore")
        self.rows[number] = prefix + (shown if whole else f"…{shown}" if left else f"{shown}…")
        self._lines -= 1
        self._bytes -= len(self.rows[number].encode()) + 1
        return whole


@dataclass
class Snippets:
    """What to show of ``text``."""

    text: str

    @cached_property
    def line_count(self) -> int:
        """How many lines the text has."""
        return line_count(self.text)

    def passages(self, *, lines: int, size_bytes: int) -> dict[str, list[str]]:
        """Head, errors and tail, each within the bounds; what stands in the head or the tail is not shown twice."""
        head, errors = _Rows(lines, size_bytes), _Rows(lines, size_bytes)
        end, tail = self._head(head, size_bytes), _Rows(lines, size_bytes)
        for number, line in self._around_errors(max(1, len(head.rows) - _PASSAGE_LINES + 1)):
            if number not in head.rows and number not in errors.rows and not errors.add(number, line[:size_bytes]):
                break
        _fill_tail(tail, self.text, self.line_count, floor=end, size_bytes=size_bytes)
        return {
            "First lines": list(head.rows.values()),
            "Lines with errors": [errors.rows[number] for number in sorted(errors.rows.keys() - tail.rows.keys())],
            "Last lines": [tail.rows[number] for number in sorted(tail.rows)],
        }

    def _head(self, rows: _Rows, size_bytes: int) -> int:
        """Fill ``rows`` from the begin; the position up to which the text may be shown in them."""
        position, number = 0, 1
        while position < len(self.text):
            end = self._line_end(position)
            if not rows.add(number, self.text[position : min(end, position + size_bytes)]):
                return min(position + size_bytes, end) if number in rows.rows else position
            if end - position > size_bytes:
                return position + size_bytes
            position, number = end + 1, number + 1
        return position

    def _around_errors(self, first: int) -> Iterator[tuple[int, str]]:
        """Each line from ``first`` on that speaks of an error, with the stack trace that follows it."""
        if self._line_end(0) >= len(self.text) - 1:
            return  # in a text of one line nothing stands out
        begin = 0
        for _ in range(first - 1):
            begin = self._line_end(begin) + 1
        for pick in error_lines(self.text, number=first, begin=begin):
            yield pick.number, self.text[pick.start : pick.end]
            position, number = self._line_end(pick.start) + 1, pick.number + 1
            for _ in range(_PASSAGE_LINES):
                if position >= len(self.text) or not _TRACE.match(self.text, position):
                    break
                end = self._line_end(position)
                yield number, self.text[position:end]
                position, number = end + 1, number + 1

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end


def _fill_tail(rows: _Rows, text: str, number: int, *, floor: int, size_bytes: int) -> None:
    """Fill ``rows`` from the end, whose line is ``number``, not with what stands before ``floor``."""
    end = len(text) - text.endswith("\n")
    while number > 0 and end > floor:
        begin = max(text.rfind("\n", 0, end) + 1, floor)
        cut = max(begin, end - size_bytes)
        if not rows.add(number, text[cut:end], left=True) or cut > begin:
            return
        number, end = number - 1, begin - 1


class Ends:
    """The begin and the end of bytes that come in pieces; no more than ``head_bytes`` and ``tail_bytes`` is kept."""

    def __init__(self, *, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._size += len(data)
        if len(self._head) < self._head_bytes:
            self._head += data[: self._head_bytes - len(self._head)]
        self._tail += data[-self._tail_bytes :] if self._tail_bytes else b""
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]

    @property
    def whole(self) -> str | None:
        """Everything, if no more came than the head holds; bytes that are no UTF-8 become U+FFFD."""
        return self._head.decode("utf-8", "replace") if self._size <= self._head_bytes else None

    def passages(self, *, line_count: int, lines: int, size_bytes: int) -> dict[str, list[str]]:
        """Head and tail, each within the bounds, of what had ``line_count`` lines in all."""
        head, tail = _Rows(lines, size_bytes), _Rows(lines, size_bytes)
        for number, line in enumerate(self._head[:size_bytes].decode("utf-8", "ignore").split("\n"), 1):
            if number > line_count or not head.add(number, line):
                break
        _fill_tail(tail, self._tail.decode("utf-8", "replace"), line_count, floor=0, size_bytes=size_bytes)
        return {
            "First lines": list(head.rows.values()),
            "Last lines": [tail.rows[number] for number in sorted(tail.rows) if number >= max(head.rows, default=0)],
        }
