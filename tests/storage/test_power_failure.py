"""Power failures: what was acknowledged is there in every state that a disk may be left in; what was refused is not.

The store runs on a disk in memory that remembers what was synced; of all else any part may be lost.
"""

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ctxfs.errors import WriteFailed
from ctxfs.session import export_session, import_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.base import NewFile
from ctxfs.storage.files import write_file
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.removal import forgotten
from ctxfs.storage.threaded import ThreadedStore
from prove.crash_disk import Captured, CrashDisk
from session_items import tool_result

pytestmark = pytest.mark.anyio

ID = "session_1"
ROOT = Path("/home/sessions")
NAME = "tool_result/Read/a.json"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # one is enough: what is synced is not the loop's business


class RefusingDisk(CrashDisk):
    """A disk that refuses one call: ``refuse`` is its name, and how many of these succeed before."""

    refuse: tuple[str, int] | None = None

    def sync(self, fd: int) -> None:
        self._maybe_refuse("sync")
        super().sync(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._maybe_refuse("write")
        return super().write(fd, data)

    def _maybe_refuse(self, name: str) -> None:
        if self.refuse is not None and self.refuse[0] == name:
            left = self.refuse[1]
            self.refuse = (name, left - 1) if left else None
            if not left:
                raise OSError(errno.EIO, "refused")

    @property
    def has_refused(self) -> bool:
        return self.refuse is None


async def opened(disk: CrashDisk, *, write: bool = True) -> ThreadedStore:
    store = ThreadedStore(LocalStore(ROOT, ID, fs=disk))
    await store.open(create=write, write=write)
    return store


async def after_power_fails(moment: Captured, check: Callable[[ThreadedStore], Awaitable[None]]) -> int:
    """Read the session in every state that the moment may leave; return how many there are."""
    count = 0
    for state in moment.states():
        store = await opened(CrashDisk(state), write=False)
        await check(store)
        await store.close()
        count += 1
    return count


def new(name: str = NAME, data: bytes = b"content") -> NewFile:
    return NewFile(name=name, chunks=[data])


async def names_and_log(store: ThreadedStore) -> tuple[list[str], bytes]:
    return await store.names(), await store.read_log()


async def test_what_was_committed_stays() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.commit([new(), new("b.json")], lambda: b"1\n")

    async def is_there(found: ThreadedStore) -> None:
        assert await names_and_log(found) == (["b.json", NAME], b"1\n")
        assert await found.read(NAME) == await found.read("b.json") == b"content"

    await after_power_fails(disk.capture(), is_there)
    await store.commit([], lambda: b"2\n")

    async def has_both(found: ThreadedStore) -> None:
        assert await found.read_log() == b"1\n2\n"

    await after_power_fails(disk.capture(), has_both)


async def test_a_session_without_contents_stays_too() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await after_power_fails(disk.capture(), names_only([]))
    await store.commit([], lambda: b"1\n")

    async def is_there(found: ThreadedStore) -> None:
        assert await found.read_log() == b"1\n"

    await after_power_fails(disk.capture(), is_there)


def names_only(expected: list[str]) -> Callable[[ThreadedStore], Awaitable[None]]:
    async def check(found: ThreadedStore) -> None:
        assert await found.names() == expected

    return check


async def test_whoever_sees_a_name_sees_the_whole_file_and_the_log_names_only_what_is_there() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    moments: list[Captured] = []
    disk.before_change = lambda: moments.append(disk.capture())
    await store.commit([new()], lambda: b"1\n")

    async def is_whole(found: ThreadedStore) -> None:
        names, log = await names_and_log(found)
        if NAME in names:
            assert await found.read(NAME) == b"content"
        assert NAME in names or log != b"1\n"

    assert sum([await after_power_fails(moment, is_whole) for moment in moments]) > len(moments)


async def test_readers_see_the_old_bytes_or_the_new_ones() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.replace("tool_result/a.idx", b"old")
    moments: list[Captured] = []
    disk.before_change = lambda: moments.append(disk.capture())
    await store.replace("tool_result/a.idx", b"new")

    async def is_one_of_them(found: ThreadedStore) -> None:
        assert await found.read("tool_result/a.idx") in {b"old", b"new"}

    for moment in moments:
        await after_power_fails(moment, is_one_of_them)

    async def is_new(found: ThreadedStore) -> None:
        assert await found.read("tool_result/a.idx") == b"new"

    await after_power_fails(disk.capture(), is_new)


@pytest.mark.parametrize("refuse", [("write", 0), ("write", 1), ("sync", 0), ("sync", 1), ("sync", 2)])
async def test_what_was_refused_does_not_come_back(refuse: tuple[str, int]) -> None:
    """A file whose commit failed, at any step, is not there later; nor is its line in the log."""
    disk = RefusingDisk()
    store = await opened(disk)
    await store.commit([new("tool_result/Read/first.json")], lambda: b"1\n")
    disk.refuse = refuse
    with pytest.raises(WriteFailed):
        await store.commit([new()], lambda: b"2\n")
    assert disk.has_refused

    async def is_not_there(found: ThreadedStore) -> None:
        assert await names_and_log(found) == (["tool_result/Read/first.json"], b"1\n")

    await after_power_fails(disk.capture(), is_not_there)


async def test_a_log_line_that_was_refused_by_its_maker_leaves_no_file() -> None:
    def refuse() -> bytes:
        raise ValueError("no record")

    disk = CrashDisk()
    store = await opened(disk)
    with pytest.raises(ValueError, match="no record"):
        await store.commit([new()], refuse)
    await after_power_fails(disk.capture(), names_only([]))


async def test_what_grew_and_was_made_durable_stays() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.append("artifacts/a.log", b"one ")
    await store.append("artifacts/a.log", b"two", sync=True)

    async def is_there(found: ThreadedStore) -> None:
        assert await found.read("artifacts/a.log") == b"one two"

    await after_power_fails(disk.capture(), is_there)


async def test_what_a_command_printed_stays_when_it_has_ended() -> None:
    disk = CrashDisk()
    fs = ContextFileSystem(ID, root_path=ROOT, store=LocalStore(ROOT, ID, fs=disk), clock=lambda: 1.0)
    await fs.open()
    growing = await fs.writer.grow("Bash")
    await growing.append(b"printed ")
    await growing.append(b"and printed")
    stored = await growing.finish({})
    count = 0
    for state in disk.capture().states():
        store = LocalStore(ROOT, ID, fs=CrashDisk(state))
        async with ContextFileSystem(ID, root_path=ROOT, store=store) as found:
            assert await found.load(stored.item_id) == "printed and printed"
            assert found.recovery.adopted == ()
        count += 1
    assert count


async def test_what_was_deleted_or_cut_does_not_come_back() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.commit([new(), new("b.json"), new("tool_result/Read/c.json")], lambda: b"1\n")
    await store.commit([], lambda: b"2\n")
    await store.delete([NAME, "b.json"])
    await after_power_fails(disk.capture(), names_only(["tool_result/Read/c.json"]))
    await store.truncate_log(2)

    async def is_cut(found: ThreadedStore) -> None:
        assert await found.read_log() == b"1\n"

    await after_power_fails(disk.capture(), is_cut)


async def test_a_session_that_was_removed_does_not_come_back_and_is_never_there_in_part() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.commit([new()], lambda: b"1\n")
    await store.close()
    moments: list[Captured] = []
    disk.before_change = lambda: moments.append(disk.capture())
    await remove_session(ROOT, ID, fs=disk)
    for state in disk.capture().states():
        assert await list_sessions(ROOT, fs=CrashDisk(state)) == []
        assert str(ROOT / ID) not in state.files
    for moment in moments:
        for state in moment.states():
            files = {path.removeprefix(f"{ROOT}/{ID}/") for path in state.files}
            assert "journal.jsonl" not in files or NAME in files


async def test_a_session_goes_only_after_the_disk_holds_who_removed_it() -> None:
    disk = CrashDisk()
    store = await opened(disk)
    await store.commit([], lambda: b"1\n")
    await store.close()
    moments: list[Captured] = []
    disk.before_change = lambda: moments.append(disk.capture())
    tombstone = {"session_id": ID, "removed_at": 0.0, "by": "a test", "reason": "", "contents": 0, "size_bytes": 2}
    await remove_session(ROOT, ID, fs=disk, tombstone=tombstone)
    for moment in [*moments, disk.capture()]:
        for state in moment.states():
            left = CrashDisk(state)
            removed = forgotten(left, left.open_root(ROOT), ID)
            assert ID in await list_sessions(ROOT, fs=left) or removed.startswith("removed on 1970-01-01 by a test")


async def test_what_a_killed_writer_left_counts_once_the_next_one_has_opened_it() -> None:
    """It was in the system's cache only; who opens the session reads it, and builds on it."""
    disk = CrashDisk()
    store = await opened(disk)
    await store.commit([], lambda: b"1\n")
    disk.syncs = lambda kind: False
    await store.commit([new(), new("user_message/b.json")], lambda: b"2\n")
    disk.syncs = lambda kind: True
    killed = disk.capture().survived(2)
    assert killed.unsynced()
    await opened(killed)

    async def is_there(found: ThreadedStore) -> None:
        assert await names_and_log(found) == ([NAME, "user_message/b.json"], b"1\n2\n")

    await after_power_fails(killed.capture(), is_there)


async def test_a_new_writer_brings_the_names_above_what_it_uses() -> None:
    """Whoever made the directories may have been killed before they were durable, at any moment."""
    disk = CrashDisk()
    moments: list[Captured] = []
    disk.before_sync = lambda: moments.append(disk.capture())
    store = await opened(disk)
    await store.append("artifacts/terminal/a.log", b"", sync=True)

    async def is_there(found: ThreadedStore) -> None:
        assert await found.read("artifacts/terminal/b.log") == b"content"
        assert await found.read_log() == b"1\n"

    for moment in moments:
        killed = moment.survived(2)
        after = await opened(killed)
        await after.commit([new("artifacts/terminal/b.log")], lambda: b"1\n")
        await after_power_fails(killed.capture(), is_there)


async def test_without_syncs_a_power_failure_takes_what_was_acknowledged() -> None:
    """The price of ``durability="process"``, and that these tests see a sync that is missing."""
    disk = CrashDisk()
    store = ThreadedStore(LocalStore(ROOT, ID, fs=disk, durability="process"))
    await store.open(create=True, write=True)
    await store.commit([new()], lambda: b"1\n")
    assert any(not state.files for state in disk.capture().states())


@pytest.mark.parametrize("overwrite", [True, False])
async def test_a_file_outside_of_sessions_is_there_whole_or_not_at_all(overwrite: bool) -> None:
    disk = CrashDisk()
    path = Path("/home/user/exports/a.md")
    moments: list[Captured] = []
    disk.before_change = lambda: moments.append(disk.capture())
    write_file(path, b"whole", overwrite=overwrite, fs=disk)
    assert [state.files.get(str(path)) for state in disk.capture().states()] == [b"whole"]
    for moment in moments:
        assert {state.files.get(str(path)) for state in moment.states()} <= {None, b"whole"}


async def a_session(disk: CrashDisk) -> None:
    fs = ContextFileSystem(ID, root_path=ROOT, store=LocalStore(ROOT, ID, fs=disk), clock=lambda: 1.0)
    async with fs:
        await fs.writer.store([tool_result(fs, "a long result", raw_id="call_1")])


async def test_an_export_stays() -> None:
    disk = CrashDisk()
    await a_session(disk)
    file = Path("/home/session.ctxfs")
    await export_session(ID, file, root_path=ROOT, fs=disk)
    whole = disk.contents().files[str(file)]
    assert whole
    assert {state.files.get(str(file)) for state in disk.capture().states()} == {whole}


async def test_an_imported_session_stays_whole(tmp_path: Path) -> None:
    disk = CrashDisk()
    await a_session(disk)
    await export_session(ID, "/home/session.ctxfs", root_path=ROOT, fs=disk)
    whole = disk.contents().files["/home/session.ctxfs"]
    assert whole
    (tmp_path / "session.ctxfs").write_bytes(whole)
    other = CrashDisk()
    await import_session(tmp_path / "session.ctxfs", root_path=ROOT, fs=other)
    count = 0
    for state in other.capture().states():
        async with ContextFileSystem(ID, root_path=ROOT, store=LocalStore(ROOT, ID, fs=CrashDisk(state))) as found:
            assert await found.load("call_1") == "a long result"
            assert (await found.verify()).ok
        count += 1
    assert count
