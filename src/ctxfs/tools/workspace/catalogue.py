"""The catalogue of a workspace: what all its sessions stored, one kind of what is ``derived`` from them.

It is brought up to date before each question, by what was appended to a journal since.

The sessions that are open have one writer each, and are kept open as long as there is room.
"""

import logging
import os
import sqlite3
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import anyio
from typing_extensions import override

from ctxfs.errors import ConfigError, CtxfsError, SessionClosed
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.messages.names import Layout, safe_name
from ctxfs.session.content.stored import Stored
from ctxfs.session.derived import COLUMNS, Kind, Known, Reading
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME
from ctxfs.session.journal import scan
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import UnknownRecord
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import is_hidden, read_log_now
from ctxfs.storage.database import row_crc
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion, uninterrupted
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.workspace.artifacts import Artifact, ArtifactInfo, ArtifactPage, artifact_text, info_of, raw_id_of

logger = logging.getLogger("ctxfs.tools")

ANCHOR_BYTES = 4096


class OpenSession:
    """A session that artifacts can be added to."""

    def __init__(self, fs: ContextFileSystem, *, ours: bool) -> None:
        self.fs = fs
        self.ours = ours
        self.users = 0
        self._unused: dict[tuple[str, str | None], list[tuple[str, str]]] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def add(self, artifacts: Sequence[Artifact]) -> list[Stored]:
        """Store artifacts, all of them or none, and return their records.

        One that is stored already, under its id, with the same metadata and content, is not stored again; another
        content of an id that is taken gets the id ``id~2``, ``id~3``, ...
        """
        async with AsyncExitStack() as turns:
            # One at a time under each id, or the same artifact would be stored twice; others share their syncs.
            for artifact_id in sorted({artifact.artifact_id for artifact in artifacts}):
                await turns.enter_async_context(self._turns.setdefault(artifact_id, anyio.Lock()))
            return await self._add(artifacts)

    async def _add(self, artifacts: Sequence[Artifact]) -> list[Stored]:
        ids: list[str] = []
        new: dict[str, Artifact] = {}
        items: list[ContextItem] = []
        try:
            for artifact in artifacts:
                # It is one of three cases: in the list already, stored already, or new.
                item_id = _covered(new, artifact) or await self._known(artifact)
                if item_id is None:
                    item = self._item(artifact)
                    item_id = item.id
                    items.append(item)
                    new[item_id] = artifact
                ids.append(item_id)
            metadata = {item_id: artifact.recorded_metadata() for item_id, artifact in new.items()}
            await self.fs.writer.store(items, metadata=metadata)
        except BaseException:
            self._release([item for item in items if item.id not in self.fs.state.stored])
            raise
        stored = self.fs.state.stored
        return [stored[item_id] for item_id in ids]

    async def _known(self, artifact: Artifact) -> str | None:
        """Return the id under which the same artifact is stored already."""
        stored = self.fs.state.stored
        if safe_name(artifact.artifact_id) not in stored:
            return None
        for entry in tuple(stored.values()):
            # What a file need not be read for is compared first.
            if raw_id_of(entry) != artifact.artifact_id:
                continue
            if entry.chars != len(artifact.content) or not _has(entry.metadata, artifact):
                continue
            if artifact_text(await self.fs.load(entry.item_id)) == artifact.content:
                return entry.item_id
        return None

    def _item(self, artifact: Artifact) -> ContextItem:
        """The item that stores an artifact, with an id that nothing else gets."""
        tool_name = artifact.metadata.get("tool_name")
        unused = self._unused.get((artifact.artifact_id, tool_name))
        raw_id = artifact.artifact_id
        if unused:
            item_id, name = unused.pop()
        else:
            item_id, name = self.fs.writer.allocate(ItemType.TOOL_RESULT, raw_id, tool_name, artifact.content)
        message = ToolMessage(tool_call_id=raw_id, tool_name=tool_name or "", content=artifact.content)
        return ContextItem(
            id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=0, content_tokens=0
        )

    def _release(self, items: Sequence[ContextItem]) -> None:
        """Keep the ids of items that were not stored for the next artifacts of the same id and tool."""
        for item in items:
            if isinstance(item.message, ToolMessage):
                key = (item.message.tool_call_id, item.message.tool_name or None)
                self._unused.setdefault(key, []).append((item.id, item.name))


