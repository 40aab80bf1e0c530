"""The file system as the local store sees it: about twenty synchronous calls, each one system call.

Everything is relative to an open directory, and no call follows a link in its last component. The store is written
against this port, so that a simulator, a fault injector or another system can take its place; what differs between
systems stays in this module.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from ctxfs.errors import ConfigError

if sys.platform != "win32":
    import fcntl

DIR_MODE = 0o700
FILE_MODE = 0o600


class FileKind(Enum):
    """What a name stands for."""

    FILE = auto()
    DIRECTORY = auto()
    LINK = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What the store needs to know of a file. ``identity`` differs between any two that exist at the same time.

    ``links`` counts the names of a file; 1 if it is not a regular one. ``modified_at`` is in seconds since the epoch.
    """

    kind: FileKind
    mode: int
    owner: int
    size: int
    identity: tuple[int, int]
    links: int = 1
    modified_at: float = 0.0


class FileSystem(Protocol):
    """System calls. Handles are integers; every method raises OSError and nothing else."""

    def process(self) -> int:
        """Return a number that differs in a forked child."""

    def user(self) -> int:
        """Return the owner that new files get."""

    def open_root(self, path: Path) -> int:
        """Open a directory by its absolute path; links in it are the user's and are followed."""

    def make_root(self, path: Path) -> None:
        """Make one directory by its absolute path, mode 0700."""

    def open_dir(self, dir_fd: int, name: str) -> int:
        """Open a directory; not through a link."""

    def make_dir(self, dir_fd: int, name: str) -> None:
        """Make a directory, mode 0700 under any umask."""

    def create(self, dir_fd: int, name: str) -> int:
        """Create a file for writing, mode 0600 under any umask. FileExistsError if the name is taken, by a link too."""

    def open_read(self, dir_fd: int, name: str) -> int:
        """Open a file for reading; not through a link, and never blocking on a pipe."""

    def open_append(self, dir_fd: int, name: str) -> int:
        """Open an existing file for reading and appending; not through a link."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write at the handle's end; may write less than asked for. Returns the number of bytes written."""

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Read up to ``length`` bytes at ``offset``."""

    def truncate(self, fd: int, length: int) -> None:
        """Cut the file to ``length`` bytes."""

    def begin_sync(self, fd: int, offset: int, length: int) -> None:
        """Have the system begin to write out some bytes of a file, if it can; ``sync`` alone promises anything."""

    def sync(self, fd: int) -> None:
        """Bring a file's bytes, or a directory's names, to the medium."""

    def close(self, fd: int) -> None:
        """Close a handle."""

    def link(self, dir_fd: int, source: str, target: str) -> None:
        """Give a file a second name in its directory. FileExistsError if ``target`` is taken."""

    def rename(self, dir_fd: int, source: str, target: str) -> None:
        """Rename within a directory, replacing ``target``."""

    def unlink(self, dir_fd: int, name: str) -> None:
        """Remove a name."""

    def remove_dir(self, dir_fd: int, name: str) -> None:
        """Remove an empty directory."""

    def list_dir(self, dir_fd: int) -> list[tuple[str, FileKind]]:
        """List a directory, in no order: names, and what they stand for."""

    def stat(self, dir_fd: int, name: str) -> FileStat:
        """Look at a name; not through a link."""

    def stat_handle(self, fd: int) -> FileStat:
        """Look at what is open."""

    def set_dir_mode(self, fd: int) -> None:
        """Set an open directory's mode to 0700."""

    def lock(self, fd: int) -> None:
        """Take the exclusive lock. BlockingIOError if another handle holds it."""

    def unlock(self, fd: int) -> None:
        """Release the lock, also for copies of the handle in forked children."""


