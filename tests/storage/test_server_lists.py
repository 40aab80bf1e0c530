"""The list of the sessions on a server: it costs no request for a session that was released and not opened since."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxfs import Context
from ctxfs.errors import SessionLocked, SessionNotFound, StorageError
from ctxfs.messages import UserMessage
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.storage.sessions import SessionFound
from ctxfs.stores import ObjectStore
from ctxfs.stores.objects.row import session_prefix
from ctxfs.stores.objects.sessions import ObjectSessions
from storage.buckets import MemoryBucket


def opened(bucket: MemoryBucket, name: str) -> ObjectStore:
    return ObjectStore(bucket, name, ttl_s=0, give_up_s=0).open(create=True, write=True)


def commit(session: ObjectStore, line: bytes = b"line\n") -> None:
    session.commit([], lambda: line)


def listed(stores: ObjectSessions, known: Iterable[SessionFound] = ()) -> list[SessionFound]:
    return anyio.run(stores.sessions, known)


def kinds(bucket: MemoryBucket) -> list[str]:
    made = [kind for kind, _ in bucket.requests]
    bucket.requests.clear()
    return made


def test_a_session_whose_newest_segment_is_damaged_hides_no_other() -> None:
    bucket = MemoryBucket()
    for name in ("a", "b"):
        session = opened(bucket, name)
        commit(session)
        session.close()
    last = max(key for key in bucket.objects if key.startswith(session_prefix("a") + "s/"))
    bucket.objects[last] = b"?" + bucket.objects[last][1:]
    found = {one.session_id: one for one in listed(ObjectSessions(bucket, url="test"))}
    assert (found["a"].changed_at, found["a"].mark) == (0.0, "")
    assert found["b"].changed_at > 0
    rows = {row.session_id: row for row in anyio.run(list_summaries, ObjectSessions(bucket, url="test"))}
    assert "damaged" in str(rows["a"].error)


def test_a_released_session_costs_a_request_only_once() -> None:
    bucket = MemoryBucket()
    for name in ("a", "b", "c"):
        session = opened(bucket, name)
        commit(session)
        session.close()
    bucket.requests.clear()
    first = listed(ObjectSessions(bucket, url="test"))
    assert sorted(kinds(bucket)) == ["get"] * 3 + ["list"] * 4
    stores = ObjectSessions(bucket, url="test")
    assert listed(stores, first) == first
    assert kinds(bucket) == ["list"]
    assert listed(stores) == first, "it remembers by itself"
    assert kinds(bucket) == ["list"]
    again = opened(bucket, "b")
    bucket.requests.clear()
    second = listed(stores)
    assert sorted(kinds(bucket)) == ["get", "list", "list"]
    assert [one.version == before.version for one, before in zip(second, first, strict=True)] == [True, False, True]
    assert listed(stores) == second
    assert kinds(bucket) == ["list", "list"], "a writer that has it may write without a new mark"
    commit(again)
    assert listed(stores) != second
    again.close()
    third = listed(stores)
    bucket.requests.clear()
    assert listed(stores) == third
    assert kinds(bucket) == ["list"]


def test_a_session_of_many_writers_has_few_marks_and_a_removed_one_has_none() -> None:
    bucket = MemoryBucket()
    for _ in range(20):
        opened(bucket, "a").close()
        assert len([key for key in bucket.objects if key.startswith("sessions/")]) <= 2
    opened(bucket, "a").remove()
    assert not [key for key in bucket.objects if key.startswith("sessions/")]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_writer_that_comes_too_late_leaves_no_mark_of_a_removed_session(*, is_made_again: bool) -> None:
    bucket = MemoryBucket()
    commit(session := opened(bucket, "a"))

    def remove_meanwhile(key: str) -> str:
        """The session is removed just before the late writer's mark is made."""
        if key.startswith("sessions/"):
            bucket.fate = lambda _: "done"
            session.remove()
            if is_made_again:
                opened(bucket, "a").close()
        return "done"

    late = ObjectStore(bucket, "a", ttl_s=0, give_up_s=0)
    bucket.fate = remove_meanwhile  # type: ignore[assignment]
    if is_made_again:
        late.open(create=False, write=True).remove()
    else:
        with pytest.raises(SessionNotFound):
            late.open(create=False, write=True)
    assert not [key for key in bucket.objects if key.startswith("sessions/")]


