"""The sessions of a place, summed up: kept in one SQLite file, so that thousands are listed at once.

The file is beside the sessions, or, for those on a server, in this user's directory of caches. It is never the truth.
Before each use it is compared with the sessions' directories, or with the list of the server, and what changed is read
again; it is made again when it is missing, damaged, or of another version of ctxfs. Where the root cannot be written,
what was found is kept for this use only.
"""

import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import anyio

from ctxfs.errors import ConfigError
from ctxfs.session.listing.summary import Outside, SessionSummary, looked_at, summarize, summarize_in
from ctxfs.storage.base import is_hidden
from ctxfs.storage.database import DAMAGED, DerivedDatabase, row_crc
from ctxfs.storage.local import is_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import ListingStores, SessionFound, SessionStores
from ctxfs.storage.threads import run_to_completion
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.version import __version__

SESSIONS_NAME = ".sessions.sqlite"

T = TypeVar("T")

_VERSION = 5
_COLUMNS = tuple(field.name for field in fields(SessionSummary))
_SCHEMA = f"""
CREATE TABLE made_by (version TEXT);
CREATE TABLE sessions ({", ".join(_COLUMNS)}, stamp TEXT, directories TEXT, crc INTEGER, PRIMARY KEY (session_id));
"""
_INSERT = f"REPLACE INTO sessions VALUES ({', '.join('?' * (len(_COLUMNS) + 3))})"  # noqa: S608 - our columns
_AT_ONCE = 200
"""So many sessions are read between two writes, so that what was read is not lost when that is cut short."""

_OPENED_AT_ONCE = 16

logger = logging.getLogger("ctxfs.session")

Progress = Callable[[int, int], None]
"""Called with how many of the changed sessions were read, and how many there are."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A session as the file has it. ``stamp``: what its directory and its ``directories`` looked like then."""

    summary: SessionSummary
    stamp: str
    directories: Sequence[str]


async def list_summaries(stores: SessionStores, *, progress: Progress | None = None) -> list[SessionSummary]:
    """Every session of a place, in no order; empty when there is no such directory.

    Of a place on a server, the sessions that changed since the last time are read; see ``ListingStores``. Any other
    place is read each time.

    Raises:
        ConfigError: the place cannot be read.

    """
    if (root := stores.directory) is not None:
        path = root / SESSIONS_NAME
    elif isinstance(stores, ListingStores) and stores.list_path is not None:
        path = stores.list_path
        await run_to_completion(lambda: _make_directory(path.parent))
    else:
        return await _read_all(stores, await stores.sessions(), progress)
    for in_memory in (False, False, True):
        file = DerivedDatabase(path, schema=_SCHEMA, version=_VERSION)
        try:
            if root is None:
                return await _listed_there(stores, file, in_memory=in_memory, progress=progress)
            return await _listed(root, file, in_memory=in_memory, progress=progress)
        except DAMAGED as error:
            logger.warning("the list of sessions of %s is made again: %s", stores.url, error)
            await run_to_completion(file.discard)
        finally:
            await run_to_completion(file.close)
    raise AssertionError("a database in memory is not damaged")


def _make_directory(path: Path) -> None:
    with suppress(OSError):  # where it cannot be made, the list is kept in memory
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _listed_there(
    stores: SessionStores, file: DerivedDatabase, *, in_memory: bool, progress: Progress | None
) -> list[SessionSummary]:
    """List a place on a server: its own list says which sessions changed."""
    assert isinstance(stores, ListingStores)
    await run_to_completion(lambda: file.open(in_memory=in_memory))
    rows = await run_to_completion(lambda: _rows(file))
    listed = await stores.sessions(_found_of(row) for row in rows.values())
    current = {found.session_id: _stamp_of(found) for found in listed}
    known = {name: row for name, row in rows.items() if row.stamp == current.get(name)}
    await run_to_completion(lambda: _remove(file, rows.keys() - current.keys()))
    changed = [found for found in listed if found.session_id not in known]
    for start in range(0, len(changed), _AT_ONCE):
        if progress is not None:
            progress(start, len(changed))
        summaries = await _read_all(stores, changed[start : start + _AT_ONCE], None)
        read = [_Known(summary, current[summary.session_id], ()) for summary in summaries]
        known.update((one.summary.session_id, one) for one in read)
        # The reason why one could not be read may be gone the next time.
        whole = [one for one in read if one.summary.error is None]
        await run_to_completion(lambda whole=whole: _put(file, whole))  # type: ignore[misc]
    return [row.summary for row in known.values()]


def _found_of(row: _Known) -> SessionFound:
    version, changed_at, mark = json_codec.loads(row.stamp)
    return SessionFound(row.summary.session_id, version, changed_at, mark)


def _stamp_of(found: SessionFound) -> str:
    return json_codec.dumps_text([found.version, found.changed_at, found.mark])


async def _read_all(
    stores: SessionStores, sessions: Sequence[SessionFound], progress: Progress | None
) -> list[SessionSummary]:
    read: list[SessionSummary] = []
    limit = anyio.CapacityLimiter(_OPENED_AT_ONCE)

    async def add(found: SessionFound) -> None:
        async with limit:
            read.append(await summarize_in(stores, found))
            if progress is not None:
                progress(len(read), len(sessions))

    async with anyio.create_task_group() as group:
        for found in sessions:
            group.start_soon(add, found)
    return read


