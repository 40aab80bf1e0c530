"""Where in a line of text a search matched, so that the page can mark it. Pure."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ctxfs.tools.paging import Line
from ctxfs.tools.search.line_pattern import LinePattern, SearchStopped

MOST_MARKS = 20
"""The most matches that are marked in a line: a hostile expression looks at the rest of the line for each."""
_CUT = "…"
"""Stands for the part of a cut line that is not there, so that ``^`` and ``$`` do not match at the cut."""


class Piece(NamedTuple):
    """A part of a line, which is not trusted, and whether the search matched it."""

    text: str
    is_match: bool = False


def pieces(pattern: LinePattern, line: Line) -> Sequence[Piece]:
    """The text of the line in pieces, in order: its matches, and what stands between them."""
    text = line.text
    found: list[Piece] = []
    shown = 0
    for start, end in _matches(pattern, line):
        if start > shown:
            found.append(Piece(text[shown:start]))
        found.append(Piece(text[start:end], is_match=True))
        shown = end
    if shown < len(text):
        found.append(Piece(text[shown:]))
    return found


def _matches(pattern: LinePattern, line: Line) -> Iterator[tuple[int, int]]:
    """Where matches start and end, in characters of the text; none is empty."""
    before = _CUT if line.begin else ""
    after = _CUT if line.more else ""
    # A lone surrogate becomes one other character: the places stay the same.
    data = f"{before}{line.text}{after}".encode("utf-8", "replace")
    first = len(before.encode())
    try:
        for match in islice(pattern.in_line(data, 0, first, len(data)), MOST_MARKS):
            if not match.known:
                return
            start = _chars(data[first : match.start])
            end = min(_chars(data[first : match.end]), len(line.text))
            if start < end:
                yield start, end
    except SearchStopped:
        return  # the line is found already, and only its other matches are not marked


def _chars(data: bytes) -> int:
    """How many whole characters there are; an expression may match a part of one."""
    return len(data.decode("utf-8", "ignore"))
