"""A store on a server: each method calls a blocking one in a worker thread."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ctxfs.errors import OutcomeUnknown, SessionClosed, StorageError, WriteFailed
from ctxfs.storage.base import NewFile, check_session_name
from ctxfs.storage.failures import NoAnswer
from ctxfs.storage.sessions import SessionFound
from ctxfs.storage.threads import StillRunning, answer_of, begin, uninterrupted
from ctxfs.stores.opened import OpenedSession

T = TypeVar("T")


OpenedT = TypeVar("OpenedT", bound=OpenedSession)


class RemoteStore(ABC, Generic[OpenedT]):
    """A ``SharedStore`` and ``GrowingStore`` of one session; ``_new`` makes the object for each opening.

    ``place``: the store's name, for errors.
    """

    wants_index = False
    """See ``SharedStore.wants_index``."""

    def __init__(self, session_id: str, place: str) -> None:
        self._session_id = check_session_name(session_id)
        self._place = place
        self._mine: set[str] = set()
        self._open: OpenedT | None = None

    @abstractmethod
    def _new(self) -> OpenedT:
        """Return an opening of the session; ``_mine`` has the names that the writer has had."""

    @property
    def epoch(self) -> int:
        """See ``SharedStore.epoch``."""
        return 0 if self._open is None else self._open.epoch

    async def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``. Also raises ``StorageError`` if the server cannot be read."""

        def opened() -> OpenedT:
            session = self._new()
            session.open(create=create, write=write)
            return session

        with names_no_server():
            try:
                self._open = await answer_of(opened, returned=True)
            except StillRunning as running:
                running.work.add_done_callback(_close_late)
                raise self._gone(running, writes=write) from None

    async def close(self) -> None:
        """See ``Store.close``."""
        if self._open is not None:
            opened, self._open = self._open, None
            if opened.is_left:  # closing waits for the change that may still be running, and nobody waits for that
                begin(opened.close)
            else:
                await self._answer(opened, opened.close, writes=True)

    async def release(self) -> None:
        """See ``LeaseStore.release``."""
        await self._run(lambda opened: opened.release())

    async def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        opened = self._opened()
        with names_no_server():
            try:
                # After a change that was left, this waits for its end; a task that cleans up has no time for that.
                return await answer_of(opened.acquire, returned=True, patient=not opened.is_left)
            except StillRunning as running:
                opened.leave()
                raise self._gone(running, writes=True) from None

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``. Also raises ``OutcomeUnknown``: acquire the session again, and look."""
        await self._run(lambda opened: opened.commit(files, log))

    async def commit_and_release(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``SharedStore.commit_and_release``."""
        await self._run(lambda opened: opened.commit(files, log, release=True))

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """See ``Store.replace``."""
        await self._run(lambda opened: opened.replace(name, [data] if isinstance(data, bytes) else data))

    async def rewrite(self, log: bytes | None = None) -> None:
        """See ``RewritingStore.rewrite``. Also raises ``OutcomeUnknown``."""
        await self._run(lambda opened: opened.rewrite(log))

    async def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """See ``GrowingStore.append``.

        Appended bytes are buffered, and written with ``sync``, with the next commit, from 1 MiB on, or when more are
        appended after 5 s. Until then other machines do not see them, and they are lost if the process dies.
        """
        await self._run(lambda opened: opened.append(name, data, sync=sync))

    async def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        await self._run(lambda opened: opened.delete(names))

    async def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        await self._run(lambda opened: opened.truncate_log(length))

    async def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See ``Store.read``."""
        return await self._run(lambda opened: opened.read(name, offset, length), writes=False)

    async def size(self, name: str) -> int:
        """See ``Store.size``."""
        return await self._run(lambda opened: opened.size(name), writes=False)

    async def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return await self._run(lambda opened: opened.names(prefix), writes=False)

    async def read_log(self, offset: int = 0) -> bytes:
        """See ``Store.read_log``."""
        return await self._run(lambda opened: opened.read_log(offset), writes=False)

    async def remove(self) -> None:
        """Remove the open session and close it; this must be its writer.

        Raises ``SessionClosed``, ``SessionLocked``, ``WriteFailed`` and ``OutcomeUnknown``.
        """
        await self._run(lambda opened: opened.remove())
        await self.close()

    async def _run(self, work: Callable[[OpenedT], T], *, writes: bool = True) -> T:
        opened = self._opened()
        with names_no_server():
            return await self._answer(opened, lambda: work(opened), writes=writes)

    async def _answer(self, opened: OpenedT, work: Callable[[], T], *, writes: bool) -> T:
        """Return the server's answer; a caller that was cancelled leaves a change to itself if there is none."""
        try:
            return await answer_of(work)
        except StillRunning as running:
            if writes:
                opened.leave()
            raise self._gone(running, writes=writes) from None

    def _gone(self, running: StillRunning, *, writes: bool) -> BaseException:
        """The error of a caller that was cancelled and does not wait for the server any longer."""
        reason = "the server has not answered, and the caller was cancelled"
        error = OutcomeUnknown(self._session_id, reason) if writes else StorageError(reason)
        if running.cancelled is None:
            return error
        running.cancelled.__cause__ = error
        return running.cancelled

    def _opened(self) -> OpenedT:
        if self._open is None:
            raise SessionClosed(f"session {self._session_id} is not open")
        return self._open


def _close_late(work: "asyncio.Future[OpenedSession] | Future[OpenedSession]") -> None:
    """Close a session that was opened after its caller had left."""
    if not work.cancelled() and work.exception() is None:
        begin(work.result().close)


@contextmanager
def names_no_server() -> Iterator[None]:
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


class RemoteSessionStores(ABC):
    """See ``SessionStores``: sessions on a server, under a name that is shown.

    Args:
        url: the name: without keys or passwords.
        ttl_s: see ``Terms``.
        give_up_s: see ``Terms``.
    """

    def __init__(self, url: str, *, ttl_s: float, give_up_s: float) -> None:
        self._url = url
        self._ttl_s = ttl_s
        self._give_up_s = give_up_s

    @property
    def url(self) -> str:
        """See ``SessionStores.url``."""
        return self._url

    @property
    def directory(self) -> Path | None:
        """None: they are in no directory."""
        return None

    @abstractmethod
    def store(self, session_id: str) -> RemoteStore[Any]:
        """See ``SessionStores.store``."""

    @abstractmethod
    async def sessions(self) -> list[SessionFound]:
        """See ``SessionStores.sessions``."""

    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - not kept
        """See ``SessionStores.remove``."""
        store = self.store(session_id)
        await store.open(create=False, write=True)
        try:
            await store.remove()
        finally:
            await uninterrupted(store.close)()
