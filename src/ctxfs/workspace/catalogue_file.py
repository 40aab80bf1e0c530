"""The SQLite file of a workspace's catalogue: made, opened, checked and discarded. Synchronous."""

import errno
import logging
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctxfs.jsontext import codec as json_codec

__all__ = ["CATALOGUE_NAME", "COLUMNS", "DAMAGED", "CatalogueFile", "row_crc"]

CATALOGUE_NAME = ".catalogue.sqlite"
COLUMNS = (
    *("session_id", "artifact_id", "raw_id", "context_type", "biz_id"),
    *("agent_id", "task_id", "tool_name", "action_name", "artifact_type"),
)
_VERSION = 1
_MAKE_TRIES = 5
_LOCK_WAIT_S = 30.0
_SCHEMA = f"""
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, log_end INTEGER,
    last_seq INTEGER, anchor INTEGER, artifacts INTEGER, crc INTEGER) WITHOUT ROWID;
CREATE TABLE artifacts (session_id TEXT, position INTEGER, {", ".join(f"{name} TEXT" for name in COLUMNS[1:])},
    crc INTEGER, PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE TABLE records (session_id TEXT, position INTEGER, record BLOB, crc INTEGER,
    PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE INDEX by_id ON artifacts (artifact_id);
CREATE INDEX by_type ON artifacts (context_type, session_id, position, tool_name, task_id, agent_id, action_name);
CREATE INDEX by_raw_id ON artifacts (raw_id);
CREATE INDEX by_biz_id ON artifacts (biz_id);
CREATE INDEX by_task ON artifacts (task_id, session_id, position, context_type, tool_name, agent_id, action_name);
PRAGMA user_version = {_VERSION};
"""

DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file raises; sqlite3 cannot even say what is wrong when a name in the schema is not UTF-8."""

logger = logging.getLogger(__name__)


class CatalogueFile:
    """The file in ``root``, or a database in memory. Not for concurrent use; every method blocks.

    ``open`` comes first. Every method raises one of ``DAMAGED`` when the file is damaged: call ``discard``, and open it
    again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / CATALOGUE_NAME
        self._db: sqlite3.Connection | None = None
        self._in_file = False

    def open(self, *, in_memory: bool) -> None:
        """Open the file, or make it; where none can be made, or ``in_memory``, the catalogue lives in memory."""
        if self._db is not None and (self._in_file or in_memory or not self._root.is_dir()):
            return
        self.close()
        path = str(self._path)
        in_memory = in_memory or not self._root.is_dir()
        try:
            if not in_memory:
                self._make_file()
        except OSError as error:
            logger.warning("the catalogue %s cannot be used (%s): it is kept in memory", path, error)
            in_memory = True
        self._db = self._connect(":memory:" if in_memory else path)
        self._in_file = not in_memory
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._db is not None:
            db, self._db = self._db, None
            db.close()

    def discard(self) -> None:
        """Close the file and remove it."""
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").unlink()

    def _make_file(self) -> None:
        """Make sure that a file of ours is there, mode 0600. Raises OSError."""
        for _ in range(_MAKE_TRIES):
            if self._is_ours():
                return
            with suppress(FileExistsError):  # another process was faster: look at what it made
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                try:
                    os.fchmod(fd, 0o600)
                finally:
                    os.close(fd)
                return
        raise FileExistsError(errno.EEXIST, "something that is not ours comes back", str(self._path))

    def _is_ours(self) -> bool:
        """Whether a regular file of this user is there, closed to others; anything else of that name is removed."""
        with suppress(FileNotFoundError):
            found = self._path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                if stat.S_IMODE(found.st_mode) & 0o077:
                    self._path.chmod(0o600)
                return True
            self.discard()
        return False

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA trusted_schema = OFF")
            db.create_function("metadata_of", 2, _metadata_of, deterministic=True)
        except BaseException:
            db.close()
            raise
        return db

    def _check(self) -> None:
        """Make the tables, or check every row that is there. Raises ``sqlite3.DatabaseError``."""
        if self._is_new():
            with self.transaction():
                if self._is_new():  # still: another process may have been here
                    for statement in _SCHEMA.strip().split(";\n"):
                        self.db.execute(statement)
                    return
        with self.transaction(write=False):  # of one moment, whatever others write meanwhile
            self._check_rows()

    def _is_new(self) -> bool:
        db = self.db
        version = db.execute("PRAGMA user_version").fetchone()[0]
        return version == 0 and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _check_rows(self) -> None:
        db = self.db
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION or db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the catalogue is of another version, or damaged")
        counts = dict(db.execute("SELECT session_id, count(*) FROM artifacts GROUP BY session_id").fetchall())
        for session_id, *row in db.execute("SELECT * FROM sessions"):
            if row[-1] != row_crc(session_id, *row[:-1]) or counts.pop(session_id, 0) != row[-2]:
                raise sqlite3.DatabaseError("the catalogue is damaged")
        rows = db.execute("SELECT a.*, r.crc FROM artifacts a LEFT JOIN records r USING (session_id, position)")
        if counts or any(crc != row_crc(*row, record_crc) for *row, crc, record_crc in rows):
            raise sqlite3.DatabaseError("the catalogue is damaged")

    @property
    def db(self) -> sqlite3.Connection:
        """The open database."""
        assert self._db is not None, "refresh comes first"
        return self._db

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """Do what is inside in one transaction, or, when it raises, nothing of it."""
        db = self.db
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def _metadata_of(record: bytes, key: str) -> str:
    return json_codec.dumps(json_codec.loads(record).get("metadata", {}).get(json_codec.loads(key))).decode()


def row_crc(*values: object) -> int:
    """Return the checksum of a row."""
    return zlib.crc32(repr(values).encode("utf-8", "backslashreplace"))
