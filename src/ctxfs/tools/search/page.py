"""The result of a search as the model sees it: matching lines with the lines around them, numbered and bounded."""

from collections.abc import Sequence
from dataclasses import replace

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.content.reader import ContentReader
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import ToolResult
from ctxfs.tools.paging import MAX_LINE_CHARS, Line, row
from ctxfs.tools.search.contents import Matches, matches_in, require_progress
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import MOST_COUNTED, FoundLine
from ctxfs.tools.stored import Scope, stored_lines

DEFAULT_MATCHES = 50
_FOOTER_TOKENS = 64


async def grep_page(
    scope: Scope,
    item_id: str,
    pattern: LinePattern,
    *,
    offset: int = 1,
    max_matches: int = DEFAULT_MATCHES,
    context_lines: int = 0,
) -> ToolResult:
    """The lines of an item that match, from line ``offset`` on, numbered; bounded like ``context_grep``.

    Where the pattern's budget does not suffice for all lines, the result says which were searched and how to go on.

    Raises:
        ToolError: ``offset`` is past the end.
        WorkLimitReached: not even line ``offset`` could be searched.
    """
    reader = scope.fs.reader(item_id)
    matches = await matches_in(reader, pattern, first=offset, most=max_matches)
    require_progress(matches, offset, offset=scope.offset)
    missing = f"; {reader.stored.missing}" if reader.stored.missing else ""
    found = matches.lines
    if not found:
        searched = _rest_of(matches, offset, scope.offset) or f"{plural(reader.stored.lines, 'line')} searched"
        return ToolResult(f"[no line matches; {searched}{missing}]")
    groups = await _with_context(reader, found, context_lines)

    def text() -> ToolResult:
        shown, rows = _fitting_groups(groups, scope.max_tokens - _FOOTER_TOKENS, scope.loaded_counter())
        if shown < len(found):
            rest = f"there are more; next: {scope.offset}={found[shown].number}"
        else:
            rest = _rest_of(matches, offset, scope.offset)
        rows.append(_grep_footer(shown, rest, missing))
        source = scope.source(reader.stored, found[0].number, found[shown - 1].number)
        return ToolResult("\n".join(rows), source=source)

    return await run_in_steps(text)


def _rest_of(matches: Matches, first: int, offset: str) -> str:
    """What a search from line ``first`` on left out, and how to go on, with the argument ``offset``; empty: nothing."""
    go_on = "" if matches.next_line is None else f"; next: {offset}={matches.next_line}"
    stopped = matches.stopped
    if stopped is None:
        return f"there are more{go_on}" if go_on else ""
    searched = f"lines {first:,}-{stopped.number - 1:,} of {matches.total_lines:,} were searched"
    if stopped.error.line_too_long:
        return f"{searched}, but not line {stopped.number:,}: {stopped.error}{go_on}"
    return f"{searched}, which took the CPU time of one search{go_on}"


def _grep_footer(shown: int, rest: str, missing: str) -> str:
    """How many lines match; ``rest``: how to go on, empty if these are all; ``missing``: what was not stored."""
    matching = "1 line matches" if shown == 1 else f"{shown:,} lines match"
    if rest:
        return f"[the first {matching}, {rest}{missing}]"
    return f"[{matching}{missing}]"


async def _with_context(
    reader: ContentReader, matches: Sequence[FoundLine], context_lines: int
) -> list[list[tuple[Line, str]]]:
    """For each match, the rows that it adds: lines before it that were not shown yet, itself, and lines after it."""
    groups: list[list[tuple[Line, str]]] = []
    shown = 0
    for index, match in enumerate(matches):
        until = min(match.number + context_lines, reader.stored.lines)
        if index + 1 < len(matches):
            until = min(until, matches[index + 1].number - 1)
        first = max(shown + 1, match.number - context_lines)
        group: list[tuple[Line, str]] = [(match, ":")]
        if first < match.number or until > match.number:
            limit = until - first + 1
            around = await stored_lines(reader, first, limit=limit, max_chars=limit * (MAX_LINE_CHARS + 1))
            group = [(match, ":") if line.number == match.number else (line, "-") for line in around]
        groups.append(group)
        shown = until
    return groups


def _fitting_groups(groups: list[list[tuple[Line, str]]], budget: int, counter: TokenCounter) -> tuple[int, list[str]]:
    """How many groups fit, and their rows; the first is cut to its match, and that to the budget, if it has to be."""
    rows: list[str] = []
    last = 0
    used = 0
    for index, group in enumerate(groups):
        new: list[str] = []
        if rows and group[0][0].number > last + 1 and len(group) > 1:
            new.append("--")
        for line, mark in group:
            new += _grep_rows(line, mark)
        cost = sum(counter.count(text) + 1 for text in new)
        if used + cost > budget:
            if index == 0:
                return 1, _only_match(group, budget, counter)
            return index, rows
        rows += new
        used += cost
        last = group[-1][0].number
    return len(groups), rows


def _grep_rows(line: Line, mark: str) -> list[str]:
    rows = [_grep_row(line, mark)]
    if not isinstance(line, FoundLine):
        return rows
    rows += [_grep_row(replace(part, number=line.number), mark) for part in line.later]
    if line.unshown != 0:
        last = line.later[-1] if line.later else line
        after = f"offset={line.number}, char_offset={last.begin + len(last.text)}"
        rows.append(f"[in line {line.number:,} there {_how_many(line.unshown)}, after {after}]")
    return rows


def _how_many(matches: int | None) -> str:
    if matches is None:
        return "may be more matches"
    return f"are {'at least ' if matches == MOST_COUNTED else ''}{matches:,} more matches"


def _grep_row(line: Line, mark: str) -> str:
    if line.begin:
        line = replace(line, text=f"…{line.text}", begin=line.begin - 1)
    return row(line, mark)


def _only_match(group: list[tuple[Line, str]], budget: int, counter: TokenCounter) -> list[str]:
    line = next(line for line, mark in group if mark == ":")
    note: list[str] = []
    if isinstance(line, FoundLine) and line.later:
        note.append(f"[in line {line.number:,} there are more matches]")
        budget -= counter.count(note[0])
    while len(line.text) > 1 and counter.count(_grep_row(line, ":")) > budget:
        line = replace(line, text=line.text[: len(line.text) // 2], more=True)
    return [_grep_row(line, ":"), *note]
