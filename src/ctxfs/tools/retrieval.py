"""Reading evicted content back: a page, the end, a search, and a list of what there is.

One implementation for every layout. What the tools may open is decided by the session's index alone. Follows
"Tool Output Materialization" for what there is; the names have no dots, since providers allow none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from ctxfs.errors import ToolError
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.names import safe_name
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext.path import parse_path, select_lines
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.paging import MAX_POSITION, Line, LineCutter, render_page, row
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.page import DEFAULT_MATCHES, grep_page
from ctxfs.tools.stored import (
    DEFAULT_MAX_TOKENS,
    MAX_LIMIT_LINES,
    CharOffset,
    Scope,
    list_page,
    noting_missing,
    page_result,
    read_page,
    reading_tool,
    stored_ends,
)

MAX_TAIL_LINES = 1_000
MAX_MATCHES = 1_000
MAX_CONTEXT_LINES = 20
MAX_JSON_BYTES = 12 * 1024 * 1024  # joining more of them to one text would hold the interpreter for too long
_FOOTER_TOKENS = 64


Ref = Annotated[str, Field(description="An id from context_list, or the path in a placeholder")]
Offset = Annotated[int, Field(ge=1, le=MAX_POSITION, description="The first line, counted from 1")]
Pattern = Annotated[str, Field(description="A regular expression in RE2's syntax")]
ContextLines = Annotated[
    int, Field(ge=0, le=MAX_CONTEXT_LINES, description="Lines to show before and after each match")
]
MaxMatches = Annotated[int, Field(ge=1, le=MAX_MATCHES, description="Stop after this many matching lines")]


@names_settings()
def retrieval_tools(
    fs: ContextFileSystem, *, max_tokens: int = DEFAULT_MAX_TOKENS, counter: TokenCounter | None = None
) -> tuple[Tool, ...]:
    """Make ``context_read``, ``context_tail``, ``context_grep`` and ``context_list`` for one session.

    Args:
        fs: the session; these tools find nothing of another one.
        max_tokens: upper bound on each result (at least 200), and again on the images and documents with it; one of
            these comes in any case, so that it can be seen.
        counter: counts tokens; None takes the default counter.
    """
    scope = Scope(fs, max_tokens, counter)
    return (_read_tool(scope), _tail_tool(scope), _grep_tool(scope), _list_tool(scope))


def _read_tool(scope: Scope) -> Tool:
    @reading_tool(
        "Read back offloaded content in numbered lines, with the images and documents on them, or a part of a JSON "
        "value by its path. A partial page says how to continue.",
        name="context_read",
        ids_from="context_list",
    )
    async def context_read(
        ref: Ref,
        offset: Offset = 1,
        limit: Annotated[int, Field(ge=1, le=MAX_LIMIT_LINES, description="How many lines at most")] = MAX_LIMIT_LINES,
        *,
        char_offset: CharOffset = None,
        path: Annotated[
            str | None, Field(description="A part of a JSON value, such as $.rows[10:20].name; its lines are shown")
        ] = None,
    ) -> ToolResult:
        item_id = scope.known(ref)
        if path is None:
            return await read_page(scope, item_id, first=offset, limit=limit, char_offset=char_offset)
        cutter = LineCutter(offset, limit=limit, max_chars=scope.max_chars, char_offset=char_offset)
        return await _read_path(scope, item_id, path, offset, cutter)

    return context_read


def _tail_tool(scope: Scope) -> Tool:
    @reading_tool(
        "Read the last lines of offloaded content, numbered; long lines are cut to their end.",
        name="context_tail",
        ids_from="context_list",
    )
    async def context_tail(
        ref: Ref,
        lines: Annotated[int, Field(ge=1, le=MAX_TAIL_LINES, description="How many lines at most")] = 40,
    ) -> ToolResult:
        item_id = scope.known(ref)
        return await _tail(scope, item_id, lines)

    return context_tail


def _grep_tool(scope: Scope) -> Tool:
    @reading_tool(
        "Search the lines of offloaded content for a regular expression (RE2). The numbers of the lines found can be "
        "used as `offset` to read around them.",
        name="context_grep",
        ids_from="context_list",
    )
    async def context_grep(
        ref: Ref,
        pattern: Pattern,
        offset: Offset = 1,
        *,
        context_lines: ContextLines = 0,
        max_matches: MaxMatches = DEFAULT_MATCHES,
        ignore_case: bool = False,
    ) -> ToolResult:
        return await grep_page(
            scope,
            scope.known(ref),
            LinePattern(pattern, ignore_case=ignore_case),
            offset=offset,
            max_matches=max_matches,
            context_lines=context_lines,
        )

    return context_grep


def _list_tool(scope: Scope) -> Tool:
    @reading_tool("List what was offloaded in this session: id, what it is, size; oldest first.", name="context_list")
    async def context_list(
        offset: Annotated[int, Field(ge=1, le=MAX_POSITION, description="The first entry, from 1")] = 1,
    ) -> ToolResult:
        entries = list(scope.fs.state.stored.values())
        return await list_page(entries, _entry, offset=offset, max_tokens=scope.max_tokens, counter=scope.counter)

    return context_list


def _entry(entry: Stored) -> str:
    what = f"{entry.item_type} of {safe_name(entry.tool_name)}" if entry.tool_name else str(entry.item_type)
    partial = f", partial: {entry.missing}" if entry.missing else ""
    return f"{entry.item_id}: {what}, {plural(entry.lines, 'line')}, {plural(entry.chars, 'character')}{partial}"


async def _read_path(scope: Scope, item_id: str, path: str, offset: int, cutter: LineCutter) -> ToolResult:
    """A page of the lines that ``path`` means; they are not the content's own lines, so all of these are the source."""
    parse_path(path)
    reader = scope.fs.reader(item_id)
    if reader.stored.size_bytes > MAX_JSON_BYTES:
        raise ToolError(f"a path cannot be used in {reader.stored.size_bytes:,} bytes of content: read it by lines")
    pieces = [piece async for piece in reader.text_blocks()]

    def page() -> ToolResult:
        total = _cut_selected(select_lines("".join(pieces), path), offset, cutter)
        lines = cutter.finish()
        if not lines:
            return page_result(None, offset, total)
        made = render_page(lines, total_lines=total, max_tokens=scope.max_tokens, counter=scope.loaded_counter())
        return page_result(made, offset, total, scope.source(reader.stored, 1, reader.stored.lines))

    return await run_in_steps(page)


