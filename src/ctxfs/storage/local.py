"""Sessions on the local disk: ``<root>/{session_id}``, one directory each. The write protocol, and the safe read.

A file is written under a temporary name, synced, linked to its own name (never replacing), and its directory synced;
then the log's bytes are appended and synced. A reader that sees a name sees the whole file, and everything that the log
refers to is on the disk.
"""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self, get_args

from typing_extensions import override

from ctxfs.errors import (
    ConfigError,
    NameTaken,
    NotStored,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
    UnsafePath,
    WriteFailed,
)
from ctxfs.errors.checks import names_settings
from ctxfs.storage.base import DirectoryStore, NewFile, RewritingStore, Store, check_name, check_session_name, is_hidden
from ctxfs.storage.directories import Directories, Parts, check_file, make_root, may_hold
from ctxfs.storage.failures import reading, reason_of, writing
from ctxfs.storage.files import TEMP_PREFIX, discard_temp, rename_temp, write_temp
from ctxfs.storage.lock_file import LOCK_NAME, WriterLock
from ctxfs.storage.log_file import LOG_NAME, LogFile
from ctxfs.storage.port import FileKind, FileStat, FileSystem, OsFileSystem, close_quietly, link_across, write_all
from ctxfs.storage.removal import forgotten, hide, note_forgotten, remove_all_hidden, remove_hidden
from ctxfs.storage.threads import run_to_completion

Durability = Literal["full", "process"]
OTHERS_MAY_WRITE = 0o022
OTHERS = 0o077
MAX_TRIES = 8
MAX_DEPTH = 16
READ_SIZE = 8 << 20
NOT_A_SESSION = {errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOENT}
"""A file, a link, another user's directory, or one that was removed meanwhile."""


