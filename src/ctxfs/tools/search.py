"""Searching stored content in a few worker threads, part by part, each checked before it is searched."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing, closing
from itertools import takewhile
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from ctxfs.errors import CtxfsError, ToolError, WorkLimitReached
from ctxfs.session.content.reader import BlockRange, ContentReader
from ctxfs.text.steps import run_in_steps
from ctxfs.tools.grep import FoundLine, LineSearch, SearchedPart, search_part

_FIRST_RUN_BLOCKS = 2
_SEARCHERS = 4  # more than processors, since decoding holds the interpreter

T = TypeVar("T")


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
    numbered, failure = enumerate(runs), None
    send, receive = anyio.create_memory_object_stream[tuple[int, SearchedPart | CtxfsError]]()
    async with receive, anyio.create_task_group() as group:
        for _ in range(_SEARCHERS):
            group.start_soon(_search_runs, reader, numbered, search, send.clone())
        send.close()
        async with aclosing(in_order(receive)) as parts:
            async for part in parts:
                if isinstance(part, CtxfsError):
                    failure = part
                else:
                    await _add(search, part)
                if search.done or failure is not None:
                    break
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def in_order(results: AsyncIterable[tuple[int, T]]) -> AsyncGenerator[T, None]:
    """Yield numbered results, which come in any order, by their numbers from 0 on."""
    early: dict[int, T] = {}
    turn = 0
    async for number, result in results:
        early[number] = result
        while turn in early:
            yield early.pop(turn)
            turn += 1


async def _add(search: LineSearch, part: SearchedPart) -> None:
    if search.add(part):
        await run_in_steps(search.search_shared)


async def _search_runs(
    reader: ContentReader,
    runs: Iterator[tuple[int, BlockRange]],
    search: LineSearch,
    send: MemoryObjectSendStream[tuple[int, SearchedPart | CtxfsError]],
) -> None:
    """Worker: take the next unclaimed range, check and search it. An error is reported at that range's position."""
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
