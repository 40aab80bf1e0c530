"""A disk in memory that knows what a crash may leave of it: the real code runs on it, through the file system port.

What a crash may do here, which is more than file systems that follow POSIX do:

- Bytes that were not synced: of every write and truncation since the file's last sync any subset is there. A write may
  be torn: cut after its first byte, in the middle, before its last byte or after a line inside it, all zeros, or zeros
  in its first or second half (the size came to the medium, the bytes did not). Of more than three writes to one file
  without a sync (only exports make so many; neighbours count as one until there are eight): every beginning with its
  last write torn in any way, any one of them torn, any two of them lost.
- Names that were not synced: of all changes to a directory since its own last sync any subset is there, in order. A
  rename is one change. The sync of a file does not bring its name, the sync of a directory not its files' bytes.
- What was synced is there. Bytes come never late: what a crash left is what later reads find.

The lock file's bytes, which nothing depends on, are there or not, and never torn.
"""

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Literal

from ctxfs.storage.lock_file import LOCK_NAME
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileKind, FileStat

__all__ = ["Captured", "CrashDisk", "State", "kind_of_sync"]

ROOT_INO = 1
OWNER = 1000
ALL_SUBSETS = 10
ALL_WRITES = 3
MAX_WRITES = 8
STALE_AT = 0.0

CUT: Literal["cut"] = "cut"
Form = bytes | Literal["cut"]
"""The bytes of a write, or what stands for a cut."""

Change = tuple[tuple[str, int | None], ...]
"""What one operation does to the names of a directory, atomically."""


@dataclass(frozen=True, slots=True)
class DirNode:
    """A directory: its names now, as they are on the medium, and the changes between."""

    names: Mapping[str, int]
    durable: Mapping[str, int]
    pending: tuple[Change, ...] = ()

    def changed(self, change: Change) -> "DirNode":
        return DirNode(_after(self.names, change), self.durable, (*self.pending, change))

    def synced(self) -> "DirNode":
        return DirNode(self.names, self.names)

    def outcomes(self) -> list[dict[str, int]]:
        found: dict[frozenset[tuple[str, int]], dict[str, int]] = {}
        for subset in _subsets(len(self.pending)):
            names = dict(self.durable)
            for index in subset:
                names = _after(names, self.pending[index])
            found.setdefault(frozenset(names.items()), names)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class DataChange:
    """A write of ``data`` at ``offset``, or (``CUT``) a cut to ``offset`` bytes."""

    offset: int
    data: Form

    def apply(self, before: bytes, data: Form) -> bytes:
        if data == "cut":
            return before[: self.offset].ljust(self.offset, b"\0")
        return before.ljust(self.offset, b"\0")[: self.offset] + data + before[self.offset + len(data) :]

    def forms(self, *, torn: bool) -> list[Form]:
        """What may have come of a write's bytes, the whole form last."""
        if self.data == "cut" or not torn:
            return [self.data]
        data, size = self.data, len(self.data)
        half = size // 2
        lines = [position + 1 for position in range(size - 1) if data[position] == 10][:2]
        cuts = [data[:cut] for cut in (1, half, size - 1, *lines) if 0 < cut < size]
        zeros = [bytes(size), data[:half] + bytes(size - half), bytes(half) + data[half:]]
        return list(dict.fromkeys([*cuts, *zeros, data]))


@dataclass(frozen=True, slots=True)
class FileNode:
    """A file: its bytes now, as they are on the medium, and the changes between."""

    data: bytes
    durable: bytes
    torn: bool = True
    is_log: bool = False
    pending: tuple[DataChange, ...] = ()
    modified_at: float = STALE_AT

    def changed(self, change: DataChange) -> "FileNode":
        return replace(self, data=change.apply(self.data, change.data), pending=(*self.pending, change))

    def synced(self) -> "FileNode":
        return replace(self, durable=self.data, pending=())

    def outcomes(self) -> list[bytes]:
        changes = _joined(self.pending)
        forms = [change.forms(torn=self.torn) for change in changes]
        choices = product(*([None, *some] for some in forms)) if len(forms) <= ALL_WRITES else _some_choices(forms)
        return list(dict.fromkeys(self._left_by(changes, choice) for choice in choices))

    def _left_by(self, changes: Sequence[DataChange], choice: Sequence[Form | None]) -> bytes:
        data = self.durable
        for change, form in zip(changes, choice, strict=True):
            if form is not None:
                data = change.apply(data, form)
        return data


