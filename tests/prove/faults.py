"""A real file system whose calls fail, fall short or are the process's last, one chosen call or all from one on."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from failing_fs import FailingFileSystem

__all__ = ["ERRORS", "Fault", "FaultyFileSystem", "Killed"]

ERRORS = {name: int(getattr(errno, name)) for name in ("EIO", "ENOSPC", "EMFILE", "EROFS", "EDQUOT", "EINTR")}
OPENING = {"open_root", "open_dir", "create", "open_read", "open_append"}

Kind = Literal["error", "late", "short", "kill", "tear"]


class Killed(BaseException):
    """The process is gone: nothing that would run now runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at the call number ``at``, and with ``for_good`` at every later one.

    "error": it fails with ``error`` (``close`` closes all the same, as Linux does). "short": a write takes half of what
    it is given. "late": it happens, and fails all the same, as over a network. "kill": the process ends
    before the call. "tear": it ends in a write, half of which is done.
    """

    kind: Kind
    at: int
    error: int = errno.EIO
    for_good: bool = False

    def hits(self, number: int) -> bool:
        """Tell whether this call is one of those."""
        return number == self.at or (self.for_good and number > self.at)


class FaultyFileSystem(FailingFileSystem):
    """Does what ``fault`` says, counts where it did (``hits``), and knows which handles are open.

    ``dead``: the process was killed.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self._fault = fault
        self.dead = False
        self.hits = 0
        self.handles: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name == "process" and self.dead:
            return lambda: -1  # what is collected of a dead process closes nothing
        if name == "close":
            return lambda fd: self._close(call, fd)
        if name not in OPENING:
            return call

        def opening(*arguments: Any) -> int:
            fd: int = call(*arguments)
            self.handles.add(fd)
            return fd

        return opening

    def _close(self, call: Callable[[int], None], fd: int) -> None:
        call(fd)
        self.handles.discard(fd)

    def perform(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.dead:
            raise Killed
        fault = self._fault
        if fault is None or not fault.hits(len(self.log)):
            return method(*arguments)
        if fault.kind in {"short", "tear"} and name != "write":
            return method(*arguments)
        self.hits += 1
        match fault.kind:
            case "error":
                if name == "close":
                    method(*arguments)
                    self.handles.discard(arguments[0])
                raise OSError(fault.error, "injected")
            case "late":
                result = method(*arguments)
                if name in OPENING:
                    os.close(result)
                raise OSError(fault.error, "injected")
            case "short":
                return method(arguments[0], _half(arguments[1]))
            case "tear":
                method(arguments[0], _half(arguments[1]))
        self.dead = True
        raise Killed

    def bury(self) -> None:
        """Close what the dead process had open, as the kernel does; its locks go with it."""
        for fd in self.handles:
            with suppress(OSError):
                os.close(fd)
        self.handles.clear()


def _half(data: bytes | memoryview) -> memoryview:
    return memoryview(data)[: max(1, len(data) // 2)]
