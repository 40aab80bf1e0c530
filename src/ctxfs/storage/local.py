"""Sessions on the local disk: ``<root>/{session_id}``, one directory each."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args

from ctxfs.errors import ConfigError, SessionClosed, SessionNotFound, StorageError, UnsafePath, WriteFailed
from ctxfs.storage.base import NewFile, Store, check_name, is_hidden
from ctxfs.storage.directories import make_root
from ctxfs.storage.failures import reason_of
from ctxfs.storage.forgotten import forgotten, note_forgotten
from ctxfs.storage.lock_file import LOCK_NAME
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileSystem, OsFileSystem, close_quietly
from ctxfs.storage.removal import hide, remove_all_hidden, remove_hidden
from ctxfs.storage.session_dir import SessionDir
from ctxfs.storage.threads import result_of, run_to_completion

Durability = Literal["full", "process"]
OTHERS_MAY_WRITE = 0o022
OTHERS = 0o077
MAX_TRIES = 8
NOT_A_SESSION = {errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOENT}
"""A file, a link, another user's directory, or one that was removed meanwhile."""


class LocalStore:
    """A ``Store`` in a directory of the local file system.

    ``durability``: "full" syncs every write before it is acknowledged; "process" leaves that to the system, so that a
    crash of the process loses nothing, but a power failure may. Raises ``ConfigError`` for any other one, and
    ``UnsafePath`` if the session id is invalid.
    """

    def __init__(
        self, root: Path, session_id: str, *, fs: FileSystem | None = None, durability: Durability = "full"
    ) -> None:
        if len(check_name(session_id)) != 1:
            raise UnsafePath(session_id, "is not a session id")
        if durability not in get_args(Durability):
            raise ConfigError(f"durability is {durability!r}: use one of {', '.join(get_args(Durability))}")
        self._root = root
        self._session_id = session_id
        self._fs: FileSystem = fs if fs is not None else OsFileSystem()
        self._sync = durability == "full"
        self._dir: SessionDir | None = None

    @property
    def directory(self) -> Path:
        """See ``DirectoryStore.directory``."""
        return self._root / self._session_id

    async def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``."""
        self._dir = await result_of(lambda: self._open_now(create=create, write=write))

    async def close(self) -> None:
        """See ``Store.close``."""
        if self._dir is not None:
            opened, self._dir = self._dir, None
            await run_to_completion(opened.close)

    async def release(self) -> None:
        """See ``LeaseStore.release``."""
        await run_to_completion(self._opened().give_back)

    async def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        opened = self._opened()
        return await result_of(lambda: opened.goes_on_writing() or self._acquire_now(opened))

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``."""
        opened = self._opened()
        await run_to_completion(lambda: opened.commit(files, log))

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """See ``Store.replace``; here the log can be replaced too, by its name."""
        opened = self._opened()
        await run_to_completion(lambda: opened.replace(name, data))

    async def rewrite(self, log: bytes | None = None) -> None:
        """See ``RewritingStore.rewrite``: nothing but the log has bytes that are no file's."""
        if log is not None:
            await self.replace(LOG_NAME, log)

    async def share(self, names: Sequence[str], source: Store) -> list[str]:
        """See ``LinkingStore.share``."""
        if not isinstance(source, LocalStore):
            return list(names)
        opened, other = self._opened(), source._opened()  # noqa: SLF001 - of the same class
        return await run_to_completion(lambda: opened.share(names, other))

    async def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See ``Store.read``."""
        opened = self._opened()
        return await run_to_completion(lambda: opened.read(name, offset, length))

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """See ``ThreadStore.pieces``."""
        return self._opened().pieces(name, spans)

    async def size(self, name: str) -> int:
        """See ``Store.size``."""
        opened = self._opened()
        return await run_to_completion(lambda: opened.size(name))

    async def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        opened = self._opened()
        return await run_to_completion(lambda: opened.names(prefix))

    async def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """See ``GrowingStore.append``."""
        opened = self._opened()
        await run_to_completion(lambda: opened.append(name, data, sync=sync))

    async def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        opened = self._opened()
        await run_to_completion(lambda: opened.delete(names))

    async def read_log(self, offset: int = 0) -> bytes:
        """See ``Store.read_log``."""
        opened = self._opened()
        return await run_to_completion(lambda: opened.read_log(offset))

    async def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        opened = self._opened()
        await run_to_completion(lambda: opened.truncate_log(length))

    def _opened(self) -> SessionDir:
        if self._dir is None:
            raise SessionClosed(f"session {self._session_id} is not open")
        return self._dir

    # ---- opening, in the worker thread

    def _open_now(self, *, create: bool, write: bool) -> SessionDir:
        """Open in the calling thread; see ``Store.open``."""
        try:
            return self._open_dir(create=create, write=write)
        except OSError as error:
            raise WriteFailed(self._session_id, reason_of(error)) from error

    def _open_dir(self, *, create: bool, write: bool) -> SessionDir:
        with self._root_opened(create=create) as root_fd:
            if not write:
                return self._session_opened(root_fd, create=create, write=False)[0]
            self._remove_hidden(root_fd)
            opened = self._locked(root_fd, create=create)
        try:
            opened.begin_writing()
        except BaseException:
            opened.close()
            raise
        return opened

    def _locked(self, root_fd: int, *, create: bool) -> SessionDir:
        """Open the session and take its lock; one that was removed before it was ours is opened again, or made."""
        for _ in range(MAX_TRIES):
            opened, dir_fd = self._session_opened(root_fd, create=create, write=True)
            try:
                with suppress(FileNotFoundError):  # the directory was removed
                    opened.take_lock()
                    if self._fs.stat(root_fd, self._session_id).identity == self._fs.stat_handle(dir_fd).identity:
                        return opened
            except BaseException:
                opened.close()
                raise
            opened.close()
        raise UnsafePath(str(self._root / self._session_id), "is repeatedly moved away")

    def _acquire_now(self, opened: SessionDir) -> bool:
        """Take the lock of an open session, which may have been removed meanwhile."""
        try:
            with self._root_opened(create=False) as root_fd, suppress(FileNotFoundError):
                opened.take_lock()
                if self._fs.stat(root_fd, self._session_id).identity == opened.identity:
                    return opened.begin_writing(again=True)
        except BaseException as error:
            opened.give_back()
            if isinstance(error, OSError):
                raise WriteFailed(self._session_id, reason_of(error)) from error
            raise
        opened.give_back()
        raise SessionNotFound(self._session_id, str(self._root))

    def remove_now(self, tombstone: Mapping[str, Any] | None = None) -> None:
        """Remove the session in the calling thread; see ``remove_session``."""
        with self._root_opened(create=False) as root_fd:
            self._remove_hidden(root_fd)
            try:
                opened = self._locked(root_fd, create=False)
                try:
                    if tombstone is not None:
                        note_forgotten(self._fs, root_fd, tombstone)
                    hidden = hide(self._fs, root_fd, self._session_id)
                finally:
                    opened.close()
            except OSError as error:
                raise WriteFailed(self._session_id, reason_of(error)) from error
            try:
                remove_hidden(self._fs, root_fd, hidden)
            except OSError as error:
                raise WriteFailed(
                    hidden, f"{self._session_id} is gone, but not all its files: {reason_of(error)}"
                ) from error

    def _remove_hidden(self, root_fd: int) -> None:
        with suppress(OSError):  # housekeeping
            remove_all_hidden(self._fs, root_fd, self._fs.list_dir(root_fd))

    def _session_opened(self, root_fd: int, *, create: bool, write: bool) -> tuple[SessionDir, int]:
        dir_fd = self._open_session(root_fd, create=create)
        try:
            self._check_dir(dir_fd, write=write)
        except BaseException:
            close_quietly(self._fs, dir_fd)
            raise
        return SessionDir(self._fs, self._session_id, dir_fd, sync=self._sync), dir_fd

    @contextmanager
    def _root_opened(self, *, create: bool) -> Iterator[int]:
        root_fd = self._open_root(create=create)
        try:
            yield root_fd
        finally:
            close_quietly(self._fs, root_fd)

    def _open_root(self, *, create: bool) -> int:
        if create:
            try:
                make_root(self._fs, self._root, sync=self._sync)
            except NotADirectoryError:
                pass  # raised below
            except OSError as error:
                raise WriteFailed(str(self._root), reason_of(error)) from error
        try:
            return self._fs.open_root(self._root)
        except FileNotFoundError:
            raise SessionNotFound(self._session_id, str(self._root)) from None
        except NotADirectoryError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: it is not a directory") from error
        except OSError as error:
            raise ConfigError(f"{self._root} cannot hold sessions: {reason_of(error)}") from error

    def _open_session(self, root_fd: int, *, create: bool) -> int:
        try:
            if create:
                with suppress(FileExistsError):
                    self._fs.make_dir(root_fd, self._session_id)
                self._sync_handle(root_fd)  # the process that made it may have died before this
            dir_fd = self._fs.open_dir(root_fd, self._session_id)
        except FileNotFoundError:
            removed = forgotten(self._fs, root_fd, self._session_id)
            raise SessionNotFound(self._session_id, str(self._root), removed) from None
        except OSError as error:
            if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
                raise UnsafePath(str(self._root / self._session_id), "is not a directory of its own") from error
            if not create:
                raise StorageError(f"{self._root / self._session_id} cannot be read: {reason_of(error)}") from error
            raise WriteFailed(str(self._root / self._session_id), reason_of(error)) from error
        try:
            self._check_spelling(root_fd, dir_fd)
        except BaseException:
            close_quietly(self._fs, dir_fd)
            raise
        return dir_fd

    def _check_spelling(self, root_fd: int, dir_fd: int) -> None:
        """Refuse a directory that only answers to the id because case does not count here: it is another session."""
        try:
            other = self._fs.stat(root_fd, self._session_id.swapcase())
            if other.identity != self._fs.stat_handle(dir_fd).identity:
                return
            names = [name for name, _ in self._fs.list_dir(root_fd)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise WriteFailed(str(self._root / self._session_id), reason_of(error)) from error
        if self._session_id not in names:
            raise UnsafePath(self._session_id, f"differs from the id of a session under {self._root} only in case")

    def _check_dir(self, dir_fd: int, *, write: bool) -> None:
        status = self._fs.stat_handle(dir_fd)
        where = self._root / self._session_id
        if status.owner != self._fs.user():
            raise UnsafePath(str(where), "belongs to another user")
        if status.mode & OTHERS_MAY_WRITE:
            raise UnsafePath(str(where), "can be written by others: check what is in it, then `chmod 700` it")
        if write and status.mode & OTHERS:
            self._fs.set_dir_mode(dir_fd)

    def _sync_handle(self, fd: int) -> None:
        if self._sync:
            self._fs.sync(fd)


async def list_sessions(root: Path, *, fs: FileSystem | None = None, unreadable: bool = False) -> list[str]:
    """List the ids of the sessions under ``root``, sorted; empty when there is no such directory.

    What is left of sessions whose removal was cut short is removed.

    A session is a directory with a journal or an index in it, or one that has lost both: with a lock's file and
    contents. ``unreadable``: also a directory that may not be read, which may be a session.

    Raises ``ConfigError`` when ``root`` cannot be read.
    """
    port: FileSystem = fs if fs is not None else OsFileSystem()
    return await run_to_completion(lambda: _list_sessions(root, port, unreadable=unreadable))


def _list_sessions(root: Path, fs: FileSystem, *, unreadable: bool) -> list[str]:
    try:
        root_fd = fs.open_root(root)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{root} cannot hold sessions: {reason_of(error)}") from error
    try:
        listed = fs.list_dir(root_fd)
        remove_all_hidden(fs, root_fd, listed)
        return sorted(name for name, _ in listed if _is_session(fs, root_fd, name, unreadable=unreadable))
    except OSError as error:
        raise ConfigError(f"{root} cannot be read: {reason_of(error)}") from error
    finally:
        close_quietly(fs, root_fd)


def is_session(root: Path, session_id: str) -> bool:
    """Whether there is a session of this id under ``root``; as ``list_sessions`` says, but of one. Synchronous."""
    fs = OsFileSystem()
    try:
        root_fd = fs.open_root(root)
    except OSError:
        return False
    try:
        return len(check_name(session_id)) == 1 and _is_session(fs, root_fd, session_id)
    except UnsafePath:
        return False
    finally:
        close_quietly(fs, root_fd)


def _is_session(fs: FileSystem, root_fd: int, name: str, *, unreadable: bool = False) -> bool:
    if is_hidden(name):
        return False
    try:
        dir_fd = fs.open_dir(root_fd, name)
    except OSError as error:
        if error.errno in NOT_A_SESSION:
            return unreadable and isinstance(error, PermissionError)
        raise
    try:
        names = {name for name, _ in fs.list_dir(dir_fd)}
        return not names.isdisjoint({LOG_NAME, "index.json"}) or (LOCK_NAME in names and not all(map(is_hidden, names)))
    finally:
        close_quietly(fs, dir_fd)


async def remove_session(
    root: Path, session_id: str, *, fs: FileSystem | None = None, tombstone: Mapping[str, Any] | None = None
) -> None:
    """Remove a session and all that it stored, for good; whole or not at all, even when the process is killed.

    ``tombstone``: what is recorded for later readers of this id; None: nothing. ``ctxfs.session`` writes it.

    Raises ``SessionLocked`` while a writer holds it, ``SessionNotFound`` and ``WriteFailed``, which says so when the
    session is gone and some of its files could not be removed yet.
    """
    store = LocalStore(root, session_id, fs=fs)
    await run_to_completion(lambda: store.remove_now(tombstone))


def read_log_now(root: Path, session_id: str, offset: int = 0) -> bytes:
    """Read the log of a session from ``offset`` (bytes) on, in the calling thread. Raises as ``Store.open`` does."""
    opened = LocalStore(root, session_id)._open_now(create=False, write=False)  # noqa: SLF001 - of this module
    try:
        return opened.read_log(offset)
    finally:
        opened.close()
