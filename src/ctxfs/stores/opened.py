"""An open session of a store on a server, in a worker thread: its writer, and its buffered output."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from ctxfs.errors import OutcomeUnknown, SessionClosed, SessionLocked, SessionNotFound, StorageError, WriteFailed
from ctxfs.storage.base import NewFile, check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.growing import Growing
from ctxfs.storage.troubles import TROUBLES
from ctxfs.stores.answers import Terms

logger = logging.getLogger("ctxfs.stores")


class OpenedSession(ABC):
    """One opening of one session. Its methods block; they may be called in any thread, and one at a time writes.

    Args:
        session_id: the id of the session.
        terms: how long to wait for another writer, and for an answer.
        mine: the names that this writer has had; it need not wait for their leases. All of its openings share them.
        place: the store's name, for errors.
    """

    def __init__(self, session_id: str, terms: Terms, *, mine: set[str] | None, place: str) -> None:
        self._session_id = session_id
        self._place = place
        self._terms = terms
        self._mine = mine if mine is not None else set()
        self._lock = threading.Lock()
        self._me = ""  # the writer's name while this is the writer
        self._epoch = 0
        self._lost: Exception | None = None  # why this is not the writer any more
        self._is_left = False  # a change whose caller left: see ``leave``
        self._growing = Growing()

    # ---- the one writer

    @property
    def epoch(self) -> int:
        """See ``SharedStore.epoch``."""
        return self._epoch if self._me and self._lost is None and not self._is_left else 0

    @property
    def is_left(self) -> bool:
        """Whether a change may still be running in another thread: see ``leave``."""
        return self._is_left

    def leave(self) -> None:
        """Note that the caller of a change, or of ``acquire``, does not wait for its outcome any longer.

        The thread that makes it holds the lock until the server has answered, or was given up. Nothing more is written
        before ``acquire``, which waits for that.
        """
        self._is_left = True

    def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``. A reader does not create the session: it sees an empty one until a writer does."""
        with self._lock:
            if write:
                self._become_writer(create=create)
            elif not self._exists() and not create:
                raise SessionNotFound(self._session_id, self._place)

    def close(self) -> None:
        """Release the session, even where the outcome of a commit is unknown."""
        with self._lock:
            if self._me and not isinstance(self._lost, SessionLocked):
                # Do not wait for the server again; the next writer waits until the lease has run out.
                self._give_back(self._terms if self._lost is None else replace(self._terms, give_up_s=0))

    def release(self) -> None:
        """See ``LeaseStore.release``."""
        self._check_not_left()
        with self._lock:
            if self._me:
                self._check_writer()
                self._give_back(self._terms)

    def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        with self._lock:
            if self._me and self._lost is None and not self._is_left:
                return True
            return self._become_writer(create=False)

    def remove(self) -> None:
        """Remove the session, so that a sleeping writer of it is refused when it wakes up."""
        with self._writing():
            self._remove()
            self._me = ""

    def _become_writer(self, *, create: bool) -> bool:
        """Take the next epoch; return whether the previous writer released the session."""
        me = uuid4().hex
        self._mine.add(me)  # even if the answer is lost
        self._epoch, was_released = self._take(me, create=create)
        self._me, self._lost = me, None
        self._is_left = False
        self._growing.files.clear()
        return was_released

    def _give_back(self, terms: Terms) -> None:
        """Release the session. If that fails, the next writer waits until the lease has run out."""
        me, self._me = self._me, ""
        try:
            while not self._let_go(me, terms):
                pass  # a commit of this writer arrived late, and counted
        except StorageError as error:
            logger.warning(
                "session %s could not be released, and is free in %g s: %s", self._session_id, self._terms.ttl_s, error
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write as the one writer, one thread at a time. ``SessionLocked`` and ``OutcomeUnknown`` end that."""
        self._check_not_left()  # before the lock, which the thread of the earlier change still holds
        with self._lock:
            self._check_writer()
            try:
                yield
            except SessionLocked as error:
                self._lost = error
                TROUBLES.met("lost session")
                logger.warning("session %s was taken over by another writer: this one writes no more", self._session_id)
                raise
            except OutcomeUnknown as error:
                self._lost = error
                TROUBLES.met("unknown outcome")
                logger.warning("session %s: whether a change was stored is not known: %s", self._session_id, error)
                raise

    def _check_writer(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._check_not_left()
        if not self._me:
            raise SessionClosed(f"session {self._session_id} is open for reading only, or was released")

    def _check_not_left(self) -> None:
        if self._is_left:
            raise OutcomeUnknown(self._session_id, "the caller of an earlier change was cancelled before its answer")

    # ---- files

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes], *, release: bool = False) -> None:
        """See ``Store.commit``, and ``SharedStore.commit_and_release``."""
        with self._writing():
            self._commit(files, log, release=release)
            if release:
                self._me = ""

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """See ``Store.replace``."""
        check_name(name)
        with self._writing():
            with writing(name):
                data = b"".join(chunks)
            self._overwrite(name, data)
            self._growing.files.pop(name, None)

    def append(self, name: str, data: bytes, *, sync: bool) -> None:
        """See ``GrowingStore.append``: a small part is buffered until more comes, or until the next commit."""
        check_name(name)
        with self._writing():
            self._growing.add(name, data, now := self._terms.clock())
            if sync or self._growing.is_due(now):
                self._write_growing()

    def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        for name in names:
            check_name(name)
        with self._writing():
            for name in names:
                self._growing.files.pop(name, None)
            if names:
                self._delete(names)

    def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        with self._writing():
            self._truncate_log(length)

    def rewrite(self, log: bytes | None) -> None:
        """See ``RewritingStore.rewrite``."""
        with self._writing():
            self._write_growing()  # in a database, a writer that was taken over finds out here
            if log is not None and len(log) != self._log_size():
                raise WriteFailed("the log", "its replacement must have the same length")
            self._rewrite(log)

    def names(self, prefix: str) -> list[str]:
        """See ``Store.names``."""
        written = self._names(prefix)
        with self._lock:
            return sorted({*written, *(name for name in self._growing.files if name.startswith(prefix))})

    @abstractmethod
    def read(self, name: str, offset: int, length: int | None) -> bytes:
        """See ``Store.read``."""

    @abstractmethod
    def size(self, name: str) -> int:
        """See ``Store.size``."""

    @abstractmethod
    def read_log(self, offset: int) -> bytes:
        """See ``Store.read_log``."""

    # ---- what differs from server to server; all but the last is called with the lock held

    @abstractmethod
    def _exists(self) -> bool:
        """Whether the session exists, by the server's newest state."""

    @abstractmethod
    def _take(self, me: str, *, create: bool) -> tuple[int, bool]:
        """Take the session under the name ``me``; return the epoch, and whether the previous writer released it.

        Raises ``SessionLocked``, ``SessionNotFound``, ``WriteFailed`` and ``OutcomeUnknown``.
        """

    @abstractmethod
    def _let_go(self, me: str, terms: Terms) -> bool:
        """Release the session, unless another writer has it; False: it has just changed, so try again."""

    @abstractmethod
    def _remove(self) -> None:
        """Remove the session."""

    @abstractmethod
    def _commit(self, files: Sequence[NewFile], log: Callable[[], bytes], *, release: bool) -> None:
        """Commit, and release the session with it."""

    @abstractmethod
    def _overwrite(self, name: str, data: bytes) -> None:
        """Write a file, or replace it."""

    @abstractmethod
    def _write_growing(self) -> None:
        """Write what was appended."""

    @abstractmethod
    def _delete(self, names: Sequence[str]) -> None:
        """Delete files; some of them may not exist."""

    @abstractmethod
    def _truncate_log(self, length: int) -> None:
        """Cut the log."""

    @abstractmethod
    def _log_size(self) -> int:
        """The size of the log in bytes."""

    @abstractmethod
    def _rewrite(self, log: bytes | None) -> None:
        """Replace the log, and remove everything that is no longer part of the session."""

    @abstractmethod
    def _names(self, prefix: str) -> Iterable[str]:
        """List the files that have been written."""
