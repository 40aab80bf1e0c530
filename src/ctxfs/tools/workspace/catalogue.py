"""The catalogue of a workspace: what all its sessions stored, in one SQLite file beside them. Synchronous.

It is derived from the sessions' journals and never the truth: it is brought up to date before each query, by what was
appended to a journal since, and made again when it is missing or damaged.
"""

import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.session.content.stored import Stored
from ctxfs.session.journal import scan
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import Record, UnknownRecord
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import is_hidden
from ctxfs.storage.database import row_crc
from ctxfs.storage.local import read_log_now
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionFound, SessionStores
from ctxfs.storage.workspace_catalogue import COLUMNS, catalogue_file
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.workspace.artifacts import ArtifactInfo, ArtifactPage, info_of

ANCHOR_BYTES = 4096

logger = logging.getLogger("ctxfs.tools")


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
    """What the sessions of one place stored. Not for concurrent use; every method blocks, in a worker thread.

    ``refresh`` comes first. Every method raises one of ``DAMAGED`` when the file is damaged: call ``file.discard``, and
    begin again.
    """

    def __init__(self, stores: SessionStores) -> None:
        self._stores = stores
        self._root = stores.directory
        self.file = catalogue_file(Path() if self._root is None else self._root)
        self._unreadable: set[str] = set()

    # ---- bringing it up to date

    def refresh(self, session_id: str | None = None, *, in_memory: bool = False) -> list[tuple[str, Stamp]]:
        """Open what is not open yet, and take in what was stored since, in all sessions or in one.

        ``in_memory`` leaves the file alone. Returns the sessions whose journal is lost: what they stored can only be
        found by opening them.
        """
        self.file.open(in_memory=in_memory or self._root is None)
        stamps = self._stamps(session_id)
        if stamps == {name: known.stamp for name, known in self._known(session_id).items()}:
            return []
        with self.file.transaction():
            known = self._known(session_id)  # again: another process may have been here
            for name in known.keys() - stamps.keys():
                self._forget(name)
            changed = [name for name, stamp in stamps.items() if name not in known or known[name].stamp != stamp]
            lost = [name for name in changed if not self._read(name, stamps[name], known.get(name))]
        return [(name, stamps[name]) for name in lost]

    def put(self, session_id: str, stamp: Stamp, stored: Iterable[Stored]) -> None:
        """Say what a session stored whose journal is lost."""
        with self.file.transaction():
            self._replace(session_id, stored, _Known(stamp, 0, 0, 0, 0))

    def _stamps(self, session_id: str | None) -> dict[str, Stamp]:
        if self._root is None:
            listed = anyio.run(self._stores.sessions)
            return {one.session_id: _stamp_of(one) for one in listed if session_id in (None, one.session_id)}
        try:
            names = [session_id] if session_id is not None else [entry.name for entry in os.scandir(self._root)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: {error.strerror}") from error
        found = ((name, self._stamp(name)) for name in names if not is_hidden(name))
        return {name: stamp for name, stamp in found if stamp is not None}

    def _stamp(self, session_id: str) -> Stamp | None:
        """The stamp of the session's journal, or of its index if the journal is lost; None if there is no session."""
        for name in (LOG_NAME, "index.json"):
            try:
                found = os.stat(f"{self._root}/{session_id}/{name}", follow_symlinks=False)  # noqa: PTH116 - faster
            except OSError:
                continue  # a file, a directory of something else, or not ours to read
            return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)
        return None

    def _known(self, session_id: str | None) -> dict[str, _Known]:
        where, values = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
        rows = self.file.db.execute(f"SELECT * FROM sessions{where}", values)  # noqa: S608 - two constants
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
        if self._root is not None:
            return read_log_now(self._root, session_id, offset)
        store = self._stores.store(session_id)

        async def read() -> bytes:
            await store.open(create=False, write=False)
            try:
                return await store.read_log(offset)
            finally:
                await store.close()

        return anyio.run(read)

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
                    or self.file.db.execute(query, (_key(record.item_id), session_id)).fetchone()
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
            info = info_of(self._stores.url, session_id, entry)
            row = (session_id, position, *(_column(info, name) for name in COLUMNS[1:]))
            crc = zlib.crc32(record)
            rows.append((*row, row_crc(*row, crc)))
            records.append((session_id, position, record, crc))
        count = now.artifacts + len(rows)
        db = self.file.db
        db.executemany(f"INSERT INTO artifacts VALUES ({_marks(len(COLUMNS) + 2)})", rows)  # noqa: S608 - constants
        db.executemany(f"INSERT INTO records VALUES ({_marks(4)})", records)  # noqa: S608 - constants
        stamp = now.stamp
        session = (session_id, stamp.size, stamp.mtime_ns, stamp.inode, now.log_end, now.last_seq, now.anchor, count)
        db.execute(f"REPLACE INTO sessions VALUES ({_marks(9)})", (*session, row_crc(*session)))  # noqa: S608 - constants

    def _forget(self, session_id: str) -> None:
        for table in ("sessions", "artifacts", "records"):
            self.file.db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - constants

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
        db = self.file.db
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
            found = [row[0] for row in self.file.db.execute(query, (_key(artifact_id),))]
            if found:
                return found
        return []

    def _info(self, session_id: str, record: bytes, crc: int) -> ArtifactInfo:
        if zlib.crc32(record) != crc:
            raise sqlite3.DatabaseError("a row of the catalogue is damaged")
        stored = from_json(json_codec.loads(record))
        assert isinstance(stored, Stored), "only these were put in"
        return info_of(self._stores.url, session_id, stored)


def _stamp_of(found: SessionFound) -> Stamp:
    return Stamp(zlib.crc32(found.version.encode()), round(found.changed_at * 1e9), 0)


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