class OsFileSystem(FileSystem):
    """The real file system: Linux and macOS.

    On macOS ``sync`` is F_FULLFSYNC where the file system has it, because fsync leaves the bytes in the drive's cache.
    Windows has no handles of directories to be relative to; it needs another implementation of ``FileSystem``.
    """

    def __init__(self) -> None:
        if os.name == "nt":
            raise ConfigError("sessions on the local disk need Linux or macOS: give another store, as MemoryStore")

    @override
    def process(self) -> int:
        return os.getpid()

    @override
    def user(self) -> int:
        return os.geteuid()

    @override
    def open_root(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    @override
    def make_root(self, path: Path) -> None:
        os.mkdir(path, DIR_MODE)  # noqa: PTH102 - one system call

    @override
    def open_dir(self, dir_fd: int, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)

    @override
    def make_dir(self, dir_fd: int, name: str) -> None:
        """Make, and set the mode where the umask took too much."""
        os.mkdir(name, DIR_MODE, dir_fd=dir_fd)
        if stat.S_IMODE(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode) != DIR_MODE:
            os.chmod(name, DIR_MODE, dir_fd=dir_fd)

    @override
    def create(self, dir_fd: int, name: str) -> int:
        """Create with O_EXCL, and set the mode where the umask took too much."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        fd = os.open(name, flags, FILE_MODE, dir_fd=dir_fd)
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
                os.fchmod(fd, FILE_MODE)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=dir_fd)
            with suppress(OSError):
                os.close(fd)
            raise
        return fd

    @override
    def open_read(self, dir_fd: int, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)

    @override
    def open_append(self, dir_fd: int, name: str) -> int:
        return os.open(name, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)

    @override
    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    @override
    def read(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    @override
    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    @override
    def begin_sync(self, fd: int, offset: int, length: int) -> None:
        """Begin: on Linux, advice on pages that are not written yet does that, and leaves them in memory."""
        if sys.platform == "linux":
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    @override
    def sync(self, fd: int) -> None:
        if sys.platform == "darwin":
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError as error:
                if error.errno not in {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}:
                    raise
                os.fsync(fd)  # all that a network's file system offers
        else:
            os.fsync(fd)

    @override
    def close(self, fd: int) -> None:
        os.close(fd)

    @override
    def link(self, dir_fd: int, source: str, target: str) -> None:
        os.link(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def link_across(self, source_fd: int, dir_fd: int, name: str) -> None:
        """Give the file ``name`` of one directory the same name in another one; a port need not have this."""
        os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    @override
    def rename(self, dir_fd: int, source: str, target: str) -> None:
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    @override
    def unlink(self, dir_fd: int, name: str) -> None:
        os.unlink(name, dir_fd=dir_fd)

    @override
    def remove_dir(self, dir_fd: int, name: str) -> None:
        os.rmdir(name, dir_fd=dir_fd)

    @override
    def list_dir(self, dir_fd: int) -> list[tuple[str, FileKind]]:
        with os.scandir(dir_fd) as entries:
            return [(entry.name, _entry_kind(entry)) for entry in entries]

    @override
    def stat(self, dir_fd: int, name: str) -> FileStat:
        return _file_stat(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))

    @override
    def stat_handle(self, fd: int) -> FileStat:
        return _file_stat(os.fstat(fd))

    @override
    def set_dir_mode(self, fd: int) -> None:
        os.fchmod(fd, DIR_MODE)

    @override
    def lock(self, fd: int) -> None:
        """Take flock's lock: lockf's is lost when any other descriptor of the file is closed."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @override
    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


def write_all(fs: FileSystem, fd: int, chunks: Iterable[bytes]) -> None:
    """Write every byte, however little the system takes at a time. Raises OSError."""
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            written = fs.write(fd, rest)
            if written <= 0:
                raise OSError(errno.EIO, "the system wrote no bytes")
            rest = rest[written:]


def close_quietly(fs: FileSystem, fd: int) -> None:
    """Close a handle through which nothing was written that is not synced: the handle is gone even when that fails."""
    with suppress(OSError):
        fs.close(fd)


def _entry_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return FileKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return FileKind.DIRECTORY
    return FileKind.FILE if entry.is_file(follow_symlinks=False) else FileKind.OTHER


_KINDS = {stat.S_IFREG: FileKind.FILE, stat.S_IFDIR: FileKind.DIRECTORY, stat.S_IFLNK: FileKind.LINK}


def _file_stat(result: os.stat_result) -> FileStat:
    kind = _KINDS.get(stat.S_IFMT(result.st_mode), FileKind.OTHER)
    return FileStat(
        kind=kind,
        mode=stat.S_IMODE(result.st_mode),
        owner=result.st_uid,
        size=result.st_size,
        identity=(result.st_dev, result.st_ino),
        links=result.st_nlink if kind is FileKind.FILE else 1,
        modified_at=result.st_mtime,
    )


_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES})


def link_across(fs: FileSystem, source_fd: int, dir_fd: int, name: str) -> bool:
    """Give a file the same name in another directory, if the disk and ``fs`` can do that; false: copy it instead."""
    link = getattr(fs, "link_across", None)
    if link is None:
        return False
    try:
        link(source_fd, dir_fd, name)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return False
    return True
