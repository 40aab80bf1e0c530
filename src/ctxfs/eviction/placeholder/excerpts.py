r"""The parts of a text that are shown in its place: its head, its tail, and the passages with errors. Pure.

Every line stands with its number (1-based; "\n" is the only separator), so that nothing in a snippet can be taken for
anything else, and a reader can ask for that place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ctxfs.eviction.placeholder.lines import Pick, clean_line, error_lines, line_count
from ctxfs.text.utf8 import Utf8Decoder

_TRACE_LINES = 12
_LINE_CHARS = 65_536
_JSON_BEGINS = b'{["-0123456789'
_TRACE = re.compile(r"[ \t]|at |Caused by|\.\.\. \d+ more|Traceback|File \"|[\w.]*(?:Error|Exception)\b|E  ")


class _Rows:
    """Numbered lines under two bounds: how many, and how many bytes."""

    def __init__(self, lines: int, size_bytes: int) -> None:
        self.rows: dict[int, str] = {}
        self._lines = lines
        self._bytes = size_bytes

    def add(self, number: int, text: str, *, left: bool = False) -> bool:
        """Add a line, or as much of it as fits: its start, or its end (``left``: cut there). False when full."""
        if self._lines <= 0:
            return False
        prefix = f"{number}: "
        room = self._bytes - len(prefix) - 4  # a newline and the mark of a cut
        if room <= 0:
            return False
        shown = clean_line(text)
        row = shown.encode("utf-8", "replace")
        size = len(row)
        whole = size <= room
        if not whole and left:
            shown = f"…{row[-room:].decode('utf-8', 'ignore')}"
            size = len(shown.encode())
        elif not whole:
            shown = f"{row[:room].decode('utf-8', 'ignore')}…"
            size = len(shown.encode())
        self.rows[number] = prefix + shown
        self._lines -= 1
        self._bytes -= len(prefix) + size + 1
        return whole


@dataclass
class Snippets:
    """What to show of ``text``; the same passages may be asked for within several bounds, one after the other.

    ``more_errors``: the lines that speak of an error, as they are found; None: the text is searched for them.
    """

    text: str
    more_errors: Iterator[Pick] | None = None
    _errors: list[Pick] = field(default_factory=list, init=False)
    """The first lines that speak of an error, as far as they were asked for: a text is searched once."""

    @cached_property
    def line_count(self) -> int:
        """How many lines the text has."""
        return line_count(self.text)

    def passages(self, *, lines: int, size_bytes: int) -> dict[str, list[str]]:
        """Head, errors and tail, each within the bounds; a line of the head or the tail is not shown twice."""
        head = _Rows(lines, size_bytes)
        errors = _Rows(lines, size_bytes)
        tail = _Rows(lines, size_bytes)
        end = self._head(head, size_bytes)
        # The trace of an error in the last lines of the head may go on behind it.
        for number, line in self.around_errors(max(1, len(head.rows) - _TRACE_LINES + 1)):
            if number not in head.rows and number not in errors.rows and not errors.add(number, line[:size_bytes]):
                break
        _fill_tail(tail, self.text, self.line_count, floor=end, size_bytes=size_bytes)
        return _passages(head, errors, tail)

    def _head(self, rows: _Rows, size_bytes: int) -> int:
        """Fill ``rows`` from the start; return how far into the text they may extend."""
        position = 0
        number = 1
        while position < len(self.text):
            end = _line_end(self.text, position)
            if not rows.add(number, self.text[position : min(end, position + size_bytes)]):
                return min(position + size_bytes, end) if number in rows.rows else position
            if end - position > size_bytes:
                return position + size_bytes
            position = end + 1
            number += 1
        return position

    def around_errors(self, first: int) -> Iterator[tuple[int, str]]:
        """Each line from ``first`` on that speaks of an error, with the stack trace that follows it."""
        if _line_end(self.text, 0) >= len(self.text) - 1:
            return  # in a text of one line nothing stands out
        for pick in self._errors_found():
            if pick.number >= first:
                yield pick.number, self.text[pick.start : pick.end]
                yield from _trace(self.text, _line_end(self.text, pick.start) + 1, pick.number + 1, _TRACE_LINES)

    def _errors_found(self) -> Iterator[Pick]:
        yield from self._errors
        if self.more_errors is None:
            self.more_errors = error_lines(self.text)
        for pick in self.more_errors:
            self._errors.append(pick)
            yield pick


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _trace(text: str, position: int, number: int, most: int) -> Iterator[tuple[int, str]]:
    """The lines of a stack trace, ``most`` at most, if one stands at ``position``, where the line ``number`` begins."""
    for n in range(number, number + most):
        if position >= len(text) or not _TRACE.match(text, position):
            return
        end = _line_end(text, position)
        yield n, text[position:end]
        position = end + 1


def _fill_tail(rows: _Rows, text: str, number: int, *, floor: int, size_bytes: int) -> None:
    """Fill ``rows`` from the end, whose line is ``number``, not with what stands before ``floor``."""
    end = len(text) - text.endswith("\n")
    while number > 0 and end > floor:
        begin = max(text.rfind("\n", 0, end) + 1, floor)
        cut = max(begin, end - size_bytes)
        if not rows.add(number, text[cut:end], left=True) or cut > begin:
            return
        number -= 1
        end = begin - 1


def _passages(head: _Rows, errors: _Rows, tail: _Rows) -> dict[str, list[str]]:
    """The three with their titles, each in the order of the text; an error in the tail is not shown twice."""
    only_errors = sorted(errors.rows.keys() - tail.rows.keys())
    return {
        "First lines": list(head.rows.values()),
        "Lines with errors": [errors.rows[number] for number in only_errors],
        "Last lines": [tail.rows[number] for number in sorted(tail.rows)],
    }


class Ends:
    """What is shown of bytes that come in pieces; how much of them is kept does not depend on how many come.

    These are the first ``head_bytes``, the last ``tail_bytes``, and the first ``error_lines`` lines with errors.
    """

    def __init__(self, *, head_bytes: int, tail_bytes: int, error_lines: int = 0) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0
        self._decoder = Utf8Decoder("replace")
        self._errors = _Errors(error_lines)
        self.chars = 0
        """How many characters have come; bytes that are no UTF-8 become U+FFFD."""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """Take the next piece; after the ``last`` one, which may be empty, none may come."""
        self._size += len(data)
        if len(self._head) < self._head_bytes:
            self._head += data[: self._head_bytes - len(self._head)]
        self._tail += data[-self._tail_bytes :] if self._tail_bytes else b""
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]
        text = self._decoder.decode(data, final=last)
        self.chars += len(text)
        self._errors.feed(text, last=last)

    @property
    def may_be_json(self) -> bool:
        """Whether it begins like a JSON value."""
        begin = self._head.lstrip()[:1]
        return bool(begin) and begin in _JSON_BEGINS

    @property
    def whole(self) -> str | None:
        """Everything, if no more came than the head holds; bytes that are no UTF-8 become U+FFFD."""
        if self._size > self._head_bytes:
            return None
        return self._head.decode("utf-8", "replace")

    def passages(self, *, line_count: int, lines: int, size_bytes: int) -> dict[str, list[str]]:
        """Head, errors and tail, each within the bounds, of what had ``line_count`` lines in all; no line twice."""
        head = _Rows(lines, size_bytes)
        errors = _Rows(lines, size_bytes)
        tail = _Rows(lines, size_bytes)
        for number, line in enumerate(self._head[:size_bytes].decode("utf-8", "ignore").split("\n"), 1):
            if number > line_count or not self._head or not head.add(number, line):
                break
        for number, line in self._errors.found.items():
            if line_count > 1 and number not in head.rows and not errors.add(number, line[:size_bytes]):
                break
        _fill_tail(tail, self._tail.decode("utf-8", "replace"), line_count, floor=0, size_bytes=size_bytes)
        passages = _passages(head, errors, tail)
        # Head and tail are kept apart here, and may overlap; of a line that is in both, each may have another part.
        last_of_head = max(head.rows, default=0)
        passages["Last lines"] = [tail.rows[number] for number in sorted(tail.rows) if number >= last_of_head]
        return passages


class _Errors:
    """The first lines, ``most`` of them, that speak of an error or are the stack trace after it, by number.

    Of a line more than ``_LINE_CHARS`` characters are neither read nor kept.
    """

    def __init__(self, most: int) -> None:
        self.found: dict[int, str] = {}
        self._most = most
        self._number = 1
        self._trace_lines = 0
        self._begun = ""

    def feed(self, text: str, *, last: bool) -> None:
        """Take the next piece; what follows its last newline waits for the rest of its line."""
        if len(self.found) >= self._most:
            return
        end = len(text) if last else text.rfind("\n") + 1
        if not end and not last:
            self._begun = (self._begun + text)[:_LINE_CHARS]
            return
        whole = self._begun + text[:end]
        self._begun = text[end:][:_LINE_CHARS]
        self._look(whole)
        self._number += whole.count("\n")

    def _look(self, text: str) -> None:
        """Look at whole lines: first for the rest of a trace that began in an earlier piece."""
        position = 0
        number = self._number
        for n, line in _trace(text, 0, number, self._trace_lines):
            self._keep(n, line)
            position = _line_end(text, position) + 1
            number += 1
        self._trace_lines = self._trace_lines - (number - self._number) if position >= len(text) else 0
        for pick in error_lines(text, number=number, begin=position):
            if len(self.found) >= self._most:
                return
            self._keep(pick.number, text[pick.start : pick.end])
            after = _line_end(text, pick.start) + 1
            trace = 0
            for n, line in _trace(text, after, pick.number + 1, _TRACE_LINES):
                self._keep(n, line)
                after += len(line) + 1
                trace += 1
            self._trace_lines = _TRACE_LINES - trace if after >= len(text) else 0

    def _keep(self, number: int, line: str) -> None:
        if len(self.found) < self._most:
            self.found.setdefault(number, line[:_LINE_CHARS])