def _joined(changes: Sequence[DataChange]) -> Sequence[DataChange]:
    """Join neighbours until no more than ``MAX_WRITES`` are left; a file that was also cut keeps its changes apart."""
    if len(changes) <= MAX_WRITES or not _only_appended(changes):
        return changes
    size = -(-len(changes) // MAX_WRITES)
    groups = [changes[start : start + size] for start in range(0, len(changes), size)]
    data = [b"".join(change.data for change in group if isinstance(change.data, bytes)) for group in groups]
    return [DataChange(group[0].offset, joined) for group, joined in zip(groups, data, strict=True)]


def _only_appended(changes: Sequence[DataChange]) -> bool:
    end = changes[0].offset
    for change in changes:
        if not isinstance(change.data, bytes) or change.offset != end:
            return False
        end += len(change.data)
    return True


def _some_choices(forms: Sequence[Sequence[Form]]) -> Iterator[list[Form | None]]:
    """Every beginning, its last write in any form; every one or two writes lost; every one write torn."""
    whole: list[Form | None] = [some[-1] for some in forms]
    for position, some in enumerate(forms):
        for form in some:
            yield [*whole[:position], form, *([None] * (len(forms) - position - 1))]
            yield [*whole[:position], form, *whole[position + 1 :]]
        yield [*whole[:position], None, *whole[position + 1 :]]
    for lost in combinations(range(len(forms)), 2):
        yield [None if position in lost else form for position, form in enumerate(whole)]
    yield [None] * len(forms)


Node = DirNode | FileNode


@dataclass(frozen=True)
class State:
    """What is on the medium after a crash.

    Every path, those above first, with its bytes (None: a directory) and a number that the names of one file share.
    """

    entries: tuple[tuple[str, bytes | None, int], ...]

    @cached_property
    def key(self) -> bytes:
        """Differs between any two states that the code could tell apart."""
        digest = hashlib.blake2b(digest_size=16)
        numbers: dict[int, int] = {}
        for path, data, ino in sorted((_canonical(path), data, ino) for path, data, ino in self.entries):
            content = b"/" if data is None else hashlib.blake2b(data, digest_size=16).digest()
            digest.update(b"%b\0%b%d" % (path.encode(), content, numbers.setdefault(ino, len(numbers))))
        return digest.digest()

    @cached_property
    def files(self) -> dict[str, bytes | None]:
        """By path."""
        return {path: data for path, data, _ in self.entries}


class Captured:
    """A disk at one moment, and what a crash at this moment may leave."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes

    def states(self) -> Iterator[State]:
        """Every state, once."""
        outcomes: dict[int, list[bytes]] = {}
        for layout in self._layouts(ROOT_INO, ""):
            files = sorted({ino for _, ino in layout if isinstance(self._nodes[ino], FileNode)})
            for ino in files:
                if ino not in outcomes:
                    node = self._nodes[ino]
                    assert isinstance(node, FileNode)
                    outcomes[ino] = node.outcomes()
            for contents in product(*(outcomes[ino] for ino in files)):
                data = dict(zip(files, contents, strict=True))
                yield State(tuple((path, data.get(ino), ino) for path, ino in layout))

    def survived(self, process: int) -> "CrashDisk":
        """Return the disk as another process finds it when only the one that wrote was killed."""
        disk = CrashDisk(process=process)
        disk.take_over(self._nodes)
        return disk

    def _layouts(self, ino: int, above: str) -> Iterator[list[tuple[str, int]]]:
        node = self._nodes[ino]
        assert isinstance(node, DirNode)
        for names in node.outcomes():
            below = [self._entry(f"{above}/{name}", child) for name, child in names.items()]
            for parts in product(*below):
                yield [entry for part in parts for entry in part]

    def _entry(self, path: str, ino: int) -> list[list[tuple[str, int]]]:
        if isinstance(self._nodes[ino], FileNode):
            return [[(path, ino)]]
        return [[(path, ino), *layout] for layout in self._layouts(ino, path)]


def kind_of_sync(node: Node) -> str:
    """Name what a sync is for: "directory", "journal" or "content"."""
    if isinstance(node, DirNode):
        return "directory"
    return "journal" if node.is_log else "content"


class CrashDisk:
    """A ``FileSystem`` in memory.

    ``before_sync`` is called before every sync takes effect: between two syncs a later moment can leave all that an
    earlier one can. ``before_change`` is called before everything that changes the disk, syncs too. ``syncs`` decides
    by the kind whether a sync does anything; a broken disk, for controls.
    """

    def __init__(self, state: State | None = None, *, process: int = 1) -> None:
        self._nodes: dict[int, Node] = {ROOT_INO: DirNode({}, {})}
        self._next_ino = ROOT_INO + 1
        self._next_fd = 3
        self._handles: dict[int, int] = {}
        self._locks: dict[int, int] = {}
        self._process = process
        self.before_sync: Callable[[], None] = lambda: None
        self.before_change: Callable[[], None] = lambda: None
        self.syncs: Callable[[str], bool] = lambda kind: True
        self.calls = 0
        self.now = STALE_AT
        self._links: dict[int, int] = {}
        placed: dict[int, int] = {}
        for path, data, number in state.entries if state is not None else ():
            self._place(path, data, number, placed)
        self.sync_all()

    def _place(self, path: str, data: bytes | None, number: int, placed: dict[int, int]) -> None:
        parent, _, name = path.rpartition("/")
        above = self._walk(Path(parent or "/"))
        if number in placed:
            self._change(above, ((name, placed[number]),))
        else:
            placed[number] = self._add(above, name, DirNode({}, {}) if data is None else _new_file(name, data))

    # ---- what a proof does with it

    def capture(self) -> Captured:
        """Keep this moment."""
        return Captured(dict(self._nodes))

    def kill(self) -> None:
        """End the process: its handles and locks are gone, what it wrote is in the system's cache."""
        self._handles.clear()
        self._locks.clear()
        self._process += 1

    def forget_locks(self) -> None:
        """Let go of every lock, as a file system does that has none: who held one does not learn of it."""
        self._locks.clear()

    def take_over(self, nodes: Mapping[int, Node]) -> None:
        """Be as another disk was: the same files, synced and not."""
        self._nodes = dict(nodes)
        self._next_ino = max(nodes) + 1
        directories = [node for node in nodes.values() if isinstance(node, DirNode)]
        self._links = dict(Counter(ino for node in directories for ino in node.names.values()))

    def unsynced(self) -> int:
        """Count the changes that a power failure would undo."""
        return sum(len(node.pending) for node in self._nodes.values())

    def sync_all(self) -> None:
        """Bring everything to the medium."""
        self._nodes = {ino: node.synced() for ino, node in self._nodes.items()}

    def contents(self) -> State:
        """What a program sees now."""
        return next(Captured({ino: node.synced() for ino, node in self._nodes.items()}).states())

    # ---- the port

    def process(self) -> int:
        return self._process

    def user(self) -> int:
        return OWNER

    def open_root(self, path: Path) -> int:
        ino = self._walk(path)
        self._dir(ino)
        return self._handle(ino)

    def make_root(self, path: Path) -> None:
        above = self._walk(path.parent)
        self._make_dir(above, path.name)

    def open_dir(self, dir_fd: int, name: str) -> int:
        ino = self._find(self._handles[dir_fd], name)
        self._dir(ino)
        return self._handle(ino)

    def make_dir(self, dir_fd: int, name: str) -> None:
        self._make_dir(self._handles[dir_fd], name)

    def create(self, dir_fd: int, name: str) -> int:
        self._must_be_free(self._handles[dir_fd], name)
        node = replace(_new_file(name, b""), modified_at=self.now)
        return self._handle(self._add(self._handles[dir_fd], name, node))

    def open_read(self, dir_fd: int, name: str) -> int:
        ino = self._find(self._handles[dir_fd], name)
        self._file(ino)
        return self._handle(ino)

    def open_append(self, dir_fd: int, name: str) -> int:
        return self.open_read(dir_fd, name)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        ino = self._handles[fd]
        node = self._file(ino)
        self.before_change()
        self._nodes[ino] = node.changed(DataChange(len(node.data), bytes(data)))
        return len(data)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        return self._file(self._handles[fd]).data[offset : offset + length]

    def truncate(self, fd: int, length: int) -> None:
        ino = self._handles[fd]
        node = self._file(ino)
        if len(node.data) != length:
            self.before_change()
            self._nodes[ino] = node.changed(DataChange(length, CUT))

    def begin_sync(self, fd: int, offset: int, length: int) -> None:
        """Nothing: what is written may reach the medium, or not, at any time anyway."""

    def sync(self, fd: int) -> None:
        ino = self._handles[fd]
        node = self._nodes[ino]
        if self.syncs(kind_of_sync(node)):
            self.before_change()
            self.before_sync()
            self._nodes[ino] = node.synced()

    def close(self, fd: int) -> None:
        ino = self._handles.pop(fd)
        if self._locks.get(ino) == fd:
            del self._locks[ino]

    def link(self, dir_fd: int, source: str, target: str) -> None:
        above = self._handles[dir_fd]
        self._must_be_free(above, target)
        self._change(above, ((target, self._find(above, source)),))

    def link_across(self, source_fd: int, dir_fd: int, name: str) -> None:
        above = self._handles[dir_fd]
        self._must_be_free(above, name)
        self._change(above, ((name, self._find(self._handles[source_fd], name)),))

    def rename(self, dir_fd: int, source: str, target: str) -> None:
        above = self._handles[dir_fd]
        ino = self._find(above, source)
        replaced = self._dir(above).names.get(target)
        if replaced is not None and isinstance(node := self._nodes[replaced], DirNode) and node.names:
            raise _error(errno.ENOTEMPTY, target)
        self._change(above, ((source, None), (target, ino)))

    def unlink(self, dir_fd: int, name: str) -> None:
        above = self._handles[dir_fd]
        self._file(self._find(above, name))
        self._change(above, ((name, None),))

    def remove_dir(self, dir_fd: int, name: str) -> None:
        above = self._handles[dir_fd]
        if self._dir(self._find(above, name)).names:
            raise _error(errno.ENOTEMPTY, name)
        self._change(above, ((name, None),))

    def list_dir(self, dir_fd: int) -> list[tuple[str, FileKind]]:
        names = self._dir(self._handles[dir_fd]).names
        return sorted(((name, self._kind(ino)) for name, ino in names.items()), key=lambda entry: entry[0])

    def stat(self, dir_fd: int, name: str) -> FileStat:
        return self._stat(self._find(self._handles[dir_fd], name))

    def stat_handle(self, fd: int) -> FileStat:
        return self._stat(self._handles[fd])

    def set_dir_mode(self, fd: int) -> None:
        self._dir(self._handles[fd])

    def lock(self, fd: int) -> None:
        if self._locks.setdefault(self._handles[fd], fd) != fd:
            raise _error(errno.EAGAIN, "locked")

    def unlock(self, fd: int) -> None:
        if self._locks.get(self._handles[fd]) == fd:  # one who lost the lock gives away no other's
            del self._locks[self._handles[fd]]

    # ---- inside

    def _walk(self, path: Path) -> int:
        ino = ROOT_INO
        for name in path.parts[1:]:
            ino = self._find(ino, name)
        return ino

    def _find(self, above: int, name: str) -> int:
        ino = self._dir(above).names.get(name)
        if ino is None:
            raise _error(errno.ENOENT, name)
        return ino

    def _dir(self, ino: int) -> DirNode:
        node = self._nodes[ino]
        if not isinstance(node, DirNode):
            raise _error(errno.ENOTDIR, "")
        return node

    def _file(self, ino: int) -> FileNode:
        node = self._nodes[ino]
        if not isinstance(node, FileNode):
            raise _error(errno.EISDIR, "")
        return node

    def _must_be_free(self, above: int, name: str) -> None:
        if name in self._dir(above).names:
            raise _error(errno.EEXIST, name)

    def _make_dir(self, above: int, name: str) -> None:
        self._must_be_free(above, name)
        self._add(above, name, DirNode({}, {}))

    def _add(self, above: int, name: str, node: Node) -> int:
        ino = self._next_ino
        self._next_ino += 1
        self._change(above, ((name, ino),))
        self._nodes[ino] = node
        return ino

    def _change(self, above: int, change: Change) -> None:
        self.before_change()
        before = self._dir(above)
        for name, ino in change:
            if (gone := before.names.get(name)) is not None:
                self._links[gone] -= 1
            if ino is not None:
                self._links[ino] = self._links.get(ino, 0) + 1
        self._nodes[above] = before.changed(change)

    def _handle(self, ino: int) -> int:
        self._next_fd += 1
        self._handles[self._next_fd] = ino
        return self._next_fd

    def _kind(self, ino: int) -> FileKind:
        return FileKind.DIRECTORY if isinstance(self._nodes[ino], DirNode) else FileKind.FILE

    def _stat(self, ino: int) -> FileStat:
        node = self._nodes[ino]
        is_dir = isinstance(node, DirNode)
        size = 0 if isinstance(node, DirNode) else len(node.data)
        mode = 0o700 if is_dir else 0o600
        links = 1 if is_dir else self._links[ino]
        return FileStat(kind=self._kind(ino), mode=mode, owner=OWNER, size=size, identity=(1, ino), links=links)


def _new_file(name: str, data: bytes) -> FileNode:
    return FileNode(data, data, torn=name != LOCK_NAME, is_log=name == LOG_NAME)


def _after(names: Mapping[str, int], change: Change) -> dict[str, int]:
    found = dict(names)
    for name, ino in change:
        if ino is None:
            found.pop(name, None)
        else:
            found[name] = ino
    return found


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """All subsets; of more than ``ALL_SUBSETS`` (only disks that do not sync have so many) those near none and all."""
    everything = tuple(range(count))
    if count <= ALL_SUBSETS:
        sizes = [*range(count + 1)]
        yield from (subset for size in sizes for subset in combinations(everything, size))
        return
    for missing in range(3):
        for left in combinations(everything, missing):
            yield tuple(index for index in everything if index not in left)
            yield left


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


def _canonical(path: str) -> str:
    """Names that are drawn at random, told by their beginning alone."""
    parts = [part[:14] if part.startswith(".ctxfs-import-") else part for part in path.split("/")]
    return "/".join(parts)
