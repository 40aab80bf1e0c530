"""The tools with which a model finds what it once knew, sees its context and keeps notes.

Everything that was ever in the session is found: what was evicted, compacted or summarized, and what is still there.
Names of items come from the session alone; the text of a content is never taken as one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from ctxfs.errors import SessionError, StorageError, ToolError
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.placeholder.lines import line_count
from ctxfs.messages.tokens import TokenCounter, require_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import NoteWritten
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import Tool, ToolResult, told
from ctxfs.tools.paging import MAX_LINE_CHARS, MAX_POSITION, Line
from ctxfs.tools.query import query_tool
from ctxfs.tools.recall.archive import PastSession
from ctxfs.tools.recall.past import PastItem
from ctxfs.tools.recall.search import Where, search_pattern, search_words
from ctxfs.tools.recall.status import context_status as status_of
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.stored import Scope, page_result, read_page, reading_tool, rendered

MAX_NOTES = 50
MAX_NOTE_CHARS = 1_000
MAX_MATCHES = 100
MAX_LINES = 400
WRITING_TOOLS = frozenset({"note"})
"""The others only read the session."""
DEFAULT_TOKENS = 2_000
STATUS_TOKENS = 1_000
_ITEM_LINES = 12
_ITEM_CHARS = 800
_FOOTER_TOKENS = 60

Item = Annotated[str, Field(description="An item's id, as history_search shows it, or the path in a placeholder")]
Skip = Annotated[int, Field(ge=0, le=MAX_POSITION, description="From the last search, to continue")]


@names_settings()
def recall_tools(
    fs: ContextFileSystem,
    *,
    max_tokens: int = DEFAULT_TOKENS,
    counter: TokenCounter | None = None,
    notes: bool = True,
) -> tuple[Tool, ...]:
    """Make the tools that search, read and ask one session, show its state, and keep notes.

    ``history_search``, ``history_read``, ``history_calls``, ``context_query``, ``context_status`` and ``note``.

    Args:
        fs: the session; these tools find nothing in any other one.
        max_tokens: upper bound on each result (at least 200); ``context_status`` has at most 1,000.
        counter: counts tokens; None takes the default counter.
        notes: whether ``note`` is among them, which needs a session that is open for writing.

    """
    require_counter(counter)
    scope = Scope(fs, max_tokens, counter)
    made = _Recall(scope)
    tools = [made.search(), made.read(), made.calls(), query_tool(scope, ids_from="history_search"), made.status()]
    if notes:
        tools.append(made.note())
    return tuple(tools)


class _Recall:
    """The state that the tools of one session share."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._session = PastSession(scope.fs)

    def search(self) -> Tool:
        @reading_tool(
            "Search everything that was ever in this conversation, including what was evicted or summarized: by words, "
            "best matches first, or by a regular expression (RE2), oldest first. Shows item:line, the call and "
            "the line.",
            name="history_search",
            ids_from="history_search",
        )
        async def history_search(
            query: Annotated[str, Field(description="Words, or a regular expression with regex=true")],
            *,
            regex: bool = False,
            ignore_case: Annotated[
                bool, Field(description="For a regular expression; words always ignore case")
            ] = False,
            item: Annotated[str | None, Field(description="Search this item only")] = None,
            tool: Annotated[str | None, Field(description="Search the results of this tool only")] = None,
            first_call: Annotated[int, Field(ge=1, le=MAX_POSITION)] = 1,
            last_call: Annotated[int | None, Field(ge=1, le=MAX_POSITION)] = None,
            max_matches: Annotated[int, Field(ge=1, le=MAX_MATCHES)] = 10,
            skip: Skip = 0,
            offset: Annotated[
                int, Field(ge=1, le=MAX_POSITION, description="The first line of the first item; from the last search")
            ] = 1,
        ) -> ToolResult:
            pattern = LinePattern(query, ignore_case=ignore_case) if regex else None  # refused before anything is read
            session = self._session
            await session.refresh()
            named = None if item is None else session.item(item).item_id
            where = Where(item=named, first_call=first_call, last_call=last_call, tool=tool)
            if pattern is None:
                return await search_words(session, self._scope, query, where, skip=skip, max_matches=max_matches)
            return await search_pattern(
                session, self._scope, pattern, where, skip=skip, offset=offset, max_matches=max_matches
            )

        return history_search

    def read(self) -> Tool:
        @reading_tool(
            "Read lines of anything that was ever in this conversation, around a line.",
            name="history_read",
            ids_from="history_search",
        )
        async def history_read(
            item: Item,
            line: Annotated[
                int | None, Field(ge=1, le=MAX_POSITION, description="The line to center on, from 1")
            ] = None,
            lines: Annotated[int, Field(ge=1, le=MAX_LINES, description="How many lines at most")] = 40,
            offset: Annotated[
                int | None, Field(ge=1, le=MAX_POSITION, description="The line to begin with, instead")
            ] = None,
            char_offset: Annotated[
                int | None,
                Field(
                    ge=0, le=MAX_POSITION, description="Read that line alone, from this character on; for a long line"
                ),
            ] = None,
        ) -> ToolResult:
            if line is not None and offset is not None:
                raise ToolError("line is what to center on, and offset what to begin with: give one of them")
            await self._session.refresh()
            found = self._session.item(item)
            first = offset or line or 1
            if offset is None and char_offset is None:
                first = max(1, first - lines // 2)
            if self._session.stored(found) is not None:
                return await read_page(self._scope, found.item_id, first=first, limit=lines, char_offset=char_offset)
            text = await self._session.text(found)
            total = line_count(text)
            max_chars = lines * (MAX_LINE_CHARS + 1)
            shown = await self._session.lines(found, first, lines, max_chars=max_chars, char_offset=char_offset)
            if not shown:
                return page_result(None, first, total)
            page = await rendered(shown, total, self._scope.max_tokens, self._scope.counter)
            return page_result(page, first, total)

        return history_read

    def calls(self) -> Tool:
        @reading_tool(
            "Read the conversation as it was, over a range of model calls: what was new at each call, and the "
            "reply. Long items are cut.",
            name="history_calls",
        )
        async def history_calls(
            first: Annotated[int, Field(ge=1, le=MAX_POSITION, description="The first call, from 1")],
            last: Annotated[
                int | None, Field(ge=1, le=MAX_POSITION, description="The last call; the first one if left out")
            ] = None,
        ) -> ToolResult:
            await self._session.refresh()
            return await conversation(self._session, self._scope, first, first if last is None else last)

        return history_calls

    def status(self) -> Tool:
        @reading_tool(
            "Show your context: how full its window is, the largest items and their age, what was evicted, and your "
            "notes.",
            name="context_status",
        )
        async def context_status() -> ToolResult:
            limit = min(self._scope.max_tokens, STATUS_TOKENS)
            return ToolResult(await status_of(self._session, limit, self._scope.counter))

        return context_status

    def note(self) -> Tool:
        @reading_tool(
            "Write a short note for yourself that outlives every summary; context_status lists them. With a number, "
            "replace that note; an empty text removes it.",
            name="note",
            read_only=False,
        )
        async def note(
            text: Annotated[str, Field(description=f"At most {MAX_NOTE_CHARS:,} characters")],
            number: Annotated[
                int | None, Field(ge=1, le=MAX_POSITION, description="The note to replace or remove")
            ] = None,
        ) -> ToolResult:
            fs = self._scope.fs
            notes = fs.state.notes
            _check_note(text, number, notes)
            written = max(notes, default=0) + 1 if number is None else number
            await fs.writer.decide([], [NoteWritten(number=written, text=text)])
            return ToolResult(f"[note {written} is {'written' if text else 'removed'}; there are {len(notes)}]")

        return note


def _check_note(text: str, number: int | None, notes: dict[int, str]) -> None:
    if len(text) > MAX_NOTE_CHARS:
        raise ToolError(f"the note has {len(text):,} characters; at most {MAX_NOTE_CHARS:,}: shorten it, or write two")
    if number is not None and number not in notes:
        there = ", ".join(map(str, sorted(notes))) or "none"
        raise ToolError(f"there is no note {number}; there are: {there}")
    if number is None and not text:
        raise ToolError("a new note needs a text")
    if number is None and len(notes) >= MAX_NOTES:
        raise ToolError(f"there are {len(notes)} notes, and no room for more: replace or remove one")


async def conversation(session: PastSession, scope: Scope, first: int, last: int) -> ToolResult:
    """What was new at the calls ``first`` to ``last``, as many as fit: the items that each sent first, and its reply.

    Raises:
        ToolError: there were no such calls.

    """
    past = session.past
    if first > last or first > past.calls + 1:
        raise ToolError(
            f"there are no calls {first} to {last}: the model was called {past.calls} times, counted from 1"
        )
    last = min(last, past.calls + 1)
    rows: list[str] = []
    used = _FOOTER_TOKENS
    shown_to = first - 1
    for call in range(first, last + 1):
        block = await _call(session, call)
        fitting, cost = await run_in_steps(partial(_fitting, block, scope, used))
        is_whole = len(fitting) == len(block)
        if rows and not is_whole:
            break
        rows += fitting
        used += cost
        shown_to = call
        if not is_whole:
            rows.append("…")
            break
    more = f"; next: first={shown_to + 1}" if shown_to < last else ""
    return ToolResult(
        "\n".join([*rows, f"[calls {first}-{shown_to} of {past.calls}{more}; history_read shows whole items]"])
    )


async def _call(session: PastSession, call: int) -> list[str]:
    rows = [f"== call {call}"]
    for item in session.past.of_calls(call, call):
        try:
            lines = await session.lines(item, 1, _ITEM_LINES + 1, max_chars=_ITEM_CHARS)
        except (StorageError, SessionError) as error:
            rows.append(f"-- {item.item_id} ({item.name}): {told(error)}")
            continue
        rows += _rows(item, lines)
    return rows


def _rows(item: PastItem, lines: Sequence[Line]) -> list[str]:
    shown = lines[:_ITEM_LINES]
    cut = len(lines) > len(shown) or any(line.more for line in shown)
    tokens = f", {item.tokens:,} tokens" if cut and item.tokens else ""
    rows = [f"-- {item.item_id} ({item.name}{tokens})", *(line.text for line in shown)]
    if cut:
        rows.append("…")
    return rows


def _fitting(rows: list[str], scope: Scope, used_before: int) -> tuple[list[str], int]:
    """As many of the rows as fit, at least one; and their tokens."""
    counter = scope.loaded_counter()
    kept: list[str] = []
    used = 0
    for row in rows:
        cost = counter.count(row) + 1
        if kept and used_before + used + cost > scope.max_tokens:
            break
        kept.append(row)
        used += cost
    return kept, used
