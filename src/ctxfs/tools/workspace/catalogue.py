"""The catalogue of a workspace: what all its sessions stored, one kind of what is ``derived`` from them.

It is brought up to date before each question, by what was appended to a journal since.
"""

import logging
import os
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.session.content.stored import Stored
from ctxfs.session.derived import COLUMNS, Kind, Known, Reading
from ctxfs.session.journal import scan
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import UnknownRecord
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import is_hidden, read_log_now
from ctxfs.storage.database import row_crc
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.workspace.artifacts import ArtifactInfo, ArtifactPage, info_of
from ctxfs.tools.workspace.sessions import OpenSessions

ANCHOR_BYTES = 4096

logger = logging.getLogger("ctxfs.tools")


@dataclass(frozen=True, slots=True)
class _Position:
    """How far a journal was read: up to byte ``end`` and line ``last_seq``.

    ``anchor``: the checksum of the last bytes before. ``artifacts``: how many it had stored by then.
    """

    end: int
    last_seq: int
    anchor: int
    artifacts: int

    @property
    def anchor_start(self) -> int:
        """Where those last bytes begin."""
        return max(0, self.end - ANCHOR_BYTES)


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a journal, up to ``position``.

    ``stored``: to be added after the ``after`` artifacts that are there, or, if that is 0, instead of them.
    """

    position: _Position
    stored: Sequence[Stored]
    after: int = 0


class Catalogue(Kind):
    """What the sessions of one place stored, as a ``Kind`` of what is derived from them.

    Args:
        stores: the place.
        sessions: opens a session whose journal is lost.
    """

    name = "workspace"
    tables = ("artifacts", "records")

    def __init__(self, stores: SessionStores, sessions: OpenSessions) -> None:
        self._stores = stores
        self._sessions = sessions
        self._root = stores.directory
        self._unreadable: set[str] = set()

    # ---- bringing it up to date

    @override
    async def stamps(self, known: Mapping[str, Known], session_id: str | None) -> Mapping[str, str]:
        del known
        if self._root is None:
            listed = await self._stores.sessions()
            return {one.session_id: one.version for one in listed if session_id in (None, one.session_id)}
        return await run_to_completion(lambda: self._stamps(session_id))

    def _stamps(self, session_id: str | None) -> dict[str, str]:
        try:
            names = [session_id] if session_id is not None else [entry.name for entry in os.scandir(self._root)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: {error.strerror}") from error
        found = ((name, self._stamp(name)) for name in names if not is_hidden(name))
        return {name: stamp for name, stamp in found if stamp is not None}

    def _stamp(self, session_id: str) -> str | None:
        """The stamp of the session's journal, or of its index if the journal is lost; None if there is no session."""
        for name in (LOG_NAME, "index.json"):
            try:
                found = os.stat(f"{self._root}/{session_id}/{name}", follow_symlinks=False)  # noqa: PTH116 - faster
            except OSError:
                continue  # a file, a directory of something else, or not ours to read
            return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"
        return None

    @override
    async def read(
        self, changed: Mapping[str, str], known: Mapping[str, Known], db: sqlite3.Connection
    ) -> Mapping[str, Reading | None]:
        return {name: await self._read(name, stamp, known.get(name), db) for name, stamp in changed.items()}

    async def _read(self, session_id: str, stamp: str, known: Known | None, db: sqlite3.Connection) -> Reading | None:
        """Read what is new in a session's journal, or all of it when it is not the one that was read before."""
        try:
            if known is not None:
                position = _Position(*known.data)
                data = await self._journal(session_id, position.anchor_start)
                added = await run_to_completion(partial(_added, data, position, session_id, db))
                if added is not None:
                    return Reading(Known.of(stamp, astuple(added.position)), added)
            data = await self._journal(session_id, 0)
        except CtxfsError as error:  # removed meanwhile, a link, or a directory that others may write to
            if session_id not in self._unreadable:
                logger.warning("session %s is not in the catalogue: %s", session_id, error)
                self._unreadable.add(session_id)
            return None
        read = await run_to_completion(partial(_whole, data))
        if read is None:
            stored = await self._stored_without_journal(session_id)
            read = _Read(_Position(0, 0, 0, len(stored)), stored)
        return Reading(Known.of(stamp, astuple(read.position)), read)

    async def _journal(self, session_id: str, offset: int) -> bytes:
        store = self._stores.store(session_id)
        return await run_to_completion(lambda: read_log_now(store, offset))

    async def _stored_without_journal(self, session_id: str) -> list[Stored]:
        """What a session stored whose journal is lost can only be found by opening it."""
        try:
            async with self._sessions.reading(session_id) as fs:
                return list(fs.state.stored.values())
        except CtxfsError as error:
            logger.warning("session %s is not in the catalogue: %s", session_id, error)
            return []

    # ---- rows

    @override
    def write(self, db: sqlite3.Connection, session_id: str, reading: Reading | None) -> None:
        after = 0 if reading is None else reading.rows.after
        if not after:
            for table in self.tables:
                db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - constants
        if reading is None:
            return
        rows = []
        records = []
        for position, entry in enumerate(reading.rows.stored, after + 1):
            record = json_codec.dumps(to_json(entry))
            info = info_of(self._stores.url, session_id, entry)
            row = (session_id, position, *(_column(info, name) for name in COLUMNS[1:]))
            crc = zlib.crc32(record)
            rows.append((*row, row_crc(*row, crc)))
            records.append((session_id, position, record, crc))
        db.executemany(f"INSERT INTO artifacts VALUES ({_marks(len(COLUMNS) + 2)})", rows)  # noqa: S608 - constants
        db.executemany(f"INSERT INTO records VALUES ({_marks(4)})", records)  # noqa: S608 - constants

    @override
    def check(self, db: sqlite3.Connection, known: Mapping[str, Known]) -> None:
        counts = dict(db.execute("SELECT session_id, count(*) FROM artifacts GROUP BY session_id").fetchall())
        expected = {name: _Position(*one.data).artifacts for name, one in known.items()}
        if counts != {name: count for name, count in expected.items() if count}:
            raise sqlite3.DatabaseError("rows of the catalogue are missing")
        rows = db.execute("SELECT a.*, r.crc FROM artifacts a LEFT JOIN records r USING (session_id, position)")
        if any(crc != row_crc(*row, record_crc) for *row, crc, record_crc in rows):
            raise sqlite3.DatabaseError("a row of the catalogue is damaged")

    # ---- asking

    def query(
        self, db: sqlite3.Connection, search_filter: Mapping[str, Any], *, limit: int | None, offset: int
    ) -> ArtifactPage:
        """Return the artifacts that have all these values: at most ``limit`` (None: all) after the first ``offset``."""
        terms: list[str] = []
        values: list[Any] = []
        for key, value in search_filter.items():
            if key in COLUMNS:
                terms.append(f"a.{key} IS ?")
                values.append(_key(value) if isinstance(value, str) else value)
            else:
                terms.append("metadata_of(r.record, ?) IS ?")
                values += [json_codec.dumps(key).decode(), json_codec.dumps(value).decode()]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        joined = " JOIN records r USING (session_id, position)" if any("r." in term for term in terms) else ""
        count = f"SELECT count(*) FROM artifacts a{joined}{where}"  # noqa: S608 - our column names
        total = db.execute(count, values).fetchone()[0]
        select = (
            "SELECT session_id, record, r.crc FROM artifacts a JOIN records r USING (session_id, position)"  # noqa: S608
            f"{where} ORDER BY session_id, position LIMIT ? OFFSET ?"
        )
        rows = db.execute(select, [*values, -1 if limit is None else limit, offset])
        return ArtifactPage(tuple(self._info(*row) for row in rows), total)

    def sessions_with(self, db: sqlite3.Connection, artifact_id: str) -> list[str]:
        """Return the sessions that have an artifact of this id, or else of this raw id, sorted."""
        for column in ("artifact_id", "raw_id"):
            query = f"SELECT DISTINCT session_id FROM artifacts WHERE {column} = ? ORDER BY session_id"  # noqa: S608
            found = [row[0] for row in db.execute(query, (_key(artifact_id),))]
            if found:
                return found
        return []

    def _info(self, session_id: str, record: bytes, crc: int) -> ArtifactInfo:
        if zlib.crc32(record) != crc:
            raise sqlite3.DatabaseError("a row of the catalogue is damaged")
        stored = from_json(json_codec.loads(record))
        assert isinstance(stored, Stored), "only these were put in"
        return info_of(self._stores.url, session_id, stored)


