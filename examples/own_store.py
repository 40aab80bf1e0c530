"""A store of one's own: a session in an SQLite file, which several processes of this machine may share."""

import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from uuid import uuid4

import anyio

from ctxfs import Context, ContextFileSystem
from ctxfs.errors import NameTaken, NotStored, SessionClosed, SessionLocked, SessionNotFound, WriteFailed
from ctxfs.storage import NewFile, Store, check_name

TABLES = """
CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, writer TEXT, log BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS file (session TEXT, name TEXT, data BLOB NOT NULL, PRIMARY KEY (session, name));
"""


class SqliteStore(Store):
    """The session ``session_id`` in the SQLite file at ``path``.

    SQLite makes each transaction durable as a whole, so a commit is one. The writer's name stands in the session's row.
    A writer that was killed stays there: a lease that runs out, or a lock of the system, would let the next one in.
    """

    def __init__(self, path: Path, session_id: str) -> None:
        self._path = path
        self._id = session_id
        self._me = uuid4().hex
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # its methods are called in several threads

    def open(self, *, create: bool, write: bool) -> Self:
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.executescript(TABLES)
        try:
            with self._transaction() as db:
                self._find(db, create=create)
                if write:
                    self._become_writer(db)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        if self._db is not None:
            self.release()
            self._db.close()
            self._db = None

    def _find(self, db: sqlite3.Connection, *, create: bool) -> None:
        if create:
            db.execute("INSERT OR IGNORE INTO session VALUES (?, NULL, x'')", (self._id,))
        if db.execute("SELECT 1 FROM session WHERE id = ?", (self._id,)).fetchone() is None:
            raise SessionNotFound(self._id, str(self._path))

    # ---- the one writer

    def release(self) -> None:
        with self._transaction() as db:
            db.execute("UPDATE session SET writer = NULL WHERE id = ? AND writer = ?", (self._id, self._me))

    def acquire(self) -> bool:
        with self._transaction() as db:
            if self._writer(db) != self._me:
                self._become_writer(db)
        return True  # no writer leaves anything half-written

    def _writer(self, db: sqlite3.Connection) -> str | None:
        writer: str | None
        (writer,) = db.execute("SELECT writer FROM session WHERE id = ?", (self._id,)).fetchone()
        return writer

    def _become_writer(self, db: sqlite3.Connection) -> None:
        if self._writer(db) is not None:
            raise SessionLocked(self._id)
        db.execute("UPDATE session SET writer = ? WHERE id = ?", (self._me, self._id))

    # ---- writing

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        with self._writing() as db:
            for file in files:
                check_name(file.name)
                if not file.derived and self._has(db, file.name):
                    raise NameTaken(file.name)
                self._put(db, file.name, b"".join(file.chunks))
            db.execute("UPDATE session SET log = CAST(log || ? AS BLOB) WHERE id = ?", (log(), self._id))

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        check_name(name)
        with self._writing() as db:
            self._put(db, name, data if isinstance(data, bytes) else b"".join(data))

    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:  # noqa: ARG002 - it always is
        check_name(name)
        with self._writing() as db:
            before = self._read(db, name) if self._has(db, name) else b""
            self._put(db, name, before + data)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        with self._writing() as db:
            for name in names:
                db.execute("DELETE FROM file WHERE session = ? AND name = ?", (self._id, name))

    def truncate_log(self, length: int) -> None:
        with self._writing() as db:
            db.execute("UPDATE session SET log = substr(log, 1, ?) WHERE id = ?", (length, self._id))

    def _put(self, db: sqlite3.Connection, name: str, data: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", (self._id, name, data))

    # ---- reading

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        check_name(name)
        with self._transaction() as db:
            data = self._read(db, name)
        return data[offset:] if length is None else data[offset : offset + length]

    def size(self, name: str) -> int:
        return len(self.read(name))

    def names(self, prefix: str = "") -> list[str]:
        with self._transaction() as db:
            found = db.execute("SELECT name FROM file WHERE session = ? ORDER BY name", (self._id,)).fetchall()
        return [name for (name,) in found if name.startswith(prefix)]

    def read_log(self, offset: int = 0) -> bytes:
        with self._transaction() as db:
            (log,) = db.execute("SELECT log FROM session WHERE id = ?", (self._id,)).fetchone()
        return bytes(log[offset:])

    def _has(self, db: sqlite3.Connection, name: str) -> bool:
        found = db.execute("SELECT 1 FROM file WHERE session = ? AND name = ?", (self._id, name))
        return found.fetchone() is not None

    def _read(self, db: sqlite3.Connection, name: str) -> bytes:
        row = db.execute("SELECT data FROM file WHERE session = ? AND name = ?", (self._id, name)).fetchone()
        if row is None:
            raise NotStored(name)
        return bytes(row[0])

    # ---- transactions

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is inside, or, when it raises, nothing of it."""
        with self._lock:
            if self._db is None:
                raise SessionClosed(f"session {self._id} is not open")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the one writer. What SQLite cannot write may be tried again, so it is ``WriteFailed``."""
        try:
            with self._transaction() as db:
                if self._writer(db) != self._me:
                    raise SessionClosed(f"session {self._id} is open for reading only, or was released")
                yield db
        except sqlite3.Error as error:
            raise WriteFailed(str(self._path), str(error)) from error


async def main() -> None:
    """Store a session, and read it back as another process would."""
    path = Path(tempfile.mkdtemp()) / "sessions.sqlite"
    fs = ContextFileSystem("session_1", store=SqliteStore(path, "session_1"))
    async with Context(fs) as context:
        await context.add({"role": "user", "content": "Remember the milk"})
    again = ContextFileSystem("session_1", store=SqliteStore(path, "session_1"))
    async with Context(again) as context:
        print(f"{path.name} holds: {context.items[0].message.content}")


if __name__ == "__main__":
    anyio.run(main)
