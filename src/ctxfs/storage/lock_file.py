"""The lock of a session's one writer: a file in its directory, which the system unlocks when the process ends."""

import os
from contextlib import suppress
from pathlib import Path

from ctxfs.errors import SessionLocked
from ctxfs.storage.directories import check_file, check_only_name
from ctxfs.storage.failures import opening
from ctxfs.storage.port import FileSystem, close_quietly, write_all

with suppress(ImportError):  # not on Windows, where another ``FileSystem`` is needed
    import fcntl

LOCK_NAME = ".lock"
_HOLDER_BYTES = 200
"""More than "process" and its number take up."""


def open_lock(fs: FileSystem, dir_fd: int) -> int:
    """Open the lock's file, creating it if necessary. Raises ``UnsafePath`` and OSError."""
    try:
        return fs.create(dir_fd, LOCK_NAME)
    except FileExistsError:
        with opening(LOCK_NAME):
            return fs.open_append(dir_fd, LOCK_NAME)


def writer_of(session: Path) -> str | None:
    """What is writing to the session in this directory, such as "process 7"; None: nothing, as far as one can tell."""
    try:
        if not (session / LOCK_NAME).stat(follow_symlinks=False).st_size:
            return None  # unsigned: trying the lock would make a writer that is about to take it fail
        fd = os.open(session / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _named(os.pread(fd, _HOLDER_BYTES, 0))
    finally:
        os.close(fd)
    return None


def _named(signed: bytes) -> str:
    """Who holds the lock, by what the lock's file says."""
    holder = signed.decode("utf-8", "replace").strip()
    if holder == f"process {os.getpid()}":
        return "another Context, Agent or History of this process"
    return holder or "another process"


class WriterLock:
    """The lock, held from when this is made until ``release``.

    Its file names the writer as long as anything that this one began may be half-written. ``settled``: the file was
    empty, so the previous holder of the lock finished everything. Raises ``SessionLocked``, ``UnsafePath`` and OSError.
    """

    def __init__(self, fs: FileSystem, dir_fd: int, session_id: str) -> None:
        self._fs = fs
        self._fd = open_lock(fs, dir_fd)
        try:
            status = fs.stat_handle(self._fd)
            check_file(fs, LOCK_NAME, status)
            check_only_name(LOCK_NAME, status)
            fs.lock(self._fd)
            self.settled = fs.stat_handle(self._fd).size == 0
        except BlockingIOError:
            holder = self._holder()
            close_quietly(fs, self._fd)
            raise SessionLocked(session_id, holder) from None
        except BaseException:
            close_quietly(fs, self._fd)
            raise

    def sign(self, process: int) -> None:
        """Name the writer, before it begins anything. Raises OSError."""
        self._fs.truncate(self._fd, 0)
        write_all(self._fs, self._fd, [b"process %d\n" % process])

    def _holder(self) -> str:
        try:
            return _named(self._fs.read(self._fd, _HOLDER_BYTES, 0))
        except OSError:
            return _named(b"")  # the holder's name is only informative

    def release(self, *, settled: bool) -> None:
        """Let another writer in; ``settled``: everything that was begun has ended."""
        if settled:
            with suppress(OSError):  # the next writer then looks for half-written files
                self._fs.truncate(self._fd, 0)
        with suppress(OSError):  # closing releases it too
            self._fs.unlock(self._fd)
        close_quietly(self._fs, self._fd)
