"""The sessions in a directory of the local file system.

A session that is imported or forked is made under a temporary name, then renamed, so it appears whole.
"""

import errno
import os
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import override

from ctxfs.errors import ConfigError, CtxfsError, SessionExists, SessionLocked, SessionNotFound, WriteFailed
from ctxfs.errors.checks import names_settings
from ctxfs.errors.spelling import nearest
from ctxfs.messages.names import session_name
from ctxfs.storage.base import is_hidden
from ctxfs.storage.failures import reason_of
from ctxfs.storage.local import LocalStore, is_session, list_sessions, remove_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileSystem, OsFileSystem, close_quietly
from ctxfs.storage.sessions import DirectoryStores, MakingStores, SessionFound
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import result_of, run_to_completion, uninterrupted

IMPORT_PREFIX = ".ctxfs-import-"
STALE_S = 600.0


def temporary_id() -> str:
    """A new name for a session that is being made; no session is listed under it."""
    return f"{IMPORT_PREFIX}{random.SystemRandom().getrandbits(64):016x}"


def prepare_root(fs: FileSystem, root: Path, session_id: str) -> bool:
    """Check that the session can be created; return whether the root exists already."""
    try:
        root_fd = fs.open_root(root)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # opening the store says what is wrong with it
    try:
        if _is_there(fs, root_fd, session_id):
            raise SessionExists(session_id, str(root))
    except OSError as error:
        raise ConfigError(f"{root} cannot be read: {reason_of(error)}") from error
    else:
        return True
    finally:
        close_quietly(fs, root_fd)


def _is_there(fs: FileSystem, root_fd: int, name: str) -> bool:
    try:
        fs.stat(root_fd, name)
    except FileNotFoundError:
        return False
    return True


async def remove_stale(fs: FileSystem, root: Path) -> None:
    """Remove what a killed import left; a running one holds its lock, except in its first moments."""

    def names() -> list[str]:
        try:
            root_fd = fs.open_root(root)
        except OSError:
            return []  # no root yet; opening the store raises whatever else is wrong
        try:
            found = [name for name, _ in fs.list_dir(root_fd) if name.startswith(IMPORT_PREFIX)]
            before = time.time() - STALE_S
            return [name for name in found if fs.stat(root_fd, name).modified_at < before]
        except FileNotFoundError:
            return []  # another import has just ended
        except OSError as error:
            raise ConfigError(f"{root} cannot be read: {reason_of(error)}") from error
        finally:
            close_quietly(fs, root_fd)

    for name in await result_of(names):
        with suppress(SessionLocked, SessionNotFound):
            await remove_session(root, name, fs=fs)


def publish(fs: FileSystem, root: Path, temporary: str, session_id: str) -> None:
    """Give the session its name, but never that of another one: only an empty directory can be replaced."""
    try:
        root_fd = fs.open_root(root)
        try:
            if _is_there(fs, root_fd, session_id):
                raise SessionExists(session_id, str(root))
            fs.rename(root_fd, temporary, session_id)
            try:
                fs.sync(root_fd)
            except BaseException:
                fs.rename(root_fd, session_id, temporary)  # it is then removed like any failed import
                raise
        finally:
            close_quietly(fs, root_fd)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise SessionExists(session_id, str(root)) from None
        raise WriteFailed(session_id, reason_of(error)) from error


async def remove_import(fs: FileSystem, root: Path, temporary: str, error: BaseException, *, existed: bool) -> None:
    """Remove what a failed import left, and the root unless it ``existed``; failures are noted on ``error``."""
    try:
        with suppress(SessionNotFound):
            await remove_session(root, temporary, fs=fs)
        if not existed:
            with suppress(FileNotFoundError):
                await result_of(lambda: _remove_root(fs, root))
    except (CtxfsError, OSError) as failure:
        error.add_note(f"the partial import could not be removed from {root}: {failure}")


def _remove_root(fs: FileSystem, root: Path) -> None:
    above = fs.open_root(root.parent)
    try:
        fs.remove_dir(above, root.name)
    finally:
        close_quietly(fs, above)


@names_settings()
class LocalSessions(MakingStores, DirectoryStores):
    """The sessions in ``directory``, an absolute path, as ``SessionStores``. ``fs``: the system, for tests."""

    def __init__(self, directory: Path, *, fs: FileSystem | None = None) -> None:
        self._directory = directory
        self._fs: FileSystem = fs if fs is not None else OsFileSystem()

    @property
    @override
    def url(self) -> str:
        """The directory."""
        return str(self._directory)

    @property
    @override
    def directory(self) -> Path:
        return self._directory

    @override
    def store(self, session_id: str) -> LocalStore:
        return LocalStore(self._directory, session_id, fs=self._fs)

    @override
    async def sessions(self) -> list[SessionFound]:
        """List them. What is left of sessions whose removal was cut short is removed."""
        names = await list_sessions(self._directory, fs=self._fs)
        found = await run_to_completion(lambda: [self._found(name) for name in names])
        return [session for session in found if session is not None]

    @override
    async def all_names(self) -> list[str]:
        """Also directories that may not be read."""
        return await list_sessions(self._directory, fs=self._fs, unreadable=True)

    def _found(self, session_id: str) -> SessionFound | None:
        """The session's journal as it looks from outside, or its directory if that is lost; None: it is gone."""
        session = self._directory / session_id
        for path in (session / LOG_NAME, session):
            with suppress(OSError):
                status = path.stat()
                version = f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
                return SessionFound(session_id, version, status.st_mtime)
        return None

    @override
    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:
        """Also whole or not at all when the process is killed."""
        await remove_session(self._directory, session_id, fs=self._fs, tombstone=tombstone)

    @override
    @asynccontextmanager
    async def making(self, session_id: str) -> AsyncIterator[ThreadedStore]:
        """It is made under a name of its own, then renamed."""
        root = self._directory
        fs = self._fs
        existed = await result_of(lambda: prepare_root(fs, root, session_id))
        await remove_stale(fs, root)
        temporary = temporary_id()
        store = ThreadedStore(self.store(temporary))
        try:
            await store.open(create=True, write=True)
            yield store
            await result_of(lambda: publish(fs, root, temporary, session_id))
        except BaseException as error:
            await self._abandon(store, temporary, error, existed=existed)
            raise
        await uninterrupted(store.close)()

    @uninterrupted
    async def _abandon(self, store: ThreadedStore, temporary: str, error: BaseException, *, existed: bool) -> None:
        await store.close()
        await remove_import(self._fs, self._directory, temporary, error, existed=existed)


_MOST = 1_000
"""Of more sessions only so many are compared, which takes a tenth of a second."""


def likely_session(given: str, ids: Iterable[str]) -> str:
    """The one of ``ids`` that is spelled most like ``given``, or the one of the thread ``given``; "" if none is."""
    known = list(ids)
    of_thread = session_name(given) if given else ""
    if of_thread in known:
        return of_thread
    return nearest(given, islice(known, _MOST)) or ""


def likely_session_under(root: Path, given: str) -> str:
    """``likely_session`` among the sessions under a root; "" also if there is no such root."""
    found = ""
    with suppress(OSError):
        found = likely_session(given, [name for name in os.listdir(root) if not is_hidden(name)])  # noqa: PTH208
    return found if found and is_session(root, found) else ""
