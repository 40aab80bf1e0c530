"""What a store refuses to touch: what is somebody else's, what has a second name, what is not the file that it was."""

import errno
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from ctxfs.errors import ConfigError, NameTaken, SessionClosed, SessionLocked, SessionNotFound, UnsafePath, WriteFailed
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.base import NewFile, check_session_name
from ctxfs.storage.files import write_file
from ctxfs.storage.local import LocalStore, is_session, list_sessions, remove_session
from ctxfs.storage.port import FileStat, FileSystem, OsFileSystem
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.testing.store_conformance import UNSAFE_NAMES
from failing_fs import FailingFileSystem, as_port
from patience import HANGS_S

pytestmark = pytest.mark.anyio

ID = "session_1"
NAME = "tool_result/Read/a.json"
GROWING = "artifacts/a.log"


class SharedDisk(OsFileSystem):
    """The real file system, on which one file or directory is another user's."""

    def __init__(self, somebodys: Path) -> None:
        super().__init__()
        found = somebodys.stat()
        self._somebodys = (found.st_dev, found.st_ino)

    def stat_handle(self, fd: int) -> FileStat:
        found = super().stat_handle(fd)
        return replace(found, owner=found.owner + 1) if found.identity == self._somebodys else found


def new(name: str = NAME, data: bytes = b"content") -> NewFile:
    return NewFile(name=name, chunks=[data])


async def opened(root: Path, fs: FileSystem | None = None, *, write: bool = True) -> ThreadedStore:
    store = ThreadedStore(LocalStore(root, ID, fs=fs))
    await store.open(create=write, write=write)
    return store


async def a_session(root: Path) -> None:
    store = await opened(root)
    await store.commit([new()], lambda: b"1\n")
    await store.append(GROWING, b"one")
    await store.close()


@pytest.mark.parametrize("place", ["", "journal.jsonl", ".lock"])
async def test_a_session_of_another_user_is_not_written(tmp_path: Path, place: str) -> None:
    await a_session(tmp_path)
    with pytest.raises(UnsafePath, match="another user"):
        await opened(tmp_path, SharedDisk(tmp_path / ID / place))
    assert (tmp_path / ID / "journal.jsonl").read_bytes() == b"1\n"
    await (await opened(tmp_path)).close()


async def test_a_directory_of_another_user_is_not_read_either(tmp_path: Path) -> None:
    await a_session(tmp_path)
    with pytest.raises(UnsafePath, match="another user"):
        await opened(tmp_path, SharedDisk(tmp_path / ID), write=False)


@pytest.mark.parametrize("place", ["tool_result", "tool_result/Read"])
async def test_nothing_is_written_into_a_directory_of_another_user(tmp_path: Path, place: str) -> None:
    await a_session(tmp_path)
    store = await opened(tmp_path, SharedDisk(tmp_path / ID / place))
    with pytest.raises(UnsafePath, match="another user"):
        await store.commit([new("tool_result/Read/b.json")], lambda: b"2\n")
    with pytest.raises(UnsafePath, match="another user"):
        await store.replace("tool_result/Read/a.json.idx", b"x")
    assert [path.name for path in (tmp_path / ID / "tool_result" / "Read").iterdir()] == ["a.json"]
    await store.close()


async def test_a_content_of_another_user_is_not_read(tmp_path: Path) -> None:
    await a_session(tmp_path)
    store = await opened(tmp_path, SharedDisk(tmp_path / ID / NAME), write=False)
    for look in (lambda: store.read(NAME), lambda: store.size(NAME)):
        with pytest.raises(UnsafePath, match="another user"):
            await look()
    await store.close()


async def test_a_growing_file_of_another_user_does_not_grow(tmp_path: Path) -> None:
    await a_session(tmp_path)
    store = await opened(tmp_path, SharedDisk(tmp_path / ID / GROWING))
    with pytest.raises(UnsafePath, match="another user"):
        await store.append(GROWING, b"more")
    assert (tmp_path / ID / GROWING).read_bytes() == b"one"
    await store.close()


