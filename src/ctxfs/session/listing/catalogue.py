"""The sessions of a place, summed up, so that thousands are listed at once: a kind of what is ``derived`` from them."""

import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import anyio
from typing_extensions import override

from ctxfs.errors import ConfigError
from ctxfs.session.derived import DERIVED_NAME, Derived, Kind, Known, Progress, Reading
from ctxfs.session.listing.summary import Outside, SessionSummary, looked_at, summarize, summarize_in
from ctxfs.storage.base import is_hidden
from ctxfs.storage.local import is_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import DirectoryStores, ListingStores, SessionFound, SessionStores
from ctxfs.storage.task_group import TaskGroup
from ctxfs.storage.threads import run_to_completion
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.version import __version__

_MADE_BY = f"{__version__} 5"
"""Begins each stamp: what another version of ctxfs read, or before the last number was raised, is read again."""
_OPENED_AT_ONCE = 16


def listed_in(stores: SessionStores) -> Path | None:
    """The file that keeps the list of sessions; None: there is none, and each session is read each time."""
    if stores.directory is not None:
        return stores.directory / DERIVED_NAME
    return stores.list_path if isinstance(stores, ListingStores) else None


async def is_listed(stores: SessionStores) -> bool:
    """Whether the sessions have been listed before: otherwise ``list_summaries`` has to read all of them."""
    path = listed_in(stores)
    return path is not None and await run_to_completion(path.exists)


async def seen_sessions(stores: SessionStores) -> list[SessionSummary]:
    """All sessions, in no order, as far as they are known without reading one: when each changed, and its size.

    Raises:
        ConfigError: the place cannot be read.

    """
    found = {one.session_id: one.changed_at for one in await stores.sessions()}
    if isinstance(stores, DirectoryStores):  # also those that this user may not read
        found = dict.fromkeys(await stores.all_names(), 0.0) | found
    return await run_to_completion(lambda: [_seen(stores.directory, *one) for one in found.items()])


def _seen(root: Path | None, session_id: str, changed_at: float) -> SessionSummary:
    size = 0
    if root is not None:
        with suppress(OSError):  # opening it will say what is wrong
            changed_at = changed_at or (root / session_id).stat().st_mtime
            size = looked_at(root / session_id).disk_bytes
    return SessionSummary(session_id=session_id, changed_at=changed_at, disk_bytes=size)


async def list_summaries(stores: SessionStores, *, progress: Progress | None = None) -> list[SessionSummary]:
    """Every session of a place, in no order; empty when there is no such directory.

    Of a place on a server, the sessions that changed since the last time are read; see ``ListingStores``. Any other
    place is read each time.

    Raises:
        ConfigError: the place cannot be read.

    """
    kind: _InDirectory | _OnServer
    path = listed_in(stores)
    if path is None:
        return await _read_all(stores, await stores.sessions(), progress)
    if stores.directory is not None:
        kind = _InDirectory(stores.directory)
    else:
        assert isinstance(stores, ListingStores)
        kind = _OnServer(stores)
        await run_to_completion(lambda: _make_directory(path.parent))
    derived = Derived(path, kind)
    try:
        return await derived.ask(lambda _, known: [_summary_of(one) for one in known.values()], progress=progress)
    finally:
        await run_to_completion(derived.close)


def _make_directory(path: Path) -> None:
    with suppress(OSError):  # where it cannot be made, the list is kept in memory
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _known_of(stamp: str, summary: SessionSummary, directories: Sequence[str] = ()) -> Known:
    return Known.of(stamp, {**asdict(summary), "directories": list(directories)})


def _summary_of(known: Known) -> SessionSummary:
    values = known.data
    del values["directories"]
    for name in ("models", "damages", "tags"):
        values[name] = tuple(values[name])
    return SessionSummary(**values)


class _Listed(Kind):
    """The rows of the list are all that is known of a session: it has no tables of its own."""

    name = "list"
    tables = ()

    @override
    def write(self, db: sqlite3.Connection, session_id: str, reading: Reading | None) -> None:
        pass

    @override
    def check(self, db: sqlite3.Connection, known: Mapping[str, Known]) -> None:
        pass


