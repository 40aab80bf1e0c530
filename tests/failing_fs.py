"""A real file system on which one chosen call fails."""

import errno
from collections.abc import Callable, Sequence
from typing import Any

from ctxfs.storage.port import FileSystem, OsFileSystem

NOT_CALLS = {"process", "user"}


class FailingFileSystem:
    """Counts calls, and fails those that ``fails`` (call number from 1, its name) says; ``log`` names all of them.

    ``real`` is what performs them; None: the operating system.
    """

    def __init__(
        self,
        fails: Callable[[int, str], bool] = lambda number, name: False,
        error: int = errno.EIO,
        real: FileSystem | None = None,
    ) -> None:
        self._real = real if real is not None else OsFileSystem()
        self._fails = fails
        self._error = error
        self.armed = True
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if name in NOT_CALLS:
            return method

        def call(*arguments: Any) -> Any:
            if not self.armed:
                return method(*arguments)
            self.log.append(name)
            return self.perform(name, method, arguments)

        return call

    def perform(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._fails(len(self.log), name):
            raise OSError(self._error, "injected")
        return method(*arguments)


class ShortWrites(OsFileSystem):
    """A file system that takes at most three bytes at a time."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return super().write(fd, memoryview(data)[:3])


def as_port(fs: FailingFileSystem) -> FileSystem:
    port: Any = fs
    return port  # type: ignore[no-any-return]


def calls_of(names: Sequence[str], wanted: str) -> int:
    return sum(name == wanted for name in names)
