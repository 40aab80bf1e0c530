"""Searching lines for a regular expression in linear time, in parts that several threads can search. Synchronous.

The syntax is RE2's. A line matches when the expression is found in it; no match crosses a line's end.
"""

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import re2

from ctxfs.errors import InvalidToolArguments
from ctxfs.tools.paging import Line

__all__ = [
    "CHUNK_BYTES",
    "MOST_COUNTED",
    "FoundLine",
    "LineChunks",
    "LinePattern",
    "LineSearch",
    "SearchedPart",
    "search_part",
]

CHUNK_BYTES = 1_048_576
MAX_PATTERN_CHARS = 1_000
_COMPILING_BYTES = 1 << 20  # compiling holds the interpreter: what takes more than this takes too long
_SEARCHING_BYTES = 8 << 20
_WINDOW_BYTES = 1_048_576
_OVERLAP_BYTES = 65_536
_SHOWN_CHARS = 400
_SHOWN_BEFORE_CHARS = 100
_CUTS_A_LINE = 5
MOST_COUNTED = 20  # a hostile expression looks at the rest of the line for each
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

    def matches(self, data: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Each matching line from ``start`` to ``stop``: where it starts, where its first match starts, where it ends.

        Whole lines stand between the two; ``stop`` None is the end of ``data``.
        """
        stop = len(data) if stop is None else stop
        return (self._matches_by_line if self._line_by_line else self._matches)(data, start, stop)

    def _matches(self, data: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int]]:
        while position < stop:
            found = self._search(data, position, stop)
            if found is None or (found[0] == stop and data.endswith(b"\n", position, stop)):
                return
            match = found[0]
            start = max(position, data.rfind(b"\n", position, match) + 1)
            end = _line_end(data, match, stop)
            yield start, match, end
            position = end + 1

    def _matches_by_line(self, data: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int]]:
        while position < stop:
            end = _line_end(data, position, stop)
            found = self._search(data[position:end], 0, end - position)
            if found is not None:
                yield position, position + found[0], end
            position = end + 1

    def in_line(self, data: bytes, start: int, position: int, end: int) -> Iterator[int]:
        """Where each match starts in the line from ``start`` to ``end``, of those from ``position`` on."""
        if self._line_by_line:
            yield from (start + match for match in self._again(data[start:end], position - start, end - start))
        else:
            yield from self._again(data, position, end)

    def _again(self, data: bytes, position: int, end: int) -> Iterator[int]:
        while position < end and (found := self._search(data, position, end)) is not None:
            yield found[0]
            position = max(found[1], found[0] + 1)

    def _search(self, data: bytes, position: int, end: int) -> tuple[int, int] | None:
        """Where the next match starts and ends; in a line over a window's size, one over the overlap may be missed."""
        while True:
            stop = min(position + _WINDOW_BYTES, end)
            match = self._regexp.search(data, position, stop)
            if match is not None:
                return match.start(), match.end()
            if stop == end:
                return None
            position = stop - _OVERLAP_BYTES


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)


def _line_end(data: bytes, position: int, stop: int) -> int:
    end = data.find(b"\n", position, stop)
    return stop if end < 0 else end


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLine(Line):
    """A matching line. ``later``: more parts of a long one, around later matches, in order.

    ``unshown``: how many matches stand behind all these parts, at most ``MOST_COUNTED``.
    """

    later: Sequence[Line] = ()
    unshown: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedPart:
    """What was found in a part of a text, and what was not searched: the lines on its edges and its pieces' edges.

    ``shared`` are these lines with their numbers; of the first, the beginning may stand in the part before. ``tail`` is
    what stands after the last newline.
    """

    found: Sequence[FoundLine]
    shared: Sequence[tuple[int, bytes]]
    tail: bytes


def search_part(pattern: LinePattern, pieces: Iterable[tuple[int, bytes]], max_matches: int) -> SearchedPart:
    """Search one part of a text, piece by piece, each with the number of newlines in the whole text before it.

    It ends early with more than ``max_matches``.
    """
    found: list[FoundLine] = []
    shared: list[tuple[int, bytes]] = []
    line: list[bytes] = []
    for newlines, data in pieces:
        start = data.find(b"\n") + 1
        if not start:
            line.append(data)
            continue
        shared.append((newlines + 1, b"".join([*line, data[:start]])))
        stop = data.rfind(b"\n") + 1
        found += islice(_matching(pattern, data, newlines + 2, start, stop), max_matches + 1)
        line = [data[stop:]]
        if len(found) > max_matches:
            break
        del data  # before the next piece is made, in the same memory
    return SearchedPart(found=found, shared=shared, tail=b"".join(line))


