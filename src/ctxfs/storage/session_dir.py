"""One session's directory: the write protocol and the safe read, as plain synchronous code over ``FileSystem``.

A file is written under a temporary name, synced, linked to its own name (never replacing), and its directory synced;
then the log's bytes are appended and synced. Whoever may see a name sees the whole file, and what the log refers to is
on the medium. A handle whose sync failed is never used again: the kernel may have dropped its bytes.
"""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ctxfs.errors import (
    NameTaken,
    NotStored,
    SessionClosed,
    SessionLocked,
    StorageError,
    UnsafePath,
    WriteFailed,
)
from ctxfs.storage.base import NewFile, check_name, is_hidden
from ctxfs.storage.port import FileKind, FileStat, FileSystem

__all__ = ["LOCK_NAME", "LOG_NAME", "TEMP_PREFIX", "SessionDir"]

LOG_NAME = "journal.jsonl"
LOCK_NAME = ".lock"
TEMP_PREFIX = ".ctxfs-tmp-"
MAX_DEPTH = 16
MAX_OPEN_DIRS = 64
READ_SIZE = 8 << 20


class SessionDir:
    """An open session directory. ``sync=False`` skips every sync: safe against a crash of the process only."""

    def __init__(self, fs: FileSystem, session_id: str, dir_fd: int, *, sync: bool) -> None:
        self._fs = fs
        self._session_id = session_id
        self._dir_fd = dir_fd
        self._sync_enabled = sync
        self._process = fs.process()
        self._open = True
        self._write_lock = threading.Lock()
        self._handle_lock = threading.Lock()
        self._dirs: dict[tuple[str, ...], int] = {}
        self._lock_fd: int | None = None
        self._log_fd: int | None = None
        self._log_length = 0
        self._log_identity: tuple[int, int] | None = None
        self._unfinished: set[str] = set()
        self._temp_number = 0

    # ---- opening and closing

    def take_lock(self) -> None:
        """Become the one writer and remove what a dead one left half-written. Raises ``SessionLocked``."""
        fs = self._fs
        try:
            fd = fs.create(self._dir_fd, LOCK_NAME)
        except FileExistsError:
            with self._reading_errors(LOCK_NAME):
                fd = fs.open_append(self._dir_fd, LOCK_NAME)
        try:
            self._check_file(LOCK_NAME, fs.stat_handle(fd))
            fs.lock(fd)
        except BlockingIOError:
            holder = fs.read(fd, 200, 0).decode("utf-8", "replace").strip()
            fs.close(fd)
            raise SessionLocked(self._session_id, holder or None) from None
        except BaseException:
            fs.close(fd)
            raise
        self._lock_fd = fd
        fs.truncate(fd, 0)
        self._write_all(fd, [b"process %d\n" % self._process])
        self._remove_leftovers((), self._dir_fd)
        self._open_log()

    def close(self) -> None:
        """Release the lock and all handles; idempotent. In a forked child the parent's lock stays."""
        with self._write_lock, self._handle_lock:
            if not self._open:
                return
            self._open = False
            self._drop_log()
            self._drop_dirs()
            if self._lock_fd is not None:
                if self._process == self._fs.process():
                    self._fs.unlock(self._lock_fd)
                self._fs.close(self._lock_fd)
            self._fs.close(self._dir_fd)

    def _remove_leftovers(self, parts: tuple[str, ...], dir_fd: int) -> None:
        """Remove temporary files; nobody refers to them, because names are only ever linked when complete."""
        for name in self._fs.list_dir(dir_fd):
            if name.startswith(TEMP_PREFIX):
                self._fs.unlink(dir_fd, name)
            elif len(parts) < MAX_DEPTH and self._fs.stat(dir_fd, name).kind is FileKind.DIRECTORY:
                child = self._fs.open_dir(dir_fd, name)
                try:
                    self._remove_leftovers((*parts, name), child)
                finally:
                    self._fs.close(child)

    def remove_everything(self) -> None:
        """Remove all that is in the directory, the journal first: without it nothing is referred to."""
        with self._writing():
            self._drop_log()
            self._drop_dirs()
            self._unlink_if_there(self._dir_fd, LOG_NAME)
            self._sync(self._dir_fd)
            self._remove_tree(self._dir_fd)

    def _remove_tree(self, dir_fd: int) -> None:
        for name in self._fs.list_dir(dir_fd):
            if self._fs.stat(dir_fd, name).kind is not FileKind.DIRECTORY:
                self._fs.unlink(dir_fd, name)
                continue
            child = self._fs.open_dir(dir_fd, name)
            try:
                self._remove_tree(child)
            finally:
                self._fs.close(child)
            self._fs.remove_dir(dir_fd, name)

    # ---- writing

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``."""
        paths = [(check_name(file.name), file) for file in files]
        with self._writing():
            done: list[tuple[tuple[str, ...], str]] = []
            try:
                touched = self._publish_all(paths, done)
                for parts in touched:
                    self._sync_dir(parts)
                self._append(log())
            except BaseException as error:
                self._take_back(done)
                name = done[-1][1] if done else (files[0].name if files else LOG_NAME)
                raise _as_write_failed(name, error) from error

    def _publish_all(
        self, paths: list[tuple[tuple[str, ...], NewFile]], done: list[tuple[tuple[str, ...], str]]
    ) -> list[tuple[str, ...]]:
        touched: dict[tuple[str, ...], None] = {}
        for parts, file in paths:
            dir_fd = self._dir(parts[:-1])
            if file.derived:
                self._write_file(dir_fd, parts[-1], file.chunks, durable=False, replacing=True)
                continue
            if file.name in self._unfinished:
                self._unlink_if_there(dir_fd, parts[-1])
                self._unfinished.discard(file.name)
            try:
                self._write_file(dir_fd, parts[-1], file.chunks, durable=True, replacing=False)
            except FileExistsError:
                raise NameTaken(file.name) from None
            done.append((parts, file.name))
            touched[parts[:-1]] = None
        return list(touched)

    def _write_file(self, dir_fd: int, name: str, chunks: Iterable[bytes], *, durable: bool, replacing: bool) -> None:
        self._temp_number += 1
        temp = f"{TEMP_PREFIX}{self._process}-{self._temp_number}"
        fd = self._fs.create(dir_fd, temp)
        try:
            try:
                self._write_all(fd, chunks)
                if durable:
                    self._sync(fd)
            finally:
                self._fs.close(fd)
            if replacing:
                self._fs.rename(dir_fd, temp, name)
                return
            self._fs.link(dir_fd, temp, name)
        except BaseException:
            with suppress(OSError):  # recovery removes it
                self._fs.unlink(dir_fd, temp)
            raise
        try:
            self._fs.unlink(dir_fd, temp)
        except OSError:
            self._unfinished.add(name)
            with suppress(OSError):
                self._fs.unlink(dir_fd, name)
            raise

    def _take_back(self, done: list[tuple[tuple[str, ...], str]]) -> None:
        """Remove the names that a failed commit made; what cannot be removed now is removed before its next use."""
        for parts, name in done:
            self._unfinished.add(name)
            with suppress(OSError, StorageError):
                dir_fd = self._dir(parts[:-1])
                self._unlink_if_there(dir_fd, parts[-1])
                self._sync(dir_fd)
                self._unfinished.discard(name)

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """See ``Store.replace``."""
        parts = check_name(name)
        with self._writing():
            try:
                dir_fd = self._dir(parts[:-1])
                chunks = [data] if isinstance(data, bytes) else data
                self._write_file(dir_fd, parts[-1], chunks, durable=True, replacing=True)
                self._sync_dir(parts[:-1])
            except OSError as error:
                raise _as_write_failed(name, error) from error

    def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        paths = [check_name(name) for name in names]
        with self._writing():
            touched: dict[tuple[str, ...], None] = {}
            for parts in paths:
                try:
                    self._unlink_if_there(self._dir(parts[:-1]), parts[-1])
                    touched[parts[:-1]] = None
                except OSError as error:
                    raise _as_write_failed("/".join(parts), error) from error
            for directory in touched:
                self._sync_dir(directory)

    def _unlink_if_there(self, dir_fd: int, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.unlink(dir_fd, name)

    def _write_all(self, fd: int, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                written = self._fs.write(fd, rest)
                if written <= 0:
                    raise OSError(5, "the system wrote nothing")
                rest = rest[written:]

    def _sync(self, fd: int) -> None:
        if self._sync_enabled:
            self._fs.sync(fd)

    def _sync_dir(self, parts: tuple[str, ...]) -> None:
        try:
            self._sync(self._dir(parts))
        except OSError as error:
            if parts:
                self._fs.close(self._dirs.pop(parts))
            raise _as_write_failed("/".join(parts) or self._session_id, error) from error

    # ---- directories

    def _dir(self, parts: tuple[str, ...]) -> int:
        """Return the handle of a directory for writing, made and synced into its parent when first used."""
        if not parts:
            return self._dir_fd
        parent = self._dir(parts[:-1])
        name = parts[-1]
        fd = self._dirs.get(parts)
        if fd is not None:
            if self._same(parent, name, fd):
                return fd
            self._drop_dirs()
            raise UnsafePath(f"{'/'.join(parts)} was moved away while the session was open")
        if len(self._dirs) >= MAX_OPEN_DIRS:
            self._drop_dirs()
            parent = self._dir(parts[:-1])
        with suppress(FileExistsError):
            self._fs.make_dir(parent, name)
        with self._reading_errors("/".join(parts)):
            fd = self._fs.open_dir(parent, name)
        try:
            self._check_owner("/".join(parts), self._fs.stat_handle(fd))
            # also when it was there already: its maker may have died before its own sync
            self._sync(parent)
        except BaseException:
            self._fs.close(fd)
            raise
        self._dirs[parts] = fd
        return fd

    def _same(self, parent: int, name: str, fd: int) -> bool:
        try:
            return self._fs.stat(parent, name).identity == self._fs.stat_handle(fd).identity
        except FileNotFoundError:
            return False

    def _drop_dirs(self) -> None:
        while self._dirs:
            _, fd = self._dirs.popitem()
            self._fs.close(fd)

    # ---- the log

    def _open_log(self) -> None:
        fs = self._fs
        try:
            fd = fs.create(self._dir_fd, LOG_NAME)
            fs.close(fd)
        except FileExistsError:
            pass
        with self._reading_errors(LOG_NAME):
            fd = fs.open_append(self._dir_fd, LOG_NAME)
        try:
            self._check_file(LOG_NAME, fs.stat_handle(fd))
            self._sync(fd)
            self._sync(self._dir_fd)
        except BaseException:
            fs.close(fd)
            raise
        self._log_fd = fd
        status = fs.stat_handle(fd)
        self._log_length = status.size
        self._log_identity = status.identity

    def _append(self, data: bytes) -> None:
        if not data:
            return
        fd = self._usable_log()
        if self._fs.stat_handle(fd).size != self._log_length:
            raise SessionLocked(self._session_id, "a writer that took the session over")
        try:
            self._write_all(fd, [data])
            self._sync(fd)
        except BaseException:
            self._poison_log()
            raise
        self._log_length += len(data)

    def _usable_log(self) -> int:
        if self._log_fd is None:
            self._reopen_log()
        assert self._log_fd is not None
        return self._log_fd

    def _poison_log(self) -> None:
        """Drop the handle, and cut what was not acknowledged through a new one, now or before the next use."""
        self._drop_log()
        with suppress(OSError, StorageError):
            self._reopen_log()

    def _reopen_log(self) -> None:
        fd = self._fs.open_append(self._dir_fd, LOG_NAME)
        try:
            self._check_log(self._fs.stat_handle(fd))
            self._fs.truncate(fd, self._log_length)
            self._sync(fd)
        except BaseException:
            self._fs.close(fd)
            raise
        self._log_fd = fd

    def _check_log(self, status: FileStat) -> None:
        if status.identity != self._log_identity or status.size < self._log_length:
            raise WriteFailed(LOG_NAME, "the journal is not the one that was opened: open the session again")

    def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        with self._writing():
            try:
                fd = self._usable_log()
                self._fs.truncate(fd, length)
                self._sync(fd)
                self._log_length = self._fs.stat_handle(fd).size
            except OSError as error:
                self._drop_log()
                raise _as_write_failed(LOG_NAME, error) from error

    def _drop_log(self) -> None:
        if self._log_fd is not None:
            fd, self._log_fd = self._log_fd, None
            with suppress(OSError):  # close reports the failure that made us drop it
                self._fs.close(fd)

    # ---- reading

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See ``Store.read``."""
        fd, status = self._open_file(name)
        try:
            wanted = max(0, status.size - offset if length is None else min(length, status.size - offset))
            with self._reading_errors(name):
                return b"".join(self._read_pieces(fd, offset, wanted))
        finally:
            self._fs.close(fd)

    def _read_pieces(self, fd: int, offset: int, wanted: int) -> Iterator[bytes]:
        while wanted > 0:
            piece = self._fs.read(fd, min(wanted, READ_SIZE), offset)
            if not piece:
                return
            yield piece
            offset += len(piece)
            wanted -= len(piece)

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        fd, status = self._open_file(name)
        self._fs.close(fd)
        return status.size

    def read_log(self, offset: int = 0) -> bytes:
        """See ``Store.read_log``."""
        try:
            return self.read(LOG_NAME, offset)
        except NotStored:
            return b""

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        with self._reading():
            found = sorted(self._walk("", self._dir_fd, 0))
        return [name for name in found if name.startswith(prefix)]

    def _walk(self, above: str, dir_fd: int, depth: int) -> Iterator[str]:
        for name in self._fs.list_dir(dir_fd):
            path = above + name
            if is_hidden(name) or path == LOG_NAME:
                continue
            try:
                kind = self._fs.stat(dir_fd, name).kind
                if kind is FileKind.FILE:
                    yield path
                elif kind is FileKind.DIRECTORY and depth < MAX_DEPTH:
                    child = self._fs.open_dir(dir_fd, name)
                    try:
                        yield from self._walk(path + "/", child, depth + 1)
                    finally:
                        self._fs.close(child)
            except FileNotFoundError:
                continue  # removed meanwhile

    def _open_file(self, name: str) -> tuple[int, FileStat]:
        *directories, last = check_name(name)
        with self._reading(), self._reading_errors(name):
            opened: list[int] = []
            try:
                current = self._dir_fd
                for part in directories:
                    current = self._fs.open_dir(current, part)
                    opened.append(current)
                fd = self._fs.open_read(current, last)
            finally:
                for directory in opened:
                    self._fs.close(directory)
        try:
            status = self._fs.stat_handle(fd)
            self._check_file(name, status)
        except BaseException:
            self._fs.close(fd)
            raise
        return fd, status

    # ---- guards

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._check_process()
        with self._write_lock:
            self._check_open()
            if self._lock_fd is None:
                raise SessionClosed(f"session {self._session_id} is open for reading only")
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._check_process()
        with self._handle_lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if not self._open:
            raise SessionClosed(f"session {self._session_id} is closed")

    def _check_process(self) -> None:
        if self._process != self._fs.process():
            raise SessionClosed(f"session {self._session_id} belongs to the parent process: open it again here")

    def _check_file(self, name: str, status: FileStat) -> None:
        if status.kind is not FileKind.FILE:
            raise UnsafePath(f"{name} is not a regular file")
        self._check_owner(name, status)

    def _check_owner(self, name: str, status: FileStat) -> None:
        if status.owner != self._fs.user():
            raise UnsafePath(f"{name} belongs to another user")

    @contextmanager
    def _reading_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _as_read_error(name, error) from error


def _as_read_error(name: str, error: OSError) -> Exception:
    match error:
        case FileNotFoundError():
            return NotStored(name)
        case NotADirectoryError() | IsADirectoryError():
            return UnsafePath(f"{name} leads through something that is not a plain directory")
        case _ if error.errno == errno.ELOOP:
            return UnsafePath(f"{name} leads through a link")
        case _:
            return StorageError(f"could not read {name}: {error.strerror or error}")


def _as_write_failed(name: str, error: BaseException) -> BaseException:
    if isinstance(error, (OSError, TypeError, ValueError)) and not isinstance(error, StorageError):
        return WriteFailed(name, getattr(error, "strerror", None) or str(error))
    return error
