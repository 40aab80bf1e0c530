"""Removing a session: while locked, it gets a hidden name, and so no longer exists; then its files are removed.

If the process is killed in between, the session is still whole, or has its hidden name; then the next process that
lists the root's sessions, or opens one for writing, removes the rest. The lock's file is removed last: a directory with
such a name that is not locked is not being removed by any process.
"""

import random
from collections.abc import Sequence
from contextlib import suppress

from ctxfs.errors import StorageError
from ctxfs.storage.lock_file import LOCK_NAME, open_lock
from ctxfs.storage.port import FileKind, FileSystem, close_quietly

REMOVED_PREFIX = ".ctxfs-removed-"


def hide(fs: FileSystem, root_fd: int, session_id: str) -> str:
    """Give a locked session a hidden name, durably, and return it. After an OSError it has its own name again."""
    hidden = f"{REMOVED_PREFIX}{random.SystemRandom().getrandbits(64):016x}"
    fs.rename(root_fd, session_id, hidden)
    try:
        fs.sync(root_fd)
    except BaseException:
        fs.rename(root_fd, hidden, session_id)
        raise
    return hidden


def remove_all_hidden(fs: FileSystem, root_fd: int, listed: Sequence[tuple[str, FileKind]]) -> None:
    """Remove what is left of removed sessions among the names in a root; what cannot be removed stays hidden."""
    for name, kind in listed:
        if kind is FileKind.DIRECTORY and name.startswith(REMOVED_PREFIX):
            with suppress(OSError, StorageError):
                remove_hidden(fs, root_fd, name)


def remove_hidden(fs: FileSystem, root_fd: int, hidden: str) -> None:
    """Remove a hidden directory, unless another process is removing it. Raises ``UnsafePath`` and OSError."""
    try:
        dir_fd = fs.open_dir(root_fd, hidden)
    except FileNotFoundError:
        return
    try:
        _remove_locked(fs, root_fd, hidden, dir_fd)
    except (BlockingIOError, FileNotFoundError):
        pass  # it is being removed by another process
    finally:
        close_quietly(fs, dir_fd)


def _remove_locked(fs: FileSystem, root_fd: int, hidden: str, dir_fd: int) -> None:
    lock_fd = open_lock(fs, dir_fd)
    try:
        fs.lock(lock_fd)
        _remove_tree(fs, dir_fd)
        fs.remove_dir(root_fd, hidden)
    finally:
        close_quietly(fs, lock_fd)


def _remove_tree(fs: FileSystem, dir_fd: int) -> None:
    """Remove all that is in a directory, a lock's file last; links are removed, not followed."""
    for name, kind in sorted(fs.list_dir(dir_fd), key=lambda entry: entry[0] == LOCK_NAME):
        if kind is not FileKind.DIRECTORY:
            fs.unlink(dir_fd, name)
            continue
        child = fs.open_dir(dir_fd, name)
        try:
            _remove_tree(fs, child)
        finally:
            close_quietly(fs, child)
        fs.remove_dir(dir_fd, name)
