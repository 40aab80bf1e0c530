"""Removing a session beside processes that open it, and when the disk refuses."""

from pathlib import Path
from typing import Any

import pytest

from ctxfs.errors import SessionNotFound, UnsafePath, WriteFailed
from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.port import OsFileSystem
from ctxfs.storage.threaded import ThreadedStore
from failing_fs import FailingFileSystem, as_port

pytestmark = pytest.mark.anyio

ID = "session_1"


def names(root: Path) -> list[str]:
    return [path.name for path in root.iterdir()]


async def made(root: Path) -> None:
    store = ThreadedStore(LocalStore(root, ID))
    await store.open(create=True, write=True)
    await store.commit([NewFile(name="tool_result/Read/a.json", chunks=[b"content"])], lambda: b"1\n")
    await store.close()


class Racing(OsFileSystem):
    """Removes the session just before the first call of one name, as another process would."""

    def __init__(self, root: Path, call: str, *, times: int = 1) -> None:
        super().__init__()
        self._root = root
        self._call = call
        self._times = times

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "_call"):
            self._race()
        return object.__getattribute__(self, name)

    def _race(self) -> None:
        if self._times:
            self._times -= 1
            LocalStore(self._root, ID).remove()


@pytest.mark.parametrize("call", ["create", "open_append", "lock"])
async def test_a_session_that_is_removed_while_it_is_opened_is_made_again(tmp_path: Path, call: str) -> None:
    await made(tmp_path)
    store = ThreadedStore(LocalStore(tmp_path, ID, fs=Racing(tmp_path, call)))
    await store.open(create=True, write=True)
    assert await store.read_log() == b""
    await store.commit([], lambda: b"new\n")
    await store.close()
    assert (tmp_path / ID / "journal.jsonl").read_bytes() == b"new\n"
    assert names(tmp_path) == [ID]


@pytest.mark.parametrize("call", ["create", "open_append", "lock"])
async def test_or_is_not_found(tmp_path: Path, call: str) -> None:
    await made(tmp_path)
    with pytest.raises(SessionNotFound):
        await ThreadedStore(LocalStore(tmp_path, ID, fs=Racing(tmp_path, call))).open(create=False, write=True)
    assert names(tmp_path) == []


async def test_of_two_that_remove_it_one_does_not_find_it(tmp_path: Path) -> None:
    await made(tmp_path)
    with pytest.raises(SessionNotFound):
        await remove_session(tmp_path, ID, fs=Racing(tmp_path, "lock"))
    assert names(tmp_path) == []


async def test_a_session_that_is_never_still_is_refused(tmp_path: Path) -> None:
    await made(tmp_path)
    fs = Racing(tmp_path, "lock", times=1_000)
    with pytest.raises(UnsafePath, match="repeatedly moved away"):
        await ThreadedStore(LocalStore(tmp_path, ID, fs=fs)).open(create=True, write=True)


@pytest.mark.parametrize("call", ["rename", "sync"])
async def test_a_removal_that_is_refused_leaves_it_whole(tmp_path: Path, call: str) -> None:
    await made(tmp_path)
    fs = FailingFileSystem(lambda number, name: name == call)
    with pytest.raises(WriteFailed, match="injected"):
        await remove_session(tmp_path, ID, fs=as_port(fs))
    assert await list_sessions(tmp_path) == [ID]
    store = ThreadedStore(LocalStore(tmp_path, ID))
    await store.open(create=False, write=True)
    assert await store.read("tool_result/Read/a.json") == b"content"
    await store.close()


async def test_files_that_cannot_be_removed_are_told_and_removed_next(tmp_path: Path) -> None:
    await made(tmp_path)
    fs = FailingFileSystem(lambda number, name: name == "unlink")
    with pytest.raises(WriteFailed, match="session_1 is gone, but not all its files: injected"):
        await remove_session(tmp_path, ID, fs=as_port(fs))
    assert not (tmp_path / ID).exists()
    assert len(names(tmp_path)) == 1
    assert await list_sessions(tmp_path, fs=as_port(fs)) == []  # a disk that only reads can be looked at all the same
    assert await list_sessions(tmp_path) == []
    assert names(tmp_path) == []
