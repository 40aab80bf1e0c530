"""One search of a session: its hits are streamed, item by item, to whoever prints them.

Three things vary, and each is a value:

- what a session holds: a ``Searchable``. ``Holdings`` is what is in its files now; ``PastSession`` all that ever was;
- how the lines of one content are searched: a ``Matcher``. ``CutLines`` is bounded, for a model and for the page;
  ``WholeLines`` yields every byte of every matching line, and the lines around it;
- where: the items, and in the first of them from which line on.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ctxfs.errors import CtxfsError, SessionError, StorageError
from ctxfs.messages.readable import readable_text
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.entries import Entry, inline_content
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.utf8 import lossless_bytes
from ctxfs.tools.search.contents import matches_in
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import FoundLine, LineChunks, Stopped
from ctxfs.tools.search.query import Query, Row
from ctxfs.tools.search.whole_lines import LinesOfContent

_AS_IT_IS = frozenset({"text", "bytes"})
"""Encodings whose bytes are exactly what the tool returned. Others are searched as a text."""


ItemT = TypeVar("ItemT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
LineT = TypeVar("LineT")
LineT_co = TypeVar("LineT_co", covariant=True)


class Searchable(Protocol[ItemT_contra]):
    """A session as it is searched."""

    async def content(self, item: ItemT_contra) -> ContentReader | str:
        """The lines of an item: those of its file, or a text.

        Raises:
            StorageError: it cannot be read.
            SessionError: it is gone.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of one content. ``matching``: how many of its lines matched.

    ``next_line``: where to go on, since there is more, or since the search stopped; None: the content was searched.
    ``stopped``: why it did; None: it did not.
    """

    matching: int
    next_line: int | None = None
    stopped: Stopped | None = None


class Matcher(Protocol[LineT_co]):
    """Finds lines of one content."""

    def find(self, content: ContentReader | str, first_line: int) -> AsyncGenerator[LineT_co | Ended, None]:
        """Yield the lines from ``first_line`` on, and then the end."""


@dataclass(frozen=True, slots=True)
class Hit(Generic[ItemT, LineT]):
    """A line of an item."""

    item: ItemT
    line: LineT


@dataclass(frozen=True, slots=True)
class Searched(Generic[ItemT]):
    """An item was searched, up to ``end``."""

    item: ItemT
    end: Ended


@dataclass(frozen=True, slots=True)
class Unread(Generic[ItemT]):
    """An item could not be searched, or not to its end."""

    item: ItemT
    error: CtxfsError


async def search(
    session: Searchable[ItemT], matcher: Matcher[LineT], where: Iterable[ItemT], *, first_line: int = 1
) -> AsyncGenerator[Hit[ItemT, LineT] | Searched[ItemT] | Unread[ItemT], None]:
    """Search these items, one after the other, the first one from ``first_line`` on.

    Each line is yielded as soon as it is found. After the lines of an item comes ``Searched``, or ``Unread``; an item
    that cannot be read does not end the search. Whoever has enough closes the generator.
    """
    for item in where:
        try:
            content = await session.content(item)
            async with aclosing(matcher.find(content, first_line)) as lines:
                async for line in lines:
                    if isinstance(line, Ended):
                        yield Searched(item, line)
                    else:
                        yield Hit(item, line)
        except (StorageError, SessionError) as error:
            yield Unread(item, error)
        first_line = 1


# What a session holds now -------------------------------------------------------------------------------------------


class Holdings:
    """What a session holds now: its context, and the contents that are only in files."""

    def __init__(self, fs: ContextFileSystem) -> None:
        self._fs = fs

    async def content(self, entry: Entry) -> ContentReader | str:
        """Return the content of an item, or how to read it from its file."""
        if entry.stored is None:
            return readable_text(inline_content(entry))
        if entry.stored.encoding in _AS_IT_IS:
            return self._fs.reader(entry.item_id)
        return readable_text(await self._fs.load(entry.item_id))


# How lines are searched -----------------------------------------------------------------------------------------------


class CutLines:
    """Finds at most ``most`` lines of a content; long ones are cut around what matches.

    The pattern's budget bounds all contents together, or, with ``budget_each``, each of them.
    """

    def __init__(self, pattern: LinePattern, most: int, *, budget_each: bool = False) -> None:
        self._pattern = pattern
        self._most = most
        self._budget_each = budget_each

    async def find(self, content: ContentReader | str, first_line: int) -> AsyncGenerator[FoundLine | Ended, None]:
        """Yield the lines that match, from ``first_line`` on, and where that ended."""
        pattern = self._pattern.renewed() if self._budget_each else self._pattern
        found = await matches_in(content, pattern, first=first_line, most=self._most)
        for line in found.lines:
            yield line
        yield Ended(matching=len(found.lines), next_line=found.next_line, stopped=found.stopped)


class WholeLines:
    """Finds all that a query asks for, without a bound: whole lines, as bytes, and those around them."""

    def __init__(self, query: Query, pattern: LinePattern) -> None:
        self._query = query
        self._pattern = pattern

    async def find(self, content: ContentReader | str, first_line: int) -> AsyncGenerator[Row | Ended, None]:
        """Yield the rows that match, from ``first_line`` on, and where that ended."""
        lines = LinesOfContent(self._query, self._pattern, first_line=first_line)
        chunks = LineChunks()
        async with aclosing(_bytes_of(content, first_line)) as blocks:
            async for block in blocks:
                chunk = chunks.feed(block)
                if chunk is None:
                    continue
                for row in lines.feed(chunk):
                    yield row
                if lines.done:
                    break
        if not lines.done:
            for row in lines.feed(chunks.finish()):
                yield row
        yield Ended(matching=lines.found)


async def _bytes_of(content: ContentReader | str, first_line: int) -> AsyncGenerator[bytes, None]:
    if isinstance(content, str):
        yield lossless_bytes(content.split("\n", first_line - 1)[-1])
        return
    async with aclosing(content.bytes_from(first_line)) as blocks:
        async for block in blocks:
            yield block
