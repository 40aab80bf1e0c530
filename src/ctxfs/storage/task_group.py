"""A task group whose tasks end nothing but their group, whatever they raise."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import anyio


def is_own_cancellation(error: BaseException) -> bool:
    """Whether nobody cancels the running task: it awaited something that was cancelled, and ``error`` is its error.

    On trio nobody but a scope raises a cancellation.
    """
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # on trio asyncio's error is like any other
        return True
    return task is not None and not task.cancelling()


class TaskGroup:
    """Tasks that run side by side; the first that fails cancels the others, and the group raises its error by itself.

    anyio's group differs in three ways. It raises a group of errors. On asyncio a task that raises ``SystemExit`` or
    ``KeyboardInterrupt`` ends the event loop before its group can do anything. And the coroutine of a task that asyncio
    cancels before its first step is dropped, at which Python warns.

    An exit or an interrupt is raised before any other error.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._waiting = set[Coroutine[Any, Any, None]]()  # for their first step
        self._error: BaseException | None = None

    def start_soon(self, func: Callable[..., Awaitable[Any]], *args: object) -> None:
        """Run an async function beside the others."""

        async def run() -> None:
            self._waiting.discard(task)
            await self._run(func, args)

        task = run()
        self._waiting.add(task)
        self._group.start_soon(lambda: task)

    def cancel(self) -> None:
        """Cancel all tasks, and the block of the group."""
        self._group.cancel_scope.cancel()

    async def _run(self, func: Callable[..., Awaitable[Any]], args: tuple[object, ...]) -> None:
        try:
            await func(*args)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) and not is_own_cancellation(error):
                raise
            if self._error is None or not isinstance(error, Exception):
                self._error = error
            self.cancel()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        cancelled = anyio.get_cancelled_exc_class()
        raised: BaseException | None = None
        is_handled = False
        try:
            is_handled = bool(await self._group.__aexit__(kind, error, trace))
        except BaseExceptionGroup as group:  # of the block's error, and of cancellations on trio
            raised = next(one for one in group.exceptions if not isinstance(one, cancelled))
        except cancelled as leaving:
            raised = leaving
        finally:
            for task in self._waiting:
                task.close()
        first = self._error
        if first is not None and (raised is None or not isinstance(first, Exception)):
            raise first
        if raised is not None:
            raise raised
        return is_handled
