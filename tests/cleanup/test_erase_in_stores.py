"""Erasing and pruning in shared stores: nothing of the content is left, even if a writer is killed or was idle."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from cleanup.test_erase import SECRET, everything, put_in
from ctxfs.errors import ConfigError, ContentGone, CtxfsError, NotStored, SessionLocked, UnknownItem, WriteFailed
from ctxfs.messages.names import ENVELOPE
from ctxfs.session import Pruned, erase, erase_plan, prune
from ctxfs.session.cleanup.contents import prune_plans
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.base import NewFile
from ctxfs.storage.memory import MemorySessions
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import ObjectSessions, PostgresBucket, ReadCache, open_bucket
from plain_store import PlainStore
from session_items import tool_result
from storage.buckets import Fate, MemoryBucket
from storage.contest import bucket_at
from storage.object_servers import seaweedfs
from storage.postgres_server import postgres

pytestmark = pytest.mark.not_measured

FORMS = (SECRET.encode(), SECRET.encode("unicode_escape"), SECRET.replace('"', '\\"').encode())
AS_IT_IS = replace(ENVELOPE, compress_from_chars=0)
KINDS = ("inline", "stored", "evicted", "archived", "page", "large")


async def make(stores: SessionStores, session_id: str = "s") -> list[str]:
    """A session with the secret in items of all kinds, and as much that has to stay; returns the ids of the former."""
    asked = list[str]()
    async with ContextFileSystem(session_id, root_path=stores, layout=AS_IT_IS) as fs:
        for kind in KINDS:
            await put_in(fs, kind, f"harmless {kind}", f"other_{kind}")
            asked.append(await put_in(fs, kind, SECRET, f"call_{kind}"))
        blob = tool_result(fs, "".join(f"{SECRET} {n * n * 7919:x}\n" for n in range(40_000)), "call_own_object")
        await fs.writer.store([blob])
    return [*asked, blob.id]


def objects_with_it(bucket: MemoryBucket) -> list[str]:
    return [key for key, data in bucket.objects.items() if any(form in data for form in FORMS)]


def files_with_it(place: Path) -> list[Path]:
    files = (path for path in place.rglob("*") if path.is_file())
    return [path for path in files if any(form in path.read_bytes() for form in FORMS)]


def kept(said: dict[str, Any], erased: set[str]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name.split(" ", 1)[1] not in erased}


@pytest.mark.anyio
async def test_nothing_of_it_is_left_and_all_else_is_as_before(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects", cache=ReadCache(tmp_path / "cache"))
    asked = await make(stores)
    before = await everything(stores)
    assert files_with_it(tmp_path)
    assert objects_with_it(bucket)
    plan = await erase_plan("s", asked, root_path=stores)
    assert objects_with_it(bucket), "a plan changes nothing"
    assert await erase("s", asked, root_path=stores, reason="a password") == plan
    assert (plan.quoted_in, plan.other_sessions) == ((), ())
    assert objects_with_it(bucket) == []
    assert files_with_it(tmp_path) == []
    gone = {item.item_id for item in plan.items}
    after = await everything(stores)
    assert kept(after, gone) == kept(before, gone)
    assert SECRET not in repr(after)
    async with ContextFileSystem("s", root_path=stores) as fs:
        await fs.writer.store([tool_result(fs, "go on", "call_next")])
        with pytest.raises(ContentGone, match="a password"):
            await fs.load("call_large")
    assert (await everything(stores))["content call_next"] == "go on"
    async with ContextFileSystem("other", root_path=stores) as fs:
        await put_in(fs, "large", f"harmless {KINDS[-1]}", "call_1")
    plan = await erase_plan("s", ["other_large"], root_path=stores)
    assert plan.other_sessions == ("other",)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the requests are the same
async def test_a_crash_at_every_request_leaves_what_can_be_finished() -> None:
    """What was acknowledged before is there, the session opens, and erasing again finishes the rest."""
    made = MemoryBucket()
    asked = await make(ObjectSessions(made, url="objects"))
    before = await everything(ObjectSessions(made, url="objects"))
    requests, step = 10**9, 0
    while step < requests:
        bucket = MemoryBucket()
        bucket.objects.update(made.objects)
        sent = iter(range(10**9))

        def fate(_: str, sent: Iterator[int] = sent, step: int = step) -> Fate:
            return "done" if next(sent) < step else "lost"

        bucket.fate = fate
        stores = ObjectSessions(bucket, url="objects", ttl_s=0, give_up_s=0)
        try:
            plan = await erase("s", asked, root_path=stores)
        except CtxfsError:
            bucket.fate = lambda _: "done"
            said = await everything(stores)
            gone = {item.item_id for item in (await erase_plan("s", asked, root_path=stores)).items}
            assert kept(said, gone) == kept(before, gone)
            contents = {said[name] is None for name in said if name in {f"content {item_id}" for item_id in asked}}
            assert len(contents) == 1, "all of them are there, or none is"
            plan = await erase("s", asked, root_path=stores)
        else:
            requests = step
        assert objects_with_it(bucket) == []
        gone = {item.item_id for item in plan.items}
        assert kept(await everything(stores), gone) == kept(before, gone)
        step += 1
    assert step > 12


@pytest.mark.anyio
async def test_an_agent_that_was_idle_is_refused_afterwards_and_one_that_works_refuses() -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects", ttl_s=0, give_up_s=0)
    asked = await make(stores)
    idle = ContextFileSystem("s", root_path=stores)
    await idle.open()
    await idle.writer.store([tool_result(idle, "its last words", "call_before")])
    with pytest.raises(SessionLocked):
        await erase("s", asked, root_path=ObjectSessions(bucket, url="objects", ttl_s=3_600))
    assert (await everything(stores))["content call_large"] is not None
    await erase("s", asked, root_path=stores)
    with pytest.raises(SessionLocked):
        await idle.writer.store([tool_result(idle, SECRET, "call_after")])
    with suppress(SessionLocked):
        await idle.close()
    assert objects_with_it(bucket) == []
    assert (await everything(stores))["content call_before"] == "its last words"


@pytest.mark.anyio
async def test_a_reader_that_was_open_reads_on() -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects")
    asked = await make(stores)
    async with ContextFileSystem("s", root_path=stores, read_only=True) as reader:
        assert SECRET in str(await reader.load("call_large"))
        await erase("s", asked, root_path=stores)
        assert "harmless evicted" in str(await reader.load("other_evicted"))
        assert (await reader.reader("other_large").load()).count("harmless large") == 4_000
        with pytest.raises(NotStored):
            await reader.load("call_large")
        assert SECRET not in repr(await reader.history())


@pytest.mark.slow
@pytest.mark.anyio
async def test_erasing_again_and_again_opens_in_few_requests() -> None:
    """The numbers of segments stay taken, and need not be read; a session of many commits goes on as any other."""
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects", ttl_s=0)
    for number in range(4):
        async with ContextFileSystem("s", root_path=stores) as fs:
            for each in range(70):
                await fs.writer.store([tool_result(fs, f"{SECRET} {number}", f"call_{number}_{each}")])
        await erase("s", [f"call_{number}_{each}" for each in range(60)], root_path=stores)
        said = await everything(stores)
        assert len([name for name, value in said.items() if value is not None]) == 10 * (number + 1)
    async with ContextFileSystem("s", root_path=stores) as fs:
        assert len(fs.state.removed) == 240
    bucket.requests.clear()
    async with ContextFileSystem("s", root_path=stores, read_only=True):
        assert len(bucket.requests) <= 14
    await stores.remove("s")
    async with ContextFileSystem("s", root_path=stores) as fs:
        await fs.writer.store([tool_result(fs, "another", "call_1")])
    assert list(await everything(stores)) == ["content call_1"]


@pytest.mark.anyio
async def test_wrong_input_changes_nothing() -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects")
    asked = await make(stores)
    before = dict(bucket.objects)
    with pytest.raises(ConfigError, match="ctxfs ls"):
        await erase_plan("s", [], root_path=stores)
    with pytest.raises(UnknownItem, match="call_x"):
        await erase_plan("s", [*asked, "call_x"], root_path=stores)
    with pytest.raises(TypeError, match="erase has no setting 'store': give it as root_path"):
        await erase("s", asked, store=stores)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="prune has no setting 'store': give it as root_path"):
        await prune(store=stores)  # type: ignore[call-arg]
    assert bucket.objects == before
    with pytest.raises(UnknownItem, match="call_x"):
        await erase("s", [*asked, "call_x"], root_path=stores)
    assert (await everything(stores))["content call_large"] is not None


class PlainSessions(MemorySessions):
    """Sessions in memory, of which nothing can be removed for good."""

    def store(self, session_id: str) -> PlainStore:  # type: ignore[override]
        return PlainStore(super().store(session_id))


@pytest.mark.anyio
async def test_a_store_that_cannot_remove_says_so_first() -> None:
    stores = PlainSessions()
    async with ContextFileSystem("s", root_path=stores) as fs:
        await put_in(fs, "large", SECRET, "call_1")
    with pytest.raises(ConfigError, match="its store needs `rewrite`"):
        await erase("s", ["call_1"], root_path=stores)
    assert "content call_1" in await everything(stores)


async def _dropped(stores: SessionStores) -> str:
    async with ContextFileSystem("s", root_path=stores) as fs:
        await put_in(fs, "stored", "harmless", "call_kept")
        return await put_in(fs, "dropped", random.Random(1).randbytes(10_000).hex(), "call_dropped")


@pytest.mark.anyio
async def test_what_is_pruned_takes_no_space_any_more() -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects")
    item_id = await _dropped(stores)
    size = sum(map(len, bucket.objects.values()))
    (plan,) = await prune_plans(root_path=stores, undo_s=0, grace_s=0)
    assert [one.item_id for one in plan.removed] == [item_id]
    (kept_all,) = await prune(root_path=stores)
    assert kept_all.removed == ()
    (done,) = await prune(root_path=stores, undo_s=0, grace_s=0)
    assert isinstance(done, Pruned)
    assert (done.removed, done.skipped) == (plan.removed, "")
    assert sum(map(len, bucket.objects.values())) < size - 10_000
    said = await everything(stores)
    assert said["content call_dropped"] is None
    assert said["content call_kept"] is not None
    busy = ObjectSessions(bucket, url="objects")
    async with ContextFileSystem("s", root_path=busy) as fs:
        await fs.writer.store([tool_result(fs, "x", "call_x")])
        assert (await prune(root_path=stores, undo_s=0, grace_s=0))[0].removed == ()


# Real stores ---------------------------------------------------------------------------------------------------------

KILLED = """
import os, sys, anyio
from ctxfs.session import erase
from ctxfs.stores import ObjectSessions, open_bucket
from ctxfs.stores.objects.bucket import ObstoreBucket