def _cut_selected(pieces: Iterator[str], offset: int, cutter: LineCutter) -> int:
    """Feed the lines from ``offset`` on; the number of all lines."""
    skip = offset - 1
    total = 0
    open_end = False
    full = False
    for piece in pieces:
        newlines = piece.count("\n")
        if not full and total + newlines >= skip:
            rest = piece.split("\n", skip - total)[-1] if skip > total else piece
            if rest:
                full = cutter.feed(rest)
        total += newlines
        open_end = not piece.endswith("\n") and bool(piece)
    return total + 1 if open_end else total


async def _tail(scope: Scope, item_id: str, count: int) -> ToolResult:
    reader = scope.fs.reader(item_id)
    total = reader.stored.lines
    first = max(1, total - count + 1)
    lines = await stored_ends(reader, first)
    if not lines:
        return page_result(None, first, total)

    def page() -> ToolResult:
        counts = scope.loaded_counter()
        shown = _fitting_tail(lines, scope.max_tokens - _FOOTER_TOKENS, counts)
        made = render_page(shown, total_lines=total, max_tokens=scope.max_tokens, counter=counts)
        made = noting_missing(made, reader.stored)
        return page_result(made, first, total, scope.source(reader.stored, made.first_line, made.last_line))

    return await run_in_steps(page)


def _fitting_tail(lines: Sequence[Line], budget: int, counter: TokenCounter) -> Sequence[Line]:
    """The last lines that fit, at least the end of one."""
    shown: list[Line] = []
    used = 0
    for line in reversed(lines):
        end = _marked_end(line) if shown else _shrunk_end(line, budget, counter)
        used += counter.count(row(end)) + 1
        if shown and used > budget:
            break
        shown.append(end)
    return shown[::-1]


def _shrunk_end(line: Line, budget: int, counter: TokenCounter) -> Line:
    while len(line.text) > 1 and counter.count(row(_marked_end(line))) + 1 > budget:
        half = len(line.text) // 2
        line = replace(line, text=line.text[half:], begin=line.begin + half)
    return _marked_end(line)


def _marked_end(line: Line) -> Line:
    """The line as it is shown: where only its end is, that says from which character on."""
    if not line.begin:
        return line
    return Line(number=line.number, text=f"[from offset={line.number}, char_offset={line.begin}]… {line.text}")
