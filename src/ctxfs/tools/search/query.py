"""What a user searches for, and the lines that are found. Pure."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from ctxfs.messages.items import ItemType
from ctxfs.session.entries import Entry
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.line_pattern import LinePattern


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
