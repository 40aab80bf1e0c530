"""Requests that are lost, late, or done twice, for tests of stores that several machines share."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from ctxfs.errors import CtxfsError
from ctxfs.storage.failures import NoAnswer

__all__ = ["Network"]

T = TypeVar("T")

Fate = Literal["done", "lost", "answer lost", "delayed", "overtaken", "twice", "swallowed"]
"""What becomes of a request that writes.

"lost": the server never sees it. "answer lost": it is done, and the client hears nothing. "delayed": the client hears
nothing, and it is done before its next request; "overtaken": after it. "twice": the network repeats it, and the client
hears the second answer. "swallowed": it is done, and the client neither hears an answer nor learns that there is none:
its connection stays open, and silent.
"""

FATES: tuple[Fate, ...] = ("lost", "answer lost", "delayed", "overtaken", "twice")
"""All but "done", and but "swallowed", after which only a caller that leaves goes on."""


class Network:
    """What one machine's requests that write go through; ``fates`` are those of the next ones, then all are done.

    ``holding`` True: requests are neither done nor answered until ``arrive`` is called.
    """

    def __init__(self, *fates: Fate) -> None:
        self.fates = list(fates)
        self.holding = False
        self._held: list[Callable[[], object]] = []
        self._delayed: list[Callable[[], object]] = []
        self._overtaken: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._heard = threading.Event()

    def carry(self, request: Callable[[], T]) -> T:
        """Make a request, or not, and return or raise its answer. Raises ``NoAnswer`` where the client hears none."""
        with self._lock:
            is_swallowed = self.fates[:1] == ["swallowed"]
            if is_swallowed:
                self.fates.pop(0)
                with suppress(CtxfsError):
                    request()
        if is_swallowed:
            self._heard.wait()
            raise NoAnswer("the connection was silent, and is closed now")
        with self._lock:
            if self.holding:
                self._held.append(request)
                raise NoAnswer("the request is on its way")
            self._done(self._delayed)
            overtaken, self._overtaken = self._overtaken, []
            try:
                return self._carried(request, self.fates.pop(0) if self.fates else "done")
            finally:
                self._done(overtaken)

    def arrive(self) -> None:
        """Do all requests that are on their way, however late; nobody hears their answers. Silent connections end."""
        self._heard.set()
        with self._lock:
            self.holding = False
            for waiting in (self._held, self._delayed, self._overtaken):
                self._done(waiting)

    def _carried(self, request: Callable[[], T], fate: Fate) -> T:
        match fate:
            case "done":
                return request()
            case "twice":
                with suppress(CtxfsError):
                    request()
                return request()
            case "answer lost":
                with suppress(CtxfsError):
                    request()
            case "delayed":
                self._delayed.append(request)
            case "overtaken":
                self._overtaken.append(request)
            case "lost":
                pass
        raise NoAnswer(f"no answer was heard: {fate}")

    def _done(self, waiting: list[Callable[[], object]]) -> None:
        while waiting:
            with suppress(CtxfsError):
                waiting.pop(0)()
