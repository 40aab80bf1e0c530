"""An SQLite file that is derived from sessions: made, opened, checked and discarded. Synchronous.

It is never the truth: what is in it can be made again, so a file that is damaged or of another version is removed.
"""

import errno
import logging
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_MAKE_TRIES = 5
_LOCK_WAIT_S = 30.0

DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file raises; sqlite3 cannot even say what is wrong when a name in the schema is not UTF-8."""

logger = logging.getLogger("ctxfs.storage")


class DerivedDatabase:
    """A database in the file ``path``, or in memory. Not for concurrent use; every method blocks.

    Processes may use the file at the same time. ``open`` comes first. Every method raises one of ``DAMAGED`` when the
    file is damaged or of another version: call ``discard``, and open it again.

    Args:
        path: the file; mode 0600. Where it cannot be written, the database is kept in memory, with what a file that
            can only be read holds.
        schema: SQL that makes the tables, each statement on lines of its own.
        version: of the schema, at least 1.
        functions: deterministic SQL functions: their name, the number of their arguments, and what they are.

    """

    def __init__(
        self,
        path: Path,
        *,
        schema: str,
        version: int,
        functions: tuple[tuple[str, int, Callable[..., str | int | None]], ...] = (),
    ) -> None:
        self._path = path
        self._schema = schema
        self._version = version
        self._functions = functions
        self._db: sqlite3.Connection | None = None
        self._in_file = False

    def open(self, *, in_memory: bool) -> None:
        """Open the file, or make it; where none can be made, or ``in_memory``, the database is kept in memory."""
        in_memory = in_memory or not self._path.parent.is_dir()
        if self._db is not None and (self._in_file or in_memory):
            return
        self.close()
        read_only = not in_memory and not os.access(self._path.parent, os.W_OK)
        try:
            if not in_memory and not read_only:
                self._make_file()
        except OSError as error:
            logger.warning("the database %s cannot be used (%s): it is kept in memory", self._path, error)
            in_memory = True
        self._in_file = not in_memory and not read_only
        self._db = self._connect(str(self._path) if self._in_file else ":memory:")
        try:
            if read_only:
                self._copy_file()
            self._make_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._db is not None:
            db = self._db
            self._db = None
            db.close()

    def discard(self) -> None:
        """Close the file and remove it."""
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").unlink()

    def _copy_file(self) -> None:
        """Copy to memory what a file holds that can only be read, if there is one and it is whole."""
        with suppress(*DAMAGED), closing(sqlite3.connect(f"{self._path.as_uri()}?immutable=1", uri=True)) as file:
            file.backup(self.db)

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
            for name, arguments, function in self._functions:
                db.create_function(name, arguments, function, deterministic=True)
        except BaseException:
            db.close()
            raise
        return db

    def check(self, tables: Iterable[str]) -> None:
        """Raise ``sqlite3.DatabaseError`` if one of these tables, or an index of it, is damaged."""
        for table in tables:
            if self.db.execute(f"PRAGMA integrity_check({table})").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError(f"the table {table} of {self._path.name} is damaged")

    def _make_tables(self) -> None:
        """Make the tables, if there are none. Raises ``sqlite3.DatabaseError`` if the file is of another version."""
        if self._is_new():
            with self.transaction():
                if self._is_new():  # still: another process may have been here
                    for statement in self._schema.strip().split(";\n"):
                        self.db.execute(statement)
                    self.db.execute(f"PRAGMA user_version = {self._version}")
        if self._recorded_version() != self._version:
            raise sqlite3.DatabaseError(f"{self._path.name} is of another version, or damaged")

    def _recorded_version(self) -> int:
        version: int = self.db.execute("PRAGMA user_version").fetchone()[0]
        return version

    def _is_new(self) -> bool:
        return not self._recorded_version() and not self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    @property
    def db(self) -> sqlite3.Connection:
        """The open database."""
        assert self._db is not None, "open comes first"
        return self._db

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """Do what is inside in one transaction, or, when it raises, nothing of it; reads see one moment."""
        db = self.db
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def is_busy(error: Exception) -> bool:
    """Whether the file is not damaged, but was used by others for longer than we wait."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def row_crc(*values: object) -> int:
    """Return the checksum of a row."""
    return zlib.crc32(repr(values).encode("utf-8", "backslashreplace"))
