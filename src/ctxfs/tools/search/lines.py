"""Searching lines for a regular expression in linear time, in parts that several threads can search. Synchronous.

The syntax is RE2's. A line matches when the expression is found in it; no match crosses a line's end.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ctxfs.text.steps import checkpoint
from ctxfs.text.utf8 import Utf8Decoder, whole_characters
from ctxfs.tools.paging import Line
from ctxfs.tools.search.line_pattern import LinePattern, Match, SearchStopped

CHUNK_BYTES = 1_048_576
_SHOWN_CHARS = 400
_SHOWN_BEFORE_CHARS = 100
_CUTS_A_LINE = 5
MOST_COUNTED = 20  # a hostile expression looks at the rest of the line for each


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLine(Line):
    """A matching line. ``later``: more parts of a long one, around later matches, in order.

    ``unshown``: how many matches stand behind all these parts, at most ``MOST_COUNTED``; None if that is not known.
    """

    later: Sequence[Line] = ()
    unshown: int | None = 0


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
        self._parts = [piece[cut:]]
        self._size = len(piece) - cut
        return chunk

    def finish(self) -> bytes:
        """What is left; it may be empty, and its last line may lack an end."""
        return b"".join(self._parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Where a search stopped before its end: at line ``number``, the first one that was not searched, and why."""

    number: int
    error: SearchStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedPart:
    """What was found in a part of a text, and what was not searched.

    ``head`` is the first line and its number, where its beginning may be in the part before; None if no line ends in
    the part, or the first one was searched. ``tail`` is the text after the last newline. ``line_ended``: a line ends
    in it. ``stopped``: the lines from there on were not searched, and ``tail`` means nothing.
    """

    found: Sequence[FoundLine]
    head: tuple[int, bytes] | None
    tail: bytes
    line_ended: bool = True
    stopped: Stopped | None = None


def search_part(
    pattern: LinePattern, pieces: Iterable[tuple[int, bytes]], max_matches: int, *, starts_line: bool = False
) -> SearchedPart:
    """Search one part of a text, piece by piece, each with the number of newlines in the whole text before it.

    It ends early with more than ``max_matches``, or when the pattern's budget is used up; making the pieces in which
    lines end is charged to that too. ``starts_line``: the part begins where a line does.
    """
    found: list[FoundLine] = []
    head: tuple[int, bytes] | None = None
    line: list[bytes] = []
    line_ended = False
    stopped: Stopped | None = None
    for newlines, data in pattern.budget.charge_items(pieces, lambda piece: b"\n" in piece[1]):
        checkpoint()
        start = data.find(b"\n") + 1
        if not start:
            line.append(data)
            continue
        first = b"".join([*line, data[:start]])
        if line_ended or starts_line:
            stopped = _search_lines(pattern, first, newlines + 1, found)
        else:
            head = (newlines + 1, first)
        line_ended = True
        stop = data.rfind(b"\n") + 1
        if stopped is None:
            stopped = _search_lines(pattern, data, newlines + 2, found, start=start, stop=stop, most=max_matches + 1)
        line = [data[stop:]]
        if stopped is not None or len(found) > max_matches:
            break
        del data  # before the next piece is made, in the same memory
    return SearchedPart(found=found, head=head, tail=b"".join(line), line_ended=line_ended, stopped=stopped)


class LineSearch:
    """Puts the searched parts of a text together, in their order, and searches the lines that they share.

    Args:
        pattern: what was searched for in the parts.
        max_matches: at most so many matching lines are wanted, and one more that tells where to go on.
    """

    def __init__(self, pattern: LinePattern, max_matches: int) -> None:
        self.pattern = pattern
        self.max_matches = max_matches
        self.stopped: Stopped | None = None
        """Where the search stopped before its end; the lines before that were all searched."""
        self.line_ended = False
        """Whether a line ends in what was searched."""
        self._found: list[FoundLine] = []
        self._shared: list[tuple[int, bytes]] = []
        self._line: list[bytes] = []

    def add(self, part: SearchedPart) -> bool:
        """Take the next part; True when ``search_shared`` should be called before the budget is used up."""
        self._found += part.found
        self.stopped = part.stopped
        self.line_ended |= part.line_ended
        if part.head is not None:
            number, end = part.head
            self._line.append(end)
            self._end_line(number)
        self._line.append(part.tail)
        return bool(self._shared)

    def search_shared(self) -> None:
        """Search the lines that the parts share."""
        for number, line in self._shared:
            stopped = _search_lines(self.pattern, line, number, self._found)
            if stopped is not None:
                self.stopped = stopped
                break
        self._shared = []

    @property
    def done(self) -> bool:
        """Whether enough was found, or the search stopped."""
        return self.stopped is not None or len(self._found) > self.max_matches

    def finish(self, last_number: int) -> list[FoundLine]:
        """The matching lines in order, long ones cut around the match; the text's last line is ``last_number``.

        Those from ``stopped`` on are not among them.
        """
        if self.stopped is None:
            self._end_line(last_number)
        self.search_shared()
        found = sorted(self._found, key=lambda line: line.number)
        if self.stopped is not None:
            found = [line for line in found if line.number < self.stopped.number]
        return found[: self.max_matches + 1]

    def _end_line(self, number: int) -> None:
        self._shared.append((number, b"".join(self._line)))
        self._line = []


