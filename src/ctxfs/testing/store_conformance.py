"""What every ``Store`` must do, as tests to inherit.

::

    @pytest.mark.anyio
    class TestMyStore(StoreConformance):
        def new_session(self) -> Callable[[], Store]:
            session_id = f"session_{uuid4().hex}"
            return lambda: MyStore(session_id)

Nothing here needs pytest itself; any runner that calls the ``test_`` methods will do.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio import to_thread

from ctxfs.errors import NameTaken, NotStored, SessionClosed, SessionLocked, SessionNotFound, UnsafePath
from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.threaded import ThreadedStore

__all__ = ["StoreConformance"]

UNSAFE_NAMES = (
    "",
    ".",
    "..",
    "/etc/passwd",
    "../x",
    "a/../x",
    "a//b",
    "a/",
    "a/./b",
    "nul\0",
    "a\\b",
    "\ud800",
    "x" * 256,
)


class _Broken:
    """Chunks that fail on the way."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"the beginning"
        raise ValueError("the content breaks off")


async def _raises(kind: type[Exception], action: Callable[[], Awaitable[object]]) -> None:
    try:
        await action()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _file(name: str, *chunks: bytes) -> NewFile:
    return NewFile(name=name, chunks=chunks)


class StoreConformance(ABC):
    """Inherit, say how a store is made, and run."""

    @abstractmethod
    def new_session(self) -> Callable[[], Store]:
        """Return a function each call of which gives another store of one and the same session, a new one."""

    def _session(self) -> Callable[[], ThreadedStore]:
        """``new_session``, each store as a session uses it."""
        make = self.new_session()
        return lambda: ThreadedStore(make())

    @asynccontextmanager
    async def _writer(self, make: Callable[[], ThreadedStore]) -> AsyncIterator[ThreadedStore]:
        store = make()
        await store.open(create=True, write=True)
        try:
            yield store
        finally:
            await store.close()

    async def test_what_was_committed_is_read_back(self) -> None:
        """Files and log lines come back, whole and in part."""
        async with self._writer(self._session()) as store:
            await store.commit([_file("a/b/c.json", b"hel", b"", b"lo"), _file("empty")], lambda: b"line 1\n")
            await store.commit([], lambda: b"line 2\n")
            assert await store.read("a/b/c.json") == b"hello"
            assert await store.read("a/b/c.json", 1, 3) == b"ell"
            assert await store.read("a/b/c.json", 3) == b"lo"
            assert await store.read("a/b/c.json", 4, 100) == b"o"
            assert await store.read("a/b/c.json", 100, 100) == b""
            assert await store.size("a/b/c.json") == 5
            assert await store.read("empty") == b""
            assert await store.read_log() == b"line 1\nline 2\n"
            assert await store.read_log(7) == b"line 2\n"
            assert await store.names() == ["a/b/c.json", "empty"]
            assert await store.names("a/") == ["a/b/c.json"]

    async def test_a_session_outlives_its_store(self) -> None:
        """Another store of the session finds what was committed."""
        make = self._session()
        async with self._writer(make) as store:
            await store.commit([_file("a", b"1")], lambda: b"line\n")
        reader = make()
        await reader.open(create=False, write=False)
        assert (await reader.read("a"), await reader.read_log()) == (b"1", b"line\n")
        await reader.close()

    async def test_a_session_is_rewritten(self) -> None:
        """Of a ``RewritingStore``: the log is another one of the same length, all else is as it was, and it goes on."""
        make = self._session()
        reader = make()
        async with self._writer(make) as store:
            if not store.can_rewrite:
                return
            for number in range(20):
                await store.commit([_file(f"f{number}", b"%d" % number)], f"{number:03}\n".encode)
            await store.delete(["f4"])
            await reader.open(create=False, write=False)
            old = await store.read_log()
            assert await reader.read("f3") == b"3"
            for log in (None, old.replace(b"003", b"xxx"), old.replace(b"003", b"yyy")):
                await store.rewrite(log)
                for each in (store, reader):
                    assert await each.read("f3") == b"3"
                    assert await each.read_log() == (log or old)
                    assert await each.read("f7") == b"7"
                    assert "f4" not in await each.names()
            await store.commit([_file("new", b"new")], lambda: b"new\n")
        await reader.close()
        async with self._writer(make) as store:
            assert await store.read_log() == old.replace(b"003", b"yyy") + b"new\n"
            assert await store.names() == sorted(["new", *(f"f{number}" for number in range(20) if number != 4)])
            assert [await store.read(f"f{number}") for number in (0, 3, 19)] == [b"0", b"3", b"19"]
            await store.commit([_file("last", b"")], lambda: b"last\n")
            assert (await store.read_log()).endswith(b"new\nlast\n")

    async def test_names_are_never_overwritten(self) -> None:
        """A taken name fails the whole commit; nothing of it is visible."""
        async with self._writer(self._session()) as store:
            await store.commit([_file("a", b"first")], lambda: b"1\n")
            await _raises(NameTaken, lambda: store.commit([_file("b", b"x"), _file("a", b"second")], lambda: b"2\n"))
            await _raises(NameTaken, lambda: store.commit([_file("c", b"x"), _file("c", b"y")], lambda: b"2\n"))
            assert await store.names() == ["a"]
            assert (await store.read("a"), await store.read_log()) == (b"first", b"1\n")
            await store.commit([_file("b", b"x")], lambda: b"3\n")
            assert await store.read_log() == b"1\n3\n"

    async def test_a_failed_commit_leaves_nothing(self) -> None:
        """Content that breaks off, or a log that cannot be made, fails the whole commit; the next one works.

        What they raise is raised as it is: ``WriteFailed`` is for what trying again may help.
        """

        def no_log() -> bytes:
            raise ValueError("no record")

        async with self._writer(self._session()) as store:
            broken = NewFile(name="b", chunks=_Broken())
            await _raises(ValueError, lambda: store.commit([_file("a", b"1"), broken], lambda: b"1\n"))
            await _raises(ValueError, lambda: store.commit([_file("a", b"1")], no_log))
            assert (await store.names(), await store.read_log()) == ([], b"")
            await store.commit([_file("a", b"1"), _file("b", b"2")], lambda: b"1\n")
            assert (await store.names(), await store.read_log()) == (["a", "b"], b"1\n")

    async def test_the_log_is_made_after_the_content(self) -> None:
        """``log`` is called when all chunks were consumed, so it can tell what they were."""
        seen: list[str] = []

        class Chunks:
            def __iter__(self) -> Iterator[bytes]:
                yield b"1"
                seen.append("content")

        def log() -> bytes:
            seen.append("log")
            return b"1\n"

        async with self._writer(self._session()) as store:
            await store.commit([NewFile(name="a", chunks=Chunks()), NewFile(name="b", chunks=Chunks())], log)
        assert seen == ["content", "content", "log"]

    async def test_replace_and_derived_files(self) -> None:
        """``replace`` writes and overwrites; so do derived files of a commit."""
        async with self._writer(self._session()) as store:
            await store.replace("index.json", b"1")
            await store.replace("index.json", iter([b"2", b"2"]))
            assert await store.read("index.json") == b"22"
            derived = NewFile(name="index.json", chunks=[b"3"], derived=True)
            await store.commit([derived], lambda: b"")
            assert await store.read("index.json") == b"3"

    async def test_delete(self) -> None:
        """Deleted files are gone, and deleting them again is no error."""
        async with self._writer(self._session()) as store:
            await store.commit([_file("a/b", b"1"), _file("a/c", b"2")], lambda: b"1\n")
            await store.delete(["a/b", "never/there"])
            await store.delete(["a/b"])
            assert await store.names() == ["a/c"]
            await _raises(NotStored, lambda: store.read("a/b"))
            await _raises(NotStored, lambda: store.size("a/b"))

    async def test_pieces_are_read_in_any_thread(self) -> None:
        """Each span in turn, short at the end."""
        async with self._writer(self._session()) as store:
            pieces_of = store.pieces

            def read(name: str, *spans: tuple[int, int]) -> list[bytes]:
                return list(pieces_of(name, spans))

            await store.commit([_file("a/b", b"0123", b"456789")], lambda: b"")
            assert await to_thread.run_sync(read, "a/b", (2, 3), (0, 1), (8, 9), (10, 1), (3, 0)) == [
                *(b"234", b"0", b"89", b"", b"")
            ]
            pieces = pieces_of("a/b", iter([(0, 2), (4, 2)]))
            assert await to_thread.run_sync(next, pieces) == b"01"
            assert await to_thread.run_sync(next, pieces) == b"45"
            await store.delete(["a/b"])
            await _raises(NotStored, lambda: to_thread.run_sync(read, "a/b", (0, 1)))
            for name in UNSAFE_NAMES:
                await _raises(UnsafePath, partial(to_thread.run_sync, read, name, (0, 1)))

    async def test_the_log_can_be_cut(self) -> None:
        """After a cut the next line follows where it was cut."""
        async with self._writer(self._session()) as store:
            await store.commit([], lambda: b"whole\ntorn")
            await store.truncate_log(6)
            assert await store.read_log() == b"whole\n"
            await store.commit([], lambda: b"next\n")
            assert await store.read_log() == b"whole\nnext\n"

    async def test_unsafe_names_are_refused(self) -> None:
        """No name leads out of the session, for writing or for reading."""
        async with self._writer(self._session()) as store:
            for name in UNSAFE_NAMES:
                await _raises(UnsafePath, partial(store.commit, [_file(name, b"x")], lambda: b""))
                await _raises(UnsafePath, partial(store.replace, name, b"x"))
                await _raises(UnsafePath, partial(store.read, name))
                await _raises(UnsafePath, partial(store.size, name))
                await _raises(UnsafePath, partial(store.delete, [name]))
            assert await store.names() == []

    async def test_one_writer_and_any_number_of_readers(self) -> None:
        """The second writer is refused, readers are not; they cannot write, and see what the writer does."""
        make = self._session()
        async with self._writer(make) as writer:
            await _raises(SessionLocked, lambda: make().open(create=True, write=True))
            reader = make()
            await reader.open(create=False, write=False)
            await writer.commit([_file("a", b"1")], lambda: b"1\n")
            assert (await reader.read("a"), await reader.read_log()) == (b"1", b"1\n")
            await _raises(SessionClosed, lambda: reader.commit([_file("b", b"2")], lambda: b"2\n"))
            await _raises(SessionClosed, lambda: reader.replace("b", b"2"))
            await _raises(SessionClosed, lambda: reader.delete(["a"]))
            await _raises(SessionClosed, lambda: reader.truncate_log(0))
            await reader.close()
        async with self._writer(make) as second:
            assert await second.read_log() == b"1\n"

    async def test_a_writer_lets_another_one_in_and_comes_back(self) -> None:
        """One writer at a time, while all others can still read."""
        make = self._session()
        async with self._writer(make) as first:
            second = make()
            await first.commit([_file("a", b"1")], lambda: b"1\n")
            await first.release()
            await first.release()
            await _raises(SessionClosed, lambda: first.commit([_file("b", b"2")], lambda: b"2\n"))
            await second.open(create=False, write=True)
            await second.commit([_file("c", b"3")], lambda: b"3\n")
            await _raises(SessionLocked, first.acquire)
            assert (await first.read("c"), await first.read_log()) == (b"3", b"1\n3\n")
            await second.release()
            assert await first.acquire() is True
            assert await first.acquire() is True
            await first.commit([_file("b", b"2")], lambda: b"2\n")
            await _raises(SessionLocked, second.acquire)
            await _raises(SessionLocked, lambda: make().open(create=False, write=True))
            await second.close()
            assert (await first.names(), await first.read_log()) == (["a", "b", "c"], b"1\n3\n2\n")

    async def test_a_session_must_be_there_unless_it_is_made(self) -> None:
        """Opening without ``create`` fails where nothing is."""
        make = self._session()
        await _raises(SessionNotFound, lambda: make().open(create=False, write=False))
        await _raises(SessionNotFound, lambda: make().open(create=False, write=True))

    async def test_a_closed_store_refuses_everything(self) -> None:
        """Before ``open`` and after ``close`` nothing works; ``close`` may be repeated."""
        store = self._session()()
        await _raises(SessionClosed, lambda: store.read("a"))
        await store.open(create=True, write=True)
        await store.close()
        await store.close()
        await _raises(SessionClosed, lambda: store.read("a"))
        await _raises(SessionClosed, store.names)
        await _raises(SessionClosed, store.read_log)
        await _raises(SessionClosed, lambda: store.commit([], lambda: b"1\n"))
        await store.open(create=False, write=True)
        await store.close()

    async def test_concurrent_commits_all_arrive(self) -> None:
        """Commits at the same time are all there, each whole."""
        async with self._writer(self._session()) as store:
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    line = b"line %d\n" % number
                    tasks.start_soon(store.commit, [_file(f"d/{number}", line)], lambda line=line: line)
            assert sorted((await store.read_log()).splitlines()) == sorted(b"line %d" % n for n in range(20))
            assert len(await store.names("d/")) == 20

    async def test_a_cancelled_commit_is_whole_or_absent(self) -> None:
        """A commit that is cancelled on its way has happened when its call has ended, or it never happens."""
        async with self._writer(self._session()) as store:
            for number in range(20):
                with anyio.move_on_after(0.0005 * number):
                    line = b"line %d\n" % number
                    await store.commit([_file(f"d/{number}", line)], lambda line=line: line)  # type: ignore[misc]
                lines = set((await store.read_log()).splitlines())
                names = set(await store.names("d/"))
                assert {f"d/{n}" for n in range(20) if b"line %d" % n in lines} == names
