"""The catalogue of a workspace: what all its sessions stored, in one SQLite file beside them. Synchronous.

It is derived from the sessions' journals and never the truth: it is brought up to date before each query, by what was
appended to a journal since, and made again when it is missing or damaged.
"""

import errno
import logging
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxfs.content.stored import Stored
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.jsontext import codec as json_codec
from ctxfs.session.journal import scan
from ctxfs.session.records import Record, UnknownRecord, from_json, to_json
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import is_hidden
from ctxfs.storage.local import LocalStore
from ctxfs.storage.session_dir import LOG_NAME
from ctxfs.workspace.artifacts import ArtifactInfo, ArtifactPage, info_of

__all__ = ["CATALOGUE_NAME", "COLUMNS", "DAMAGED", "Catalogue", "Stamp"]

CATALOGUE_NAME = ".catalogue.sqlite"
COLUMNS = (
    *("session_id", "artifact_id", "raw_id", "context_type", "biz_id"),
    *("agent_id", "task_id", "tool_name", "action_name", "artifact_type"),
)
ANCHOR_BYTES = 4096
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


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a session's journal looks like from outside; it differs once something was appended."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of a session: its journal up to ``log_end``, whose last bytes have the checksum ``anchor``."""

    stamp: Stamp
    log_end: int
    last_seq: int
    anchor: int
    artifacts: int


