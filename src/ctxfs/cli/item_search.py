"""A user's query, and the lines of one content that match it, with the lines around them. Synchronous."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from ctxfs.messages.items import ItemType
from ctxfs.session.entries import Entry
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.line_pattern import LinePattern


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

    def compiled(self) -> LinePattern:
        """Return the pattern to search with. Raises ``InvalidToolArguments``."""
        pattern = re.escape(self.pattern) if self.fixed else self.pattern
        if self.word:
            pattern = rf"\b(?:{pattern})\b"
        return LinePattern(pattern, ignore_case=self.ignore_case, budget=CpuBudget(None))

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


class ItemSearch:
    """Searches one content, given in chunks of whole lines."""

    def __init__(self, query: Query, pattern: LinePattern) -> None:
        self._query = query
        self._pattern = pattern
        self._number, self._offset = 1, 0
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
        plain = not (self._query.invert or self._query.before or self._query.after)
        for row in self._matching(chunk) if plain else self._with_context(self._lines(chunk)):
            self._last = row.number
            yield row
        self._number += chunk.count(b"\n")
        self._offset += len(chunk)

    def _matching(self, chunk: bytes) -> Iterator[Row]:
        number, counted = self._number, 0
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
                around = self._query.before or self._query.after
                gap = bool(around and self._last) and shown[0].number > self._last + 1
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
