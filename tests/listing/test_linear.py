"""Work on a session grows with its items, and not with their square: lines of code are counted, never time."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

import ctxfs
from ctxfs import Context
from ctxfs.messages import ToolMessage, Usage, UserMessage
from ctxfs.messages.messages import AssistantMessage
from ctxfs.session import erase_plan, usage_by_session
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.storage import threads
from ctxfs.storage.urls import stores_at
from ctxfs.view.session_page import session_page
from ctxfs.view.sources import OpenSessions
from line_count import counted_lines

EXCHANGES = (25, 50, 100)
OURS = str(Path(ctxfs.__file__).parent)


async def make(root: Path, exchanges: int) -> None:
    """A session whose items are all in the context; every tenth result is large."""
    async with Context("s", root_path=root, window=None, pricing=None) as context:
        for n in range(exchanges):
            call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"n": n}}
            await context.add(UserMessage(f"question {n}"), durable=False)
            await context.add(AssistantMessage((call,)), usage=Usage(input_tokens=9), model="claude", durable=False)
            text = f"{n} is a row of the log\n" * (400 if n % 10 == 0 else 3)
            await context.add(ToolMessage(f"c{n}", "log", text), AssistantMessage(f"done {n}"), durable=False)


async def erasing(root: Path) -> None:
    assert (await erase_plan("s", ["c1"], root_path=root)).items


async def listing(root: Path) -> None:
    assert [one.error for one in await list_summaries(stores_at(root))] == [None]


async def usage(root: Path) -> None:
    assert len(await usage_by_session(root)) == 1


async def page(root: Path) -> None:
    sessions = OpenSessions(stores_at(root))
    try:
        opened = await sessions.get("s")
        for panel in ("timeline", "items", "warnings"):
            await session_page(opened, panel, {})
    finally:
        await sessions.close()


def lines_run(work: Callable[[], Awaitable[None]]) -> int:
    """How many lines of ctxfs run, in whichever thread, until ``work`` is done."""
    threads._threads.cache_clear()  # noqa: SLF001 - only threads that begin from here on are counted
    try:
        with counted_lines(OURS) as lines:
            anyio.run(work)
    finally:
        threads._threads.cache_clear()  # noqa: SLF001
    return lines.run


@pytest.mark.slow
@pytest.mark.no_cover  # this is another tracer
@pytest.mark.parametrize("what", [erasing, listing, usage, page])
def test_twice_the_items_take_twice_the_work(what: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    counts: list[int] = []
    for exchanges in EXCHANGES:
        root = tmp_path / str(exchanges)
        anyio.run(make, root, exchanges)
        counts.append(lines_run(lambda root=root: what(root)))  # type: ignore[misc]
    first, second, third = counts
    # The same from 50 to 100 as from 25 to 50, twice: a square would be four times as much.
    assert second - first > EXCHANGES[0], counts
    assert third - second < 2.1 * (second - first), counts
