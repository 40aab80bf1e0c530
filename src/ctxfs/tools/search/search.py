"""One search of a session: its hits are streamed, item by item, to whoever prints them.

Three things vary, and each is a value:

- what a session holds: a ``Searchable``. ``Holdings`` is what is in its files now; ``PastSession`` all that ever was;
- how the lines of one content are searched: a ``Matcher``. ``CutLines`` is bounded, for a model and for the page;
  ``WholeLines`` yields every byte of every matching line, and the lines around it;
- where: the items, and in the first of them from which line on.
"""

import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, NamedTuple, Protocol, TypeVar

from ctxfs.errors import CtxfsError, SessionError, StorageError
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import readable_text
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.entries import Entry, inline_content
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.steps import CpuBudget
from ctxfs.text.utf8 import lossless_bytes
from ctxfs.tools.search.contents import matches_in
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import FoundLine, LineChunks, Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is searched for, and where.

    ``pattern`` is an RE2 expression, or plain text if ``fixed``; ``word``: whole words only; ``invert``: lines that do
    not match. ``before`` and ``after``: how many lines around each match. ``max_count``: the most matching lines per
    item; None: all. ``types`` and ``tools`` (with ``*`` and ``?``): items of these only; empty: all.
    """

    pattern: str
    ignore_case: bool = False
    fixed: bool = False
    word: bool = False
    invert: bool = False
    before: int = 0
    after: int = 0
    max_count: int | None = None
    types: tuple[ItemType, ...] = ()
    tools: tuple[str, ...] = ()

    def compiled(self, budget: CpuBudget) -> LinePattern:
        """Return the pattern to search with, within this budget. Raises ``InvalidToolArguments``."""
        pattern = re.escape(self.pattern) if self.fixed else self.pattern
        if self.word:
            pattern = rf"\b(?:{pattern})\b"
        return LinePattern(pattern, ignore_case=self.ignore_case, budget=budget)

    def searches(self, entry: Entry) -> bool:
        """Whether an item is searched; one that only repeats lines of another is not."""
        if entry.stored is None and entry.place == "file":
            return False
        named = any(fnmatchcase(entry.tool_name or "", tool) for tool in self.tools)
        return (not self.types or entry.item_type in self.types) and (not self.tools or named)


class Row(NamedTuple):
    """A line: its number from 1, its offset in the content in bytes, and its text with its line end.

    ``matches``: the line matches; else it is near one that does. ``after_gap``: lines before it were left out.
    """

    number: int
    offset: int
    text: bytes
    matches: bool = True
    after_gap: bool = False


class LinesOfContent:
    """Searches one content, given in chunks of whole lines, the first of which is line ``first_line``."""

    def __init__(self, query: Query, pattern: LinePattern, *, first_line: int = 1) -> None:
        self._query = query
        self._pattern = pattern
        self._number = first_line
        self._offset = 0
        self._before: deque[Row] = deque(maxlen=query.before)
        self._after = 0
        self._last = 0
        self.found = 0
        """How many matching lines there were."""

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted."""
        return self.found == self._query.max_count and not self._after

    def feed(self, chunk: bytes) -> Iterator[Row]:
        """Yield those of the next lines that are shown."""
        if self._query.invert or self._query.before or self._query.after:
            rows = self._with_context(self._lines(chunk))
        else:
            rows = self._matching(chunk)
        for row in rows:
            self._last = row.number
            yield row
        self._number += chunk.count(b"\n")
        self._offset += len(chunk)

    def _matching(self, chunk: bytes) -> Iterator[Row]:
        number = self._number
        counted = 0
        for start, _, end in self._pattern.matches(chunk):
            if self.found == self._query.max_count:
                return
            number += chunk.count(b"\n", counted, start)
            counted = start
            self.found += 1
            yield Row(number, self._offset + start, chunk[start : end + 1])

    def _lines(self, chunk: bytes) -> Iterator[Row]:
        matching = {start for start, _, _ in self._pattern.matches(chunk)}
        position = 0
        for number, text in enumerate(_split(chunk)):
            matches = (position in matching) is not self._query.invert
            yield Row(self._number + number, self._offset + position, text, matches)
            position += len(text)

    def _with_context(self, lines: Iterator[Row]) -> Iterator[Row]:
        for row in lines:
            if row.matches and self.found != self._query.max_count:
                self.found += 1
                self._after = self._query.after
                shown = [*self._before, row]
                has_context = self._query.before > 0 or self._query.after > 0
                gap = has_context and 0 < self._last < shown[0].number - 1
                yield shown[0]._replace(after_gap=gap)
                yield from shown[1:]
                self._before.clear()
            elif self._after:
                self._after -= 1
                yield row._replace(matches=False)
            else:
                self._before.append(row._replace(matches=False))


def _split(chunk: bytes) -> Sequence[bytes]:
    """Lines with their line ends; only a line feed ends one."""
    return re.findall(rb"[^\n]*\n|[^\n]+", chunk)


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
