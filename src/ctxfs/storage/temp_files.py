"""A file under a temporary name: whole and on the medium before it gets the name that readers look for."""

from collections.abc import Iterable
from contextlib import suppress

from ctxfs.storage.port import FileSystem, write_all

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