def _search_lines(
    pattern: LinePattern,
    data: bytes,
    number: int,
    found: list[FoundLine],
    *,
    start: int = 0,
    stop: int | None = None,
    most: int | None = None,
) -> Stopped | None:
    """Add the matching ones of whole lines, at most ``most``, to ``found``; return where the search had to stop."""
    try:
        for line in islice(_matching(pattern, data, number, start, stop), most):
            found.append(line)  # noqa: PERF402 - what was found stays when the search stops
    except SearchStopped as error:
        return Stopped(number=number + data.count(b"\n", start, error.position), error=error)
    return None


def _matching(
    pattern: LinePattern, data: bytes, number: int, start: int = 0, stop: int | None = None
) -> Iterator[FoundLine]:
    """The matching ones of whole lines, the first of which has this ``number``; long ones are cut around the match."""
    for begin, match, end in pattern.matches(data, start, stop):
        number += data.count(b"\n", start, begin)
        start = begin
        yield _found_line(pattern, number, data, start=begin, match=match, end=end)


def _found_line(pattern: LinePattern, number: int, data: bytes, *, start: int, match: Match, end: int) -> FoundLine:
    """The line, cut around its first match if it is long, and around some of the later ones that this does not show."""
    if end - start <= _SHOWN_CHARS:
        return FoundLine(number=number, text=_decode(data[start:end]))
    cuts: list[Line] = []
    # The same place of the line, in bytes of the data and in characters of the line.
    known = start
    char = 0
    shown = 0  # the characters of the line up to the end of the last cut
    following: Match | None = match
    while following is not None and len(cuts) < _CUTS_A_LINE:
        chars, before = _passed_over(data, known, following.start)
        known = following.start
        char += chars
        room = max(0, min(char - shown, _SHOWN_BEFORE_CHARS))
        cut, position = _cut_around(number, data, known, end, char=char, before=before[len(before) - room :])
        cuts.append(cut)
        shown = cut.begin + len(cut.text)
        if following.known:
            following = _next_match(pattern, data, start, position, end=end)
        if following is not None and not following.known:
            break
    first, *later = cuts
    return FoundLine(
        number=number,
        text=first.text,
        begin=first.begin,
        more=first.more,
        later=tuple(later),
        unshown=0 if following is None else _counted(pattern, data, start, following, end),
    )


def _next_match(pattern: LinePattern, data: bytes, start: int, position: int, *, end: int) -> Match | None:
    """The first match from ``position`` on; not ``known`` if the budget does not suffice: the line is found already."""
    try:
        return next(pattern.in_line(data, start, position, end), None)
    except SearchStopped:
        return Match(position, position, known=False)


def _counted(pattern: LinePattern, data: bytes, start: int, first: Match, end: int) -> int | None:
    """How many matches there are from ``first`` on, at most ``MOST_COUNTED``; None if that is not known."""
    if not first.known:
        return None
    try:
        found = list(islice(pattern.in_line(data, start, first.start, end), MOST_COUNTED))
    except SearchStopped:
        return None
    return len(found) if found[-1].known else None


def _passed_over(data: bytes, start: int, stop: int) -> tuple[int, str]:
    """How many characters these bytes are, and the last ones of them."""
    decoder = Utf8Decoder("surrogatepass")
    chars = 0
    last = ""
    for position in range(start, stop, CHUNK_BYTES):
        checkpoint()
        piece = decoder.getstate()[0] + data[position : min(position + CHUNK_BYTES, stop)]
        decoder.reset()
        try:
            text = decoder.decode(piece, final=position + CHUNK_BYTES >= stop)
        except UnicodeDecodeError:
            decoder = Utf8Decoder("replace")
            text = decoder.decode(piece, final=position + CHUNK_BYTES >= stop)
        chars += len(text)
        last = (last + text)[-_SHOWN_BEFORE_CHARS:]
    return chars, last


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
        return len(whole_characters(data, "surrogatepass")[:chars].encode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:  # U+FFFD is then a character of the text, or some bytes that are no UTF-8
        decoder = Utf8Decoder("replace")
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
        return Utf8Decoder("surrogatepass").decode(data, final)
    except UnicodeDecodeError:
        return Utf8Decoder("replace").decode(data, final)
