"""The content of an item in pages of limited size: from a line on, the end, or the lines that match."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from ctxfs.errors import UnknownItem
from ctxfs.messages.messages import Content, readable_text
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.entries import archived
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.paging import Line, LineCutter, LineEnds
from ctxfs.tools.search.contents import matches_in, require_progress
from ctxfs.tools.search.line_pattern import LinePattern, SearchStopped
from ctxfs.tools.stored import stored_ends, stored_lines

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


PAGE_LINES = 400
"""The most lines of a page."""
PAGE_CHARS = 100_000
"""The most characters of a page, approximately."""
MOST_MATCHES = 200

How = Literal["full", "tail", "grep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPage:
    """A page of a content. Its lines are not trusted.

    Args:
        lines: in order; one that continues (``more``), or starts after its beginning (``begin``), is part of a line.
        total_lines: the number of lines of the whole content.
        how: which lines these are.
        pieces: of lines that match, the text of each, in matches and what is between them; else empty.
        previous_first: the first line of the page before; None: this is the first page.
        next_first: the first line of the next page; None: this is the last page.
        note: anything else to show, such as that there are more matches.
    """

    lines: Sequence[Line]
    total_lines: int
    how: How
    pieces: Sequence[Sequence[Piece]] = ()
    previous_first: int | None = None
    next_first: int | None = None
    note: str = ""


async def content_page(
    fs: ContextFileSystem, item_id: str, how: How, *, first: int = 1, char: int | None = None, pattern: str = ""
) -> ContentPage:
    """A page of an item's content, wherever it is now; each block of a stored one is checked before it is shown.

    Args:
        fs: the session, open.
        item_id: the item.
        how: which lines.
        first: the first line of a full page, or the first line to search.
        char: show only this line, from this character on; None: whole lines, but long ones are cut.
        pattern: what ``grep`` looks for, an RE2 expression.

    Raises:
        UnknownItem: the item is nowhere.
        CorruptContent: the content is not what was written.
        NotStored: its file is missing.
        ToolError: the pattern is wrong, or ``first`` is past the end.
    """
    is_stored = item_id in fs.state.stored
    if how == "grep":
        text = "" if is_stored else readable_text(await message_of(fs, item_id))
        return await _matching(fs.reader(item_id) if is_stored else text, pattern, first)
    if not is_stored:
        return await _inline_page(await message_of(fs, item_id), how, first=first, char=char)
    reader = fs.reader(item_id)
    total = reader.stored.lines
    if how == "tail":
        return _full(await stored_ends(reader, max(1, total - PAGE_LINES + 1)), total, "tail")
    lines = await stored_lines(reader, first, limit=PAGE_LINES, max_chars=PAGE_CHARS, char_offset=char)
    return _full(lines, total, "full")


async def message_of(fs: ContextFileSystem, item_id: str) -> Content:
    """A content that is in the journal or in an archive, and not in a file of its own. Raises ``UnknownItem``."""
    item = fs.state.items.get(item_id)
    if item is None and (archive := fs.state.archived.get(item_id)) is not None:
        item = next((one for one in await archived(fs, archive) if one.id == item_id), None)
    if item is None:
        raise UnknownItem(item_id)
    return item.message.content


async def _inline_page(content: Content, how: How, *, first: int, char: int | None) -> ContentPage:

    def page() -> ContentPage:
        text = readable_text(content)
        total = text.count("\n") + bool(text and not text.endswith("\n"))
        if how == "tail":
            ends = LineEnds(1)
            ends.feed(text)
            return _full(ends.finish()[-PAGE_LINES:], total, "tail")
        cutter = LineCutter(first, limit=PAGE_LINES, max_chars=PAGE_CHARS, char_offset=char)
        cutter.feed(_from_line(text, first))
        return _full(cutter.finish(), total, "full")

    return await run_in_steps(page)


def _from_line(text: str, first: int) -> str:
    return (
        text.split("\n", first - 1)[-1] if first > 1 and text.count("\n") >= first - 1 else text if first <= 1 else ""
    )


def _full(lines: Sequence[Line], total: int, how: How) -> ContentPage:
    if not lines:
        return ContentPage(lines=(), total_lines=total, how=how)
    before, after = lines[0].number, lines[-1].number
    return ContentPage(
        lines=lines,
        total_lines=total,
        how=how,
        previous_first=max(1, before - PAGE_LINES) if before > 1 else None,
        next_first=after + 1 if after < total else None,
    )


async def _matching(content: ContentReader | str, pattern: str, first: int) -> ContentPage:
    found = await matches_in(content, LinePattern(pattern), first=first, most=MOST_MATCHES)
    require_progress(found, first)
    total = found.total_lines
    count = len(found.lines)
    note = f"{count:,} lines match" if count != 1 else "1 line matches"
    if found.stopped is not None:
        note = f"{note}; searched up to line {found.stopped.number - 1:,} of {total:,}"
    elif found.next_line is not None:
        note = f"the first {note}"
    marking = LinePattern(pattern)
    marked = await run_in_steps(lambda: [pieces(marking, line) for line in found.lines])
    return ContentPage(
        lines=found.lines, total_lines=total, how="grep", pieces=marked, next_first=found.next_line, note=note
    )
