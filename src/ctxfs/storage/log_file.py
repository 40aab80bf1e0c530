"""The log of a session that is being written: appended, synced, and never left longer than what was acknowledged."""

from contextlib import suppress

from ctxfs.errors import SessionLocked, StorageError, WriteFailed
from ctxfs.storage.directories import check_only_name, check_owner
from ctxfs.storage.failures import opening
from ctxfs.storage.port import FileKind, FileStat, FileSystem, close_quietly, write_all

LOG_NAME = "journal.jsonl"
_GONE = "it was moved, removed, replaced or cut while the session was open: put it back, or open the session again"


class LogFile:
    """The log, open for appending. ``length`` is what was acknowledged, in bytes.

    ``settled``: the previous writer finished writing and synced it.
    """

    def __init__(self, fs: FileSystem, dir_fd: int, session_id: str, *, sync: bool, settled: bool) -> None:
        self._fs = fs
        self._dir_fd = dir_fd
        self._session_id = session_id
        self._sync_enabled = sync
        with suppress(FileExistsError):
            close_quietly(fs, fs.create(dir_fd, LOG_NAME))
        self._fd: int | None = self._open()
        try:
            status = fs.stat_handle(self._fd)
            check_owner(fs, LOG_NAME, status)
            check_only_name(LOG_NAME, status)
            if not settled:
                self._sync(self._fd)  # lines that a dead writer left count from here on
                self._sync(dir_fd)
        except BaseException:
            self.close()
            raise
        self._identity = status.identity
        self.length = status.size

    def _open(self) -> int:
        with opening(LOG_NAME):
            fd = self._fs.open_append(self._dir_fd, LOG_NAME)
        try:
            kind = self._fs.stat_handle(fd).kind
        except BaseException:
            close_quietly(self._fs, fd)
            raise
        if kind is not FileKind.FILE:
            close_quietly(self._fs, fd)
            raise WriteFailed(LOG_NAME, "it is not a regular file")
        return fd

    @property
    def usable(self) -> bool:
        """Whether the log is known to end where it was acknowledged."""
        return self._fd is not None

    def append(self, data: bytes) -> None:
        """Append and sync. After a failure, the log is restored: at once or, if that fails too, before its next use.

        Raises what ``repair`` raises, and ``SessionLocked`` when another process has written to the log.
        """
        fd = self.repair()
        if not data:
            return
        if self._fs.stat_handle(fd).size != self.length:
            raise SessionLocked(self._session_id, "a writer that took the session over")
        try:
            write_all(self._fs, fd, [data])
            self._sync(fd)
        except BaseException:
            self.close()  # the kernel may have dropped its bytes, so this handle is not used again
            with suppress(OSError, StorageError):
                self.repair()
            raise
        self.length += len(data)

    def repair(self) -> int:
        """Return a handle that can be trusted: after a failure a new one, with the log cut to its acknowledged length.

        Raises OSError, and ``WriteFailed`` if the log's name now belongs to another file, or to none: the next
        process to open the session would not find what is written.
        """
        try:
            if self._fd is None:
                self._fd = self._reopened()
            else:
                self._check(self._fs.stat(self._dir_fd, LOG_NAME))
        except FileNotFoundError as error:
            raise WriteFailed(LOG_NAME, _GONE) from error
        return self._fd

    def _reopened(self) -> int:
        fd = self._open()
        try:
            self._check(self._fs.stat_handle(fd))
            self._fs.truncate(fd, self.length)
            self._sync(fd)
        except BaseException:
            close_quietly(self._fs, fd)
            raise
        return fd

    def _check(self, status: FileStat) -> None:
        if status.identity != self._identity or status.size < self.length:
            raise WriteFailed(LOG_NAME, _GONE)

    def follow(self) -> None:
        """Continue with the file that has the log's name now, which is synced. Raises OSError."""
        self.close()
        self._fd = self._open()
        status = self._fs.stat_handle(self._fd)
        self._identity = status.identity
        self.length = status.size

    def truncate(self, length: int) -> None:
        """Cut to ``length`` bytes and sync. After an OSError, the log is cut before its next use."""
        fd = self.repair()
        self.length = min(self.length, length)
        try:
            self._fs.truncate(fd, self.length)
            self._sync(fd)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the handle; everything acknowledged is synced already."""
        if self._fd is not None:
            fd = self._fd
            self._fd = None
            close_quietly(self._fs, fd)

    def _sync(self, fd: int) -> None:
        if self._sync_enabled:
            self._fs.sync(fd)
