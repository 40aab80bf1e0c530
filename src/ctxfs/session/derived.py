"""What was read of all the sessions of one place, in one SQLite file: the list of sessions, and the workspace.

It is never the truth. Before each question, the sessions are compared with what the file says of them, and what changed
is read again. The file is made again when it is missing, damaged or of another version; where it cannot be written,
what was read is kept in memory for this use.

The file lies beside the sessions, with mode 0600. It has some of a session's words: the beginning of the first
question, and what a workspace recorded with an artifact. So a session from which something was erased is forgotten.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ctxfs.storage.database import DAMAGED, DerivedDatabase, is_busy, row_crc
from ctxfs.storage.threads import run_to_completion
from ctxfs.text.jsontext import codec as json_codec

DERIVED_NAME = ".derived.sqlite"
COLUMNS = (
    *("session_id", "artifact_id", "raw_id", "context_type", "biz_id"),
    *("agent_id", "task_id", "tool_name", "action_name", "artifact_type"),
)
"""The columns of an artifact by which a workspace can be asked."""

_VERSION = 1
_SCHEMA = f"""
CREATE TABLE sessions (kind TEXT, session_id TEXT, stamp TEXT, read TEXT, crc INTEGER,
    PRIMARY KEY (kind, session_id)) WITHOUT ROWID;
