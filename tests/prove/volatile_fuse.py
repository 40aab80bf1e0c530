"""A file system in memory that forgets what was not synced: for a power failure without one.

As a program: ``volatile_fuse.py <mount point>``; it runs until it is unmounted. Making a directory ``.lose``
anywhere in it takes back everything that was not synced: bytes of files before their fsync, names before their
directory's.
Needs /dev/fuse, fusermount3 and the package mfusepy.
"""

import errno
import itertools
import os
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import mfusepy

__all__ = ["LOSE", "VolatileFileSystem"]

LOSE = ".lose"
_numbers = itertools.count(2)


@dataclass(slots=True, eq=False)
class Node:
    """A file or a directory: as it is, and as it was when it was last synced."""

    mode: int
    number: int = field(default_factory=lambda: next(_numbers))
    links: int = 1
    changed: int = field(default_factory=time.time_ns)
    data: bytearray = field(default_factory=bytearray)
    synced_data: bytes = b""
    entries: dict[str, "Node"] = field(default_factory=dict)
    synced_entries: dict[str, "Node"] = field(default_factory=dict)

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def sync(self) -> None:
        self.synced_data = bytes(self.data)
        self.synced_entries = dict(self.entries)

    def lose(self) -> None:
        """Go back to what was synced, and so on below."""
        self.data = bytearray(self.synced_data)
        self.entries = dict(self.synced_entries)
        for node in self.entries.values():
            node.lose()


class VolatileFileSystem(mfusepy.Operations):  # type: ignore[misc]
    """The calls of the kernel; single-threaded."""

    use_ns = True

    def __init__(self) -> None:
        self.root = Node(stat.S_IFDIR | 0o700, number=1)
        self.handles: dict[int, Node] = {}
        self.next_handle = itertools.count(1)

    def _node(self, path: str, handle: int | None = None) -> Node:
        if handle is not None and handle in self.handles:
            return self.handles[handle]
        node = self.root
        for part in path.split("/"):
            if part and part not in node.entries:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = node.entries[part] if part else node
        return node

    def _above(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rpartition("/")
        return self._node(above), name

    def _handle(self, node: Node) -> int:
        handle = next(self.next_handle)
        self.handles[handle] = node
        return handle

    # ---- names

    def mkdir(self, path: str, mode: int) -> int:
        above, name = self._above(path)
        if name == LOSE:
            self.root.lose()
            raise mfusepy.FuseOSError(errno.ECANCELED)
        above.entries[name] = Node(stat.S_IFDIR | mode)
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        above, name = self._above(path)
        node = above.entries[name] = Node(stat.S_IFREG | stat.S_IMODE(mode))
        return self._handle(node)

    def link(self, target: str, source: str) -> int:
        above, name = self._above(target)
        node = above.entries[name] = self._node(source)
        node.links += 1
        return 0

    def unlink(self, path: str) -> int:
        above, name = self._above(path)
        above.entries.pop(name).links -= 1
        return 0

    def rmdir(self, path: str) -> int:
        above, name = self._above(path)
        if above.entries[name].entries:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        del above.entries[name]
        return 0

    def rename(self, old: str, new: str) -> int:
        above, name = self._above(old)
        node = above.entries.pop(name)
        target, target_name = self._above(new)
        target.entries[target_name] = node
        return 0

    def readdir(self, path: str, fh: int) -> list[Any]:
        return [".", "..", *((name, self._status(node), 0) for name, node in self._node(path).entries.items())]

    # ---- files

    def open(self, path: str, flags: int) -> int:
        return self._handle(self._node(path))

    def release(self, path: str, fh: int) -> int:
        self.handles.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._node(path, fh).data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        node = self._node(path, fh)
        node.data[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        node = self._node(path, fh)
        del node.data[length:]
        node.data.extend(bytes(length - len(node.data)))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._node(path, fh).sync()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._node(path).sync()
        return 0

    # ---- what they are

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        return self._status(self._node(path, fh))

    def chmod(self, path: str, mode: int) -> int:
        node = self._node(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def _status(self, node: Node) -> dict[str, Any]:
        return {
            "st_mode": node.mode,
            "st_ino": node.number,
            "st_nlink": 2 if node.is_dir else node.links,
            "st_size": len(node.data),
            "st_uid": os.geteuid(),
            "st_gid": os.getegid(),
            "st_mtime": node.changed,
            "st_ctime": node.changed,
            "st_atime": node.changed,
        }


if __name__ == "__main__":
    mfusepy.FUSE(
        VolatileFileSystem(),
        sys.argv[1],
        foreground=True,
        nothreads=True,
        use_ino=True,
        hard_remove=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )
