"""Long work in worker threads, in bounded steps: it ends when nobody waits for it, or when it has cost too much.

Code that may run for long calls ``checkpoint`` between its steps, each of which takes a few milliseconds. Work that is
started by ``run_in_steps`` of ``ctxfs.storage.threads`` then ends within a step of its caller's cancellation; elsewhere
``checkpoint`` does nothing.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Raised in a worker thread when nobody waits for its result any more."""


class Waiting:
    """Whether somebody waits for the result of some work; several threads may work for one."""

    def __init__(self) -> None:
        self._ended = False

    def end(self) -> None:
        """The result is no longer wanted: every thread that works for it ends at its next checkpoint."""
        self._ended = True

    def check(self) -> None:
        """Raise ``Abandoned`` if the result is no longer wanted."""
        if self._ended:
            raise Abandoned

    def run(self, func: Callable[[], T]) -> T:
        """Call ``func``, whose checkpoints ask this."""
        token = _waiting.set(self)
        try:
            self.check()
            return func()
        finally:
            _waiting.reset(token)


_waiting: ContextVar[Waiting | None] = ContextVar("ctxfs_waiting", default=None)


def checkpoint() -> None:
    """Raise ``Abandoned`` if this runs in a worker thread whose result is no longer wanted."""
    if (waiting := _waiting.get()) is not None:
        waiting.check()


class CpuBudget:
    """The CPU time that one call may use, over all the threads that work for it.

    Args:
        limit_s: how much, in seconds; None is no bound.
        clock: the CPU time that the calling thread has used, in seconds.
    """

    def __init__(self, limit_s: float | None, *, clock: Callable[[], float] = time.thread_time) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._spent_s = 0.0
        self._last_tick: float | None = None
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float:
        """What is left, in seconds; infinite without a bound, 0 or less when it is used up."""
        return float("inf") if self.limit_s is None else self.limit_s - self._spent_s

    def now(self) -> float:
        """Return the CPU time that the calling thread has used, in seconds."""
        return self._clock()

    def charge_since(self, start: float) -> float:
        """Take the CPU time since ``start``, by ``now`` in the same thread, off the budget; return the time now."""
        if self.limit_s is None:
            return start
        now = self._clock()
        with self._lock:
            self._spent_s += now - start
        return now

    def charge_items(self, items: Iterable[T], counts: Callable[[T], bool]) -> Iterator[T]:
        """Yield ``items`` and take the CPU time of making them off the budget, of those that ``counts``."""
        start = self.now()
        for item in items:
            if counts(item):
                self.charge_since(start)
            yield item
            del item  # before the next one is made, in the same memory
            start = self.now()

    def tick(self) -> float:
        """Charge a thread that works alone for the time since its last tick; return what is left, in seconds."""
        now = self._clock()
        if self._last_tick is not None:
            self._spent_s += now - self._last_tick
        self._last_tick = now
        return self.left_s