def _whole(data: bytes) -> _Read | None:
    """What a whole journal says; None: it says nothing."""
    log = scan(data)
    if not log.last_seq:
        return None
    stored = list(fold(SessionState(), log.records).stored.values())
    return _Read(_Position(log.end, log.last_seq, _anchor(data, log.end), len(stored)), stored)


def _added(data: bytes, before: _Position, session_id: str, db: sqlite3.Connection) -> _Read | None:
    """What a journal, from its anchor on, says beyond ``before``; None if all of it has to be read."""
    overlap = before.end - before.anchor_start
    if not overlap or len(data) < overlap or zlib.crc32(data[:overlap]) != before.anchor:
        return None  # this is another journal
    log = scan(data[overlap:], last_seq=before.last_seq, offset=before.end)
    added: dict[str, Stored] = {}
    query = "SELECT 1 FROM artifacts WHERE artifact_id = ? AND session_id = ?"
    for record in log.records:
        if isinstance(record, UnknownRecord):
            return None  # nobody knows what it changes
        if not isinstance(record, Stored):
            continue
        if record.item_id in added or db.execute(query, (_key(record.item_id), session_id)).fetchone():
            return None  # it changes what was stored before
        added[record.item_id] = record
    anchor = _anchor(data, log.end - before.anchor_start)
    position = _Position(log.end, log.last_seq, anchor, before.artifacts + len(added))
    return _Read(position, list(added.values()), after=before.artifacts)


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


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _anchor(data: bytes, end: int) -> int:
    return zlib.crc32(data[max(0, end - ANCHOR_BYTES) : end])
