"""One session's directory: the write protocol and the safe read, as plain synchronous code over ``FileSystem``.

A file is written under a temporary name, synced, linked to its own name (never replacing), and its directory synced;
then the log's bytes are appended and synced. A reader that sees a name sees the whole file, and everything that the log
refers to is on the disk.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ctxfs.errors import NameTaken, NotStored, SessionClosed, SessionLocked, StorageError
from ctxfs.storage.base import NewFile, check_name, is_hidden
from ctxfs.storage.directories import Directories, Parts, check_file, may_hold
from ctxfs.storage.failures import reading, writing
from ctxfs.storage.lock_file import WriterLock
from ctxfs.storage.log_file import LOG_NAME, LogFile
from ctxfs.storage.port import FileKind, FileStat, FileSystem, close_quietly, link_across, write_all
from ctxfs.storage.temp_files import TEMP_PREFIX, discard_temp, rename_temp, write_temp

MAX_DEPTH = 16
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
        self._directories = Directories(fs, dir_fd, sync=sync)
        self._log: LogFile | None = None
        self._unfinished: set[Parts] = set()
        self._temp_number = 0
        self._lock: WriterLock | None = None

    # ---- opening and closing

    @property
    def identity(self) -> tuple[int, int]:
        """The directory's identity, whatever its name is by now. Raises OSError."""
        return self._fs.stat_handle(self._dir_fd).identity

    def goes_on_writing(self) -> bool:
        """Whether this is the session's one writer; a write that still runs has ended then, and the log is whole."""
        with self._write_lock:
            if self._log is None:
                return False
            with writing(LOG_NAME):
                self._log.repair()
            return True

    def take_lock(self) -> None:
        """Become the session's one writer. Raises ``SessionLocked``, ``UnsafePath`` and OSError."""
        self._lock = WriterLock(self._fs, self._dir_fd, self._session_id)

    def begin_writing(self, *, again: bool = False) -> bool:
        """Remove what a dead writer left half-written, and open the log; the lock is ours. Raises OSError.

        ``again``: this one has been the writer before, so only a writer that died since can have left something.
        Returns True if there was none.
        """
        assert self._lock is not None
        settled = again and self._lock.settled
        self._lock.sign(self._process)
        if not settled:
            self._recover(self._dir_fd, 0)
        sync = self._sync_enabled
        self._log = LogFile(self._fs, self._dir_fd, self._session_id, sync=sync, settled=settled)
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

    def close(self) -> None:
        """Release the lock and all handles; idempotent. In a forked child nothing happens: they are the parent's."""
        if self._process != self._fs.process():
            return
        with self._write_lock, self._handle_lock:
            if not self._open:
                return
            self._open = False
            self._unlock()
            self._directories.close()
            close_quietly(self._fs, self._dir_fd)

    def give_back(self) -> None:
        """See ``LeaseStore.release``."""
        self._check_process()
        with self._write_lock:
            self._unlock()

    def _unlock(self) -> None:
        lock, log, self._lock, self._log = self._lock, self._log, None, None
        settled = log is not None and log.usable and not self._unfinished
        if log is not None:
            log.close()
        if lock is not None:
            lock.release(settled=settled)

    def __del__(self) -> None:
        """Release the lock and the handles of an instance that was dropped without ``close``."""
        if hasattr(self, "_lock"):
            self.close()

    # ---- writing

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``."""
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
                    self._link(dir_fd, self._write_temp(dir_fd, file.chunks, durable=True), parts, done)
        for directory in dict.fromkeys(parts[:-1] for parts in done):
            with writing("/".join(directory)):
                self._directories.sync(directory)
        for parts, file in paths:
            if file.derived:
                with writing(file.name):
                    dir_fd = self._directories.get(parts[:-1])
                    rename_temp(self._fs, dir_fd, self._write_temp(dir_fd, file.chunks, durable=False), parts[-1])
                done.append(parts)

    def _write_temp(self, dir_fd: int, chunks: Iterable[bytes], *, durable: bool) -> str:
        self._temp_number += 1
        temp = f"{TEMP_PREFIX}{self._process}-{self._temp_number}"
        write_temp(self._fs, dir_fd, temp, chunks, sync=durable and self._sync_enabled)
        return temp

    def _link(self, dir_fd: int, temp: str, parts: Parts, done: list[Parts]) -> None:
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

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """See ``LocalStore.replace``."""
        parts = check_name(name)
        with self._writing() as log_file, writing(name):
            dir_fd = self._directories.get(parts[:-1])
            temp = self._write_temp(dir_fd, [data] if isinstance(data, bytes) else data, durable=True)
            rename_temp(self._fs, dir_fd, temp, parts[-1])
            self._directories.sync(parts[:-1])
            log_file.follow(name)

    def share(self, names: Iterable[str], source: "SessionDir") -> list[str]:
        """Give files of another session the same names here, durably; return those that the disk cannot link."""
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
            current = self._dir_fd
            for part in name.split("/")[:-1]:
                current = opened.enter_context(self._child(current, part))
            yield current

    def append(self, name: str, data: bytes, *, sync: bool) -> None:
        """See ``GrowingStore.append``."""
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

    def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        paths = [check_name(name) for name in names]
        with self._writing():
            for parts in paths:
                with writing("/".join(parts)):
                    self._unlink(self._directories.get(parts[:-1]), parts[-1])
            for directory in dict.fromkeys(parts[:-1] for parts in paths):
                with writing("/".join(directory)):
                    self._directories.sync(directory)

    def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        with self._writing() as log_file, writing(LOG_NAME):
            log_file.truncate(length)

    def _unlink(self, dir_fd: int, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.unlink(dir_fd, name)

    # ---- reading

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See ``Store.read``."""
        fd, status = self._open_file(name)
        try:
            there = status.size - offset
            with reading(name):
                return self._read_span(fd, offset, there if length is None else min(length, there))
        finally:
            close_quietly(self._fs, fd)

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """See ``ThreadStore.pieces``."""
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

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        fd, status = self._open_file(name)
        close_quietly(self._fs, fd)
        return status.size

    def read_log(self, offset: int = 0) -> bytes:
        """See ``Store.read_log``."""
        try:
            return self.read(LOG_NAME, offset)
        except NotStored:
            return b""

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        with self._reading(), reading(self._session_id):
            return sorted(name for name in self._walk("", self._dir_fd, 0, prefix) if name.startswith(prefix))

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
        with self._reading(), reading(name):
            opened: list[int] = []
            try:
                current = self._dir_fd
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
            self._check_open()
            if self._log is None:
                raise SessionClosed(f"session {self._session_id} is open for reading only, or its lock was released")
            yield self._log

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