CREATE TABLE artifacts (session_id TEXT, position INTEGER, {", ".join(f"{name} TEXT" for name in COLUMNS[1:])},
    crc INTEGER, PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE TABLE records (session_id TEXT, position INTEGER, record BLOB, crc INTEGER,
    PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE INDEX by_id ON artifacts (artifact_id);
CREATE INDEX by_type ON artifacts (context_type, session_id, position, tool_name, task_id, agent_id, action_name);
CREATE INDEX by_raw_id ON artifacts (raw_id);
CREATE INDEX by_biz_id ON artifacts (biz_id);
CREATE INDEX by_task ON artifacts (task_id, session_id, position, context_type, tool_name, agent_id, action_name);
"""
_AT_ONCE = 200
"""So many sessions are read between two writes, so that what was read is not lost when that is cut short."""

logger = logging.getLogger("ctxfs.session")

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with how many of the changed sessions were read, and how many there are."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a session: what was ``read`` of it, as JSON, and the ``stamp`` that it had then."""

    stamp: str
    read: str

    @classmethod
    def of(cls, stamp: str, read: object) -> "Known":
        """With ``read`` as JSON data."""
        return cls(stamp, json_codec.dumps_text(read))

    @property
    def data(self) -> Any:
        """What was read, as JSON data."""
        return json_codec.loads(self.read)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was just read of a session. ``rows``: what ``Kind.write`` needs beside it.

    ``is_final``: another look would say the same, as long as the stamp is the same; else it is not kept in the file.
    """

    known: Known
    rows: Any = None
    is_final: bool = True


class Kind(Protocol):
    """One kind of what is derived: how its sessions are compared, read and written."""

    @property
    def name(self) -> str:
        """The name of the kind, in the table of the sessions."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Its own tables, besides that of the sessions."""

    async def stamps(self, known: Mapping[str, Known], session_id: str | None) -> Mapping[str, str]:
        """A stamp for each name that may be a session, or for one; what may have changed has another one than before.

        Raises:
            ConfigError: the place cannot hold sessions.
        """

    async def read(
        self, changed: Mapping[str, str], known: Mapping[str, Known], db: sqlite3.Connection
    ) -> Mapping[str, Reading | None]:
        """Read sessions, given with their stamps, or what is new since they were ``known``; None: there is none."""

    def write(self, db: sqlite3.Connection, session_id: str, reading: Reading | None) -> None:
        """Write the rows of a reading to its own tables; None removes what is there. Inside a transaction."""

    def check(self, db: sqlite3.Connection, known: Mapping[str, Known]) -> None:
        """Raise ``sqlite3.DatabaseError`` if the rows of its own tables are damaged."""


class Derived:
    """One kind of what is derived from the sessions of a place. Not for concurrent use; ``close`` it.

    Args:
        path: the file; None: everything is kept in memory.
        kind: what is derived.
    """

    def __init__(self, path: Path | None, kind: Kind) -> None:
        self._is_kept = path is not None
        self._kind = kind
        self._file = _file_at(path or Path(DERIVED_NAME))
        self._is_checked = False

    def close(self) -> None:
        """Close the file; idempotent. Blocks."""
        self._is_checked = False
        self._file.close()

    async def ask(
        self,
        question: Callable[[sqlite3.Connection, Mapping[str, Known]], T],
        *,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> T:
        """Bring all sessions up to date, or one, and ask: with the database, and what is known of these sessions.

        A damaged file is made again; if that does not help, all is read into memory. Raises what ``Kind`` raises.
        """
        in_memory = not self._is_kept
        for now_in_memory in (in_memory, in_memory, True):  # at first, with the file that was made again, without it
            try:
                await run_to_completion(partial(self._file.open, in_memory=now_in_memory))
                known = await self._up_to_date(session_id, progress)
                return await run_to_completion(partial(question, self._file.db, known))
            except DAMAGED as error:
                await run_to_completion(self.close)
                if is_busy(error):  # others write it for too long: that is no damage
                    logger.warning("what is known of the sessions is read again: %s", error)
                    continue
                logger.warning("the file of what is known of the sessions is made again: %s", error)
                if self._is_kept:
                    await run_to_completion(self._file.discard)
        raise AssertionError("a database in memory is not damaged")

    async def _up_to_date(self, session_id: str | None, progress: Progress | None) -> Mapping[str, Known]:
        passing: dict[str, Known] = {}
        while True:
            known = await run_to_completion(partial(self._known, session_id))
            stamps = await self._kind.stamps(known, session_id)
            gone = known.keys() - stamps.keys()
            changed: list[str] = []
            for name, stamp in stamps.items():
                is_known = name in known and known[name].stamp == stamp
                if not is_known and name not in passing:
                    changed.append(name)
            overtaken = await self._write(dict.fromkeys(gone), known)
            for start in range(0, len(changed), _AT_ONCE):
                if progress is not None:
                    progress(start, len(changed))
                part = {name: stamps[name] for name in changed[start : start + _AT_ONCE]}
                readings = dict(await self._kind.read(part, known, self._file.db))
                for name, reading in readings.items():
                    if reading is not None and not reading.is_final:
                        passing[name] = reading.known
                        readings[name] = None
                overtaken = await self._write(readings, known) or overtaken
            if not overtaken:
                return {**known, **passing}

    def _known(self, session_id: str | None) -> dict[str, Known]:
        """What the file has; its rows are checked once after it was opened. Raises ``sqlite3.DatabaseError``."""
        if not self._is_checked:
            with self._file.transaction(write=False):
                self._file.check(("sessions", *self._kind.tables))
                self._kind.check(self._file.db, self._rows(None))
            self._is_checked = True
        return self._rows(session_id)

    def _rows(self, session_id: str | None) -> dict[str, Known]:
        select = "SELECT session_id, stamp, read, crc FROM sessions WHERE kind = ?"
        if session_id is None:
            rows = self._file.db.execute(select, (self._kind.name,))
        else:
            rows = self._file.db.execute(f"{select} AND session_id = ?", (self._kind.name, session_id))
        known = {}
        for name, stamp, read, crc in rows:
            if not self._is_checked and crc != row_crc(self._kind.name, name, stamp, read):
                raise sqlite3.DatabaseError("what is known of a session is damaged")
            known[name] = Known(stamp, read)
        return known

    async def _write(self, readings: Mapping[str, Reading | None], known: dict[str, Known]) -> bool:
        """Write what was read, and change ``known`` so; return whether another process was faster with some of it."""
        to_write = {name: one for name, one in readings.items() if one is not None or name in known}
        if not to_write:
            return False
        return await run_to_completion(partial(self._written, to_write, known))

    def _written(self, readings: Mapping[str, Reading | None], known: dict[str, Known]) -> bool:
        overtaken = False
        db = self._file.db
        with self._file.transaction():
            for name, reading in readings.items():
                before = known.get(name)
                if self._rows(name).get(name) != before:
                    overtaken = True  # what was read may be older than what is there
                    continue
                self._kind.write(db, name, reading)
                if reading is None:
                    known.pop(name)
                    db.execute("DELETE FROM sessions WHERE kind = ? AND session_id = ?", (self._kind.name, name))
                    continue
                known[name] = reading.known
                row = (self._kind.name, name, reading.known.stamp, reading.known.read)
                db.execute("REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", (*row, row_crc(*row)))
        return overtaken


def forget(root: Path, session_id: str) -> None:
    """Remove all that the file beside the sessions has of one of them, also from its free pages. Blocks.

    Where that is not possible, the file is removed. Nothing happens if there is none.
    """
    file = _file_at(root / DERIVED_NAME)
    if not (root / DERIVED_NAME).exists():
        return
    try:
        file.open(in_memory=False)
        file.db.execute("PRAGMA secure_delete = ON")
        with file.transaction():
            for table in ("sessions", "artifacts", "records"):
                file.db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - constants
        busy, _, _ = file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        file.close()
    except DAMAGED as error:
        logger.warning("the file of what is known of the sessions is removed: %s", error)
        busy = True
    if busy:  # a reader keeps the log, which may still have the rows
        file.discard()


def _file_at(path: Path) -> DerivedDatabase:
    return DerivedDatabase(path, schema=_SCHEMA, version=_VERSION, functions=(("metadata_of", 2, _metadata_of),))


def _metadata_of(record: bytes, key: str) -> str:
    """What an artifact's record has under a key of its metadata, as JSON."""
    return json_codec.dumps_text(json_codec.loads(record).get("metadata", {}).get(json_codec.loads(key)))