@pytest.mark.parametrize("name", ["journal.jsonl", ".lock"])
async def test_a_file_that_is_written_in_place_has_one_name(tmp_path: Path, name: str) -> None:
    await a_session(tmp_path)
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ID / name).unlink()
    os.link(tmp_path / "precious", tmp_path / ID / name)
    with pytest.raises(UnsafePath, match="hard link"):
        await opened(tmp_path)
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("name", [".lock", "journal.jsonl", GROWING])
async def test_what_is_written_in_place_is_a_regular_file(tmp_path: Path, name: str) -> None:
    await a_session(tmp_path)
    (tmp_path / ID / name).unlink()
    os.mkfifo(tmp_path / ID / name, 0o600)
    with pytest.raises((UnsafePath, WriteFailed), match="not a regular file"):
        await write_everywhere(tmp_path)


async def write_everywhere(root: Path) -> None:
    store = await opened(root)
    try:
        await store.append(GROWING, b"more")
    finally:
        await store.close()


class Broken(OsFileSystem):
    """A file system that neither writes nor cuts while ``failing``."""

    failing = False

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.failing:
            raise OSError(errno.EIO, "injected")
        return super().write(fd, data)

    def truncate(self, fd: int, length: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, "injected")
        super().truncate(fd, length)


async def refuse_one(store: ThreadedStore, fs: Broken) -> None:
    fs.failing = True
    with pytest.raises(WriteFailed, match="injected"):
        await store.commit([], lambda: b"2\n")
    fs.failing = False


async def test_what_a_failure_left_in_the_journal_is_cut_off(tmp_path: Path) -> None:
    fs = Broken()
    store = await opened(tmp_path, fs)
    await store.commit([], lambda: b"a line of the journal\n")
    await refuse_one(store, fs)
    (tmp_path / ID / "journal.jsonl").write_bytes(b"a line of the journal\n2")  # never acknowledged
    await store.commit([], lambda: b"3\n")
    assert await store.read_log() == b"a line of the journal\n3\n"
    await store.close()


def moved(journal: Path) -> None:
    journal.rename(journal.with_name(".moved"))


def removed(journal: Path) -> None:
    journal.unlink()


def removed_with_all(journal: Path) -> None:
    shutil.rmtree(journal.parent)


def linked(journal: Path) -> None:
    moved(journal)
    journal.symlink_to(".moved")


def replaced(journal: Path) -> None:
    data = journal.read_bytes()
    moved(journal)
    journal.write_bytes(data + b"of another session\n")
    journal.chmod(0o600)


def replaced_by_a_directory(journal: Path) -> None:
    moved(journal)
    journal.mkdir()


def cut(journal: Path) -> None:
    journal.write_bytes(b"short\n")


LOSSES = (moved, removed, removed_with_all, linked, replaced, replaced_by_a_directory, cut)


@pytest.mark.parametrize("after_a_failure", [False, True])
@pytest.mark.parametrize("lose", LOSSES)
async def test_what_nobody_would_find_in_the_journal_is_not_acknowledged(
    tmp_path: Path, lose: Callable[[Path], None], after_a_failure: bool
) -> None:
    """After a failure it is opened again and cut to what was acknowledged: no other file may be."""
    fs = Broken()
    store = await opened(tmp_path, fs)
    await store.commit([], lambda: b"a line of the journal\n")
    if after_a_failure:
        await refuse_one(store, fs)
    lose(tmp_path / ID / "journal.jsonl")
    before = bytes_below(tmp_path)
    for _ in range(2):
        with pytest.raises((WriteFailed, UnsafePath), match=r"moved, removed, replaced or cut|leads through"):
            await store.commit([new("a"), new("b")], lambda: b"3\n")
    assert bytes_below(tmp_path) == before
    await store.close()


def bytes_below(path: Path) -> dict[Path, bytes]:
    return {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}


async def test_a_journal_that_was_put_back_is_written_on(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    journal = tmp_path / ID / "journal.jsonl"
    await store.commit([], lambda: b"1\n")
    moved(journal)
    with pytest.raises(WriteFailed, match="put it back, or open the session again"):
        await store.commit([new()], lambda: b"2\n")
    journal.with_name(".moved").rename(journal)
    await store.commit([new()], lambda: b"2\n")
    assert (await store.read_log(), await store.names()) == (b"1\n2\n", [NAME])
    await store.close()


@pytest.mark.parametrize("name", UNSAFE_NAMES)
async def test_no_name_leads_out_of_the_session(tmp_path: Path, name: str) -> None:
    store = await opened(tmp_path / "root")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(name, b"x"),
        lambda: store.commit([new(name)], lambda: b"1\n"),
        lambda: store.replace(name, b"x"),
        lambda: store.delete([name]),
        lambda: store.read(name),
        lambda: store.size(name),
    ]
    for call in calls:
        with pytest.raises(UnsafePath):
            await call()
    assert await store.read_log() == b""
    assert names_below(tmp_path) == {"root", ID, "journal.jsonl", ".lock"}
    await store.close()


