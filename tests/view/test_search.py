"""The page's search: hits are streamed, nothing is found twice or missed, and one bad session hides no other."""

from dataclasses import replace
from pathlib import Path

import pytest

from ctxfs import ContextFileSystem
from ctxfs.session.listing.catalogue import list_summaries, seen_sessions
from ctxfs.storage import LocalSessions
from ctxfs.storage.local import LocalStore
from ctxfs.storage.sessions import SessionFound
from ctxfs.tools.search.sessions import Problem
from ctxfs.view import search as module
from ctxfs.view.overview import chosen_rows
from ctxfs.view.search import FoundItem, Progress, search_all, search_sessions
from ctxfs.view.sources import OpenSessions
from session_items import tool_result

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]
ITEMS = 4


class Watched(LocalSessions):
    """Remembers which sessions were asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []
        self.closed: set[str] = set()

    def store(self, session_id: str) -> LocalStore:
        self.asked.append(session_id)
        return super().store(session_id)

    async def sessions(self) -> list[SessionFound]:
        """Without those in directories that may not be read, as for another user."""
        return [one for one in await super().sessions() if one.session_id not in self.closed]


@pytest.fixture
async def stores(tmp_path: Path) -> Watched:
    for name in ("s1", "s2", "s3"):
        async with ContextFileSystem(name, root_path=tmp_path) as fs:
            for n in range(ITEMS):
                await fs.writer.store([tool_result(fs, f"needle {n} at {name}\n" * 5)])
    return Watched(tmp_path)


def stored_of(stores: Watched, session_id: str) -> Path:
    """The file of one of its contents."""
    return next((stores.directory / session_id).rglob("tool_result/**/*.json*"))


async def found(stores: Watched, pattern: str, **where: int) -> list[FoundItem | Problem | Progress]:
    rows = chosen_rows(await list_summaries(stores), sort="name")
    return [one async for one in search_sessions(stores, rows, pattern, **where)]


async def test_a_hit_is_there_before_the_next_session_is_opened(stores: Watched) -> None:
    rows = chosen_rows(await list_summaries(stores), sort="name")
    stores.asked.clear()
    searched = search_sessions(stores, rows, "needle")
    first = await anext(searched)
    assert isinstance(first, FoundItem)
    assert (first.session_id, [line.text for line in first.lines], first.more) == ("s1", ["needle 0 at s1"] * 3, True)
    assert stores.asked == ["s1"]
    await searched.aclose()
    assert stores.asked == ["s1"], "who leaves ends the search"


async def test_a_hit_says_what_its_session_asked_and_what_matched(tmp_path: Path) -> None:
    for name in ("s1", "s2"):
        async with ContextFileSystem(name, root_path=tmp_path) as fs:
            await fs.writer.store([tool_result(fs, f"a <needle> {n}\n") for n in range(2)])
    untitled = chosen_rows(await list_summaries(LocalSessions(tmp_path)), sort="name")
    rows = [replace(untitled[0], title="Where is it?"), untitled[1]]
    searched = search_sessions(LocalSessions(tmp_path), rows, "<n.*>")
    page = [one async for one in searched if isinstance(one, FoundItem)]
    assert [(one.title, one.is_first) for one in page] == [
        ("Where is it?", True),
        ("Where is it?", False),
        ("s2", True),
        ("s2", False),
    ]
    assert page[0].pieces == [[("a ", False), ("<needle>", True), (" 0", False)]]


async def test_a_session_without_the_words_is_not_opened(stores: Watched) -> None:
    await list_summaries(stores)
    stores.asked.clear()
    assert [one.session_id for one in await found(stores, "needle 2 at s2") if isinstance(one, FoundItem)] == ["s2"]
    assert stores.asked == ["s2"]


async def test_a_search_that_is_continued_finds_each_item_once(
    stores: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ITEMS", 3)
    seen: list[tuple[str, str]] = []
    where = {"first": 0, "skip": 0}
    for _ in range(10):
        page = await found(stores, "needle", **where)
        seen += [(one.session_id, one.item_id) for one in page if isinstance(one, FoundItem)]
        end = page[-1]
        assert isinstance(end, Progress)
        assert end.ended
        if end.next_place is None:
            break
        where = {"first": end.next_place, "skip": end.skip}
    assert len(seen) == len(set(seen)) == 3 * ITEMS


async def test_one_bad_session_hides_no_other(stores: Watched) -> None:
    (stores.directory / "s1").chmod(0o777)
    page = await found(stores, "needle")
    assert ["s1" in one.text for one in page if isinstance(one, Problem)] == [True]
    assert {one.session_id for one in page if isinstance(one, FoundItem)} == {"s2", "s3"}


async def test_sessions_that_were_never_listed_are_searched_before_they_are(stores: Watched) -> None:
    stored_of(stores, "s1").unlink()
    searched = search_all(OpenSessions(stores), "needle 2 at s2")
    first = await anext(searched)
    assert isinstance(first, FoundItem)
    assert (first.session_id, first.title) == ("s2", "s2")
    assert stores.asked == ["s2"], "no other could match"
    _, damaged = [one async for one in searched]
    assert isinstance(damaged, Problem)
    assert "s1" in damaged.text, "what it has lost might have matched"
    stores.asked.clear()
    page = [one async for one in search_all(OpenSessions(stores), "needle 2 at s2")]
    assert [type(one) for one in page] == [FoundItem, Problem, Progress], "by now they are listed, and s1 is known"


async def test_a_problem_is_told_once(stores: Watched) -> None:
    stored_of(stores, "s1").unlink()
    page = [one async for one in search_all(OpenSessions(stores), "needle")]
    assert len([one for one in page if isinstance(one, Problem)]) == 1


async def test_a_session_that_may_not_be_read_has_its_place_before_the_list_is_there(stores: Watched) -> None:
    stores.closed = {"s2"}
    sessions = OpenSessions(stores)
    before = {one.session_id for one in await seen_sessions(stores)}
    assert before == {one.session_id for one in await sessions.summaries()} == {"s1", "s2", "s3"}


async def test_a_page_that_goes_on_does_not_tell_again_what_is_damaged(stores: Watched) -> None:
    stored_of(stores, "s1").unlink()
    page = [one async for one in search_all(OpenSessions(stores), "needle 2 at s2", first=1)]
    assert [one for one in page if isinstance(one, Problem)] == []
