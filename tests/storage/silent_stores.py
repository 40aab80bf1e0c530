"""Sessions whose store does not say whether it took a commit: in memory, in a directory and in a bucket.

What becomes of one write is chosen; then the store is well again, or away until it is said to be back.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctxfs.errors import OutcomeUnknown, StorageError
from ctxfs.storage.base import NewFile
from ctxfs.storage.failures import NoAnswer
from ctxfs.storage.local import LocalStore
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.memory import MemoryDisk, MemorySessions, MemoryStore
from ctxfs.storage.sessions import SessionStores
from ctxfs.stores import ObjectSessions, ObjectStore
from storage.buckets import Fate, MemoryBucket

__all__ = ["PLACES", "Line", "place"]


@dataclass
class Line:
    """The way to the store: write number ``at`` meets ``fate``; then it is away, if ``breaks``.

    ``interrupt``: the user presses Ctrl-C at that moment.
    """

    at: int = 0
    fate: Literal["lost", "answer lost"] = "lost"
    interrupt: bool = False
    breaks: bool = False
    writes: int = 0
    away: bool = False
    late_s: float = 0

    def break_next(self, fate: Literal["lost", "answer lost"]) -> None:
        """Let the next write meet ``fate``, and then be away."""
        self.at = self.writes + 1
        self.fate = fate
        self.breaks = True

    def is_back_after(self, seconds: float) -> None:
        """Be well again, so much later by the clock of all machines."""
        self.away = False
        self.late_s += seconds

    @contextmanager
    def on_the_server(self) -> Iterator[None]:
        """What is stored can be read, whether or not the store is away."""
        away = self.away
        self.away = False
        try:
            yield
        finally:
            self.away = away

    def meets(self) -> Fate:
        """What the next write meets."""
        if self.away:
            return "lost"
        self.writes += 1
        if self.writes != self.at:
            return "done"
        self.away = self.breaks
        return self.fate

    def error(self) -> BaseException:
        """What the writer gets instead of an answer."""
        return KeyboardInterrupt() if self.interrupt else OutcomeUnknown("a commit", "no answer")


class _SilentMemory(MemoryStore):
    def __init__(self, line: Line, session_id: str, disk: MemoryDisk) -> None:
        super().__init__(session_id, disk)
        self._line = line

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        fate = self._line.meets()
        if fate != "lost":
            super().commit(files, log)
        if fate != "done":
            raise self._line.error()

    def acquire(self) -> bool:
        if self._line.away:
            raise StorageError("the server was not reached")
        return super().acquire()


class _SilentDirectory(LocalStore):
    def __init__(self, line: Line, root: Path, session_id: str) -> None:
        super().__init__(root, session_id)
        self._line = line

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        fate = self._line.meets()
        if fate != "lost":
            super().commit(files, log)
        if fate != "done":
            raise self._line.error()

    def acquire(self) -> bool:
        if self._line.away:
            raise StorageError("the server was not reached")
        return super().acquire()


class _MemoryPlace(MemorySessions):
    def __init__(self, line: Line) -> None:
        super().__init__("silent")
        self._line = line

    def store(self, session_id: str) -> MemoryStore:
        return _SilentMemory(self._line, session_id, self._disks[session_id])


class _DirectoryPlace(LocalSessions):
    def __init__(self, line: Line, root: Path) -> None:
        super().__init__(root)
        self._line = line
        self._root = root

    def store(self, session_id: str) -> LocalStore:
        return _SilentDirectory(self._line, self._root, session_id)


class _SilentBucket(MemoryBucket):
    def __init__(self, line: Line) -> None:
        super().__init__(lambda _: line.meets())
        self._line = line

    def _read(self, kind: str, key: str) -> None:
        if self._line.away:
            raise NoAnswer("the server was not reached")
        super()._read(kind, key)


class _LeasedSessions(ObjectSessions):
    """A writer that did not release a session keeps it for half a minute."""

    def __init__(self, line: Line) -> None:
        self._silent = _SilentBucket(line)
        self._line = line
        super().__init__(self._silent, url="s3://leased")

    def store(self, session_id: str) -> ObjectStore:
        return ObjectStore(
            self._silent, session_id, ttl_s=30, give_up_s=0, clock=lambda: time.time() + self._line.late_s
        )


PLACES = ("memory", "a directory", "a bucket", "a leased bucket")


def place(kind: str, line: Line, root: Path) -> SessionStores:
    """Where sessions are, behind ``line``; ``root`` is an empty directory."""
    match kind:
        case "memory":
            return _MemoryPlace(line)
        case "a directory":
            return _DirectoryPlace(line, root)
        case "a leased bucket":
            return _LeasedSessions(line)
        case _:
            return ObjectSessions(_SilentBucket(line), url="s3://silent", ttl_s=0, give_up_s=0)