def names_below(path: Path) -> set[str]:
    return {found.name for found in path.rglob("*")}


async def test_a_session_id_that_differs_in_case_only_is_another_session(tmp_path: Path) -> None:
    """Where case does not count, one directory answers to both."""

    def folded(name: str) -> str:
        return ID if name.lower() == ID else name

    class Folding(OsFileSystem):
        def open_dir(self, dir_fd: int, name: str) -> int:
            return super().open_dir(dir_fd, folded(name))

        def make_dir(self, dir_fd: int, name: str) -> None:
            super().make_dir(dir_fd, folded(name))

        def stat(self, dir_fd: int, name: str) -> FileStat:
            return super().stat(dir_fd, folded(name))

    await a_session(tmp_path)
    other = ThreadedStore(LocalStore(tmp_path, ID.upper(), fs=Folding()))
    with pytest.raises(UnsafePath, match="only in case"):
        await other.open(create=True, write=True)
    same = ThreadedStore(LocalStore(tmp_path, ID, fs=Folding()))
    await same.open(create=False, write=True)
    assert await same.read(NAME) == b"content"
    await same.close()


async def test_a_forked_child_neither_reads_nor_writes_nor_releases(tmp_path: Path) -> None:
    class Forking(OsFileSystem):
        number = 1

        def process(self) -> int:
            return self.number

    fs = Forking()
    store = await opened(tmp_path, fs)
    await store.commit([new()], lambda: b"1\n")
    reading = store.pieces(NAME, [(0, 7)])
    fs.number = 2
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(GROWING, b"x"),
        lambda: store.commit([new("b")], lambda: b"2\n"),
        lambda: store.delete([NAME]),
        lambda: store.read(NAME),
        store.names,
        store.read_log,
        store.release,
        store.acquire,
    ]
    for call in calls:
        with pytest.raises(SessionClosed, match="parent process"):
            await call()
    await store.close()
    fs.number = 1
    with pytest.raises(SessionLocked, match="process 1"):
        await opened(tmp_path)  # still locked
    assert await to_thread.run_sync(list, reading) == [b"content"]  # the handles are open; nothing dropped them before


async def test_a_closed_store_neither_reads_nor_writes(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([new()], lambda: b"1\n")
    await store.close()
    await store.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.read(NAME),
        store.names,
        lambda: store.delete([NAME]),
    ]
    for call in calls:
        with pytest.raises(SessionClosed, match="not open"):
            await call()


class Held(OsFileSystem):
    """A file system on which the next call of a store is held at its begin, in its thread, until it may go on."""

    def __init__(self) -> None:
        self.hold = False
        self.held = threading.Event()
        self.may_go_on = threading.Event()

    def process(self) -> int:
        if self.hold:
            self.hold = False
            self.held.set()
            assert self.may_go_on.wait(HANGS_S)
        return super().process()


@pytest.mark.parametrize("call", [lambda store: store.read(NAME), lambda store: store.delete([NAME])])
async def test_a_call_that_is_on_its_way_when_the_store_is_closed_is_refused(
    tmp_path: Path, call: Callable[[ThreadedStore], Awaitable[object]]
) -> None:
    fs = Held()
    store = await opened(tmp_path, fs)
    await store.commit([new()], lambda: b"1\n")

    async def use() -> None:
        with pytest.raises(SessionClosed, match="is not open"):
            await call(store)

    fs.hold = True
    async with anyio.create_task_group() as group:
        group.start_soon(use)
        assert await to_thread.run_sync(fs.held.wait, HANGS_S)
        await store.close()
        fs.may_go_on.set()
    await store.close()


async def test_a_reader_does_not_write(tmp_path: Path) -> None:
    await a_session(tmp_path)
    store = await opened(tmp_path, write=False)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.delete([NAME]),
        lambda: store.truncate_log(0),
        lambda: store.replace("x", b""),
    ]
    for call in calls:
        with pytest.raises(SessionClosed, match="reading only"):
            await call()
    assert await store.read(NAME) == b"content"
    await store.close()


