"""An open session in Postgres, in a worker thread: who writes, what is read, and what is written."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

from ctxfs.errors import (
    NameTaken,
    NotStored,
    OutcomeUnknown,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
    WriteFailed,
)
from ctxfs.storage.answers import NoAnswer, Terms, repeated
from ctxfs.storage.base import NewFile, check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.growing import Growing
from ctxfs.storage.postgres import statements
from ctxfs.storage.postgres.database import Conflict, Database
from ctxfs.storage.postgres.statements import Change, Part, parts_of

logger = logging.getLogger("ctxfs.storage")

__all__ = ["OpenedSession"]

COMMIT_BYTES: Final = 900_000_000
"""A statement of Postgres takes less than 1 GiB, with all that it carries."""


class OpenedSession:
    """One opening of one session; see ``storage.remote.OpenedRemotely``. One commit at a time.

    ``place``: the database's name, for errors.
    """

    def __init__(
        self,
        database: Database,
        session_id: str,
        terms: Terms,
        *,
        mine: set[str] | None = None,
        place: str = "this database",
    ) -> None:
        self._database = database
        self._place = place
        self._session_id = session_id
        self._terms = terms
        self._mine = mine if mine is not None else set()
        self._lock = threading.Lock()
        self._me = ""  # the writer's name while this is the writer
        self._epoch = 0
        self._commits = 0
        self._lost: Exception | None = None  # why this is the writer no longer
        self._growing = Growing()

    @property
    def epoch(self) -> int:
        """See ``SharedStore.epoch``."""
        return self._epoch if self._me and self._lost is None else 0

    # ---- opening

    def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``. A reader makes no session: it sees an empty one until a writer makes it."""
        with self._lock:
            if write:
                self._become_writer(create=create)
            elif not create and not self._exists():
                raise SessionNotFound(self._session_id, self._place)

    def close(self) -> None:
        """Let go of the session, also where the outcome of a commit is unknown."""
        with self._lock:
            if self._me and not isinstance(self._lost, SessionLocked):
                self._give_back(self._terms if self._lost is None else replace(self._terms, give_up_s=0))

    def release(self) -> None:
        """See ``LeaseStore.release``."""
        with self._lock:
            if self._me:
                self._check_writer()
                self._give_back(self._terms)

    def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        with self._lock:
            return True if self._me and self._lost is None else self._become_writer(create=False)

    def _become_writer(self, *, create: bool) -> bool:
        """Take the next epoch; returns whether the writer before let go."""
        me, nonce = uuid4().hex, uuid4().hex
        self._mine.add(me)  # also where the answer is lost
        mine, ttl_s = sorted(self._mine), self._terms.ttl_s
        taking = statements.take(self._session_id, writer=me, mine=mine, ttl_s=ttl_s, nonce=nonce, create=create)
        rows = repeated(lambda: self._database.change(taking), self._session_id, self._terms)
        if not rows:
            raise self._locked_out() if self._exists() else SessionNotFound(self._session_id, self._place)
        ((self._epoch, self._commits, was_let_go),) = rows
        self._me, self._lost = me, None
        self._growing.files.clear()
        return bool(was_let_go)

    def _give_back(self, terms: Terms) -> None:
        """Say that the session is free. Where that fails, the next writer waits until the lease has run out."""
        me, self._me = self._me, ""
        try:
            while not self._let_go(me, terms):
                pass  # a commit of this writer arrived at last, and counted
        except StorageError as error:
            logger.warning(
                "session %s could not be released, and is free in %g s: %s", self._session_id, self._terms.ttl_s, error
            )

    def _let_go(self, me: str, terms: Terms) -> bool:
        """Let go, where the session is still this writer's; returns whether it is not any more."""
        if self._lost is not None:
            rows = self._database.query(statements.look(self._session_id))
            if not rows or rows[0][3] != me:
                return True
            self._commits = rows[0][1]
        grown = {} if self._lost is not None else self._grown()
        try:
            self._make(Change(grown=grown, release=True), terms)
        except SessionLocked as error:
            self._lost = error
            return False
        self._growing.files.clear()
        return True

    def remove(self) -> None:
        """Remove the session. Its row stays, so that a sleeping writer wakes up to a higher epoch."""
        with self._lock:
            self._check_writer()
            self._change(Change(cut=0, remove=True))
            self._me = ""

    # ---- reading

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        check_name(name)
        with self._lock:
            waiting = self._growing.files.get(name)
            ((size,),) = self._database.query(statements.size_of(self._session_id, name))
            if size is None and waiting is None:
                raise NotStored(name)
            return int(size or 0) + len(waiting or b"")

    def read(self, name: str, offset: int, length: int | None) -> bytes:
        """See ``Store.read``."""
        check_name(name)
        rows = self._database.query(statements.read_part(self._session_id, name, offset, length))
        data = b"".join(row[0] for row in rows)
        if name in self._growing.files or not rows:
            return data + self._rest(name, offset, length, data)
        return data

    def _rest(self, name: str, offset: int, length: int | None, data: bytes) -> bytes:
        """What is not written yet. Raises ``NotStored``."""
        size = self.size(name)
        with self._lock:
            waiting = len(self._growing.files.get(name, b""))
            return self._growing.after(name, size - waiting, offset, length, data)

    def names(self, prefix: str) -> list[str]:
        """See ``Store.names``."""
        rows = self._database.query(statements.names_with(self._session_id, prefix))
        with self._lock:
            growing = {name for name in self._growing.files if name.startswith(prefix)}
        return sorted({row[0] for row in rows} | growing)

    def read_log(self, offset: int) -> bytes:
        """See ``Store.read_log``."""
        rows = self._database.query(statements.log_from(self._session_id, offset))
        data = b"".join(row[1] for row in rows)
        return data[offset - rows[0][0] :] if rows else b""

    def _exists(self) -> bool:
        rows = self._database.query(statements.look(self._session_id))
        return bool(rows) and not rows[0][4]

    # ---- writing

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``: one statement."""
        with self._lock:
            self._check_writer()
            parts: dict[bool, list[Part]] = {True: [], False: []}
            size_bytes = 0
            for file in files:
                check_name(file.name)
                with writing(file.name):
                    data = b"".join(_fitting(file, size_bytes))
                size_bytes += len(data)
                if not file.derived and file.name in self._growing.files:
                    raise NameTaken(file.name)
                parts[file.derived] += parts_of(file.name, data)
            with writing("the log"):
                line = log()
            if files or line:
                self._change(Change(new=parts[False], over=parts[True], line=line, grown=self._grown()))

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """See ``Store.replace``."""
        check_name(name)
        with self._lock:
            self._check_writer()
            with writing(name):
                data = b"".join(chunks)
            self._growing.files.pop(name, None)
            self._change(Change(over=parts_of(name, data)))

    def append(self, name: str, data: bytes, *, sync: bool) -> None:
        """See ``GrowingStore.append``: what is small waits for more of it, or for the next commit."""
        check_name(name)
        with self._lock:
            self._check_writer()
            self._growing.add(name, data, now := self._terms.clock())
            if sync or self._growing.is_due(now):
                self._change(Change(grown=self._grown()))

    def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        for name in names:
            check_name(name)
        with self._lock:
            self._check_writer()
            for name in names:
                self._growing.files.pop(name, None)
            if names:
                self._change(Change(gone=names))

    def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        with self._lock:
            self._check_writer()
            self._change(Change(cut=length))

    def _grown(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self._growing.files.items()}

    def _change(self, change: Change) -> None:
        try:
            self._make(change, self._terms)
        except (SessionLocked, OutcomeUnknown) as error:
            self._lost = error
            raise
        if change.grown:
            self._growing.files.clear()

    def _make(self, change: Change, terms: Terms) -> None:
        """Make the next change. Raises ``NameTaken``, ``SessionLocked``, ``WriteFailed`` or ``OutcomeUnknown``."""
        nonce = uuid4().hex
        statement = change.statement(
            session=self._session_id, epoch=self._epoch, commits=self._commits, nonce=nonce, ttl_s=self._terms.ttl_s
        )
        tries = 0

        def make() -> bool:
            nonlocal tries
            tries += 1
            return bool(self._database.change(statement)) or self._was_made(nonce)

        try:
            made = repeated(make, self._session_id, terms)
        except Conflict as error:
            raise NameTaken(str(error)) from error
        if not made and tries > 1:  # an earlier try may have been made, before another writer took over
            raise OutcomeUnknown(self._session_id, "another writer took the session over meanwhile")
        if not made:
            raise self._locked_out()
        self._commits += 1

    def _was_made(self, nonce: str) -> bool:
        """Whether an earlier try of a change was made, and its answer lost. Raises ``NoAnswer``."""
        try:
            rows = self._database.query(statements.look(self._session_id))
        except NoAnswer:
            raise
        except StorageError as error:
            raise NoAnswer(str(error)) from error
        return bool(rows) and (rows[0][0], rows[0][2]) == (self._epoch, nonce)

    def _locked_out(self) -> SessionLocked:
        return SessionLocked(self._session_id, "another writer, in this database")

    def _check_writer(self) -> None:
        if self._lost is not None:
            raise self._lost
        if not self._me:
            raise SessionClosed(f"session {self._session_id} is open for reading only, or was released")


def _fitting(file: NewFile, before_bytes: int) -> Iterator[bytes]:
    """The content of a file, of a commit that has so many bytes before it. Raises ``WriteFailed`` for too many."""
    size_bytes = before_bytes
    for chunk in file.chunks:
        size_bytes += len(chunk)
        if size_bytes > COMMIT_BYTES:
            limit = f"over {COMMIT_BYTES:,} bytes in one commit, and Postgres takes no statement that is much larger"
            raise WriteFailed(file.name, f"{limit}: keep this session in an object store, such as s3://")
        yield chunk
