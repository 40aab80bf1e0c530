"""A bucket in memory whose requests can be lost, on their way there or on their way back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from ctxfs.errors import NotStored, StorageError, WriteFailed
from ctxfs.storage.failures import NoAnswer
from ctxfs.stores import Taken

Fate = Literal["done", "lost", "answer lost", "refused", "delayed"]
"""What becomes of a request that writes; "delayed": it is done before the next request."""


class MemoryBucket:
    """See ``Bucket``. ``fate`` decides about each request that writes, by its key."""

    def __init__(self, fate: Callable[[str], Fate] = lambda _: "done") -> None:
        self.objects: dict[str, bytes] = {}
        self.fate = fate
        self.requests: list[tuple[str, str]] = []
        self._delayed: list[Callable[[], object]] = []
        self._lock = threading.RLock()

    def create(self, key: str, data: bytes) -> None:
        def make() -> None:
            if key in self.objects:
                raise Taken(key)
            self.objects[key] = data

        self._write("create", key, make)

    def put(self, key: str, data: bytes) -> None:
        self._write("put", key, lambda: self.objects.__setitem__(key, data))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._write("delete", key, partial(self.objects.pop, key, None))

    def get(self, key: str) -> bytes:
        self._read("get", key)
        try:
            return self.objects[key]
        except KeyError:
            raise NotStored(key) from None

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        data = self.get(key)
        if not data:
            raise StorageError(f"{key} is empty")
        assert 0 <= offset < offset + size <= len(data), "stores refuse ranges past the end"
        return data[offset : offset + size]

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        self._read("list", prefix)
        yield from sorted(key for key in self.objects if key.startswith(prefix) and key > after)

    def _read(self, kind: str, key: str) -> None:
        with self._lock:
            self._arrive()
            self.requests.append((kind, key))

    def _write(self, kind: str, key: str, act: Callable[[], object]) -> None:
        with self._lock:
            self._arrive()
            self.requests.append((kind, key))
            match self.fate(key):
                case "done":
                    act()
                    return
                case "refused":
                    raise WriteFailed(key, "access denied")
                case "answer lost":
                    with suppress(Taken):
                        act()
                case "delayed":
                    self._delayed.append(act)
                case "lost":
                    pass
            raise NoAnswer(f"{key}: timed out")

    def _arrive(self) -> None:
        """What was on its way all the time arrives now."""
        delayed, self._delayed = self._delayed, []
        for act in delayed:
            with suppress(Taken):
                act()
