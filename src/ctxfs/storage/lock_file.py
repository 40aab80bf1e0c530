"""The lock of a session's one writer: a file in its directory, which the system unlocks when the process ends."""

from ctxfs.storage.failures import opening
from ctxfs.storage.port import FileSystem

__all__ = ["LOCK_NAME", "open_lock"]

LOCK_NAME = ".lock"


def open_lock(fs: FileSystem, dir_fd: int) -> int:
    """Open the lock's file, which is made when it is not there. Raises ``UnsafePath`` and OSError."""
    try:
        return fs.create(dir_fd, LOCK_NAME)
    except FileExistsError:
        with opening(LOCK_NAME):
            return fs.open_append(dir_fd, LOCK_NAME)
