"""One search for everybody: all its matchers find the same lines, and hits come before the end of the search."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs import Context, ContextFileSystem
from ctxfs.errors import WorkLimitReached
from ctxfs.messages.messages import UserMessage
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.entries import entries
from ctxfs.storage.urls import stores_at
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.recall.archive import PastSession
from ctxfs.tools.search.contents import matches_in, require_progress
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.search import CutLines, Hit, Holdings, Query, Searched, Unread, WholeLines, search
from ctxfs.tools.search.sessions import Problem, search_held, search_session
from session_items import tool_result

pytestmark = pytest.mark.anyio

QUERY = Query(pattern="needle")
UNBOUNDED = CpuBudget(None)


@pytest.fixture
async def fs(tmp_path: Path) -> AsyncIterator[ContextFileSystem]:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        for n in range(1, 4):
            await fs.writer.store([tool_result(fs, f"first\nneedle {n}\nneedle again\nlast\n" * 20)])
        yield fs


async def test_the_bounded_and_the_whole_search_find_the_same_lines(fs: ContextFileSystem) -> None:
    whole = [
        (one.item.item_id, one.line.number)
        async for one in search_held(fs, QUERY, WholeLines(QUERY, QUERY.compiled(UNBOUNDED)))
        if isinstance(one, Hit)
    ]
    cut = [
        (one.item.item_id, one.line.number)
        async for one in search_held(fs, QUERY, CutLines(QUERY.compiled(UNBOUNDED), 1_000))
        if isinstance(one, Hit)
    ]
    assert whole == cut
    assert len(whole) == 3 * 40


async def test_all_that_ever_was_is_searched_by_the_same_search(fs: ContextFileSystem) -> None:
    past = PastSession(fs)
    await past.refresh()
    items = list(past.past.items.values())
    found = [one async for one in search(past, CutLines(LinePattern("needle"), 2), items, first_line=3)]
    ends = [one.end.next_line for one in found if isinstance(one, Searched)]
    lines = [one.line.number for one in found if isinstance(one, Hit)]
    assert lines == [3, 6, 2, 3, 2, 3], "only the first item is searched from a later line on"
    assert ends == [7, 6, 6]


async def test_a_damaged_content_does_not_end_the_search(fs: ContextFileSystem) -> None:
    os.truncate(_file(fs, 1), 40)
    held = Holdings(fs)
    matcher = CutLines(LinePattern("needle"), 1)
    found = [one async for one in search_held(fs, QUERY, matcher)]
    assert [type(one) for one in found] == [Hit, Searched, Problem, Hit, Searched]
    again = [one async for one in search(held, matcher, await entries(fs))]
    assert [one.item.item_id for one in again if isinstance(one, Unread)] == [list(fs.state.stored)[1]]


def _file(fs: ContextFileSystem, place: int) -> Path:
    return Path(fs.base) / list(fs.state.stored.values())[place].name


async def test_a_content_is_searched_only_once_the_hits_before_it_were_taken(fs: ContextFileSystem) -> None:
    """The file of the last item is damaged after the first hit: what was streamed does not depend on it."""
    found = search_held(fs, QUERY, CutLines(LinePattern("needle"), 1))
    first = await anext(found)
    assert isinstance(first, Hit)
    os.truncate(_file(fs, 2), 40)
    rest = [one async for one in found]
    assert isinstance(rest[-1], Problem)


async def test_a_session_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    stores = stores_at(tmp_path)
    matcher = CutLines(LinePattern("needle"), 1)
    found = [one async for one in search_session(stores, "none", QUERY, matcher)]
    assert [type(one) for one in found] == [Problem]


async def test_each_content_has_a_budget_of_its_own_if_that_is_asked_for(fs: ContextFileSystem) -> None:
    used_up = LinePattern("needle", budget=CpuBudget(0.5))
    used_up.budget.charge_since(used_up.budget.now() - 1)
    assert used_up.budget.left_s <= 0
    stopped = [one async for one in search_held(fs, QUERY, CutLines(used_up, 1)) if isinstance(one, Hit)]
    assert not stopped
    found = [one async for one in search_held(fs, QUERY, CutLines(used_up, 1, budget_each=True))]
    assert len([one for one in found if isinstance(one, Hit)]) == 3


texts = st.text(st.sampled_from("ab\n"), max_size=60)


@given(text=texts, first=st.integers(1, 8), most=st.integers(1, 4))
@settings(max_examples=60)
async def test_a_search_that_goes_on_where_it_ended_finds_each_line_once(text: str, first: int, most: int) -> None:
    lines = text.removesuffix("\n").split("\n") if text else []
    wanted = [number for number, line in enumerate(lines, 1) if "a" in line and number >= first]
    found: list[int] = []
    following: int | None = first
    while following is not None:
        part = await matches_in(text, LinePattern("a", budget=UNBOUNDED), first=following, most=most)
        assert part.total_lines == len(lines)
        assert len(part.lines) <= most
        found += [line.number for line in part.lines]
        following = part.next_line
    assert found == wanted


async def test_a_line_that_is_too_long_is_gone_past(tmp_path: Path) -> None:
    text = "one abd\n" + "a" * 3_000_000 + "\nacd"

    def pattern() -> LinePattern:
        return LinePattern(".*(b|c)d", budget=CpuBudget(0.6, clock=lambda: 0.0))

    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        await fs.writer.store([tool_result(fs, text)])
        contents: list[ContentReader | str] = [text, fs.reader("call_1")]
        for content in contents:
            found = await matches_in(content, pattern(), most=5)
            assert [line.number for line in found.lines] == [1]
            assert found.stopped is not None
            assert found.next_line == 3
            rest = await matches_in(content, pattern(), first=3, most=5)
            assert [line.number for line in rest.lines] == [3]
            stuck = await matches_in(content, pattern(), first=2, most=5)
            with pytest.raises(WorkLimitReached, match="offset=3"):
                require_progress(stuck, 2)


async def test_what_is_only_in_the_context_is_searched_too(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path) as context:
        await context.add(UserMessage("a needle\nand more"))
        found = [one async for one in search_held(context.fs, QUERY, CutLines(LinePattern("needle"), 1))]
    assert [type(one) for one in found] == [Hit, Searched]