ACTS = ("open", "commit", "close", "die", "remove", "fail to open")


@settings(deadline=None)
@example([("open", False), ("close", False), ("fail to open", True), ("open", True)])
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.booleans()), min_size=4, max_size=30))
def test_a_list_that_remembers_is_that_of_who_looks_anew(acts: list[tuple[str, bool]]) -> None:
    """Over random histories of writers that come, die, fail, take over and remove, listed after some of their acts."""
    bucket, writers = MemoryBucket(), list[ObjectStore]()
    stores = ObjectSessions(bucket, url="test")
    for act, is_listed in acts:
        with suppress(SessionLocked, SessionNotFound, StorageError):
            _act(bucket, act, writers)
        if is_listed:
            found = _shown(listed(stores))
            assert found == _shown(listed(ObjectSessions(bucket, url="test")))
            assert bool(found) == _is_there(bucket)


def _is_there(bucket: MemoryBucket) -> bool:
    try:
        ObjectStore(bucket, "a").open(create=False, write=False)
    except SessionNotFound:
        return False
    return True


def _shown(found: list[SessionFound]) -> list[tuple[str, str, float]]:
    return [(one.session_id, one.version, one.changed_at) for one in found]


def _act(bucket: MemoryBucket, act: str, writers: list[ObjectStore]) -> None:
    match act:
        case "open":
            writers.append(opened(bucket, "a"))
        case "fail to open":  # its mark is made, its segment is not
            bucket.fate = lambda key: "done" if key.startswith("sessions/") else "refused"
            try:
                opened(bucket, "a")
            finally:
                bucket.fate = lambda _: "done"
        case _ if not writers:
            return
        case "die":
            writers.pop()
        case "commit":
            commit(writers[-1])
        case "close":
            writers.pop().close()
        case "remove":
            writers.pop().remove()


async def _write(stores: ObjectSessions, session_id: str) -> None:
    async with Context(session_id, root_path=stores) as context:
        await context.add(UserMessage(content="Hello"))


def test_a_server_is_summed_up_from_what_changed(tmp_path: Path) -> None:
    bucket, path = MemoryBucket(), tmp_path / "caches" / "list.sqlite"

    def place() -> ObjectSessions:
        return ObjectSessions(bucket, url="test", list_path=path)

    def summed_up() -> dict[str, SessionSummary]:
        bucket.requests.clear()
        return {found.session_id: found for found in anyio.run(list_summaries, place())}

    for name in ("a", "b"):
        anyio.run(_write, place(), name)
    first = summed_up()
    assert kinds(bucket).count("list") == 1 + 2 * 3, "of each session: its last segment, its chunks, its segments"
    assert {name: found.error for name, found in first.items()} == {"a": None, "b": None}
    assert summed_up() == first
    assert kinds(bucket) == ["list"]
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    anyio.run(_write, place(), "b")
    second = summed_up()
    assert not any(key.startswith(session_prefix("a")) for _, key in bucket.requests)
    assert second["a"] == first["a"]
    assert second["b"].disk_bytes > first["b"].disk_bytes
    anyio.run(place().remove, "b")
    assert summed_up() == {"a": first["a"]}
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT session_id FROM sessions").fetchall() == [("a",)]
    path.write_bytes(b"damaged")
    assert summed_up() == {"a": first["a"]}


def test_a_session_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="test", list_path=tmp_path / "list.sqlite")
    anyio.run(_write, stores, "a")
    first = next(key for key in sorted(bucket.objects) if "/s/" in key)
    data = bucket.objects.pop(first)
    (broken,) = anyio.run(list_summaries, stores)
    assert broken.error is not None
    bucket.objects[first] = data
    (whole,) = anyio.run(list_summaries, stores)
    assert whole.error is None