def _has(metadata: Mapping[str, Any], artifact: Artifact) -> bool:
    """Whether ``metadata`` says all that the artifact's own does."""
    return artifact.recorded_metadata().items() <= metadata.items()


def _covered(new: Mapping[str, Artifact], artifact: Artifact) -> str | None:
    """The id in ``new`` of an artifact that is the same, with the same metadata or more; None: there is none."""
    for item_id, other in new.items():
        same = (other.artifact_id, other.content) == (artifact.artifact_id, artifact.content)
        if same and _has(other.recorded_metadata(), artifact):
            return item_id
    return None


class OpenSessions:
    """The open sessions of one place, at most ``limit`` of them unless more are in use at once."""

    def __init__(self, stores: SessionStores, *, layout: Layout, limit: int) -> None:
        self._stores = stores
        self._layout = layout
        self._limit = limit
        self._sessions: dict[str, OpenSession] = {}
        self._turn = anyio.Lock()
        self._closed = False

    def attach(self, fs: ContextFileSystem) -> None:
        """Use a session that somebody else opened, and closes. Raises ``ConfigError``."""
        if fs.stores.url != self._stores.url:
            raise ConfigError(f"session {fs.session_id} lies under {fs.stores.url}, not under {self._stores.url}")
        known = self._sessions.get(fs.session_id)
        if known is not None and known.fs is not fs and known.fs.is_open:
            raise ConfigError(f"session {fs.session_id} is open in this workspace already")
        if known is None or known.fs is not fs:
            self._sessions[fs.session_id] = OpenSession(fs, ours=False)

    @asynccontextmanager
    async def writing(self, session_id: str) -> AsyncIterator[OpenSession]:
        """Give the session's one writer; it is opened, and made, when it has to be. Raises ``SessionLocked``."""
        async with self._turn:
            self.check_open()
            session = self._sessions.pop(session_id, None)
            if session is None or not session.fs.is_open:
                await self._make_room()
                fs = ContextFileSystem(session_id, root_path=self._stores, layout=self._layout)
                await fs.open()
                session = OpenSession(fs, ours=True)
            self._sessions[session_id] = session  # the last used is the last to go
            session.users += 1
        try:
            yield session
        finally:
            session.users -= 1

    @asynccontextmanager
    async def reading(self, session_id: str) -> AsyncIterator[ContextFileSystem]:
        """Yield the session to read from, whether or not another process writes it. Raises ``SessionNotFound``."""
        session = self._sessions.get(session_id)
        if session is not None and session.fs.is_open:
            session.users += 1
            try:
                yield session.fs
            finally:
                session.users -= 1
            return
        self.check_open()
        fs = ContextFileSystem(session_id, root_path=self._stores, read_only=True)
        await fs.open(create=False)
        try:
            yield fs
        finally:
            await fs.close()

    async def _make_room(self) -> None:
        ours = [(name, session) for name, session in self._sessions.items() if session.ours]
        for name, session in ours[: max(0, len(ours) - self._limit + 1)]:
            if not session.users:
                del self._sessions[name]
                await session.fs.close()

    def check_open(self) -> None:
        """Raise ``SessionClosed`` after ``close``."""
        if self._closed:
            raise SessionClosed("the workspace is closed: open a new KnowledgeService")

    @uninterrupted
    async def close(self) -> None:
        """Close the sessions that were opened here, even when one of them cannot be closed in order; idempotent."""
        async with self._turn, AsyncExitStack() as closing:
            self._closed = True
            while self._sessions:
                _, session = self._sessions.popitem()
                if session.ours:
                    closing.push_async_callback(session.fs.close)


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
        for name in (LOG_NAME, INDEX_NAME):
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
