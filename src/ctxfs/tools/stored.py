"""What this session stored, as its tools see it: found by the session's index alone, shown in bounded pages."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import wraps
from itertools import takewhile
from typing import ParamSpec

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from ctxfs.content.reader import BlockRange, ContentReader
from ctxfs.errors import CorruptContent, CtxfsError, NotStored, SessionError, StorageError, ToolError, WorkLimitReached
from ctxfs.items import ContentRange
from ctxfs.llm.messages import Block
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.steps import run_in_steps
from ctxfs.tokens import TokenCounter, count_block, default_counter
from ctxfs.tools.base import ToolResult
from ctxfs.tools.decorator import FunctionTool, tool
from ctxfs.tools.grep import FoundLine, LineSearch, SearchedPart, search_part
from ctxfs.tools.paging import Line, LineCutter, LineEnds, Page, render_page

__all__ = [
    "page_result",
    "read_page",
    "reading_tool",
    "rendered",
    "stored_ends",
    "stored_lines",
    "stored_matches",
]

P = ParamSpec("P")

CHARS_PER_TOKEN = 8
"""So many characters a token are fetched for a page: more than text has, so that tokens bound the page."""
MAX_MEDIA = 20
"""So many images and documents come with a page at most, and of more than one together only what its tokens allow."""
MAX_MEDIUM_TOKENS = 100_000
"""An image or a document of more tokens is not shown."""
MIN_PAGE_TOKENS = 200
"""No page is bounded to less."""
_NOTE_TOKENS = 100  # for what is said of those that are not shown
_NOTED = 5
_CALL_AGAIN = "Call the tool that gave it again if you need it."
_FIRST_RUN_BLOCKS = 2
_SEARCHERS = 4  # those that wait for the interpreter, which decoding holds, leave no processor idle


def reading_tool(
    description: str, *, name: str
) -> Callable[[Callable[P, Awaitable[ToolResult]]], FunctionTool[P, Awaitable[ToolResult]]]:
    """Make a function a tool that tells the model what cannot be read, and why, in an error result."""

    def decorate(function: Callable[P, Awaitable[ToolResult]]) -> FunctionTool[P, Awaitable[ToolResult]]:
        @wraps(function)
        async def read(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
            try:
                return await function(*args, **kwargs)
            except (CorruptContent, NotStored) as error:
                return ToolResult(f"The stored content cannot be read: {error}. {_CALL_AGAIN}", is_error=True)
            except (ToolError, StorageError, SessionError) as error:
                return ToolResult(str(error), is_error=True)

        return tool(description, name=name)(read)

    return decorate


async def stored_lines(
    reader: ContentReader, first: int, *, limit: int, max_chars: int, char_offset: int | None = None
) -> list[Line]:
    """Lines of stored content from ``first`` on; what stands before and after them is not read."""
    cutter = LineCutter(first, limit=limit, max_chars=max_chars, char_offset=char_offset)
    async with aclosing(reader.text_from(first)) as pieces:
        async for piece in pieces:
            if cutter.feed(piece):
                break
    return cutter.finish()


async def stored_ends(reader: ContentReader, first: int) -> list[Line]:
    """The ends of all lines of stored content from ``first`` on; what stands before these is not read."""
    ends = LineEnds(first)
    async with aclosing(reader.text_from(first)) as pieces:
        async for piece in pieces:
            ends.feed(piece)
    return ends.finish()


async def stored_matches(reader: ContentReader, offset: int, search: LineSearch) -> list[FoundLine]:
    """The matching lines from ``offset`` on, in parts of the content that a few worker threads search at a time.

    They may end before the content does: see ``search.stopped``.

    Raises:
        ToolError: ``offset`` is past the end.
        WorkLimitReached: not even the first line could be searched.
    """
    total = reader.stored.lines
    if offset > max(1, total):
        raise ToolError(f"offset={offset} is past the end: there are {total:,} lines")
    runs = (await reader.run_from(offset)).shared_out(_SEARCHERS, reader.longest_run, first=_FIRST_RUN_BLOCKS)
    for number, run in enumerate(runs):  # alone, so that the others cannot use up the budget before
        await _add(search, await _search_run(reader, run, search, starts_line=not number))
        if search.line_ended or search.done:
            break
    if not search.done:
        await _search_together(reader, runs, search)
    found = await run_in_steps(lambda: search.finish(total))
    if search.stopped is not None and search.stopped.number <= offset:
        go_on = f". To search the lines after line {offset:,}: offset={offset + 1}" if offset < total else ""
        raise WorkLimitReached(f"{search.stopped.error}{go_on}") from search.stopped.error
    return found


async def _search_together(reader: ContentReader, runs: Iterator[BlockRange], search: LineSearch) -> None:
    """Search runs in a few worker threads, as long as something is wanted."""
    numbered = enumerate(runs)
    early: dict[int, SearchedPart | CtxfsError] = {}
    turn, failure = 0, None
    send, receive = anyio.create_memory_object_stream[tuple[int, SearchedPart | CtxfsError]]()
    async with receive, anyio.create_task_group() as group:
        for _ in range(_SEARCHERS):
            group.start_soon(_search_runs, reader, numbered, search, send.clone())
        send.close()
        async for number, found in receive:
            early[number] = found
            while not search.done and failure is None and turn in early:
                part = early.pop(turn)
                turn += 1
                if isinstance(part, CtxfsError):
                    failure = part
                else:
                    await _add(search, part)
            if search.done or failure is not None:
                group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _add(search: LineSearch, part: SearchedPart) -> None:
    if search.add(part):
        await run_in_steps(search.search_shared)


async def _search_runs(
    reader: ContentReader,
    runs: Iterator[tuple[int, BlockRange]],
    search: LineSearch,
    send: MemoryObjectSendStream[tuple[int, SearchedPart | CtxfsError]],
) -> None:
    """Read, check and search one run after the other, of those that nobody else took; an error goes to its turn."""
    found: SearchedPart | CtxfsError
    async with send:
        for number, run in runs:
            try:
                found = await _search_run(reader, run, search)
            except CtxfsError as error:
                found = error
            await send.send((number, found))


async def _search_run(
    reader: ContentReader, run: BlockRange, search: LineSearch, *, starts_line: bool = False
) -> SearchedPart:
    pieces = await reader.read_run(run)

    def searched() -> SearchedPart:
        with closing(pieces):
            wanted = takewhile(lambda _: not search.done, pieces)
            return search_part(search.pattern, wanted, search.max_matches, starts_line=starts_line)

    return await run_in_steps(searched)


async def read_page(
    fs: ContextFileSystem,
    item_id: str,
    *,
    first: int,
    limit: int,
    char_offset: int | None,
    max_tokens: int,
    counter: TokenCounter | None,
) -> ToolResult:
    """A page of an item's stored content, with the lines that it shows as its source.

    ``max_tokens`` bounds its text and, beside that, the images and documents on its lines; one comes in any case, of at
    most ``MAX_MEDIUM_TOKENS``, so that each can be seen again.
    """
    reader = fs.reader(item_id)
    max_chars = max_tokens * CHARS_PER_TOKEN
    lines = await stored_lines(reader, first, limit=limit, max_chars=max_chars, char_offset=char_offset)
    total = reader.stored.lines
    if not lines:
        return page_result(None, first, total)
    media = await reader.media(first, lines[-1].number)
    page = await rendered(lines, total, max_tokens - (_NOTE_TOKENS if media else 0), counter)
    source = ContentRange(
        item_id=item_id, path=fs.path_of(reader.stored.name), first_line=page.first_line, last_line=page.last_line
    )
    result = page_result(page, first, total, source)
    on_page = [(line, block) for line, block in media if line <= page.last_line]
    if not on_page:
        return result
    content = await run_in_steps(lambda: _with_media(page.text, on_page, max_tokens, counter or default_counter()))
    return replace(result, content=content)


def _with_media(
    text: str, media: Sequence[tuple[int, Block]], max_tokens: int, counter: TokenCounter
) -> tuple[Block, ...]:
    """A page's text, then the images and documents on its lines: as many as fit beside it, and at least one."""
    shown: list[Block] = []
    notes: list[str] = []
    used = 0
    for line, block in media:
        tokens = count_block(counter, block)
        if tokens > MAX_MEDIUM_TOKENS:
            notes.append(f"line {line:,}: {tokens:,} tokens are too many to be shown")
        elif shown and (used + tokens > max_tokens or len(shown) == MAX_MEDIA):
            notes.append(f"line {line:,}: offset={line}, limit=1")
        else:
            shown.append(block)
            used += tokens
    if notes:
        more = [f"and {len(notes) - _NOTED:,} more"] if len(notes) > _NOTED else []
        text = f"{text}\n[not shown with this page: {'; '.join([*notes[:_NOTED], *more])}]"
    return ({"type": "text", "text": text}, *shown)


async def rendered(lines: list[Line], total_lines: int | None, max_tokens: int, counter: TokenCounter | None) -> Page:
    """The page, made in a worker thread: counting tokens takes a while."""
    return await run_in_steps(
        lambda: render_page(lines, total_lines=total_lines, max_tokens=max_tokens, counter=counter or default_counter())
    )


def page_result(
    page: Page | None, first: int, total_lines: int | None, source: ContentRange | None = None
) -> ToolResult:
    """The page as a result; no page means that line ``first`` does not exist.

    Raises:
        ToolError: ``first`` is past the end.
    """
    if page is not None:
        return ToolResult(page.text, source=source)
    if not total_lines:
        return ToolResult("[it is empty]")
    raise ToolError(f"offset={first} is past the end: there are {total_lines:,} lines")
