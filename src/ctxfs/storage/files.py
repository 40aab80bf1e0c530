"""One durable file outside any session: whole and on the medium under its name, or not there.

It has a temporary name until it is whole and on the medium.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ctxfs.errors import NameTaken, WriteFailed
from ctxfs.storage.directories import make_root
from ctxfs.storage.failures import writing
from ctxfs.storage.port import FileKind, FileSystem, OsFileSystem, close_quietly, write_all

TEMP_PREFIX = ".ctxfs-tmp-"


def write_temp(fs: FileSystem, dir_fd: int, temp: str, chunks: Iterable[bytes], *, sync: bool) -> None:
    """Write the new file ``temp``; nothing of it stays after a failure. Raises OSError and what ``chunks`` raises."""
    fd = fs.create(dir_fd, temp)
    try:
        try:
            size = 0
            for chunk in chunks:
                write_all(fs, fd, [chunk])
                if sync:  # the disk writes while the next chunk is made
                    fs.begin_sync(fd, size, len(chunk))
                size += len(chunk)
            if sync:
                fs.sync(fd)
        finally:
            fs.close(fd)
    except BaseException:
        discard_temp(fs, dir_fd, temp)
        raise


def rename_temp(fs: FileSystem, dir_fd: int, temp: str, name: str) -> None:
    """Give ``temp`` its name, replacing what has it. Raises OSError; then ``temp`` is gone."""
    try:
        fs.rename(dir_fd, temp, name)
    except BaseException:
        discard_temp(fs, dir_fd, temp)
        raise


def discard_temp(fs: FileSystem, dir_fd: int, temp: str) -> None:
    """Remove ``temp`` if that is possible; otherwise the next user of the directory removes it."""
    with suppress(OSError):
        fs.unlink(dir_fd, temp)


def write_file(path: Path, data: bytes, *, overwrite: bool, fs: FileSystem | None = None) -> None:
    """Make ``data`` durable in ``path`` (absolute), and the directories above it where they are missing.

    ``overwrite=False`` writes nothing when the file is there: with the same bytes it is reused. New files have mode
    0600, new directories 0700. Call it in a worker thread.

    Raises:
        NameTaken: something else has the name, and ``overwrite`` is false.
        WriteFailed: the bytes are not durable, or ``path`` cannot be a path; what was there before still is.

    """
    port: FileSystem = fs if fs is not None else OsFileSystem()
    with writing(str(path)):
        dir_fd = _open_parent(port, path)
        try:
            if overwrite:
                rename_temp(port, dir_fd, _temp(port, dir_fd, data), path.name)
            elif not _is_there(port, dir_fd, path, data):
                _link(port, dir_fd, path, data)
            port.sync(dir_fd)
        finally:
            close_quietly(port, dir_fd)


def _open_parent(fs: FileSystem, path: Path) -> int:
    try:
        make_root(fs, path.parent, sync=True)
        return fs.open_root(path.parent)
    except ValueError as error:  # a NUL, or what the system's encoding cannot hold
        raise WriteFailed(str(path), f"it cannot be a path: {error}") from error


def _temp(fs: FileSystem, dir_fd: int, data: bytes) -> str:
    temp = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    write_temp(fs, dir_fd, temp, [data], sync=True)
    return temp


def _link(fs: FileSystem, dir_fd: int, path: Path, data: bytes) -> None:
    temp = _temp(fs, dir_fd, data)
    try:
        fs.link(dir_fd, temp, path.name)
    except FileExistsError:  # another process was faster
        if not _is_there(fs, dir_fd, path, data):
            raise
    finally:
        discard_temp(fs, dir_fd, temp)


def _is_there(fs: FileSystem, dir_fd: int, path: Path, data: bytes) -> bool:
    """Whether the file is there with these bytes. Raises ``NameTaken`` when something else is."""
    try:
        status = fs.stat(dir_fd, path.name)
    except FileNotFoundError:
        return False
    if status.kind is not FileKind.FILE or status.size != len(data):
        raise NameTaken(str(path))
    fd = fs.open_read(dir_fd, path.name)
    try:
        position = 0
        while piece := fs.read(fd, 1 << 20, position):
            if data[position : position + len(piece)] != piece:
                raise NameTaken(str(path))
            position += len(piece)
    finally:
        close_quietly(fs, fd)
    if position != len(data):
        raise NameTaken(str(path))
    return True