async def test_only_directories_with_a_journal_or_an_index_are_sessions(tmp_path: Path) -> None:
    for name, inside in {"a": "journal.jsonl", "b": "index.json", "c": "notes.txt", ".d": "journal.jsonl"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "journal.jsonl").write_bytes(b"")
    (tmp_path / "link").symlink_to("a")
    assert await list_sessions(tmp_path) == ["a", "b"]


async def test_names_are_those_of_contents(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([new(), new("tool_result/b"), new("user_message/journal.jsonl")], lambda: b"1\n")
    (tmp_path / ID / ".hidden").mkdir()
    (tmp_path / ID / ".hidden" / "file").write_bytes(b"")
    (tmp_path / ID / "tool_result" / ".hidden").write_bytes(b"")
    assert await store.names() == [NAME, "tool_result/b", "user_message/journal.jsonl"]
    assert await store.names("tool_result/") == [NAME, "tool_result/b"]
    assert await store.names("tool_result/R") == [NAME]
    assert await store.names("user_message/j") == ["user_message/journal.jsonl"]
    assert await store.names("nothing") == []
    await store.close()


async def test_who_may_write_decides_who_is_let_in(tmp_path: Path) -> None:
    await a_session(tmp_path)
    for mode in (0o720, 0o702, 0o777):
        (tmp_path / ID).chmod(mode)
        for write in (True, False):
            with pytest.raises(UnsafePath, match="written by others"):
                await opened(tmp_path, write=write)
    for mode in (0o755, 0o740, 0o710, 0o701):
        (tmp_path / ID).chmod(mode)
        await (await opened(tmp_path, write=False)).close()
        assert (tmp_path / ID).stat().st_mode & 0o777 == mode  # a reader changes nothing
        await (await opened(tmp_path)).close()
        assert (tmp_path / ID).stat().st_mode & 0o777 == 0o700


async def test_a_taken_name_is_never_replaced(tmp_path: Path) -> None:
    await a_session(tmp_path)
    store = await opened(tmp_path)
    with pytest.raises(NameTaken):
        await store.commit([new("b"), new(NAME, b"other")], lambda: b"2\n")
    assert (await store.read(NAME), await store.names(), await store.read_log()) == (
        b"content",
        [GROWING, NAME],
        b"1\n",
    )
    await store.close()


async def test_removing_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        await remove_session(tmp_path, ID)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError):
        await remove_session(tmp_path / "file", ID)