left = int(sys.argv[2])

def dying(name):
    work = getattr(ObstoreBucket, name)
    def write(self, *arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return work(self, *arguments)
    setattr(ObstoreBucket, name, write)

for name in ("create", "put", "delete"):
    dying(name)
stores = ObjectSessions(open_bucket(sys.argv[1]), url=sys.argv[1], ttl_s=0)
anyio.run(lambda: erase("s", sys.argv[3:], root_path=stores))
"""


@pytest.mark.service
@pytest.mark.parametrize("writes", [3, 5, 7, 8])
def test_a_process_that_is_killed_leaves_what_can_be_finished(tmp_path: Path, writes: int) -> None:
    place = tmp_path / "bucket"
    place.mkdir()
    stores = ObjectSessions(open_bucket(place.as_uri()), url=place.as_uri(), ttl_s=0)

    asked = anyio.run(make, stores)
    before = anyio.run(everything, stores)
    killed = subprocess.run([sys.executable, "-c", KILLED, place.as_uri(), str(writes), *asked], check=False)
    assert killed.returncode == -9
    assert files_with_it(place)
    anyio.run(everything, stores)
    plan = anyio.run(lambda: erase("s", asked, root_path=stores))
    assert files_with_it(place) == []
    gone = {item.item_id for item in plan.items}
    assert kept(anyio.run(everything, stores), gone) == kept(before, gone)


@pytest.mark.anyio
async def test_prune_removes_what_killed_writers_left_and_touches_no_other_session() -> None:
    bucket = MemoryBucket()
    stores = ObjectSessions(bucket, url="objects", ttl_s=0)
    for session_id in ("clean", "killed"):
        async with ContextFileSystem(session_id, root_path=stores) as fs:
            await fs.writer.store([tool_result(fs, "kept", "call_1")])
    killed = ThreadedStore(stores.store("killed"))
    await killed.open(create=False, write=True)
    bucket.fate = lambda key: "refused" if "/s/" in key else "done"
    with pytest.raises(WriteFailed):
        await killed.commit([NewFile(name="lost", chunks=[bytes(2_000_000)])], lambda: b"")
    bucket.fate = lambda _: "done"
    assert [key for key in bucket.objects if "/c/" in key]
    before = {one.session_id: one.version for one in await stores.sessions()}
    assert not any(one.skipped for one in await prune(root_path=stores))
    assert not [key for key in bucket.objects if "/c/" in key]
    after = {one.session_id: one.version for one in await stores.sessions()}
    assert after["clean"] == before["clean"]
    async with ContextFileSystem("killed", root_path=stores, read_only=True) as fs:
        assert await fs.load("call_1") == "kept"


@pytest.mark.service
def test_on_an_s3_server(tmp_path: Path) -> None:
    with seaweedfs(tmp_path) as server:
        bucket = bucket_at(server.url, server.options)
        stores = ObjectSessions(bucket, url=server.url)

        async def play() -> None:
            asked = await make(stores)
            before = await everything(stores)
            assert any(form in bucket.get(key) for key in bucket.keys("") for form in FORMS)
            plan = await erase("s", asked, root_path=stores)
            assert not any(form in bucket.get(key) for key in bucket.keys("") for form in FORMS)
            gone = {item.item_id for item in plan.items}
            assert kept(await everything(stores), gone) == kept(before, gone)
            await prune(root_path=stores, undo_s=0, grace_s=0)
            await everything(stores)

        anyio.run(play)


@pytest.mark.service
def test_in_postgres() -> None:
    with postgres() as server:
        bucket = PostgresBucket(server.url)
        stores = ObjectSessions(bucket, url="postgres")

        def holds_it() -> bool:
            return any(form in bucket.get(key) for key in bucket.keys("") for form in FORMS)

        async def play() -> None:
            asked = await make(stores)
            before = await everything(stores)
            assert holds_it()
            plan = await erase("s", asked, root_path=stores)
            assert not holds_it()
            gone = {item.item_id for item in plan.items}
            assert kept(await everything(stores), gone) == kept(before, gone)
            async with ContextFileSystem("s", root_path=stores) as fs:
                await put_in(fs, "dropped", "harmless", "call_dropped")
            (done,) = await prune(root_path=stores, undo_s=0, grace_s=0)
            assert "call_dropped" in [one.item_id for one in done.removed]
            await everything(stores)

        anyio.run(play)
        bucket.close()
