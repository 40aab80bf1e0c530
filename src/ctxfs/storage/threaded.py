"""A store for async code: each method of ``Store`` in a worker thread.

What differs from store to store is how long a caller that was cancelled waits:

- *A disk, or memory*: until the work has ended. It ends soon, and its outcome is known then.
- *A server* (``SharedStore``): for a moment only, since a server may be silent for long. A change then goes on by
  itself, and nobody knows its outcome: it is *left*. Nothing more is written before ``acquire``, which waits for its
  end, or before the store is opened again, which does not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ctxfs.errors import ConfigError, OutcomeUnknown, SessionClosed, StorageError, WriteFailed
from ctxfs.storage.base import DirectoryStore, NewFile, RewritingStore, SharedStore, Store
from ctxfs.storage.failures import NoAnswer
from ctxfs.storage.pool import Work
from ctxfs.storage.threads import StillRunning, answer_of, begin, result_of, run_to_completion

T = TypeVar("T")


class ThreadedStore:
    """``store``, for async code. All methods raise ``SessionClosed`` before ``open`` and after ``close``.

    What a method does, and what it raises, is said at the method of ``Store`` that has its name. Once a change is
    begun, it ends one way or the other, whatever is cancelled; a cancellation is delivered after it. Of a
    ``SharedStore``, a change also raises ``OutcomeUnknown``: acquire the session again, and look.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_shared = isinstance(store, SharedStore)
        """Whether several machines share the store, so that each use of it is a request."""
        self._opened: Store | None = None
        self._is_left = False

    # ---- opening and closing

    async def open(self, *, create: bool, write: bool) -> None:
        """Open the store."""

        def opened() -> Store:
            return self.store.open(create=create, write=write)

        def opened_here() -> None:
            self._opened = opened()

        if not self.is_shared:
            await result_of(opened_here)  # in the thread: an interrupt may keep this task from what it returns
            return
        with _names_no_server():
            try:
                self._opened = await answer_of(opened, returned=True)
            except StillRunning as running:
                running.work.add_done_callback(_close_late)
                raise _gone(running, writes=write) from None
        self._is_left = False

    async def close(self) -> None:
        """Release the session; idempotent."""
        opened = self._opened
        if opened is None:
            return

        def closed() -> None:
            self._opened = None
            opened.close()

        if self._is_left:  # closing waits for the change that may still be running, and nobody waits for that
            self._opened = None
            begin(opened.close)
        else:
            await self._done(closed)  # in the thread, which an interrupt does not hit in between

    def _open_store(self) -> Store:
        if self._opened is None:
            raise SessionClosed("the session is not open")
        return self._opened

    # ---- the one writer

    @property
    def epoch(self) -> int:
        """The writer's number in a ``SharedStore``; 0: there are none here, or it is not the writer."""
        if isinstance(self._opened, SharedStore) and not self._is_left:
            return self._opened.epoch
        return 0

    async def release(self) -> None:
        """Stop being the one writer."""
        await self.change(lambda store: store.release())

    async def acquire(self) -> bool:
        """Become the one writer again; False: a writer has died meanwhile."""
        opened = self._open_store()
        if not self.is_shared:
            return await result_of(opened.acquire)
        with _names_no_server():
            try:
                # After a change that was left, this waits for its end; a task that cleans up has no time for that.
                was_settled = await answer_of(opened.acquire, returned=True, patient=not self._is_left)
            except StillRunning as running:
                self._is_left = True
                raise _gone(running, writes=True) from None
        if self._is_left:  # the change has ended, but only the log says how
            self._is_left = False
            return False
        return was_settled

    # ---- writing

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Make files durable, then a part of the log; ``log`` is called in the worker thread."""
        await self.change(lambda store: store.commit(files, log))

    async def commit_and_release(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Commit, and stop being the one writer; in a ``SharedStore`` in one request."""

        def write(store: Store) -> None:
            if isinstance(store, SharedStore):
                store.commit_and_release(files, log)
            else:
                store.commit(files, log)
                store.release()

        await self.change(write)

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write or replace a file atomically."""
        await self.change(lambda store: store.replace(name, data))

    async def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Add to the end of a file."""
        await self.change(lambda store: store.append(name, data, sync=sync))

    async def delete(self, names: Sequence[str]) -> None:
        """Delete files durably."""
        await self.change(lambda store: store.delete(names))

    async def truncate_log(self, length: int) -> None:
        """Cut the log."""
        await self.change(lambda store: store.truncate_log(length))

    @property
    def can_rewrite(self) -> bool:
        """Whether bytes can be removed for good: see ``RewritingStore``."""
        return isinstance(self.store, RewritingStore)

    async def rewrite(self, log: bytes | None = None) -> None:
        """Remove for good what is no longer part of the session. Raises ``ConfigError`` unless ``can_rewrite``."""

        def write(store: Store) -> None:
            if not isinstance(store, RewritingStore):
                raise ConfigError(f"{type(store).__name__} cannot remove bytes for good")
            store.rewrite(log)

        await self.change(write)

    async def share(self, names: Sequence[str], source: "ThreadedStore") -> list[str]:
        """Give files of another session the same names here; return those that have to be copied instead."""
        other = source._open_store()  # noqa: SLF001 - of the same class

        def write(store: Store) -> list[str]:
            return store.share(names, other) if isinstance(store, DirectoryStore) else list(names)

        return await self.change(write)

    async def delete_orphans(self) -> int:
        """Delete what writers that were killed left; return how many contents there were."""
        return await self.change(lambda store: store.delete_orphans() if isinstance(store, SharedStore) else 0)

    async def change(self, work: Callable[[Any], T]) -> T:
        """Do ``work``, a change of the open store, in a worker thread: also one that ``Store`` does not know."""
        opened = self._open_store()
        if self._is_left:
            raise OutcomeUnknown("the last change", "the caller of an earlier change was cancelled before its answer")
        return await self._done(partial(work, opened))

    # ---- reading

    @property
    def directory(self) -> Path | None:
        """The session's directory on this machine; None: it is somewhere else."""
        return self.store.directory if isinstance(self.store, DirectoryStore) else None

    async def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to ``length`` bytes (None: all) from ``offset``; short at the end."""
        return await self._done(partial(self._open_store().read, name, offset, length), writes=False)

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each span. To be iterated in a worker thread."""
        pieces = self._open_store().pieces(name, spans)
        return _with_no_server_named(pieces) if self.is_shared else pieces

    async def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        return await self._done(partial(self._open_store().size, name), writes=False)

    async def names(self, prefix: str = "") -> list[str]:
        """List the names that start with ``prefix``, sorted."""
        return await self._done(partial(self._open_store().names, prefix), writes=False)

    async def read_log(self, offset: int = 0) -> bytes:
        """Read the log from ``offset`` (bytes) on."""
        return await self._done(partial(self._open_store().read_log, offset), writes=False)

    async def has_orphans(self) -> bool:
        """Whether writers that were killed left contents that no commit names."""
        opened = self._open_store()
        return isinstance(opened, SharedStore) and await self._done(opened.has_orphans, writes=False)

    # ---- in a worker thread

    async def _done(self, work: Callable[[], T], *, writes: bool = True) -> T:
        if not self.is_shared:
            return await run_to_completion(work)
        with _names_no_server():
            try:
                return await answer_of(work)
            except StillRunning as running:
                if writes:
                    self._is_left = True
                raise _gone(running, writes=writes) from None


def _close_late(work: Work[Store]) -> None:
    """Close a store that was opened after its caller had left."""
    if not work.cancelled() and work.exception() is None:
        opened = work.result()
        try:
            begin(opened.close)
        except RuntimeError:  # the program ends, and no thread is begun any more
            opened.close()


def _gone(running: StillRunning, *, writes: bool) -> BaseException:
    """The error of a caller that was cancelled and does not wait for the server any longer."""
    reason = "the server has not answered, and the caller was cancelled"
    error = OutcomeUnknown("the last change", reason) if writes else StorageError(reason)
    if running.cancelled is None:
        return error
    running.cancelled.__cause__ = error
    return running.cancelled


def _with_no_server_named(pieces: Iterator[bytes]) -> Iterator[bytes]:
    with _names_no_server():
        yield from pieces


@contextmanager
def _names_no_server() -> Iterator[None]:
    """Set what a model sees of errors whose text contains a server's own words."""
    try:
        yield
    except OutcomeUnknown as error:
        error.told = "the store of this session did not answer: whether it was stored is not known"
        raise
    except StorageError as error:
        if type(error) in {StorageError, WriteFailed} or isinstance(error, NoAnswer):
            error.told = "the store of this session cannot be used now: try again later"
        raise
