"""Searching one content: a text, or a stored one in a few worker threads, each part checked before it is searched."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from ctxfs.errors import CtxfsError, ToolError, WorkLimitReached
from ctxfs.eviction.placeholder.lines import line_count
from ctxfs.session.content.reader import LONGEST_RUN_BLOCKS, BlockRange, ContentReader
from ctxfs.storage.task_group import TaskGroup
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import FoundLine, LineSearch, SearchedPart, Stopped, search_part

_FIRST_RUN_BLOCKS = 2
_SEARCHERS = 4  # more than processors, since decoding holds the interpreter

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matching lines of one content, in order, at most as many as were wanted.

    ``next_line``: where to go on: at the next line that matches, or the first one that was not searched, or after a
    line that is too long for the pattern; None: there is nothing left.
    ``stopped``: why the lines from there on were not searched; None: they were, as far as something was wanted.
    ``total_lines``: how many lines the content has.
    """

    lines: Sequence[FoundLine]
    next_line: int | None
    stopped: Stopped | None
    total_lines: int


async def matches_in(content: ContentReader | str, pattern: LinePattern, *, first: int = 1, most: int) -> Matches:
    """Search one content, a stored one or a text, from line ``first`` on; nothing matches after its last line.

    It ends early when the pattern's budget is used up. Raises what reading a stored content raises.
    """
    search = LineSearch(pattern, most)
    if isinstance(content, str):
        return await run_in_steps(lambda: _matches_in_text(content, search, first))
    total = content.stored.lines
    if first > max(1, total):
        return Matches(lines=(), next_line=None, stopped=None, total_lines=total)
    return _matches(await _stored_lines(content, first, search), search, total)


def require_progress(found: Matches, first: int, *, offset: str = "offset") -> None:
    """Raise an error if a search from line ``first`` on, whose caller gives nothing else back, found out nothing.

    ``offset``: the argument in which the caller takes ``first``.

    Raises:
        ToolError: ``first`` is past the end.
        WorkLimitReached: not even that line could be searched.
    """
    total = found.total_lines
    if first > max(1, total):
        raise ToolError(f"{offset}={first} is past the end: there are {total:,} lines")
    stopped = found.stopped
    if stopped is not None and stopped.number <= first:
        go_on = f". To search the lines after line {first:,}: {offset}={first + 1}" if first < total else ""
        raise WorkLimitReached(f"{stopped.error}{go_on}") from stopped.error


def _matches(found: list[FoundLine], search: LineSearch, total_lines: int) -> Matches:
    most = search.max_matches
    if len(found) > most:  # where it stopped after that does not matter
        return Matches(lines=found[:most], next_line=found[most].number, stopped=None, total_lines=total_lines)
    stopped = search.stopped
    next_line = None
    if stopped is not None and not stopped.error.line_too_long:
        next_line = stopped.number
    elif stopped is not None and stopped.number < total_lines:  # that line would stop the next search as well
        next_line = stopped.number + 1
    return Matches(lines=found, next_line=next_line, stopped=stopped, total_lines=total_lines)


def _matches_in_text(text: str, search: LineSearch, first: int) -> Matches:
    total = line_count(text)
    if first > max(1, total):
        return Matches(lines=(), next_line=None, stopped=None, total_lines=total)
    searched = text.split("\n", first - 1)[-1].encode("utf-8", "surrogatepass")
    if searched:
        search.add(search_part(search.pattern, [(first - 1, searched)], search.max_matches, starts_line=True))
    return _matches(search.finish(total), search, total)


async def _stored_lines(reader: ContentReader, first: int, search: LineSearch) -> list[FoundLine]:
    """The matching lines from ``first`` on, in parts of the content that a few worker threads search at a time."""
    rest = await reader.run_from(first)
    runs = rest.shared_out(_SEARCHERS, LONGEST_RUN_BLOCKS, first=_FIRST_RUN_BLOCKS)
    for number, run in enumerate(runs):  # alone, so that the others cannot use up the budget before
        await _add(search, await _search_run(reader, run, search, starts_line=number == 0))
        if search.line_ended or search.done:
            break
    if not search.done:
        await _search_together(reader, runs, search)
    return await run_in_steps(lambda: search.finish(reader.stored.lines))


async def _search_together(reader: ContentReader, runs: Iterator[BlockRange], search: LineSearch) -> None:
    """Search runs in a few worker threads, as long as something is wanted."""
    numbered = enumerate(runs)
    failure: CtxfsError | None = None
    send, receive = anyio.create_memory_object_stream[tuple[int, SearchedPart | CtxfsError]]()
    async with receive, TaskGroup() as group:
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
        group.cancel()
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
