"""The open directories of a session that is being written."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ctxfs.errors import UnsafePath
from ctxfs.storage.failures import opening
from ctxfs.storage.port import FileKind, FileStat, FileSystem, close_quietly

MAX_OPEN = 64

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    fd: int
    identity: tuple[int, int]


class Directories:
    """Handles of directories below ``root_fd``, made when first used and kept for the next use."""

    def __init__(self, fs: FileSystem, root_fd: int, *, sync: bool) -> None:
        self._fs = fs
        self._root_fd = root_fd
        self._sync_enabled = sync
        self._entries: dict[Parts, _Entry] = {}

    def get(self, parts: Parts) -> int:
        """Return a directory's handle, valid until the next call.

        Raises ``UnsafePath`` for a link, a file or another user's directory, or when the directory was
        moved away meanwhile.
        """
        if len(self._entries) + len(parts) > MAX_OPEN:
            self.close()
        fd = self._root_fd
        for depth in range(1, len(parts) + 1):
            fd = self._child(fd, parts[:depth])
        return fd

    def _child(self, parent: int, parts: Parts) -> int:
        entry = self._entries.get(parts)
        if entry is None:
            entry = self._entries[parts] = self._open(parent, parts)
        elif not self._is_there(parent, parts[-1], entry):
            self.close()
            raise UnsafePath("/".join(parts), "was moved away while the session was open")
        return entry.fd

    def _is_there(self, parent: int, name: str, entry: _Entry) -> bool:
        try:
            return self._fs.stat(parent, name).identity == entry.identity
        except FileNotFoundError:
            return False

    def _open(self, parent: int, parts: Parts) -> _Entry:
        name = parts[-1]
        where = "/".join(parts)
        with suppress(FileExistsError):
            self._fs.make_dir(parent, name)
        with opening(where):
            fd = self._fs.open_dir(parent, name)
        try:
            status = self._fs.stat_handle(fd)
            check_owner(self._fs, where, status)
            if self._sync_enabled:  # also if it existed: the process that made it may have died before this
                self._fs.sync(parent)
        except BaseException:
            close_quietly(self._fs, fd)
            raise
        return _Entry(fd, status.identity)

    def sync(self, parts: Parts) -> None:
        """Bring a directory's names to the medium. After a failure its handle is not used again."""
        if not self._sync_enabled:
            return
        fd = self.get(parts)
        try:
            self._fs.sync(fd)
        except BaseException:
            if parts:
                close_quietly(self._fs, self._entries.pop(parts).fd)
            raise

    def close(self) -> None:
        """Close all handles; they are opened again when they are used."""
        while self._entries:
            _, entry = self._entries.popitem()
            close_quietly(self._fs, entry.fd)


def check_file(fs: FileSystem, name: str, status: FileStat) -> None:
    """Raise ``UnsafePath`` for what is not a regular file, or belongs to another user."""
    if status.kind is not FileKind.FILE:
        raise UnsafePath(name, "is not a regular file")
    check_owner(fs, name, status)


def check_owner(fs: FileSystem, name: str, status: FileStat) -> None:
    """Raise ``UnsafePath`` when what is there is not ours."""
    if status.owner != fs.user():
        raise UnsafePath(name, "belongs to another user")


def check_only_name(name: str, status: FileStat) -> None:
    """Raise ``UnsafePath`` when a file that is written in place has a second name, which may lie anywhere."""
    if status.links > 1:
        raise UnsafePath(name, "has a second name (a hard link), under which its bytes would change too: copy it")


def make_root(fs: FileSystem, path: Path, *, sync: bool) -> None:
    """Make a directory and what is missing above it, each synced into its parent. Raises OSError."""
    missing = _is_missing(fs, path)
    if missing:
        if path != path.parent:
            make_root(fs, path.parent, sync=sync)
        with suppress(FileExistsError):  # another process was faster
            fs.make_root(path)
    if sync:  # also if it existed: the process that made it may have died before this
        try:
            parent = fs.open_root(path.parent)
        except PermissionError:
            if missing:
                raise
            return  # not made by us, who may not look into it
        try:
            fs.sync(parent)
        finally:
            close_quietly(fs, parent)


def _is_missing(fs: FileSystem, path: Path) -> bool:
    try:
        close_quietly(fs, fs.open_root(path))
    except FileNotFoundError:
        return True
    except OSError:
        pass  # opening it raises what is wrong with it
    return False


def may_hold(directory: str, prefix: str) -> bool:
    """Whether names below ``directory`` can start with ``prefix``."""
    return directory.startswith(prefix) or prefix.startswith(directory)