class _InDirectory(_Listed):
    """The sessions in a directory. Their stamps say what each looks like from outside."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @override
    async def stamps(self, known: Mapping[str, Known], session_id: str | None) -> Mapping[str, str]:
        del session_id  # a list is of all of them
        return await run_to_completion(lambda: self._stamps(known))

    def _stamps(self, known: Mapping[str, Known]) -> dict[str, str]:
        try:
            names = [entry.name for entry in os.scandir(self._root) if not is_hidden(entry.name)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: {error.strerror}") from error
        stamps = {}
        for name in names:
            found = known.get(name)
            directories = () if found is None else found.data["directories"]
            stamps[name] = _directory_stamp(f"{self._root}/{name}", directories) or ""
        return stamps

    @override
    async def read(
        self, changed: Mapping[str, str], known: Mapping[str, Known], db: sqlite3.Connection
    ) -> Mapping[str, Reading | None]:
        del known, db
        return {session_id: await self._read(session_id) for session_id in changed}

    async def _read(self, session_id: str) -> Reading | None:
        root = self._root
        try:
            found = await run_to_completion(lambda: _outside_and_stamp(root, session_id))  # before it is read
            if found is None:
                return None
            outside, stamp = found
            return Reading(_known_of(stamp, await summarize(root, session_id, outside), outside.directories))
        except FileNotFoundError:  # removed meanwhile
            return None
        except PermissionError as error:  # of somebody else; it must not hide the others
            reason = str(error.strerror)
            return await run_to_completion(lambda: _closed(root / session_id, reason))


class _OnServer(_Listed):
    """The sessions on a server, whose own list says which of them changed."""

    def __init__(self, stores: ListingStores) -> None:
        self._stores = stores
        self._found: dict[str, SessionFound] = {}

    @override
    async def stamps(self, known: Mapping[str, Known], session_id: str | None) -> Mapping[str, str]:
        del session_id
        listed = await self._stores.sessions(_found_of(name, one.stamp) for name, one in known.items())
        self._found = {found.session_id: found for found in listed}
        return {name: _listed_stamp(found) for name, found in self._found.items()}

    @override
    async def read(
        self, changed: Mapping[str, str], known: Mapping[str, Known], db: sqlite3.Connection
    ) -> Mapping[str, Reading | None]:
        del known, db
        summaries = await _read_all(self._stores, [self._found[name] for name in changed], None)
        # The reason why one could not be read may be gone the next time.
        return {
            one.session_id: Reading(_known_of(changed[one.session_id], one), is_final=one.error is None)
            for one in summaries
        }


def _listed_stamp(found: SessionFound) -> str:
    return json_codec.dumps_text([_MADE_BY, found.version, found.changed_at, found.mark])


def _found_of(session_id: str, stamp: str) -> SessionFound:
    made_by, version, changed_at, mark = json_codec.loads(stamp)
    return SessionFound(session_id, version, changed_at, mark if made_by == _MADE_BY else "")


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

    async with TaskGroup() as group:
        for found in sessions:
            group.start_soon(add, found)
    return read


def _closed(session: Path, reason: str) -> Reading:
    """A session whose directory may not be read."""
    problem = f"{session} cannot be read: {reason}"
    summary = SessionSummary(session_id=session.name, changed_at=session.stat().st_mtime, error=problem)
    return Reading(_known_of(_directory_stamp(str(session), ()) or "", summary))


def _outside_and_stamp(root: Path, session_id: str) -> tuple[Outside, str] | None:
    """What a session's directory shows, and its stamp; None when there is no session."""
    session = root / session_id
    if not _has_log(session) and not is_session(root, session_id):
        return None
    outside = looked_at(session)
    stamp = _directory_stamp(str(session), outside.directories)
    return None if stamp is None else (outside, stamp)


def _has_log(session: Path) -> bool:
    """Whether there is a journal. Raises ``PermissionError`` where that may not be looked at."""
    try:
        return stat.S_ISREG((session / LOG_NAME).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _directory_stamp(session: str, inside: Sequence[str]) -> str | None:
    """What a session looks like from outside; it differs once its journal, its files or its rights changed.

    None: there is no directory.
    """
    try:
        top = os.lstat(session)
    except OSError:
        return None
    if not stat.S_ISDIR(top.st_mode):
        return None
    inner = [_path_stamp(f"{session}/{name}") for name in (LOG_NAME, *inside)]
    return f"{_MADE_BY} {top.st_mode} {top.st_uid} {top.st_mtime_ns} {' '.join(inner)}"


def _path_stamp(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return "-"
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
