"""Searching lines for a regular expression in linear time, in chunks that leave room for other threads. Synchronous.

The syntax is RE2's. A line matches when the expression is found in it; no match crosses a line's end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2

from ctxfs.errors import InvalidToolArguments
from ctxfs.tools.paging import Line

__all__ = ["CHUNK_BYTES", "LineChunks", "LinePattern", "LineSearch"]

CHUNK_BYTES = 1_048_576
MAX_PATTERN_CHARS = 1_000
_COMPILING_BYTES = 1 << 20  # compiling holds the interpreter: what takes more than this takes too long
_SEARCHING_BYTES = 8 << 20
_WINDOW_BYTES = 1_048_576
_OVERLAP_BYTES = 65_536
_SHOWN_CHARS = 400
_SHOWN_BEFORE_CHARS = 100
_ONLY_LINE_BY_LINE = re.compile(r"\\[AzC]|\(\?[a-zA-Z]*-")


class LinePattern:
    """A compiled expression.

    Raises:
        InvalidToolArguments: no valid expression; the message tells the model what is wrong.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise InvalidToolArguments(f"the pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARS:,}")
        options = re2.Options()
        options.log_errors = False
        options.never_nl = True
        options.never_capture = True
        options.case_sensitive = not ignore_case
        try:
            options.max_mem = _COMPILING_BYTES
            re2.compile(pattern.encode(), options)  # first as it was given, so that an error shows just that
            options.max_mem = _SEARCHING_BYTES
            self._regexp: Any = re2.compile(f"(?m){pattern}".encode(), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidToolArguments(
                f"{pattern!r} is no valid regular expression ({_reason(error)}); the syntax is RE2's: no look-around, "
                r"no back-references; write \( for a parenthesis"
            ) from error
        # \A and \z mean a line's ends here, so they are only right on one line at a time
        self._line_by_line = _ONLY_LINE_BY_LINE.search(pattern) is not None

    def matches(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        """Each matching line of ``data`` (whole lines): where it starts, where its match starts, where it ends."""
        return self._matches_by_line(data) if self._line_by_line else self._matches(data)

    def _matches(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        position = 0
        while position < len(data):
            found = self._search(data, position)
            if found is None or (found == len(data) and data.endswith(b"\n")):
                return
            start = max(position, data.rfind(b"\n", position, found) + 1)
            end = _line_end(data, found)
            yield start, found, end
            position = end + 1

    def _matches_by_line(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        position = 0
        while position < len(data):
            end = _line_end(data, position)
            found = self._search(data[position:end], 0)
            if found is not None:
                yield position, position + found, end
            position = end + 1

    def _search(self, data: bytes, position: int) -> int | None:
        """Where the next match starts; in a line over a window's size, one longer than the overlap may be missed."""
        while True:
            stop = min(position + _WINDOW_BYTES, len(data))
            match = self._regexp.search(data, position, stop)
            if match is not None:
                return int(match.start())
            if stop == len(data):
                return None
            position = stop - _OVERLAP_BYTES


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)


def _line_end(data: bytes, position: int) -> int:
    end = data.find(b"\n", position)
    return len(data) if end < 0 else end


class LineChunks:
    """Joins pieces of bytes to chunks of whole lines, of about ``CHUNK_BYTES`` or one longer line."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> bytes | None:
        """Take the next piece; a chunk, when there is one."""
        cut = piece.rfind(b"\n") + 1
        self._size += len(piece)
        if self._size < CHUNK_BYTES or not cut:
            self._parts.append(piece)
            return None
        chunk = b"".join([*self._parts, piece[:cut]])
        self._parts, self._size = [piece[cut:]], len(piece) - cut
        return chunk

    def finish(self) -> bytes:
        """What is left; it may be empty, and its last line may lack an end."""
        return b"".join(self._parts)


@dataclass(slots=True)
class LineSearch:
    """The state of one search: ``number`` is that of the line that the next chunk begins with."""

    pattern: LinePattern
    number: int
    max_matches: int

    def feed(self, chunk: bytes) -> list[Line]:
        """The next matching lines, long ones cut around the match; at most ``max_matches`` over all chunks, plus one.

        The one too many tells where to go on.
        """
        found: list[Line] = []
        position = 0
        for start, match, end in self.pattern.matches(chunk):
            self.number += chunk.count(b"\n", position, start)
            position = start
            found.append(_cut_around(self.number, chunk, start, match, end))
            self.max_matches -= 1
            if self.max_matches < 0:
                return found
        self.number += chunk.count(b"\n", position)
        return found

    @property
    def done(self) -> bool:
        """Whether enough was found."""
        return self.max_matches < 0


def _cut_around(number: int, chunk: bytes, start: int, match: int, end: int) -> Line:
    begin = 0
    if end - start > _SHOWN_CHARS:
        begin = max(0, len(_decode(chunk[start:match])) - _SHOWN_BEFORE_CHARS)
        # skip whole characters from the line's start: UTF-8 has at most 4 bytes for one
        start += len(_decode(chunk[start:match])[:begin].encode("utf-8", "surrogatepass"))
    text = _decode(chunk[start : min(end, start + 4 * _SHOWN_CHARS)])
    more = len(text) > _SHOWN_CHARS or start + 4 * _SHOWN_CHARS < end
    return Line(number=number, text=text[:_SHOWN_CHARS], begin=begin, more=more)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