class LineSearch:
    """Puts the searched parts of a text together, in their order, and searches the lines that they share.

    Args:
        pattern: what was searched for in the parts.
        max_matches: at most so many matching lines are wanted, and one more that tells where to go on.
    """

    def __init__(self, pattern: LinePattern, max_matches: int) -> None:
        self.pattern = pattern
        self.max_matches = max_matches
        self._found: list[FoundLine] = []
        self._shared: list[tuple[int, bytes]] = []
        self._shared_bytes = 0
        self._line: list[bytes] = []
        self._given_up = False

    def add(self, part: SearchedPart) -> bool:
        """Take the next part; True when so much waits to be searched that ``search_shared`` should be called."""
        self._found += part.found
        for number, line in part.shared:
            self._line.append(line)
            self._end_line(number)
        self._line.append(part.tail)
        return self._shared_bytes >= CHUNK_BYTES

    def search_shared(self) -> None:
        """Search the lines that the parts share."""
        text = b"".join(line for _, line in self._shared)
        self._found += (replace(line, number=self._shared[line.number][0]) for line in _matching(self.pattern, text, 0))
        self._shared, self._shared_bytes = [], 0

    @property
    def done(self) -> bool:
        """Whether enough was found, or nobody waits for more."""
        return self._given_up or len(self._found) > self.max_matches

    def give_up(self) -> None:
        """Say that nobody waits for more: the threads that search may end."""
        self._given_up = True

    def finish(self, last_number: int) -> list[FoundLine]:
        """The matching lines in order, long ones cut around the match; the text's last line is ``last_number``."""
        self._end_line(last_number)
        self.search_shared()
        return sorted(self._found, key=lambda line: line.number)[: self.max_matches + 1]

    def _end_line(self, number: int) -> None:
        line = b"".join(self._line)
        self._line = []
        self._shared.append((number, line))
        self._shared_bytes += len(line)


def _matching(
    pattern: LinePattern, data: bytes, number: int, start: int = 0, stop: int | None = None
) -> Iterator[FoundLine]:
    """The matching ones of whole lines, the first of which has this ``number``; long ones are cut around the match."""
    for begin, match, end in pattern.matches(data, start, stop):
        number += data.count(b"\n", start, begin)
        start = begin
        yield _found_line(pattern, number, data, start=begin, match=match, end=end)


def _found_line(pattern: LinePattern, number: int, data: bytes, *, start: int, match: int, end: int) -> FoundLine:
    """The line, cut around its first match if it is long, and around some of the later ones that this does not show."""
    if end - start <= _SHOWN_CHARS:
        return FoundLine(number=number, text=_decode(data[start:end]))
    cuts: list[Line] = []
    known, char, shown = start, 0, 0  # the same place in bytes and in characters, and up to where the line is shown
    following: int | None = match
    while following is not None and len(cuts) < _CUTS_A_LINE:
        before = _decode(data[known:following])
        known, char = following, char + len(before)
        room = max(0, min(char - shown, _SHOWN_BEFORE_CHARS))
        cut, position = _cut_around(number, data, known, end, char=char, before=before[len(before) - room :])
        cuts.append(cut)
        shown = cut.begin + len(cut.text)
        following = next(pattern.in_line(data, start, position, end), None)
    first, *later = cuts
    unshown = (
        0 if following is None else sum(1 for _ in islice(pattern.in_line(data, start, following, end), MOST_COUNTED))
    )
    return FoundLine(
        number=number, text=first.text, begin=first.begin, more=first.more, later=tuple(later), unshown=unshown
    )


def _cut_around(number: int, data: bytes, match: int, end: int, *, char: int, before: str) -> tuple[Line, int]:
    """What is shown around a match, the line's character ``char``, after ``before``; and at which byte it ends."""
    last = min(end, match + 4 * _SHOWN_CHARS)  # UTF-8 has at most 4 bytes for a character
    text = before + _decode(data[match:last], final=last == end)
    shown = text[:_SHOWN_CHARS]
    line = Line(number=number, text=shown, begin=char - len(before), more=len(text) > _SHOWN_CHARS or last < end)
    return line, match + _bytes_of(data[match:last], len(shown) - len(before))


def _bytes_of(data: bytes, chars: int) -> int:
    """How many bytes the first ``chars`` characters of ``_decode(data)`` are."""
    try:
        return len(_strict(data, final=False)[:chars].encode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:  # U+FFFD is then a character of the text, or some bytes that are no UTF-8
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        made = 0
        for position in range(len(data)):
            made += len(decoder.decode(data[position : position + 1]))
            if made == chars:
                return position + 1 - len(decoder.getstate()[0])
            if made > chars:  # what is no UTF-8 ended before this byte
                return position
        return len(data)


def _decode(data: bytes, *, final: bool = True) -> str:
    """The text; without ``final`` a character that is cut off at the end is left out."""
    try:
        return _strict(data, final=final)
    except UnicodeDecodeError:
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final)


def _strict(data: bytes, *, final: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")("surrogatepass").decode(data, final)
