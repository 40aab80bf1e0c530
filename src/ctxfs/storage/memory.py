"""A session in memory, for tests and for agents that leave nothing behind."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import ReferenceType, ref

from typing_extensions import override

from ctxfs.errors import NameTaken, NotStored, SessionClosed, SessionLocked, SessionNotFound
from ctxfs.errors.checks import names_settings
from ctxfs.storage.base import NewFile, RewritingStore, check_name, check_session_name
from ctxfs.storage.failures import writing
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionFound, SessionStores


@names_settings()
@dataclass(slots=True)
class MemoryDisk:
    """What a ``MemoryStore`` holds: a test may look at it, and damage it as a failing disk would.

    ``files`` is each file's content by name, ``log`` the session's log; ``exists`` says whether there is a session,
    ``changed_at`` when it was written to last, in seconds since the epoch.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    log: bytearray = field(default_factory=bytearray)
    exists: bool = False
    changed_at: float = 0.0
    # One that was dropped without close() holds nothing.
    writer: "ReferenceType[MemoryStore] | None" = field(default=None, init=False, repr=False)
    # The same thread may enter twice: a content that is written may be read from here.
    lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)


@names_settings()
class MemoryStore(RewritingStore):
    """A ``Store`` in memory. It survives ``close`` as long as its ``disk`` lives; without one it gets an empty one."""

    def __init__(self, session_id: str = "memory", disk: MemoryDisk | None = None) -> None:
        self.session_id = session_id
        self.disk = disk or MemoryDisk()
        self._opened = False

    def peer(self) -> "MemoryStore":
        """Return another store of the same session, as another process would open it."""
        return MemoryStore(self.session_id, self.disk)

    # ---- the one writer

    @override
    def open(self, *, create: bool, write: bool) -> Self:
        with self.disk.lock:
            if not self.disk.exists and not create:
                raise SessionNotFound(self.session_id, "memory")
            if write:
                self._become_writer()
            self.disk.exists = True
            self._opened = True
        return self

    @override
    def close(self) -> None:
        with self.disk.lock:
            self._opened = False
            self._give_back()

    @override
    def release(self) -> None:
        with self._reading():
            self._give_back()

    @override
    def acquire(self) -> bool:
        with self._reading():
            if self._writer() is not self:
                self._become_writer()
        return True

    def _become_writer(self) -> None:
        if self._writer() is not None:
            raise SessionLocked(self.session_id)
        self.disk.writer = ref(self)

    def _give_back(self) -> None:
        if self._writer() is self:
            self.disk.writer = None

    def _writer(self) -> "MemoryStore | None":
        return self.disk.writer() if self.disk.writer is not None else None

    # ---- writing

    @override
    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        written: dict[str, bytes] = {}
        with self._writing():
            for file in files:
                check_name(file.name)
                if not file.derived and (file.name in self.disk.files or file.name in written):
                    raise NameTaken(file.name)
                with writing(file.name):
                    written[file.name] = b"".join(file.chunks)
            with writing("the log"):
                line = log()
            self.disk.files.update(written)
            self.disk.log += line

    @override
    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Also of the log, by its name."""
        check_name(name)
        with self._writing(), writing(name):
            whole = data if isinstance(data, bytes) else b"".join(data)
            if name == LOG_NAME:
                self.disk.log[:] = whole
            else:
                self.disk.files[name] = whole

    @override
    def rewrite(self, log: bytes | None = None) -> None:
        if log is not None:
            self.replace(LOG_NAME, log)

    @override
    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        check_name(name)
        with self._writing():
            self.disk.files[name] = self.disk.files.get(name, b"") + data

    @override
    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        with self._writing():
            for name in names:
                self.disk.files.pop(name, None)

    @override
    def truncate_log(self, length: int) -> None:
        with self._writing():
            del self.disk.log[length:]

    # ---- reading

    @override
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self._file(name)
        return data[offset:] if length is None else data[offset : offset + length]

    @override
    def size(self, name: str) -> int:
        return len(self._file(name))

    @override
    def names(self, prefix: str = "") -> list[str]:
        with self._reading():
            return sorted(name for name in self.disk.files if name.startswith(prefix))

    @override
    def read_log(self, offset: int = 0) -> bytes:
        with self._reading():
            return bytes(self.disk.log[offset:])

    def _file(self, name: str) -> bytes:
        check_name(name)
        with self._reading():
            if name not in self.disk.files:
                raise NotStored(name)
            return self.disk.files[name]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self.disk.lock:
            if not self._opened:
                raise SessionClosed(f"session {self.session_id} is not open")
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            if self._writer() is not self:
                raise SessionClosed(f"session {self.session_id} is open for reading only, or its lock was released")
            yield
            self.disk.changed_at = time.time()


class MemorySessions(SessionStores):
    """Sessions in this process's memory, for tests; ``name`` is shown in the ``url``."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._disks: dict[str, MemoryDisk] = defaultdict(MemoryDisk)

    @property
    @override
    def url(self) -> str:
        """``memory://`` and the name."""
        return f"memory://{self._name}"

    @property
    @override
    def directory(self) -> None:
        """They are in no directory."""

    @override
    def store(self, session_id: str) -> MemoryStore:
        return MemoryStore(session_id, self._disks[check_session_name(session_id)])

    @override
    async def sessions(self) -> list[SessionFound]:
        disks = sorted(self._disks.items())
        return [
            SessionFound(name, f"{len(disk.log)}-{disk.changed_at}", disk.changed_at)
            for name, disk in disks
            if disk.exists
        ]

    @override
    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:
        """No tombstone is kept."""
        disk = self._disks[session_id]
        if not disk.exists:
            raise SessionNotFound(session_id, self.url)
        if disk.writer is not None and disk.writer() is not None:
            raise SessionLocked(session_id)
        del self._disks[session_id]


_NAMED: dict[str, MemorySessions] = {}


def stores_at(url: str) -> MemorySessions:
    """Return the sessions in this process's memory that ``url`` names, the same for each use of it."""
    return _NAMED.setdefault(url, MemorySessions(url.removeprefix("memory://")))
