"""The local store: what it promises beyond the protocol, and under failing system calls."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.errors import (
    ConfigError,
    NotStored,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
    UnsafePath,
    WriteFailed,
)
from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore, is_session, list_sessions, remove_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import OsFileSystem
from ctxfs.storage.threaded import ThreadedStore
from failing_fs import FailingFileSystem, ShortWrites, as_port

pytestmark = pytest.mark.anyio

ID = "session_1"


def content(name: str = "tool_result/Read/a.json", data: bytes = b"content") -> NewFile:
    return NewFile(name=name, chunks=[data])


async def opened(root: Path, fs: FailingFileSystem | None = None) -> ThreadedStore:
    store = ThreadedStore(LocalStore(root, ID)) if fs is None else ThreadedStore(LocalStore(root, ID, fs=as_port(fs)))
    await store.open(create=True, write=True)
    return store


def temp_files(root: Path) -> list[str]:
    return [str(path) for path in root.rglob(".ctxfs-tmp-*")]


async def test_modes_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        store = await opened(tmp_path / "root")
        await store.commit([content()], lambda: b"1\n")
        await store.replace("index.json", b"{}")
        await store.close()
    finally:
        os.umask(before)
    session = tmp_path / "root" / ID
    for path in [session, *session.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_a_session_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / ID).mkdir(mode=0o700)
    (tmp_path / ID).chmod(0o770)
    with pytest.raises(UnsafePath, match="chmod 700"):
        await opened(tmp_path)
    (tmp_path / ID).chmod(0o755)
    await (await opened(tmp_path)).close()
    assert stat.S_IMODE((tmp_path / ID).stat().st_mode) == 0o700


@pytest.mark.parametrize("session_id", ["", ".", "..", "a/b", "/a", "a\0"])
def test_a_session_id_is_one_name(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(UnsafePath):
        ThreadedStore(LocalStore(tmp_path, session_id))


async def test_roots_that_cannot_hold_sessions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="not a directory"):
            await opened(root)
    with pytest.raises(SessionNotFound):
        await ThreadedStore(LocalStore(tmp_path / "nowhere", ID)).open(create=False, write=False)


async def test_a_session_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ID).symlink_to("elsewhere")
    with pytest.raises(UnsafePath):
        await opened(tmp_path)
    (tmp_path / ID).unlink()
    (tmp_path / ID).write_text("")
    with pytest.raises(UnsafePath):
        await opened(tmp_path)


async def test_a_root_behind_a_link_is_the_users_business(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to("disk")
    store = await opened(tmp_path / "root")
    await store.commit([content()], lambda: b"1\n")
    await store.close()
    assert (tmp_path / "disk" / ID / "tool_result" / "Read" / "a.json").read_bytes() == b"content"


@pytest.mark.parametrize(
    "planted", ["tool_result", "tool_result/Read", "tool_result/Read/a.json", "journal.jsonl", ".lock"]
)
async def test_no_byte_goes_through_a_planted_link(tmp_path: Path, planted: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "target").write_text("precious")
    place = tmp_path / "root" / ID / planted
    place.parent.mkdir(parents=True, mode=0o700)
    for parent in (tmp_path / "root" / ID, *(tmp_path / "root" / ID).rglob("*")):
        parent.chmod(0o700)
    is_directory = planted in {"tool_result", "tool_result/Read"}
    place.symlink_to(outside if is_directory else outside / "target")
    with pytest.raises(StorageError):
        await open_and_commit(tmp_path / "root")
    assert [path.name for path in outside.iterdir()] == ["target"]
    assert (outside / "target").read_text() == "precious"


async def open_and_commit(root: Path) -> None:
    store = await opened(root)
    await store.commit([content()], lambda: b"1\n")


async def test_reading_refuses_links_and_special_files(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    session = tmp_path / ID
    (tmp_path / "secret").write_text("secret")
    (session / "link").symlink_to(tmp_path / "secret")
    (session / "up").symlink_to(tmp_path)
    os.mkfifo(session / "pipe")
    (session / "dir").mkdir()
    for name in ("link", "up/secret", "pipe", "dir", "link/x"):
        with pytest.raises(UnsafePath):
            await store.read(name)
    assert await store.names() == []
    await store.close()


async def test_a_directory_that_was_swapped_is_noticed(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([content()], lambda: b"1\n")
    (tmp_path / ID / "tool_result" / "Read").rename(tmp_path / "moved")
    with pytest.raises((UnsafePath, WriteFailed)):
        await store.commit([content("tool_result/Read/b.json")], lambda: b"2\n")
    assert await store.read_log() == b"1\n"
    await store.commit([content("tool_result/Read/b.json")], lambda: b"2\n")
    assert await store.read("tool_result/Read/b.json") == b"content"
    await store.close()


async def test_leftovers_of_a_dead_writer_are_removed(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([content()], lambda: b"1\n")
    await store.close()
    for directory in (tmp_path / ID, tmp_path / ID / "tool_result" / "Read"):
        (directory / ".ctxfs-tmp-1-1").write_bytes(b"half")
    store = await opened(tmp_path)
    assert temp_files(tmp_path) == []
    assert await store.names() == ["tool_result/Read/a.json"]
    await store.close()


async def test_another_writer_is_named(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    with pytest.raises(SessionLocked) as caught:
        await opened(tmp_path)
    assert caught.value.holder == "another Context, Agent or History of this process"
    with pytest.raises(SessionLocked):
        await remove_session(tmp_path, ID)
    await store.close()


async def test_a_writer_that_was_overtaken_stops(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([], lambda: b"1\n")
    with (tmp_path / ID / "journal.jsonl").open("ab") as log:  # a file system without locks
        log.write(b"another\n")
    with pytest.raises(SessionLocked):
        await store.commit([content()], lambda: b"2\n")
    assert await store.read_log() == b"1\nanother\n"
    await store.close()


async def test_a_forked_child_cannot_use_or_release_the_session(tmp_path: Path) -> None:
    class Forking(OsFileSystem):
        number = 1

        def process(self) -> int:
            return self.number

    real = Forking()
    fs = FailingFileSystem(real=real)
    store = await opened(tmp_path, fs)
    real.number = 2
    with pytest.raises(SessionClosed, match="parent"):
        await store.commit([content()], lambda: b"1\n")
    with pytest.raises(SessionClosed, match="parent"):
        await store.read("a")
    with pytest.raises(SessionClosed, match="parent"):
        await store.release()
    await store.close()
    with pytest.raises(SessionLocked):
        await opened(tmp_path)


async def test_short_writes_are_finished(tmp_path: Path) -> None:
    store = ThreadedStore(LocalStore(tmp_path, ID, fs=ShortWrites()))
    await store.open(create=True, write=True)
    await store.commit([content(data=b"0123456789")], lambda: b"a whole line\n")
    assert await store.read("tool_result/Read/a.json") == b"0123456789"
    assert await store.read_log() == b"a whole line\n"
    await store.close()


async def test_every_content_is_synced_before_its_name_and_its_name_before_the_log(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    store = await opened(tmp_path, fs)
    await store.commit([content()], lambda: b"1\n")
    fs.log.clear()
    await store.commit([content("tool_result/Read/b.json")], lambda: b"2\n")
    steps = [name for name in fs.log if name in {"create", "write", "sync", "link", "unlink", "rename"}]
    assert steps == ["create", "write", "sync", "link", "unlink", "sync", "write", "sync"]
    await store.close()


async def test_a_new_directory_is_synced_into_its_parent(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    store = await opened(tmp_path / "root", fs)
    made = [name for name in fs.log if name in {"make_root", "make_dir", "sync"}]
    assert made[:5] == ["sync", "make_root", "sync", "make_dir", "sync"]  # the maker of what was there may have died
    fs.log.clear()
    await store.commit([content()], lambda: b"1\n")
    steps = [name for name in fs.log if name in {"make_dir", "sync", "link"}]
    assert steps == ["make_dir", "sync", "make_dir", "sync", "sync", "link", "sync", "sync"]
    await store.close()


async def test_a_root_that_was_there_is_synced_into_its_parent_too(tmp_path: Path) -> None:
    """Whoever made it may have died before the sync: without this a power failure takes the whole session."""
    fs = FailingFileSystem()
    (tmp_path / "root").mkdir(mode=0o700)
    store = await opened(tmp_path / "root", fs)
    assert [name for name in fs.log if name in {"make_root", "make_dir", "sync"}][:2] == ["sync", "make_dir"]
    await store.close()


async def test_a_root_below_a_directory_that_may_not_be_read_can_be_used(tmp_path: Path) -> None:
    above = ["open_root", "close", "open_root"]  # look at the root, then open what is above it
    fs = FailingFileSystem(lambda number, name: number == len(above), errno.EACCES)
    (tmp_path / "root").mkdir(mode=0o700)
    store = await opened(tmp_path / "root", fs)
    assert fs.log[: len(above)] == above
    await store.close()


async def test_a_failed_commit_takes_derived_files_back_too(tmp_path: Path) -> None:
    def refuse() -> bytes:
        raise ValueError("no record")

    store = await opened(tmp_path)
    derived = NewFile(name="tool_result/Read/a.json.idx", chunks=[b"index"], derived=True)
    with pytest.raises(ValueError, match="no record"):
        await store.commit([content(), derived], refuse)
    assert await store.names() == []
    await store.close()


async def count_calls(root: Path) -> int:
    fs = FailingFileSystem()
    store = await opened(root, fs)
    fs.log.clear()
    await store.commit([content(), content("user_message/b.json", b"other")], lambda: b"2\n")
    await store.close()
    return len(fs.log)


@pytest.mark.slow
async def test_whatever_call_fails_the_commit_leaves_no_trace_and_can_be_repeated(tmp_path: Path) -> None:
    for number in range(1, await count_calls(tmp_path / "counted") + 1):
        root = tmp_path / str(number)
        failed = await fail_once(root, number)
        store = ThreadedStore(LocalStore(root, ID))
        await store.open(create=False, write=True)
        assert (await store.read_log()).splitlines() == ([b"1", b"3"] if failed else [b"1", b"2", b"3"])
        assert temp_files(root) == []
        await store.close()


async def fail_once(root: Path, failing: int) -> bool:
    """Let one call of the second commit fail; check that nothing of it is left, then commit again."""
    fs = FailingFileSystem(lambda number, name: number == failing)
    fs.armed = False
    store = await opened(root, fs)
    await store.commit([], lambda: b"1\n")
    files = [content(), content("user_message/b.json", b"other")]
    fs.armed = True
    try:
        await store.commit(files, lambda: b"2\n")
        failed = False
    except StorageError:
        failed = True
    fs.armed = False
    if failed:
        assert await store.read_log() == b"1\n"
        assert await store.names() == []
        await store.commit(files, lambda: b"3\n")
    else:  # a call whose failure harms nothing
        await store.commit([], lambda: b"3\n")
    assert await store.read("tool_result/Read/a.json") == b"content"
    assert await store.read("user_message/b.json") == b"other"
    await store.close()
    return failed


@pytest.mark.slow
async def test_while_every_call_fails_nothing_is_acknowledged_and_all_works_again_after(tmp_path: Path) -> None:
    for number in range(1, await count_calls(tmp_path / "counted") + 1):
        fs = FailingFileSystem(starting_with(number))
        fs.armed = False
        store = await opened(tmp_path / str(number), fs)
        fs.armed = True
        acknowledged = [n for n in range(4) if await is_committed(store, n)]
        assert acknowledged == list(range(len(acknowledged)))
        fs.armed = False
        for n in range(4):
            assert (await is_committed(store, n)) == (n not in acknowledged)
        assert sorted((await store.read_log()).splitlines()) == [b"0", b"1", b"2", b"3"]
        assert len(await store.names()) == 4
        await store.close()
        assert temp_files(tmp_path / str(number)) == [] or await reopened_is_clean(tmp_path / str(number))


def starting_with(first: int) -> Callable[[int, str], bool]:
    return lambda call, name: call >= first


async def is_committed(store: ThreadedStore, number: int) -> bool:
    try:
        await store.commit([content(f"user_message/{number}")], lambda: b"%d\n" % number)
    except StorageError:
        return False
    return True


async def reopened_is_clean(root: Path) -> bool:
    store = await opened(root)
    await store.close()
    return temp_files(root) == []


async def test_a_failed_sync_is_not_repeated_on_its_handle(tmp_path: Path) -> None:
    fs = FailingFileSystem(lambda number, name: name == "sync" and number > 0)
    fs.armed = False
    store = await opened(tmp_path, fs)
    await store.commit([], lambda: b"1\n")
    fs.armed = True
    with pytest.raises(WriteFailed, match="injected"):
        await store.commit([], lambda: b"2\n")
    # the handle is dropped, and the new one only cuts what was not acknowledged
    assert fs.log == [
        *("stat", "stat"),  # the journal is where it was: before anything is written, and before its line is
        "stat_handle",
        "write",
        "sync",
        "close",
        "open_append",
        "stat_handle",
        "stat_handle",
        "truncate",
        "sync",
        "close",
    ]
    fs.armed = False
    assert await store.read_log() == b"1\n"
    await store.commit([], lambda: b"3\n")
    assert await store.read_log() == b"1\n3\n"
    await store.close()


async def test_sessions_are_listed_and_removed(tmp_path: Path) -> None:
    assert await list_sessions(tmp_path / "nowhere") == []
    store = await opened(tmp_path)
    await store.commit([content()], lambda: b"1\n")
    await store.close()
    (tmp_path / "not a session").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "session_link").symlink_to(ID)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (tmp_path / ID / "link").symlink_to(outside)
    assert await list_sessions(tmp_path) == [ID]
    await remove_session(tmp_path, ID)
    assert await list_sessions(tmp_path) == []
    assert not (tmp_path / ID).exists()
    assert (outside / "kept").read_text() == "kept"
    with pytest.raises(SessionNotFound):
        await remove_session(tmp_path, ID)
    with pytest.raises(ConfigError):
        await list_sessions(tmp_path / "file")


async def test_a_directory_that_may_not_be_read_may_be_a_session(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.close()
    closed = as_port(FailingFileSystem(lambda number, name: name == "open_dir", errno.EACCES))
    assert await list_sessions(tmp_path, fs=closed) == []
    assert await list_sessions(tmp_path, fs=closed, unreadable=True) == [ID]
    link = as_port(FailingFileSystem(lambda number, name: name == "open_dir", errno.ELOOP))
    assert await list_sessions(tmp_path, fs=link, unreadable=True) == []


async def test_a_missing_file_is_not_stored(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    with pytest.raises(NotStored):
        await store.read("tool_result/never.json")
    await store.close()


def test_a_session_is_looked_for_by_its_id_and_not_by_a_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for session in (root / "s", root / "folder" / "s"):
        session.mkdir(parents=True)
        (session / LOG_NAME).touch()
    ids = ["s", "folder/s", "folder", str(root / "s"), "../root/s", ".", "", "none"]
    assert [name for name in ids if is_session(root, name)] == ["s"]
    assert not is_session(tmp_path / "nothing here", "s")