@names_settings()
class LocalStore(DirectoryStore, RewritingStore):
    """A ``Store`` in a directory of the local file system.

    ``durability``: "full" syncs every write before it is acknowledged; "process" leaves that to the system, so that a
    crash of the process loses nothing, but a power failure may. Raises ``ConfigError`` for any other one, and
    ``UnsafePath`` if the session id is invalid.
    """

    def __init__(
        self, root: Path, session_id: str, *, fs: FileSystem | None = None, durability: Durability = "full"
    ) -> None:
        self._session_id = check_session_name(session_id)
        if durability not in get_args(Durability):
            raise ConfigError(f"durability is {durability!r}: use one of {', '.join(get_args(Durability))}")
        self._root = root
        self._fs: FileSystem = fs if fs is not None else OsFileSystem()
        self._sync_enabled = durability == "full"
        self._reset(self._fs.process())

    def _reset(self, process: int) -> None:
        """Be closed, in this process. In a forked one, all handles and locks are the parent's, and left alone."""
        self._process = process
        self._write_lock = threading.Lock()
        self._handle_lock = threading.Lock()
        self._dir_fd: int | None = None
        self._directories: Directories  # from ``_open_dir`` on
        self._lock: WriterLock | None = None
        self._log: LogFile | None = None
        self._unfinished: set[Parts] = set()
        self._temp_number = 0

    @property
    @override
    def directory(self) -> Path:
        return self._root / self._session_id

    # ---- opening and closing

    @override
    def open(self, *, create: bool, write: bool) -> Self:
        if self._process == self._fs.process():
            self.close()
        else:
            self._reset(self._fs.process())
        try:
            with self._root_opened(create=create) as root_fd:
                if write:
                    self._remove_hidden(root_fd)
                    self._open_locked(root_fd, create=create)
                else:
                    self._open_dir(root_fd, create=create, write=False)
            if write:
                self._begin_writing()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise WriteFailed(self._session_id, reason_of(error)) from error
            raise
        return self

    def _open_locked(self, root_fd: int, *, create: bool) -> None:
        """Open the session and take its lock; one that was removed before it was ours is opened again, or made."""
        for _ in range(MAX_TRIES):
            dir_fd = self._open_dir(root_fd, create=create, write=True)
            try:
                with suppress(FileNotFoundError):  # the directory was removed
                    if self._take_lock(root_fd, dir_fd):
                        return
            except BaseException:
                self.close()
                raise
            self.close()
        raise UnsafePath(str(self.directory), "is repeatedly moved away")

    def _take_lock(self, root_fd: int, dir_fd: int) -> bool:
        """Take the session's lock; return whether the session still has its name. Raises ``SessionLocked``, OSError."""
        self._lock = WriterLock(self._fs, dir_fd, self._session_id)
        return self._fs.stat(root_fd, self._session_id).identity == self._fs.stat_handle(dir_fd).identity

    @override
    def acquire(self) -> bool:
        self._check_process()
        with self._write_lock:
            dir_fd = self._opened()
            if self._log is not None:  # this is the writer; a write that was interrupted has ended by now
                with writing(LOG_NAME):
                    self._log.repair()
                return True
            try:
                with self._root_opened(create=False) as root_fd, suppress(FileNotFoundError):
                    if self._take_lock(root_fd, dir_fd):
                        return self._begin_writing(again=True)
            except BaseException as error:
                self._unlock()
                if isinstance(error, OSError):
                    raise WriteFailed(self._session_id, reason_of(error)) from error
                raise
            self._unlock()
        raise SessionNotFound(self._session_id, str(self._root))

    def _begin_writing(self, *, again: bool = False) -> bool:
        """Remove what a dead writer left half-written, and open the log; the lock is ours. Raises OSError.

        ``again``: this one has been the writer before, so only a writer that died since can have left something.
        Returns True if there was none.
        """
        assert self._lock is not None
        dir_fd = self._opened()
        settled = again and self._lock.settled
        # The lock is signed before anything else is touched: after a crash from here on, the next writer looks for
        # what is half-written.
        self._lock.sign(self._process)
        if not settled:
            self._recover(dir_fd, 0)
        self._log = LogFile(self._fs, dir_fd, self._session_id, sync=self._sync_enabled, settled=settled)
        return settled

    def _recover(self, dir_fd: int, depth: int) -> None:
        """Remove temporary files, which nothing refers to, and sync what names a dead writer may have left unsynced.

        Files get their names only when they are complete, so every named file is content.
        """
        for name, kind in self._fs.list_dir(dir_fd):
            if kind is not FileKind.DIRECTORY:
                if name.startswith(TEMP_PREFIX):
                    self._fs.unlink(dir_fd, name)
            elif depth < MAX_DEPTH and not is_hidden(name):
                with self._child(dir_fd, name) as child:
                    self._recover(child, depth + 1)
        if self._sync_enabled:
            self._fs.sync(dir_fd)

    @override
    def close(self) -> None:
        """In a forked child nothing happens: the lock and the handles are the parent's."""
        if self._process != self._fs.process():
            return
        with self._write_lock, self._handle_lock:
            if self._dir_fd is None:
                return
            dir_fd = self._dir_fd
            self._dir_fd = None
            self._unlock()
            self._unfinished.clear()
            self._directories.close()
            close_quietly(self._fs, dir_fd)

    @override
    def release(self) -> None:
        self._check_process()
        with self._write_lock:
            self._opened()
            self._unlock()

    def _unlock(self) -> None:
        lock = self._lock
        log = self._log
        self._lock = None
        self._log = None
        settled = log is not None and log.usable and not self._unfinished
        if log is not None:
            log.close()
        if lock is not None:
            lock.release(settled=settled)

    def __del__(self) -> None:
        """Release the lock and the handles of a store that was dropped without ``close``."""
        if hasattr(self, "_temp_number"):  # else a setting was refused
            self.close()

    def remove(self, tombstone: Mapping[str, Any] | None = None) -> None:
        """Remove the session, which is not open here: see ``remove_session``.

        First it gets a hidden name, and so no longer exists; then its files are removed. After a crash between the two,
        the next process that lists the root's sessions, or opens one for writing, removes the rest.
        """
        with self._root_opened(create=False) as root_fd:
            self._remove_hidden(root_fd)
            try:
                self._open_locked(root_fd, create=False)
                try:
                    if tombstone is not None:
                        note_forgotten(self._fs, root_fd, tombstone)
                    hidden = hide(self._fs, root_fd, self._session_id)
                finally:
                    self.close()
            except OSError as error:
                raise WriteFailed(self._session_id, reason_of(error)) from error
            try:
                remove_hidden(self._fs, root_fd, hidden)
            except OSError as error:
                raise WriteFailed(
                    hidden, f"{self._session_id} is gone, but not all its files: {reason_of(error)}"
                ) from error

    # ---- finding the session's directory

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
                make_root(self._fs, self._root, sync=self._sync_enabled)
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

    def _remove_hidden(self, root_fd: int) -> None:
        with suppress(OSError):  # housekeeping
            remove_all_hidden(self._fs, root_fd, self._fs.list_dir(root_fd))

    def _open_dir(self, root_fd: int, *, create: bool, write: bool) -> int:
        """Open the session's directory, and check that it is ours: from here on the store is open."""
        dir_fd = self._open_named(root_fd, create=create)
        try:
            self._check_spelling(root_fd, dir_fd)
            self._check_dir(dir_fd, write=write)
        except BaseException:
            close_quietly(self._fs, dir_fd)
            raise
        self._directories = Directories(self._fs, dir_fd, sync=self._sync_enabled)
        self._dir_fd = dir_fd
        return dir_fd

    def _open_named(self, root_fd: int, *, create: bool) -> int:
        where = str(self.directory)
        try:
            if create:
                with suppress(FileExistsError):
                    self._fs.make_dir(root_fd, self._session_id)
                if self._sync_enabled:  # also if it existed: the process that made it may have died before this
                    self._fs.sync(root_fd)
            return self._fs.open_dir(root_fd, self._session_id)
        except FileNotFoundError:
            removed = forgotten(self._fs, root_fd, self._session_id)
            raise SessionNotFound(self._session_id, str(self._root), removed) from None
        except OSError as error:
            if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
                raise UnsafePath(where, "is not a directory of its own") from error
            if not create:
                raise StorageError(f"{where} cannot be read: {reason_of(error)}") from error
            raise WriteFailed(where, reason_of(error)) from error

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
            raise WriteFailed(str(self.directory), reason_of(error)) from error
        if self._session_id not in names:
            raise UnsafePath(self._session_id, f"differs from the id of a session under {self._root} only in case")

    def _check_dir(self, dir_fd: int, *, write: bool) -> None:
        status = self._fs.stat_handle(dir_fd)
        where = str(self.directory)
        if status.owner != self._fs.user():
            raise UnsafePath(where, "belongs to another user")
        if status.mode & OTHERS_MAY_WRITE:
            raise UnsafePath(where, "can be written by others: check what is in it, then `chmod 700` it")
        if write and status.mode & OTHERS:
            self._fs.set_dir_mode(dir_fd)

    # ---- writing

    @override
    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """First the files, then the log, each synced.

        After a crash before the log is synced, the files are there, and nothing refers to them: the next writer finds
        them by their names. Nothing refers to a file that is not there.
        """
        paths = [(check_name(file.name), file) for file in files]
        with self._writing() as log_file:
            with writing(LOG_NAME):
                log_file.repair()
            done: list[Parts] = []
            try:
                self._publish(paths, done)
                with writing(LOG_NAME):
                    log_file.append(log())
            except SessionLocked:
                raise  # the other writer may have taken the files over
            except BaseException:
                self._roll_back(done, certain=log_file.usable)
                raise

    def _publish(self, paths: list[tuple[Parts, NewFile]], done: list[Parts]) -> None:
        """Make the files durable under their names, and note each in ``done`` as soon as it is visible.

        Derived files come last: a crash never leaves one without the file that it was derived from.
        """
        for parts, file in paths:
            if not file.derived:
                with writing(file.name):
                    dir_fd = self._directories.get(parts[:-1])
                    temp = self._write_temp(dir_fd, file.chunks, durable=True)
                    self._link(dir_fd, temp, parts, done)
        for directory in dict.fromkeys(parts[:-1] for parts in done):
            with writing("/".join(directory)):
                self._directories.sync(directory)
        for parts, file in paths:
            if file.derived:
                with writing(file.name):
                    dir_fd = self._directories.get(parts[:-1])
                    temp = self._write_temp(dir_fd, file.chunks, durable=False)
                    rename_temp(self._fs, dir_fd, temp, parts[-1])
                done.append(parts)

    def _write_temp(self, dir_fd: int, chunks: Iterable[bytes], *, durable: bool) -> str:
        self._temp_number += 1
        temp = f"{TEMP_PREFIX}{self._process}-{self._temp_number}"
        write_temp(self._fs, dir_fd, temp, chunks, sync=durable and self._sync_enabled)
        return temp

    def _link(self, dir_fd: int, temp: str, parts: Parts, done: list[Parts]) -> None:
        """Give a whole file its name, then take the temporary one away; after a crash in between it has both."""
        name = parts[-1]
        try:
            if parts in self._unfinished:
                self._unlink(dir_fd, name)
                self._unfinished.discard(parts)
            self._fs.link(dir_fd, temp, name)
        except OSError as error:
            if not self._is_linked(dir_fd, temp, name):
                discard_temp(self._fs, dir_fd, temp)
                if isinstance(error, FileExistsError):
                    raise NameTaken("/".join(parts)) from None
                raise
        except BaseException:
            discard_temp(self._fs, dir_fd, temp)
            raise
        done.append(parts)
        self._fs.unlink(dir_fd, temp)

    def _is_linked(self, dir_fd: int, temp: str, name: str) -> bool:
        """Whether a link was made although the call failed: over a network, only the answer may have been lost."""
        try:
            return self._fs.stat(dir_fd, name).identity == self._fs.stat(dir_fd, temp).identity
        except OSError:
            return False

    def _roll_back(self, done: list[Parts], *, certain: bool) -> None:
        """Remove the names that a failed commit made.

        Not while the log may still refer to them (``certain`` is false); files that stay are removed before the next
        use of their names, or adopted by the next writer.
        """
        self._unfinished.update(done)
        if not certain:
            return
        for parts in done:
            with suppress(OSError, StorageError):
                self._unlink(self._directories.get(parts[:-1]), parts[-1])
                self._directories.sync(parts[:-1])
                self._unfinished.discard(parts)

    @override
    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Also of the log, by its name. The new file is synced before it gets the name of the old one."""
        parts = check_name(name)
        chunks = [data] if isinstance(data, bytes) else data
        with self._writing() as log_file, writing(name):
            dir_fd = self._directories.get(parts[:-1])
            temp = self._write_temp(dir_fd, chunks, durable=True)
            rename_temp(self._fs, dir_fd, temp, parts[-1])
            self._directories.sync(parts[:-1])
            if name == LOG_NAME:
                log_file.follow()

    @override
    def rewrite(self, log: bytes | None = None) -> None:
        """Nothing but the log has bytes that are no file's."""
        if log is not None:
            self.replace(LOG_NAME, log)

    @override
    def share(self, names: Sequence[str], source: Store) -> list[str]:
        """By a hard link; what the disk cannot link, as between two disks, has to be copied."""
        if not isinstance(source, LocalStore):
            return list(names)
        linked: dict[Parts, None] = {}
        refused: list[str] = []
        for name in names:
            *above, last = name.split("/")  # checked when the file is found
            with self._writing(), source.directory_of(name) as current, writing(name):
                if link_across(self._fs, current, self._directories.get(tuple(above)), last):
                    linked[tuple(above)] = None
                else:
                    refused.append(name)
        for directory in linked:
            with self._writing(), writing("/".join(directory)):
                self._directories.sync(directory)
        return refused

    @contextmanager
    def directory_of(self, name: str) -> Iterator[int]:
        """A handle of the directory that contains the file. Raises ``NotStored`` and ``UnsafePath``."""
        fd, _ = self._open_file(name)  # it is there, and a file of ours
        close_quietly(self._fs, fd)
        with ExitStack() as opened:
            current = self._opened()
            for part in name.split("/")[:-1]:
                current = opened.enter_context(self._child(current, part))
            yield current

    @override
    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        *above, last = check_name(name)
        with self._writing(), writing(name):
            fd = self._open_growing(self._directories.get(tuple(above)), last)
            try:
                check_file(self._fs, name, self._fs.stat_handle(fd))
                write_all(self._fs, fd, [data])
                if sync and self._sync_enabled:
                    self._fs.sync(fd)
            finally:
                self._fs.close(fd)
            if sync:
                self._directories.sync(tuple(above))

    def _open_growing(self, dir_fd: int, name: str) -> int:
        try:
            return self._fs.create(dir_fd, name)
        except FileExistsError:
            return self._fs.open_append(dir_fd, name)

    @override
    def delete(self, names: Sequence[str]) -> None:
        paths = [check_name(name) for name in names]
        with self._writing():
            for parts in paths:
                with writing("/".join(parts)):
                    self._unlink(self._directories.get(parts[:-1]), parts[-1])
            for directory in dict.fromkeys(parts[:-1] for parts in paths):
                with writing("/".join(directory)):
                    self._directories.sync(directory)

    @override
    def truncate_log(self, length: int) -> None:
        with self._writing() as log_file, writing(LOG_NAME):
            log_file.truncate(length)

    def _unlink(self, dir_fd: int, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.unlink(dir_fd, name)

    # ---- reading

    @override
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        fd, status = self._open_file(name)
        try:
            there = status.size - offset
            with reading(name):
                return self._read_span(fd, offset, there if length is None else min(length, there))
        finally:
            close_quietly(self._fs, fd)

    @override
    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """The file is opened once: it can be read to its end even if it is deleted meanwhile."""
        fd, _ = self._open_file(name)
        try:
            with reading(name):
                for offset, length in spans:
                    yield self._read_span(fd, offset, length)
        finally:
            close_quietly(self._fs, fd)

    def _read_span(self, fd: int, offset: int, length: int) -> bytes:
        read: list[bytes] = []
        while length > 0 and (piece := self._fs.read(fd, min(length, READ_SIZE), offset)):
            read.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(read)

    @override
    def size(self, name: str) -> int:
        fd, status = self._open_file(name)
        close_quietly(self._fs, fd)
        return status.size

    @override
    def read_log(self, offset: int = 0) -> bytes:
        try:
            return self.read(LOG_NAME, offset)
        except NotStored:
            return b""

    @override
    def names(self, prefix: str = "") -> list[str]:
        with self._reading() as dir_fd, reading(self._session_id):
            return sorted(name for name in self._walk("", dir_fd, 0, prefix) if name.startswith(prefix))

    def _walk(self, above: str, dir_fd: int, depth: int, prefix: str) -> Iterator[str]:
        for name, kind in self._fs.list_dir(dir_fd):
            path = above + name
            if is_hidden(name) or path == LOG_NAME:
                continue
            if kind is FileKind.FILE:
                yield path
            elif kind is FileKind.DIRECTORY and depth < MAX_DEPTH and may_hold(path + "/", prefix):
                with suppress(FileNotFoundError), self._child(dir_fd, name) as child:  # removed meanwhile
                    yield from self._walk(path + "/", child, depth + 1, prefix)

    def _open_file(self, name: str) -> tuple[int, FileStat]:
        *directories, last = check_name(name)
        with self._reading() as dir_fd, reading(name):
            opened: list[int] = []
            try:
                current = dir_fd
                for part in directories:
                    current = self._fs.open_dir(current, part)
                    opened.append(current)
                fd = self._fs.open_read(current, last)
            finally:
                for directory in opened:
                    close_quietly(self._fs, directory)
        try:
            with reading(name):
                status = self._fs.stat_handle(fd)
            check_file(self._fs, name, status)
        except BaseException:
            close_quietly(self._fs, fd)
            raise
        return fd, status

    # ---- guards

    @contextmanager
    def _child(self, dir_fd: int, name: str) -> Iterator[int]:
        child = self._fs.open_dir(dir_fd, name)
        try:
            yield child
        finally:
            close_quietly(self._fs, child)

    @contextmanager
    def _writing(self) -> Iterator[LogFile]:
        self._check_process()
        with self._write_lock:
            self._opened()
            if self._log is None:
                raise SessionClosed(f"session {self._session_id} is open for reading only, or its lock was released")
            yield self._log

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """The session's directory, which is not closed meanwhile."""
        self._check_process()
        with self._handle_lock:
            yield self._opened()

    def _opened(self) -> int:
        if self._dir_fd is None:
            raise SessionClosed(f"session {self._session_id} is not open")
        return self._dir_fd

    def _check_process(self) -> None:
        if self._process != self._fs.process():
            raise SessionClosed(f"session {self._session_id} belongs to the parent process: open it again here")


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
        if LOG_NAME in names or "index.json" in names:
            return True
        has_contents = not all(map(is_hidden, names))
        return LOCK_NAME in names and has_contents
    finally:
        close_quietly(fs, dir_fd)


@names_settings()
async def remove_session(
    root: Path, session_id: str, *, fs: FileSystem | None = None, tombstone: Mapping[str, Any] | None = None
) -> None:
    """Remove a session and all that it stored, for good; whole or not at all, even when the process is killed.

    ``tombstone``: what is recorded for later readers of this id; None: nothing. ``ctxfs.session`` writes it.

    Raises ``SessionLocked`` while a writer holds it, ``SessionNotFound`` and ``WriteFailed``, which says so when the
    session is gone and some of its files could not be removed yet.
    """
    store = LocalStore(root, session_id, fs=fs)
    await run_to_completion(lambda: store.remove(tombstone))
