"""The sessions in a directory of the local file system."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from ctxfs.errors.checks import names_settings
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.new_session import prepare_root, publish, remove_import, remove_stale, temporary_id
from ctxfs.storage.port import FileSystem, OsFileSystem
from ctxfs.storage.sessions import DirectoryStores, MakingStores, SessionFound
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import result_of, run_to_completion, uninterrupted


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
