"""A lock between the tasks of one event loop that notices the tasks of another one, and those that cannot leave it."""

import asyncio
import inspect
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import anyio
from anyio.lowlevel import current_token

from ctxfs.errors import SessionError
from ctxfs.storage.threads import ASK_S, caller, raise_if_cancelled


@dataclass(slots=True, eq=False)
class _Turn:
    """A task that holds the lock or waits for it; ``event`` is set when it may look whether it holds it."""

    loop: object
    task: Any
    event: anyio.Event | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its task has ended, or never goes on."""
        if isinstance(self.loop, asyncio.AbstractEventLoop):
            return bool(self.task.done() or self.loop.is_closed())
        return inspect.getcoroutinestate(self.task) == inspect.CORO_CLOSED  # trio's


class LoopLock:
    """Lets one task at a time in; async context manager.

    A task that waited for a task of another event loop would wait forever. It gets a ``SessionError`` instead.

    An interrupt that hits the entry of ``__aexit__`` keeps the lock taken. So nobody waits for a task that has ended;
    nor does a task wait for itself, or for the caller that waits for its uninterrupted work: they take the lock again.
    No holder may call code of others that takes it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: list[_Turn] = []  # the first one holds the lock, the others wait; all are of one event loop

    async def __aenter__(self) -> None:
        await raise_if_cancelled()
        turn = _Turn(*_here())
        try:
            self._begin(turn)
            while self._turns[0] is not turn:
                event = anyio.Event()
                turn.event = event
                with anyio.move_on_after(ASK_S):  # nobody tells that a task has ended
                    await event.wait()
                self._drop_ended()
        except BaseException:
            self._end(turn)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _, task = _here()
        for turn in self._turns:
            if turn.task is task:
                self._end(turn)
                return

    def _begin(self, turn: _Turn) -> None:
        left = (turn.task, caller())
        with self._guard:
            self._turns = [other for other in self._turns if not (other.has_ended or other.task in left)]
            if self._turns and self._turns[0].loop != turn.loop:
                raise SessionError(
                    "the session is in use in another event loop: use it in one loop at a time, for example through a "
                    "portal of anyio.from_thread"
                )
            self._turns.append(turn)

    def _drop_ended(self) -> None:
        with self._guard:
            self._turns = [turn for turn in self._turns if not turn.has_ended]

    def _end(self, turn: _Turn) -> None:
        with self._guard:
            if turn in self._turns:
                self._turns.remove(turn)
            following = self._turns[0].event if self._turns else None
        if following is not None:
            following.set()


def _here() -> tuple[object, Any]:
    """The event loop and the task that run: asyncio's own objects, or the token and the coroutine of trio's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's
        return current_token(), anyio.get_current_task().coro
    return loop, asyncio.current_task(loop)
