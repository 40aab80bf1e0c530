"""A store of one's own that can do what each must, and nothing else: it removes nothing for good."""

from collections.abc import Callable, Iterable, Sequence
from typing import Self

from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.memory import MemoryStore

__all__ = ["PlainStore"]


class PlainStore(Store):
    """A ``Store`` with the methods of that protocol only, done by one in memory."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def open(self, *, create: bool, write: bool) -> Self:
        self._memory.open(create=create, write=write)
        return self

    def close(self) -> None:
        self._memory.close()

    def release(self) -> None:
        self._memory.release()

    def acquire(self) -> bool:
        return self._memory.acquire()

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        self._memory.commit(files, log)

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        self._memory.replace(name, data)

    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        self._memory.append(name, data, sync=sync)

    def delete(self, names: Sequence[str]) -> None:
        self._memory.delete(names)

    def truncate_log(self, length: int) -> None:
        self._memory.truncate_log(length)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._memory.read(name, offset, length)

    def size(self, name: str) -> int:
        return self._memory.size(name)

    def names(self, prefix: str = "") -> list[str]:
        return self._memory.names(prefix)

    def read_log(self, offset: int = 0) -> bytes:
        return self._memory.read_log(offset)
