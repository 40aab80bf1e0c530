"""A lock between the tasks of one event loop that notices the tasks of another one."""

import asyncio
import threading
from types import TracebackType

import anyio
from anyio.lowlevel import current_token

from ctxfs.errors import SessionError


def _running_loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # trio's
        return current_token()


class LoopLock:
    """Lets one task at a time in; async context manager.

    A task that waited for a task of another event loop would wait forever. It gets a ``SessionError`` instead.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock(fast_acquire=True)
        self._guard = threading.Lock()
        self._loop: object = None
        self._tasks = 0  # the tasks that hold it or wait for it, all in ``_loop``

    async def __aenter__(self) -> None:
        loop = _running_loop()
        with self._guard:
            if self._tasks and self._loop != loop:
                raise SessionError(
                    "the session is in use in another event loop: use it in one loop at a time, for example through a "
                    "portal of anyio.from_thread"
                )
            self._loop = loop
            self._tasks += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._left()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self._left()

    def _left(self) -> None:
        with self._guard:
            self._tasks -= 1