class Catalogue:
    """What the sessions under ``root`` stored. Not for concurrent use; every method blocks.

    ``refresh`` comes first. Every method raises one of ``DAMAGED`` when the file is damaged: call ``discard``, and
    begin again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / CATALOGUE_NAME
        self._db: sqlite3.Connection | None = None
        self._in_file = False
        self._unreadable: set[str] = set()

    # ---- opening and closing

    def _open(self, *, in_memory: bool) -> None:
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
            with self._transaction():
                if self._is_new():  # still: another process may have been here
                    for statement in _SCHEMA.strip().split(";\n"):
                        self._opened().execute(statement)
                    return
        with self._transaction(write=False):  # of one moment, whatever others write meanwhile
            self._check_rows()

    def _is_new(self) -> bool:
        db = self._opened()
        version = db.execute("PRAGMA user_version").fetchone()[0]
        return version == 0 and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _check_rows(self) -> None:
        db = self._opened()
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION or db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the catalogue is of another version, or damaged")
        counts = dict(db.execute("SELECT session_id, count(*) FROM artifacts GROUP BY session_id").fetchall())
        for session_id, *row in db.execute("SELECT * FROM sessions"):
            if row[-1] != _crc(session_id, *row[:-1]) or counts.pop(session_id, 0) != row[-2]:
                raise sqlite3.DatabaseError("the catalogue is damaged")
        rows = db.execute("SELECT a.*, r.crc FROM artifacts a LEFT JOIN records r USING (session_id, position)")
        if counts or any(crc != _crc(*row, record_crc) for *row, crc, record_crc in rows):
            raise sqlite3.DatabaseError("the catalogue is damaged")

    # ---- bringing it up to date

    def refresh(self, session_id: str | None = None, *, in_memory: bool = False) -> list[tuple[str, Stamp]]:
        """Open what is not open yet, and take in what was stored since, in all sessions or in one.

        ``in_memory`` leaves the file alone. Returns the sessions whose journal is lost: what they stored can only be
        found by opening them.
        """
        self._open(in_memory=in_memory)
        stamps = self._stamps(session_id)
        if stamps == {name: known.stamp for name, known in self._known(session_id).items()}:
            return []
        with self._transaction():
            known = self._known(session_id)  # again: another process may have been here
            for name in known.keys() - stamps.keys():
                self._forget(name)
            changed = [name for name, stamp in stamps.items() if name not in known or known[name].stamp != stamp]
            lost = [name for name in changed if not self._read(name, stamps[name], known.get(name))]
        return [(name, stamps[name]) for name in lost]

    def put(self, session_id: str, stamp: Stamp, stored: Iterable[Stored]) -> None:
        """Say what a session stored whose journal is lost."""
        with self._transaction():
            self._replace(session_id, stored, _Known(stamp, 0, 0, 0, 0))

    def _stamps(self, session_id: str | None) -> dict[str, Stamp]:
        try:
            names = [session_id] if session_id is not None else [entry.name for entry in os.scandir(self._root)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: {error.strerror}") from error
        found = ((name, self._stamp(name)) for name in names if not is_hidden(name))
        return {name: stamp for name, stamp in found if stamp is not None}

    def _stamp(self, session_id: str) -> Stamp | None:
        """Return what the session's journal looks like, or its index when the journal is lost; None when it is none."""
        for name in (LOG_NAME, "index.json"):
            try:
                found = os.stat(f"{self._root}/{session_id}/{name}", follow_symlinks=False)  # noqa: PTH116 - in a hurry
            except OSError:
                continue  # a file, a directory of something else, or not ours to read
            return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)
        return None

    def _known(self, session_id: str | None) -> dict[str, _Known]:
        where, values = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
        rows = self._opened().execute(f"SELECT * FROM sessions{where}", values)  # noqa: S608 - two constants
        return {row[0]: _Known(Stamp(*row[1:4]), *row[4:8]) for row in rows}

    def _read(self, session_id: str, stamp: Stamp, known: _Known | None) -> bool:
        """Read what is new in a session's journal, or all of it when it is not the one that was read before."""
        start = 0 if known is None else max(0, known.log_end - ANCHOR_BYTES)
        try:
            data = self._journal(session_id, start)
        except CtxfsError as error:  # removed meanwhile, a link, or a directory that others may write to
            if session_id not in self._unreadable:
                logger.warning("session %s is not in the catalogue: %s", session_id, error)
                self._unreadable.add(session_id)
            self._forget(session_id)
            return True
        if known is not None:
            overlap = known.log_end - start
            if overlap and len(data) >= overlap and zlib.crc32(data[:overlap]) == known.anchor:
                log = scan(data[overlap:], last_seq=known.last_seq, offset=known.log_end)
                added = self._added(session_id, log.records)
                if added is not None:
                    now = _Known(stamp, log.end, log.last_seq, _anchor(data, log.end - start), known.artifacts)
                    self._append(session_id, added, now)
                    return True
            data = self._journal(session_id, 0) if start else data
        log = scan(data)
        if not log.last_seq:
            return False
        now = _Known(stamp, log.end, log.last_seq, _anchor(data, log.end), 0)
        self._replace(session_id, fold(SessionState(), log.records).stored.values(), now)
        return True

    def _journal(self, session_id: str, offset: int) -> bytes:
        return LocalStore(self._root, session_id).read_log_now(offset)

    def _added(self, session_id: str, records: Iterable[Record]) -> list[Stored] | None:
        """Return what the records store; None when they may also change what was stored before."""
        added: dict[str, Stored] = {}
        for record in records:
            if isinstance(record, UnknownRecord):
                return None  # nobody knows what it changes
            if isinstance(record, Stored):
                query = "SELECT 1 FROM artifacts WHERE artifact_id = ? AND session_id = ?"
                if (
                    record.item_id in added
                    or self._opened().execute(query, (_key(record.item_id), session_id)).fetchone()
                ):
                    return None
                added[record.item_id] = record
        return list(added.values())

    # ---- rows

    def _replace(self, session_id: str, stored: Iterable[Stored], now: _Known) -> None:
        self._forget(session_id)
        self._append(session_id, stored, now)

    def _append(self, session_id: str, stored: Iterable[Stored], now: _Known) -> None:
        """Add artifacts after the ``now.artifacts`` that are there, and note how far the journal was read."""
        rows, records = [], []
        for position, entry in enumerate(stored, now.artifacts + 1):
            record = json_codec.dumps(to_json(entry))
            info = info_of(str(self._root), session_id, entry)
            row = (session_id, position, *(_column(info, name) for name in COLUMNS[1:]))
            crc = zlib.crc32(record)
            rows.append((*row, _crc(*row, crc)))
            records.append((session_id, position, record, crc))
        count = now.artifacts + len(rows)
        db = self._opened()
        db.executemany(f"INSERT INTO artifacts VALUES ({_marks(len(COLUMNS) + 2)})", rows)  # noqa: S608 - constants
        db.executemany(f"INSERT INTO records VALUES ({_marks(4)})", records)  # noqa: S608 - constants
        stamp = now.stamp
        session = (session_id, stamp.size, stamp.mtime_ns, stamp.inode, now.log_end, now.last_seq, now.anchor, count)
        db.execute(f"REPLACE INTO sessions VALUES ({_marks(9)})", (*session, _crc(*session)))  # noqa: S608 - constants

    def _forget(self, session_id: str) -> None:
        for table in ("sessions", "artifacts", "records"):
            self._opened().execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - constants

    # ---- asking

    def query(self, search_filter: Mapping[str, Any], *, limit: int | None, offset: int) -> ArtifactPage:
        """Return the artifacts that have all these values: at most ``limit`` (None: all) after the first ``offset``."""
        terms, values = [], []
        for key, value in search_filter.items():
            if key in COLUMNS:
                terms.append(f"a.{key} IS ?")
                values.append(_key(value) if isinstance(value, str) else value)
            else:
                terms.append("metadata_of(r.record, ?) IS ?")
                values += [json_codec.dumps(key).decode(), json_codec.dumps(value).decode()]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        joined = " JOIN records r USING (session_id, position)" if any("r." in term for term in terms) else ""
        db = self._opened()
        count = f"SELECT count(*) FROM artifacts a{joined}{where}"  # noqa: S608 - our column names
        total = db.execute(count, values).fetchone()[0]
        select = (
            "SELECT session_id, record, r.crc FROM artifacts a JOIN records r USING (session_id, position)"  # noqa: S608
            f"{where} ORDER BY session_id, position LIMIT ? OFFSET ?"
        )
        rows = db.execute(select, [*values, -1 if limit is None else limit, offset])
        return ArtifactPage(tuple(self._info(*row) for row in rows), total)

    def sessions_with(self, artifact_id: str) -> list[str]:
        """Return the sessions that have an artifact of this id, or else of this raw id, sorted."""
        for column in ("artifact_id", "raw_id"):
            query = f"SELECT DISTINCT session_id FROM artifacts WHERE {column} = ? ORDER BY session_id"  # noqa: S608
            found = [row[0] for row in self._opened().execute(query, (_key(artifact_id),))]
            if found:
                return found
        return []

    def _info(self, session_id: str, record: bytes, crc: int) -> ArtifactInfo:
        if zlib.crc32(record) != crc:
            raise sqlite3.DatabaseError("a row of the catalogue is damaged")
        stored = from_json(json_codec.loads(record))
        assert isinstance(stored, Stored), "only these were put in"
        return info_of(str(self._root), session_id, stored)

    # ---- small things

    def _opened(self) -> sqlite3.Connection:
        assert self._db is not None, "refresh comes first"
        return self._db

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[None]:
        db = self._opened()
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def _column(info: ArtifactInfo, name: str) -> str | bytes | None:
    value = getattr(info, name)
    return None if value is None else _key(str(value))


def _key(value: str) -> str | bytes:
    """Return what SQLite can hold and compare: a text with lone surrogates as bytes, which no text is equal to."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def _metadata_of(record: bytes, key: str) -> str:
    return json_codec.dumps(json_codec.loads(record).get("metadata", {}).get(json_codec.loads(key))).decode()


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _anchor(data: bytes, end: int) -> int:
    return zlib.crc32(data[max(0, end - ANCHOR_BYTES) : end])


def _crc(*values: object) -> int:
    return zlib.crc32(repr(values).encode("utf-8", "backslashreplace"))
