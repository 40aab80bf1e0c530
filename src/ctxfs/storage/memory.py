"""A session in memory, for tests and for agents that leave nothing behind."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

from ctxfs.errors import NameTaken, NotStored, SessionClosed, SessionLocked, SessionNotFound
from ctxfs.storage.base import NewFile, check_name, check_session_name
from ctxfs.storage.failures import writing
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionFound
from ctxfs.storage.threads import run_to_completion


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
    lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)


class MemoryStore:
    """A ``Store`` in memory. It survives ``close`` as long as its ``disk`` lives; without one it gets an empty one."""

    def __init__(self, session_id: str = "memory", disk: MemoryDisk | None = None) -> None:
        self.session_id = session_id
        self.disk = disk or MemoryDisk()
        self._opened = False

    def peer(self) -> "MemoryStore":
        """Return another store of the same session, as another process would open it."""
        return MemoryStore(self.session_id, self.disk)

    async def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``."""
        if not self.disk.exists and not create:
            raise SessionNotFound(self.session_id, "memory")
        if write:
            self._become_writer()
        self.disk.exists = True
        self._opened = True

    async def close(self) -> None:
        """See ``Store.close``."""
        self._opened = False
        self._give_back()

    async def release(self) -> None:
        """See ``LeaseStore.release``."""
        self._check_open()
        self._give_back()

    async def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        self._check_open()
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

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``."""
        self._check_writer()
        await run_to_completion(lambda: self._commit(files, log))

    def _commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        written: dict[str, bytes] = {}
        with self.disk.lock:
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
            self.disk.changed_at = time.time()

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """See ``Store.replace``; here the log can be replaced too, by its name."""
        self._check_writer()
        check_name(name)
        await run_to_completion(lambda: self._replace(name, [data] if isinstance(data, bytes) else data))

    def _replace(self, name: str, chunks: Iterable[bytes]) -> None:
        with self.disk.lock, writing(name):
            data = b"".join(chunks)
            if name == LOG_NAME:
                self.disk.log[:] = data
            else:
                self.disk.files[name] = data

    async def rewrite(self, log: bytes | None = None) -> None:
        """See ``RewritingStore.rewrite``."""
        if log is not None:
            await self.replace(LOG_NAME, log)

    async def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See ``Store.read``."""
        data = self._file(name)
        return data[offset:] if length is None else data[offset : offset + length]

    async def size(self, name: str) -> int:
        """See ``Store.size``."""
        return len(self._file(name))

    async def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        self._check_open()
        return sorted(name for name in self.disk.files if name.startswith(prefix))

    async def append(self, name: str, data: bytes, *, sync: bool = False) -> None:  # noqa: ARG002 - nothing to sync
        """See ``GrowingStore.append``."""
        self._check_writer()
        check_name(name)
        self.disk.files[name] = self.disk.files.get(name, b"") + data

    async def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``."""
        self._check_writer()
        for name in names:
            check_name(name)
            self.disk.files.pop(name, None)

    async def read_log(self, offset: int = 0) -> bytes:
        """See ``Store.read_log``."""
        self._check_open()
        return bytes(self.disk.log[offset:])

    async def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        self._check_writer()
        del self.disk.log[length:]

    def _file(self, name: str) -> bytes:
        self._check_open()
        check_name(name)
        try:
            return self.disk.files[name]
        except KeyError:
            raise NotStored(name) from None

    def _check_open(self) -> None:
        if not self._opened:
            raise SessionClosed(f"session {self.session_id} is not open")

    def _check_writer(self) -> None:
        self._check_open()
        if self._writer() is not self:
            raise SessionClosed(f"session {self.session_id} is open for reading only, or its lock was released")


class MemorySessions:
    """See ``SessionStores``: sessions in this process's memory, for tests; ``name`` is shown in the ``url``."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._disks: dict[str, MemoryDisk] = defaultdict(MemoryDisk)

    @property
    def url(self) -> str:
        """``memory://`` and the name."""
        return f"memory://{self._name}"

    @property
    def directory(self) -> Path | None:
        """None: they are in no directory."""
        return None

    def store(self, session_id: str) -> MemoryStore:
        """See ``SessionStores.store``."""
        return MemoryStore(session_id, self._disks[check_session_name(session_id)])

    async def sessions(self) -> list[SessionFound]:
        """See ``SessionStores.sessions``."""
        disks = sorted(self._disks.items())
        return [SessionFound(name, str(len(disk.log)), disk.changed_at) for name, disk in disks if disk.exists]

    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - not kept
        """See ``SessionStores.remove``."""
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
