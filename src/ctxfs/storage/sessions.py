"""The place where sessions are kept, as ctxfs uses it: it returns their stores, lists them and removes them."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from typing_extensions import override

from ctxfs.errors import SessionNotFound
from ctxfs.storage import lock_file
from ctxfs.storage.base import Store
from ctxfs.storage.threaded import ThreadedStore


class SessionFound(NamedTuple):
    """A session in the list. ``version`` changes whenever something is written.

    ``changed_at``: when it last changed, in seconds since the epoch. ``mark``: see ``ListingStores``; empty: a later
    list must look at the session again.
    """

    session_id: str
    version: str
    changed_at: float
    mark: str = ""


@runtime_checkable
class SessionStores(Protocol):
    """The place where sessions are kept: a directory, a bucket, a database.

    Making one reads and writes nothing. It can be used in any event loop and any thread.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The place's name, to be shown: without keys or passwords."""

    @property
    @abstractmethod
    def directory(self) -> Path | None:
        """The directory of this machine that holds the sessions, absolute; None: they are somewhere else."""

    @abstractmethod
    def store(self, session_id: str) -> Store:
        """Return the store of one session, which is not opened and need not exist. Raises ``UnsafePath``."""

    @abstractmethod
    async def sessions(self) -> list[SessionFound]:
        """List the sessions, sorted by their ids. Raises ``ConfigError`` and ``StorageError`` if they cannot be."""

    @abstractmethod
    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:
        """Remove a session and all that it stored, for good; as a whole or not at all.

        ``tombstone``: what is recorded for later readers of this id, where the place can keep it; None: nothing.

        Raises ``SessionLocked`` while a writer holds it, ``SessionNotFound``, ``WriteFailed`` and ``OutcomeUnknown``.
        """


@runtime_checkable
class MakingStores(SessionStores, Protocol):
    """A place where a session can be created step by step, and appears only once it is complete."""

    @abstractmethod
    def making(self, session_id: str) -> AbstractAsyncContextManager[ThreadedStore]:
        """Yield an open store; at the end of the block the session exists under its id; after an error, nothing does.

        Raises ``SessionExists``, ``ConfigError`` and ``WriteFailed``.
        """


@runtime_checkable
class ListingStores(SessionStores, Protocol):
    """A place on a server that lists sessions quickly if it gets back what it listed before."""

    @property
    @abstractmethod
    def list_path(self) -> Path | None:
        """The file in which this machine may keep what was listed and read; None: there is none."""

    @override
    async def sessions(self, known: Iterable[SessionFound] = ()) -> list[SessionFound]:
        """List the sessions. A session that is ``known`` with its newest ``mark`` takes no request."""

    @abstractmethod
    def snapshot(self, session_id: str) -> Store:
        """Return the store of one session for readers, who see it as it is when they open it. Raises ``UnsafePath``.

        A reader of ``store`` sees what others write meanwhile, and asks the server for that each time.
        """


@runtime_checkable
class DirectoryStores(SessionStores, Protocol):
    """A place that may have sessions that this user may not read."""

    @abstractmethod
    async def all_names(self) -> list[str]:
        """List the ids of the sessions, and the names of what may be one, sorted. Raises ``ConfigError``."""


def is_stores(value: object) -> bool:
    """Whether it is a ``SessionStores``, and not the store of one session, nor a class."""
    return not isinstance(value, type) and isinstance(value, SessionStores)


def writer_of(stores: SessionStores, session_id: str) -> str | None:
    """What writes to the session now, such as "process 7"; None: nothing, as far as that can be seen in its place."""
    return None if stores.directory is None else lock_file.writer_of(stores.directory / session_id)


def has_writer(stores: SessionStores, session_id: str) -> bool:
    """Whether a process writes to the session at this moment, as far as that can be seen: only in a directory."""
    return writer_of(stores, session_id) is not None


async def is_there(stores: SessionStores, session_id: str) -> bool:
    """Whether the session exists, in one or two requests. Raises what ``Store.open`` raises, and ``StorageError``."""
    store = ThreadedStore(stores.store(session_id))
    try:
        await store.open(create=False, write=False)
    except SessionNotFound:
        return False
    await store.close()
    return True


async def session_ids(stores: SessionStores) -> list[str]:
    """The ids of the sessions of a place, sorted. Raises what ``SessionStores.sessions`` raises."""
    return [found.session_id for found in await stores.sessions()]
