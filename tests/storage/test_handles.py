"""No handle is left open, whatever call fails: a session that runs for days must not run out of them."""

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from ctxfs.errors import CtxfsError
from ctxfs.storage.base import NewFile
from ctxfs.storage.files import write_file
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.port import FileStat, OsFileSystem
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.testing.store_conformance import UNSAFE_NAMES

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ID = "session_1"
OPENING = {"open_root", "open_dir", "create", "open_read", "open_append"}


class Accounted:
    """The real file system, which knows what is open, and on which the call ``failing`` (from 1) fails."""

    def __init__(self, failing: int = 0, real: OsFileSystem | None = None) -> None:
        self._real = real if real is not None else OsFileSystem()
        self._failing = failing
        self.calls = 0
        self.open: dict[int, str] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._real, name)
        if name in {"process", "user"}:
            return method

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if name == "close":
                del self.open[arguments[0]]
                method(*arguments)  # gone, also when the system says that it failed
            if self.calls == self._failing:
                raise OSError(errno.EIO, "injected")
            if name == "close":
                return None
            result = method(*arguments)
            if name in OPENING:
                self.open[result] = f"{name} {arguments[-1]}"
            return result

        return call


def port(fs: Accounted) -> OsFileSystem:
    disk: Any = fs
    return disk  # type: ignore[no-any-return]


def new(name: str) -> NewFile:
    return NewFile(name=name, chunks=[b"one ", b"two"])


async def everything(root: Path, fs: Accounted) -> None:
    """Everything that a store can do; each failure is an error of ours, and the next thing is tried."""
    await attempt(lambda: list_sessions(root, fs=port(fs)))
    for create, write in ((True, True), (False, False)):
        store = ThreadedStore(LocalStore(root, ID, fs=port(fs)))
        await attempt(lambda s=store, c=create, w=write: s.open(create=c, write=w))
        index = NewFile(name="a/b/one.json.idx", chunks=[b"index"], derived=True)
        await attempt(lambda s=store, i=index: s.commit([new("a/b/one.json"), new("two.json"), i], lambda: b"1\n"))
        await attempt(lambda s=store: s.commit([], lambda: b"2\n"))
        await attempt(lambda s=store: s.replace("index.json", b"{}"))
        await attempt(lambda s=store: s.append("a/grows.log", b"one", sync=True))
        await attempt(lambda s=store: s.append("a/grows.log", b"two"))
        await attempt(lambda s=store: s.read("a/b/one.json"))
        for name, count in (("a/b/one.json", 1), ("a/b/one.json", 2), ("nothing/here", 1)):
            await attempt(lambda s=store, n=name, c=count: some_pieces(s, n, c))
        await attempt(lambda s=store: s.read("nothing/here"))
        await attempt(lambda s=store: s.read("a/b"))
        await attempt(lambda s=store: s.size("two.json"))
        await attempt(lambda s=store: s.names())
        await attempt(lambda s=store: s.delete(["two.json", "never"]))
        await attempt(lambda s=store: s.truncate_log(2))
        await attempt(lambda s=store: s.read_log())
        if write:
            other = ThreadedStore(LocalStore(root, ID, fs=port(fs)))
            await attempt(lambda o=other: o.open(create=True, write=True))
            await other.close()
        await store.close()
    again = ThreadedStore(LocalStore(root, ID, fs=port(fs)))
    await attempt(lambda: again.open(create=True, write=True))
    await again.close()
    await attempt(lambda: list_sessions(root, fs=port(fs)))
    await attempt(lambda: remove_session(root, ID, fs=port(fs)))


async def some_pieces(store: ThreadedStore, name: str, count: int) -> None:
    """Read as many of two pieces."""
    await to_thread.run_sync(lambda: list(islice(store.pieces(name, [(0, 2), (2, 2)]), count)))


async def attempt(action: Any) -> None:
    with suppress(CtxfsError):
        await action()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # one is enough: handles are not the loop's business


async def test_no_handle_is_left_whatever_call_fails(fast_path: Path) -> None:
    counted = Accounted()
    await everything(fast_path / "counted", counted)
    assert counted.open == {}
    assert counted.calls > 100
    for failing in range(1, counted.calls + 1):
        fs = Accounted(failing)
        await everything(fast_path / str(failing), fs)
        assert fs.open == {}, f"call {failing} failed"


def test_nor_by_files_outside_of_sessions(tmp_path: Path) -> None:
    def write(name: str, fs: Accounted) -> None:
        for data, overwrite in ((b"one", False), (b"one", False), (b"two", False), (b"two", True)):
            with suppress(CtxfsError):
                write_file(tmp_path / name / "file", data, overwrite=overwrite, fs=port(fs))

    counted = Accounted()
    write("counted", counted)
    for failing in range(counted.calls + 1):
        fs = Accounted(failing)
        write(str(failing), fs)
        assert fs.open == {}, f"call {failing} failed"


async def test_directories_are_kept_open_only_up_to_a_number(tmp_path: Path) -> None:
    fs = Accounted()
    store = ThreadedStore(LocalStore(tmp_path, ID, fs=port(fs)))
    await store.open(create=True, write=True)
    for number in range(100):
        await store.commit([new(f"{number}/a/b.json")], lambda: b"1\n")
        assert len(fs.open) < 70
    for number in range(100):
        assert await store.read(f"{number}/a/b.json") == b"one two"
    assert len(await store.names()) == 100
    await store.close()
    assert fs.open == {}


async def test_what_was_refused_was_not_opened(tmp_path: Path) -> None:
    fs = Accounted()
    store = ThreadedStore(LocalStore(tmp_path, ID, fs=port(fs)))
    await store.open(create=True, write=True)
    (tmp_path / ID / "link").symlink_to(tmp_path)
    before = dict(fs.open)
    for name in (*UNSAFE_NAMES, "link", "link/x", "journal.jsonl/x"):
        await attempt(lambda name=name: store.read(name))
        await attempt(lambda name=name: store.size(name))
    assert fs.open == before
    await store.close()


class Somebodys(OsFileSystem):
    """A file system on which everything belongs to another user."""

    def stat_handle(self, fd: int) -> FileStat:
        found = super().stat_handle(fd)
        return FileStat(
            kind=found.kind, mode=found.mode, owner=found.owner + 1, size=found.size, identity=found.identity
        )


async def test_a_session_that_is_refused_leaves_no_handle(tmp_path: Path) -> None:
    await everything(tmp_path / "own", Accounted())
    store = ThreadedStore(LocalStore(tmp_path / "own", ID))
    await store.open(create=True, write=True)
    await store.close()
    fs = Accounted(real=Somebodys())
    for write in (True, False):
        refused = ThreadedStore(LocalStore(tmp_path / "own", ID, fs=port(fs)))
        await attempt(lambda s=refused, w=write: s.open(create=False, write=w))
        await refused.close()
    assert fs.open == {}
