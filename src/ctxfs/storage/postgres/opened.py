"""An open session in Postgres: reading from it and writing to it, in a worker thread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

from ctxfs.errors import NameTaken, NotStored, OutcomeUnknown, SessionLocked, SessionNotFound, StorageError, WriteFailed
from ctxfs.storage.answers import NoAnswer, Terms, repeated
from ctxfs.storage.base import NewFile, check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.opened import OpenedSession
from ctxfs.storage.postgres import statements
from ctxfs.storage.postgres.database import Conflict, Database
from ctxfs.storage.postgres.statements import Change, Part, parts_of

__all__ = ["OpenedPostgresSession"]

COMMIT_BYTES: Final = 900_000_000
"""A Postgres statement, with its values, must be smaller than 1 GiB."""


class OpenedPostgresSession(OpenedSession):
    """See ``OpenedSession``. Each change is one statement, which does nothing for a writer that was taken over."""

    def __init__(
        self,
        database: Database,
        session_id: str,
        terms: Terms,
        *,
        mine: set[str] | None = None,
        place: str = "this database",
    ) -> None:
        super().__init__(session_id, terms, mine=mine, place=place)
        self._database = database
        self._commits = 0

    # ---- the one writer

    def _exists(self) -> bool:
        rows = self._database.query(statements.look(self._session_id))
        return bool(rows) and not rows[0][4]

    def _take(self, me: str, *, create: bool) -> tuple[int, bool]:
        mine, ttl_s, nonce = sorted(self._mine), self._terms.ttl_s, uuid4().hex
        taking = statements.take(self._session_id, writer=me, mine=mine, ttl_s=ttl_s, nonce=nonce, create=create)
        rows = repeated(lambda: self._database.change(taking), self._session_id, self._terms)
        if not rows:
            raise self._locked_out() if self._exists() else SessionNotFound(self._session_id, self._place)
        ((epoch, self._commits, was_released),) = rows
        return epoch, bool(was_released)

    def _let_go(self, me: str, terms: Terms) -> bool:
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

    def _remove(self) -> None:
        """Remove the session. Its row stays, so that a sleeping writer wakes up to a higher epoch."""
        self._change(Change(cut=0, remove=True))

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
        """Return the part of the range that is not written yet. Raises ``NotStored``."""
        size = self.size(name)
        with self._lock:
            waiting = len(self._growing.files.get(name, b""))
            return self._growing.after(name, size - waiting, offset, length, data)

    def _names(self, prefix: str) -> Iterable[str]:
        return [row[0] for row in self._database.query(statements.names_with(self._session_id, prefix))]

    def read_log(self, offset: int) -> bytes:
        """See ``Store.read_log``."""
        rows = self._database.query(statements.log_from(self._session_id, offset))
        data = b"".join(row[1] for row in rows)
        return data[offset - rows[0][0] :] if rows else b""

    # ---- writing

    def _commit(self, files: Sequence[NewFile], log: Callable[[], bytes], *, release: bool) -> None:
        """Commit with one statement."""
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
        if files or line or release:
            new, over = parts[False], parts[True]
            self._change(Change(new=new, over=over, line=line, grown=self._grown(), release=release))

    def _overwrite(self, name: str, data: bytes) -> None:
        self._change(Change(over=parts_of(name, data)))

    def _write_growing(self) -> None:
        self._change(Change(grown=self._grown()))

    def _delete(self, names: Sequence[str]) -> None:
        self._change(Change(gone=names))

    def _truncate_log(self, length: int) -> None:
        self._change(Change(cut=length))

    def _log_size(self) -> int:
        return len(self.read_log(0))

    def _rewrite(self, log: bytes | None) -> None:
        """Replace the log with one statement. Old rows are gone for good once the database has vacuumed them."""
        if log is not None:
            self._change(Change(relog=log))

    def _grown(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self._growing.files.items()}

    def _change(self, change: Change) -> None:
        self._make(change, self._terms)
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
        if not made and tries > 1:  # an earlier try may have succeeded before another writer took over
            raise OutcomeUnknown(self._session_id, "another writer took the session over meanwhile")
        if not made:
            raise self._locked_out()
        self._commits += 1

    def _was_made(self, nonce: str) -> bool:
        """Whether an earlier try made the change but its answer was lost. Raises ``NoAnswer``."""
        try:
            rows = self._database.query(statements.look(self._session_id))
        except NoAnswer:
            raise
        except StorageError as error:
            raise NoAnswer(str(error)) from error
        return bool(rows) and (rows[0][0], rows[0][2]) == (self._epoch, nonce)

    def _locked_out(self) -> SessionLocked:
        return SessionLocked(self._session_id, "another writer, in this database")


def _fitting(file: NewFile, before_bytes: int) -> Iterator[bytes]:
    """Yield a file's content, which follows ``before_bytes`` in a commit. Raises ``WriteFailed`` if it is too large."""
    size_bytes = before_bytes
    for chunk in file.chunks:
        size_bytes += len(chunk)
        if size_bytes > COMMIT_BYTES:
            limit = f"over {COMMIT_BYTES:,} bytes in one commit, and Postgres accepts no statement that is much larger"
            raise WriteFailed(file.name, f"{limit}: keep this session in an object store, such as s3://")
        yield chunk