def test_a_file_outside_of_sessions_is_reused_only_when_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "made" / "a.md"
    write_file(path, b"bytes", overwrite=False)
    before = path.stat().st_ino
    write_file(path, b"bytes", overwrite=False)
    assert path.stat().st_ino == before
    for other in (b"bytez", b"byte", b"bytes!", b""):
        with pytest.raises(NameTaken):
            write_file(path, other, overwrite=False)
    assert path.read_bytes() == b"bytes"
    write_file(path, b"other", overwrite=True)
    assert path.read_bytes() == b"other"
    assert [found.name for found in path.parent.iterdir()] == ["a.md"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.unlink()
    path.symlink_to("other.md")
    (path.parent / "other.md").write_bytes(b"bytes")
    with pytest.raises(NameTaken):
        write_file(path, b"bytes", overwrite=False)
    path.unlink()
    path.mkdir()
    with pytest.raises(NameTaken):
        write_file(path, b"bytes", overwrite=False)


def test_a_large_file_outside_of_sessions_is_compared_to_its_end(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    write_file(tmp_path / "a", data, overwrite=False)
    write_file(tmp_path / "a", data, overwrite=False)
    with pytest.raises(NameTaken):
        write_file(tmp_path / "a", data[:-1] + b"x", overwrite=False)


class FewBytes(OsFileSystem):
    """Gives three bytes at a time, or none: a file that was cut meanwhile."""

    cut = False

    def read(self, fd: int, length: int, offset: int) -> bytes:
        return b"" if self.cut else super().read(fd, min(length, 3), offset)


async def test_reads_are_finished_however_little_comes_at_a_time(tmp_path: Path) -> None:
    fs = FewBytes()
    store = await opened(tmp_path, fs)
    await store.commit([new(data=b"0123456789")], lambda: b"a line\n")
    assert await store.read(NAME) == b"0123456789"
    assert await store.read(NAME, 4) == b"456789"
    assert await store.read(NAME, 1, 7) == b"1234567"
    assert await store.read(NAME, 8, 7) == b"89"
    assert await store.read(NAME, 10) == await store.read(NAME, 99, 1) == await store.read(NAME, 3, 0) == b""
    assert (await store.read_log(), await store.read_log(3)) == (b"a line\n", b"ine\n")
    fs.cut = True
    assert await store.read(NAME) == b""
    await store.close()


async def test_a_session_without_a_journal_has_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / ID).mkdir(mode=0o700)
    store = await opened(tmp_path, write=False)
    assert await store.read_log() == b""
    await store.close()


async def test_contents_lie_at_most_sixteen_directories_deep(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    deep, deeper = "/".join("d" * 16) + "/a", "/".join("e" * 17) + "/a"
    await store.commit([new(deep), new(deeper)], lambda: b"1\n")
    assert await store.names() == [deep]
    assert await store.names("d/d/d/") == [deep]
    await store.close()
    for name in (deep, deeper):
        (tmp_path / ID / name).with_name(".ctxfs-tmp-1-1").write_bytes(b"half")
    again = await opened(tmp_path)
    left = names_below(tmp_path / ID / "d") | names_below(tmp_path / ID / "e")
    assert left == {"d", "e", "a", ".ctxfs-tmp-1-1"}
    assert ".ctxfs-tmp-1-1" not in names_below(tmp_path / ID / "d")
    await again.close()


async def test_the_lock_names_its_holder_only(tmp_path: Path) -> None:
    await a_session(tmp_path)
    (tmp_path / ID / ".lock").write_bytes(b"process 123456789012345\n")
    store = await opened(tmp_path)
    assert (tmp_path / ID / ".lock").read_bytes() == b"process %d\n" % os.getpid()
    await store.close()
    await (await opened(tmp_path)).close()


@pytest.mark.parametrize(
    "call", ["open_dir", "stat_handle", "make_dir", "set_dir_mode", "list_dir", "sync", "truncate"]
)
async def test_a_session_that_cannot_be_opened_says_why(tmp_path: Path, call: str) -> None:
    await a_session(tmp_path)
    (tmp_path / ID).chmod(0o755)
    fs = FailingFileSystem(lambda number, name: name == call, errno.EIO)
    with pytest.raises(WriteFailed, match="injected"):
        await ThreadedStore(LocalStore(tmp_path, ID, fs=as_port(fs))).open(create=True, write=True)
    await (await opened(tmp_path)).close()


async def test_an_append_that_is_refused_is_taken_back_even_when_that_is_refused_too(tmp_path: Path) -> None:
    """The first failure is the one that is told."""

    class Failing(OsFileSystem):
        failing = False

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.failing:
                raise OSError(errno.ENOSPC, "no space")
            return super().write(fd, data)

        def open_append(self, dir_fd: int, name: str) -> int:
            if self.failing:
                raise OSError(errno.EIO, "something else")
            return super().open_append(dir_fd, name)

    fs = Failing()
    store = await opened(tmp_path, fs)
    fs.failing = True
    with pytest.raises(WriteFailed, match="no space"):
        await store.commit([], lambda: b"1\n")
    fs.failing = False
    await store.commit([], lambda: b"2\n")
    assert await store.read_log() == b"2\n"
    await store.close()


async def test_a_content_that_the_journal_may_refer_to_stays_until_that_is_known(tmp_path: Path) -> None:
    class Failing(OsFileSystem):
        failing = False
        written: int | None = None

        def write(self, fd: int, data: bytes | memoryview) -> int:
            self.written = fd if bytes(data) == b"1\n" else None
            return super().write(fd, data)

        def sync(self, fd: int) -> None:
            if self.failing and fd == self.written:
                raise OSError(errno.EIO, "no answer")
            super().sync(fd)

        def open_append(self, dir_fd: int, name: str) -> int:
            if self.failing:
                raise OSError(errno.EIO, "no answer either")
            return super().open_append(dir_fd, name)

    fs = Failing()
    store = await opened(tmp_path, fs)
    fs.failing = True
    with pytest.raises(WriteFailed, match="no answer"):
        await store.commit([new()], lambda: b"1\n")
    assert (tmp_path / ID / "journal.jsonl").read_bytes() == b"1\n"
    assert (tmp_path / ID / NAME).read_bytes() == b"content"
    fs.failing = False
    await store.commit([new(data=b"other")], lambda: b"2\n")
    assert (await store.read_log(), await store.read(NAME)) == (b"2\n", b"other")
    await store.close()


async def test_nothing_is_synced_while_a_file_grows(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    store = await opened(tmp_path, as_port(fs))
    await store.append(GROWING, b"one")
    before = fs.log.count("sync")
    await store.append(GROWING, b"two")
    assert fs.log.count("sync") == before
    await store.append(GROWING, b"", sync=True)
    assert fs.log.count("sync") > before
    await store.close()


async def test_durable_for_the_process_nothing_is_synced(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    store = ThreadedStore(LocalStore(tmp_path, ID, fs=as_port(fs), durability="process"))
    await store.open(create=True, write=True)
    await store.commit([new()], lambda: b"1\n")
    await store.replace("index.json", b"{}")
    await store.append(GROWING, b"one", sync=True)
    await store.delete([NAME])
    await store.truncate_log(0)
    await store.close()
    assert {"write", "link", "rename", "unlink", "truncate"} <= set(fs.log)
    assert "sync" not in fs.log


@pytest.mark.parametrize("durability", ["Full", "none", "", None])
def test_a_durability_that_is_none_is_not_taken_for_one(tmp_path: Path, durability: Any) -> None:
    """Whatever was not "full" used to be taken for "process": nothing was synced."""
    with pytest.raises(ConfigError, match=r"durability is .*: use one of full, process"):
        ThreadedStore(LocalStore(tmp_path, ID, durability=durability))


async def test_a_cut_that_is_refused_is_told_and_made_before_the_next_line(tmp_path: Path) -> None:
    fs = FailingFileSystem(lambda number, name: name == "truncate")
    fs.armed = False
    store = await opened(tmp_path, as_port(fs))
    await store.commit([], lambda: b"1\n2\n")
    fs.armed = True
    with pytest.raises(WriteFailed, match="injected"):
        await store.truncate_log(2)
    fs.armed = False
    await store.commit([], lambda: b"3\n")
    assert await store.read_log() == b"1\n3\n"
    await store.close()


async def test_a_log_that_is_replaced_is_gone_on_with(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.commit([], lambda: b"1\n")
    await store.replace("journal.jsonl", b"2\n")
    await store.commit([], lambda: b"3\n")
    await store.replace("index.json", b"{}")
    await store.commit([], lambda: b"4\n")
    await store.close()
    assert (tmp_path / ID / "journal.jsonl").read_bytes() == b"2\n3\n4\n"


async def test_a_replaced_log_that_cannot_be_opened_is_not_written_to(tmp_path: Path) -> None:
    class Failing(OsFileSystem):
        failing = False

        def open_append(self, dir_fd: int, name: str) -> int:
            if self.failing:
                raise OSError(errno.EIO, "no answer")
            return super().open_append(dir_fd, name)

    fs = Failing()
    store = await opened(tmp_path, fs)
    fs.failing = True
    with pytest.raises(WriteFailed, match="no answer"):
        await store.replace("journal.jsonl", b"2\n")
    fs.failing = False
    with pytest.raises(WriteFailed, match="open the session again"):
        await store.commit([], lambda: b"3\n")
    await store.close()
    assert (tmp_path / ID / "journal.jsonl").read_bytes() == b"2\n"


async def test_whatever_ends_a_write_is_what_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    class Ended(BaseException):
        """Not an error of the file system's."""

    class Ending(OsFileSystem):
        def link(self, dir_fd: int, old: str, new: str) -> None:
            raise Ended

    store = await opened(tmp_path, Ending())
    with pytest.raises(Ended):
        await store.commit([new()], lambda: b"1\n")
    assert [path for path in (tmp_path / ID / "tool_result").rglob("*") if path.is_file()] == []
    await store.close()


@pytest.mark.parametrize("name", ["root/there", "../there", "there/..", "/there", "", ".", "..", ".there", "file"])
def test_only_a_session_of_the_root_is_one(tmp_path: Path, name: str) -> None:
    async def make(root: Path) -> None:
        async with ContextFileSystem("there", root_path=root):
            (root / "file").touch()

    for root in (tmp_path / "root", tmp_path):
        anyio.run(make, root)
        assert is_session(root, "there")
        assert not is_session(root, name)
    assert not is_session(tmp_path / "none", "there")


def test_a_session_has_a_name_of_one_part() -> None:
    assert check_session_name("one") == "one"
    for wrong in ("one/two", "..", ""):
        with pytest.raises(UnsafePath):
            check_session_name(wrong)
