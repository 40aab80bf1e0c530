"""Search everything that was ever in a session, by ranked words or a regular expression; results have a limit."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from ctxfs.errors import SessionError, StorageError, ToolError
from ctxfs.errors.base import quoted
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import ToolResult, told
from ctxfs.tools.paging import Line
from ctxfs.tools.recall.archive import PASSAGE_CHARS, PastSession, folded, words_of
from ctxfs.tools.recall.past import PastItem
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import FoundLine
from ctxfs.tools.search.search import CutLines, Hit, Unread, search
from ctxfs.tools.stored import Scope

_SHOWN_CHARS = 300
_BEFORE_CHARS = 80
_FOOTER_TOKENS = 100
_MOST_RANKED = 500
_MOST_FILES = 1_000
"""The most files that one call searches."""
_MOST_ITEMS = 5_000
"""The most items that one call searches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which items are searched: those of the calls ``first_call`` to ``last_call`` (None: to the last), of a tool."""

    item: str | None = None
    first_call: int = 1
    last_call: int | None = None
    tool: str | None = None

    def has(self, item: PastItem) -> bool:
        """Whether the item is searched."""
        return (
            item.call >= self.first_call
            and (self.last_call is None or item.call <= self.last_call)
            and (self.tool is None or item.tool_name == self.tool)
            and (self.item is None or item.item_id == self.item)
        )


@dataclass(frozen=True, slots=True)
class PastLine:
    """A line that was found."""

    item: PastItem
    line: Line

    @property
    def row(self) -> str:
        """The hit for the model."""
        line = self.line
        place = f"call {self.item.call}, {self.item.name}"
        text = line.text
        if line.begin:
            place += f", char_offset={line.begin}"
            text = f"…{text}"
        if line.more:
            text += "…"
        return f"{self.item.item_id}:{line.number} ({place}): {text}"


async def search_words(
    session: PastSession, scope: Scope, query: str, where: Where, *, skip: int, max_matches: int
) -> ToolResult:
    """The lines that match a query best, one of each passage.

    Raises:
        ToolError: the query has no words.

    """
    words = words_of(query)
    if not words:
        raise ToolError(f"{quoted(query)} has no words to search for: use some, or regex=true for a pattern")
    wanted, unindexed = await session.ranked(query, where.has, limit=_MOST_RANKED)
    hits: list[PastLine] = []
    seen: set[str] = set()
    taken = skip
    for item, place in wanted[skip:]:
        if len(hits) == max_matches:
            break
        taken += 1
        try:
            lines = await session.lines(
                item,
                place.first_line,
                place.last_line - place.first_line + 1,
                max_chars=4 * PASSAGE_CHARS,
                char_offset=place.begin or None,
            )
        except (StorageError, SessionError):  # removed, or damaged since it was indexed
            continue
        best = _best(lines, words)
        if best is not None and best.text not in seen:
            seen.add(best.text)
            hits.append(PastLine(item, best))
    notes: list[str] = []
    if unindexed:
        notes.append(f"{unindexed:,} items are not searched yet: search again")
    next_skip = taken if taken < len(wanted) else None
    return await _result(scope, hits, notes, next_skip=next_skip)


def _best(lines: Sequence[Line], words: Sequence[str]) -> Line | None:
    """The first line with the most of the words, cut around them; None if no line has any."""
    found: tuple[int, Line] | None = None
    for line in lines:
        text = folded(line.text)
        count = sum(word in text for word in words)
        if count and (found is None or count > found[0]):
            found = (count, line)
    if found is None:
        return None
    return _cut(found[1], words)


def _cut(line: Line, words: Sequence[str]) -> Line:
    """The part of a long line with the most of the words; the first such part."""
    if len(line.text) <= _SHOWN_CHARS:
        return line
    text = folded(line.text)  # this may be longer, or shorter
    places = [found.start() for found in re.finditer("|".join(map(re.escape, words)), text)]

    def words_at(place: int) -> int:
        part = text[max(0, place - _BEFORE_CHARS) : place - _BEFORE_CHARS + _SHOWN_CHARS]
        return sum(word in part for word in words)

    best = max(places, key=words_at)
    # The last character of the line before which no more than that folds.
    place = bisect_right(range(len(line.text)), best, key=lambda end: len(folded(line.text[:end]))) - 1
    start = max(0, min(place - _BEFORE_CHARS, len(line.text) - _SHOWN_CHARS))
    shown = line.text[start : start + _SHOWN_CHARS]
    more = line.more or start + len(shown) < len(line.text)
    return Line(number=line.number, text=shown, begin=line.begin + start, more=more)


async def search_pattern(
    session: PastSession,
    scope: Scope,
    pattern: LinePattern,
    where: Where,
    *,
    skip: int,
    offset: int,
    max_matches: int,
) -> ToolResult:
    """The lines that match a regular expression, the oldest first; the first ``skip`` items are left out.

    ``offset``: the first line of the first item that is searched.
    """
    wanted = [item for item in session.past.items.values() if where.has(item)]
    matcher = CutLines(pattern, max_matches)
    hits: list[PastLine] = []
    notes: list[str] = []
    files = 0
    done = skip  # how many items were searched to their ends
    more_in: tuple[PastItem, int] | None = None
    # What is found is one of four cases:
    # - a line: the search ends within its item if there are enough of them;
    # - an item cannot be read: the next one is searched;
    # - an item was searched in part, since it has more lines, or the budget is used up: the search ends within it;
    # - an item was searched to its end: the next one is, unless this is enough for one call.
    searched = search(session, matcher, wanted[skip : skip + _MOST_ITEMS], first_line=offset)
    async with aclosing(searched):
        async for found in searched:
            item = found.item
            if isinstance(found, Hit):
                if len(hits) == max_matches:
                    more_in = item, found.line.number
                    break
                hits.append(PastLine(item, _shortened(found.line)))
                continue
            if isinstance(found, Unread):
                notes.append(f"{item.item_id} cannot be read: {told(found.error)}")
            else:
                stopped = found.end.stopped
                if stopped is not None and stopped.error.line_too_long:
                    notes.append(f"line {stopped.number} of {item.item_id} is not searched: {stopped.error}")
                elif stopped is not None and (done, stopped.number) == (skip, offset):
                    raise stopped.error  # to go on from here would find out nothing either
                if found.end.next_line is not None:
                    more_in = item, found.end.next_line
                    break
            done += 1
            if item.text is None:
                files += 1
            if len(hits) == max_matches or pattern.budget.left_s <= 0 or files == _MOST_FILES:
                break
    if more_in is not None:
        item, line = more_in
        notes.append(f"go on in {item.item_id}: skip={done}, offset={line}")
    elif done < len(wanted):
        notes.append(f"{done:,} of {len(wanted):,} items were searched; go on: skip={done}")
    return await _result(scope, hits, notes[:5], next_skip=None)


def _shortened(line: FoundLine) -> Line:
    text = line.text[:_SHOWN_CHARS]
    return Line(number=line.number, text=text, begin=line.begin, more=line.more or len(text) < len(line.text))


async def _result(scope: Scope, hits: Sequence[PastLine], notes: Sequence[str], *, next_skip: int | None) -> ToolResult:
    def text() -> str:
        counter = scope.loaded_counter()
        rows: list[str] = []
        used = _FOOTER_TOKENS + sum(counter.count(note) for note in notes)
        for hit in hits:
            cost = counter.count(hit.row) + 1
            if rows and used + cost > scope.max_tokens:
                break
            rows.append(hit.row)
            used += cost
        footer: list[str] = []
        if not rows:
            footer.append("nothing is found")
        elif len(rows) == 1:
            footer.append("1 line is found")
        else:
            footer.append(f"{len(rows)} lines are found")
        footer += notes
        if len(rows) < len(hits):
            footer.append(f"{len(hits) - len(rows)} more do not fit: use other words, or fewer matches")
        if next_skip is not None:
            footer.append(f"more: skip={next_skip}")
        if rows:
            footer.append("history_read shows the lines around one")
        return "\n".join([*rows, f"[{'; '.join(footer)}]"])

    return ToolResult(await run_in_steps(text))
