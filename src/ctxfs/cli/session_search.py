"""The lines of a session that match a query, item by item."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ctxfs.cli.item_search import ItemSearch, Query, Row
from ctxfs.cli.session import content_blocks
from ctxfs.errors import StorageError
from ctxfs.session.entries import Entry, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tools.grep import LineChunks
from ctxfs.tools.line_pattern import LinePattern

_MOST_SPANS = 1_000


@dataclass(frozen=True, slots=True)
class ItemRow:
    """A line of an item; ``line``: None is the end of an item in which ``found`` lines match."""

    item_id: str
    line: Row | None = None
    found: int = 0


async def search_session(
    fs: ContextFileSystem, query: Query, chosen: Sequence[Entry] | None = None
) -> AsyncIterator[ItemRow | str]:
    """Yield the lines to show of each searched item, and then its end; a text says what could not be read.

    ``chosen``: search these items, whatever types and tools the query names; None: all that it searches.
    """
    pattern = query.compiled()
    if chosen is None:
        for line in fs.recovery.journal_damage_lines:
            yield line
    for entry in [entry for entry in await entries(fs) if query.searches(entry)] if chosen is None else chosen:
        search = ItemSearch(query, pattern)
        try:
            async for row in _rows(fs, entry, search):
                yield ItemRow(entry.item_id, row)
        except StorageError as error:
            yield str(error)
        if search.found:
            yield ItemRow(entry.item_id, found=search.found)


async def _rows(fs: ContextFileSystem, entry: Entry, search: ItemSearch) -> AsyncIterator[Row]:
    chunks = LineChunks()
    async for block in content_blocks(fs, entry):
        if (chunk := chunks.feed(block)) is not None:
            for row in search.feed(chunk):
                yield row
            if search.done:
                return
    for row in search.feed(chunks.finish()):
        yield row


def spans(pattern: LinePattern, line: bytes) -> list[tuple[int, int]]:
    """Where the matches in one line are, at most ``_MOST_SPANS``."""
    text = line.removesuffix(b"\n")
    found = []
    for match in pattern.in_line(text, 0, 0, len(text)):
        found.append((match.start, match.end))
        if len(found) == _MOST_SPANS:
            break
    return found
