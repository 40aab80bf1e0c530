"""Worker threads that an interrupt of the main thread cannot break.

Ctrl-C is raised in the main thread between any two steps of Python code. ``concurrent.futures`` takes its locks in
such code: interrupted there, it keeps the lock, and a worker waits for it for ever. What the main thread does here are
single operations of C (of a ``SimpleQueue``, a list, a dict, a lock of ``_thread``), which have happened or have not.
"""

import logging
import os
import sys
import threading
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_log = logging.getLogger("ctxfs.storage")

_RUN = "run"
_CANCELLED = "cancelled"


class Work(Generic[T]):
    """A call that a thread makes, and its outcome."""

    def __init__(self, func: Callable[[], T]) -> None:
        self._func = func
        self._decided: dict[str, str] = {}
        self._value: T | None = None
        self._error: BaseException | None = None
        self._has_ended = False
        self._callbacks: list[Callable[[Work[T]], object]] = []

    def run(self) -> None:
        """Make the call in this thread, unless it was cancelled; what it raises is its outcome."""
        self.call()
        self.end()
        del self  # an error's traceback holds this frame

    def call(self) -> None:
        """The first half of ``run``: nobody is told yet."""
        if self._decide(_RUN) == _CANCELLED:
            return
        try:
            self._value = self._func()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
            self._error = error
        del self._func  # what it holds may be large
        del self  # an error's traceback holds this frame

    def cancel(self) -> bool:
        """Prevent the call, and return True, unless a thread makes it already."""
        if self._decide(_CANCELLED) == _RUN:
            return False
        self.end()
        return True

    def cancelled(self) -> bool:
        """Whether it was cancelled before a thread began with it."""
        return self._decided.get("as") == _CANCELLED

    def done(self) -> bool:
        """Whether it has ended, or was cancelled."""
        return self._has_ended

    def add_done_callback(self, callback: Callable[["Work[T]"], object]) -> None:
        """Let ``callback`` be called once it is done: in its thread, or here. What it raises is logged."""
        self._callbacks.append(callback)
        if self._has_ended:
            with suppress(ValueError):  # the thread has taken it
                self._callbacks.remove(callback)
                self._call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is done, or for ``timeout_s`` seconds (None: for ever); return whether it is."""
        if self._has_ended:
            return True
        gate = allocate_lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        gate.acquire(timeout=-1 if timeout_s is None else timeout_s)
        return self._has_ended

    def exception(self) -> BaseException | None:
        """Wait until it is done, and return what it raised. Raises ``CancelledError`` if it was cancelled."""
        if not self._has_ended:
            self.wait()
        if self.cancelled():
            raise CancelledError
        return self._error

    def result(self, timeout_s: float | None = None) -> T:
        """Wait until it is done, and return its result, or raise what it raised.

        Raises ``CancelledError`` if it was cancelled, ``TimeoutError`` after ``timeout_s`` seconds (None: never).
        """
        if not (self._has_ended or self.wait(timeout_s)):
            raise TimeoutError
        try:
            if (error := self.exception()) is not None:
                raise error
            return cast("T", self._value)
        finally:
            error = None
            del self  # an error's traceback holds this frame

    def _decide(self, decision: str) -> str:
        """Return what was decided first: ``setdefault`` asks and answers in one step."""
        return self._decided.setdefault("as", decision)

    def end(self) -> None:
        """The second half of ``run``: be done, and tell so. An interrupt may have cut a ``cancel`` before this."""
        self._has_ended = True
        with suppress(IndexError):  # each callback is taken once, here or by who adds it
            while self._callbacks:
                self._call(self._callbacks.pop())

    def _call(self, callback: Callable[["Work[T]"], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - nobody waits for it here
            _log.exception("a callback of work in a thread failed")


class Pool:
    """Some ``most`` threads, begun when they are needed; they end when nothing refers to the pool.

    A program that ends waits for the work that it handed over. A forked process has no threads of its parent: it needs
    a pool of its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._works: _Works = SimpleQueue()
        self._open: list[None] = []  # one for each work that waits or runs
        self._begun: list[int] = []

    def submit(self, work: Work[Any]) -> None:
        """Let a thread do ``work``, which waits while all of them are busy.

        Raises ``RuntimeError`` if not even one thread can be begun.
        """
        self._open.append(None)
        if len(self._begun) < min(self._most, len(self._open)):
            try:
                self._begun.append(start_new_thread(_serve, (self._works, self._open)))
            except RuntimeError:  # the system has no more, or the program ends
                if not self._begun:
                    raise
        _unended[work] = None
        self._works.put(work)  # Python looks for an interrupt after a call, so never between these two

    def __del__(self) -> None:
        """Let the threads end after what was handed to them."""
        if hasattr(self, "_works"):  # an interrupt may have hit the pool as it was made
            self._works.put(None)


_ASK_S = 0.001
_Works = SimpleQueue[Work[Any] | None]
_unended: dict[Work[Any], None] = {}
"""What a program that ends waits for."""


def _serve(works: _Works, open_works: list[None]) -> None:
    """Do one work after the other, until there is None, which the other threads of the pool get too."""
    # As ``Thread`` does, for debuggers and coverage. Python 3.11 may refuse it while another thread does the same: this
    # one is not traced then, but it serves, since who handed work over waits.
    with suppress(RuntimeError):
        if (trace := threading.gettrace()) is not None:
            sys.settrace(trace)
        if (profile := threading.getprofile()) is not None:
            sys.setprofile(profile)
    while (work := works.get()) is not None:
        work.call()
        # The thread counts as free before it calls those who wait for the work, which is short. They may hand over the
        # next work at once: if this thread counted as busy, another one would be started for it.
        open_works.pop()
        work.end()
        _unended.pop(work, None)
        del work  # its result is not kept until there is more to do
    works.put(None)


def _wait_for_all() -> None:
    """Wait until all work has ended and its callbacks were called."""
    while _unended:
        time.sleep(_ASK_S)


# As ``concurrent.futures`` does: what ``atexit`` registers does not run in the children of ``multiprocessing``.
threading._register_atexit(_wait_for_all)  # type: ignore[attr-defined] # noqa: SLF001
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unended.clear)