async def _listed(
    root: Path, file: DerivedDatabase, *, in_memory: bool, progress: Progress | None
) -> list[SessionSummary]:
    known, changed = await run_to_completion(lambda: _compared(root, file, in_memory=in_memory))
    for start in range(0, len(changed), _AT_ONCE):
        if progress is not None:
            progress(start, len(changed))
        read = [found for name in changed[start : start + _AT_ONCE] if (found := await _read(root, name)) is not None]
        await run_to_completion(lambda read=read: _put(file, read))  # type: ignore[misc]
        known.update((found.summary.session_id, found) for found in read)
    return [found.summary for found in known.values()]


async def _read(root: Path, session_id: str) -> _Known | None:
    """Read a session; None when there is none."""
    try:
        looked = await run_to_completion(lambda: _looked_at(root, session_id))  # before it is read
        return None if looked is None else _Known(await summarize(root, session_id, looked[0]), *looked[1:])
    except FileNotFoundError:  # removed meanwhile
        return None
    except PermissionError as error:  # of somebody else; it must not hide the others
        reason = str(error.strerror)
        return await run_to_completion(lambda: _closed(root / session_id, reason))


def _closed(session: Path, reason: str) -> _Known:
    """A session whose directory may not be read."""
    problem = f"{session} cannot be read: {reason}"
    summary = SessionSummary(session_id=session.name, changed_at=session.stat().st_mtime, error=problem)
    return _Known(summary, _stamp(str(session), ()) or "", ())


def _looked_at(root: Path, session_id: str) -> tuple[Outside, str, Sequence[str]] | None:
    """What a session's directory shows, its stamp and its directories; None when there is no session."""
    session = root / session_id
    if not _has_log(session) and not is_session(root, session_id):
        return None
    outside = looked_at(session)
    stamp = _stamp(str(session), outside.directories)
    return None if stamp is None else (outside, stamp, outside.directories)


def _has_log(session: Path) -> bool:
    """Whether there is a journal. Raises ``PermissionError`` where that may not be looked at."""
    try:
        return stat.S_ISREG((session / LOG_NAME).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _compared(root: Path, file: DerivedDatabase, *, in_memory: bool) -> tuple[dict[str, _Known], list[str]]:
    """The sessions that are as the file says, and the names of what may have changed; the file forgets all others."""
    try:
        names = [entry.name for entry in os.scandir(root) if not is_hidden(entry.name)]
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        raise ConfigError(f"{root} cannot hold sessions: {error.strerror}") from error
    file.open(in_memory=in_memory)
    listed = _rows(file)
    known = {
        name: found
        for name in names
        if (found := listed.get(name)) is not None and found.stamp == _stamp(f"{root}/{name}", found.directories)
    }
    _remove(file, listed.keys() - set(names))
    return known, [name for name in names if name not in known]


def _remove(file: DerivedDatabase, names: Iterable[str]) -> None:
    rows = [(name,) for name in names]
    if rows:
        with file.transaction():
            file.db.executemany("DELETE FROM sessions WHERE session_id = ?", rows)


def _rows(file: DerivedDatabase) -> Mapping[str, _Known]:
    """What the file has; nothing if another version of ctxfs made it. Raises ``sqlite3.DatabaseError``."""
    db = file.db
    if db.execute("SELECT version FROM made_by").fetchall() != [(__version__,)]:
        with file.transaction():
            db.execute("DELETE FROM made_by")
            db.execute("DELETE FROM sessions")
            db.execute("INSERT INTO made_by VALUES (?)", (__version__,))
    return {row[0]: _known(row) for row in db.execute("SELECT * FROM sessions")}


def _known(row: Sequence[object]) -> _Known:
    *values, crc = row
    if crc != row_crc(*values):
        raise sqlite3.DatabaseError("a row of the list is damaged")
    *summary, stamp, inside = values
    made = dict(zip(_COLUMNS, summary, strict=True))
    for name in ("models", "damages", "tags"):
        made[name] = _texts(str(made[name]))
    return _Known(SessionSummary(**made), str(stamp), _texts(str(inside)))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)  # most sessions have the same ones
def _texts(column: str) -> tuple[str, ...]:
    return tuple(json_codec.loads(column))


def _put(file: DerivedDatabase, read: Iterable[_Known]) -> None:
    with file.transaction():
        file.db.executemany(_INSERT, [_row(found) for found in read])


def _row(known: _Known) -> tuple[object, ...]:
    summary = (_column(value) for value in astuple(known.summary))
    values = (*summary, known.stamp, _column(tuple(known.directories)))
    return (*values, row_crc(*values))


def _column(value: object) -> object:
    return json_codec.dumps_text(list(value)) if isinstance(value, tuple) else value


def _stamp(session: str, inside: Sequence[str]) -> str | None:
    """What a session looks like from outside; it differs once its journal, its files or its rights changed.

    None: there is no directory.
    """
    try:
        top = os.lstat(session)
    except OSError:
        return None
    if not stat.S_ISDIR(top.st_mode):
        return None
    times = [_look(f"{session}/{name}") for name in (LOG_NAME, *inside)]
    return f"{top.st_mode} {top.st_uid} {top.st_mtime_ns} {' '.join(times)}"


def _look(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return "-"
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
