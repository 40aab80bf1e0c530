"""Runs an operation and cancels it at its n-th await, counted over all of its tasks, on asyncio and on trio.

Three ways: a cancel scope of anyio's on asyncio and on trio, which keeps cancelling until the scope is left, and
``Task.cancel()`` of asyncio's own, which cancels once.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import anyio
import trio
from trio.abc import Instrument
from trio.lowlevel import Task as TrioTask

__all__ = ["WAYS", "backend_of", "cancelled_at"]

WAYS = ("scope on asyncio", "scope on trio", "Task.cancel()")

Operation = Callable[[], Awaitable[Any]]


def backend_of(way: str) -> str:
    """The event loop that ``way`` needs."""
    return "trio" if way == "scope on trio" else "asyncio"


async def cancelled_at(way: str, number: int, operation: Operation) -> bool:
    """Run ``operation`` and cancel it at its await ``number``, from 1; False when it ended before.

    Raises what the operation raises, but not the cancellation.
    """
    match way:
        case "scope on asyncio":
            return await _scope_on_asyncio(number, operation)
        case "scope on trio":
            return await _scope_on_trio(number, operation)
        case _:
            return await _task_cancel(number, operation)


class _Steps:
    """Counts the awaits that really wait, and calls ``cancel`` at the chosen one."""

    def __init__(self, number: int, cancel: Callable[[], object]) -> None:
        self._left = number
        self._cancel = cancel

    @property
    def fired(self) -> bool:
        return self._left <= 0

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._cancel()

    @types.coroutine
    def watch(self, inner: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Drive ``inner`` as the event loop would, and count where it gives the loop its turn."""
        error: BaseException | None = None
        value: Any = None
        while True:
            try:
                waited_for = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            self.step()
            error, value = None, None
            try:
                value = yield waited_for
            except BaseException as raised:  # noqa: BLE001 - it is the inner coroutine's to handle
                error = raised

    def factory(self, loop: asyncio.AbstractEventLoop, inner: Any, **settings: Any) -> asyncio.Task[Any]:
        """Make tasks that are watched too."""

        async def watched() -> Any:
            return await self.watch(inner)

        return asyncio.Task(watched(), loop=loop, **settings)


async def _scope_on_asyncio(number: int, operation: Operation) -> bool:
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as scope:
        steps = _Steps(number, scope.cancel)
        loop.set_task_factory(steps.factory)
        try:

            async def run() -> None:
                await operation()

            await steps.watch(run())
        finally:
            loop.set_task_factory(None)
    return steps.fired


async def _task_cancel(number: int, operation: Operation) -> bool:
    loop = asyncio.get_running_loop()

    async def run() -> None:
        await operation()

    def cancel() -> None:
        task.cancel()

    steps = _Steps(number, cancel)
    loop.set_task_factory(steps.factory)
    try:
        task = loop.create_task(run())
        with suppress(asyncio.CancelledError):
            await task
    finally:
        loop.set_task_factory(None)
    return steps.fired


class _TrioSteps(Instrument):
    def __init__(self, steps: _Steps, harness: TrioTask) -> None:
        self._steps = steps
        self._harness = harness

    def after_task_step(self, task: TrioTask) -> None:
        above = task.parent_nursery
        while above is not None and above.parent_task is not self._harness:
            above = above.parent_task.parent_nursery
        if above is not None:
            self._steps.step()


async def _scope_on_trio(number: int, operation: Operation) -> bool:
    scope = trio.CancelScope()
    steps = _Steps(number, scope.cancel)
    watcher = _TrioSteps(steps, trio.lowlevel.current_task())

    async def run() -> None:
        with scope:
            await operation()

    trio.lowlevel.add_instrument(watcher)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
    except BaseExceptionGroup as group:  # of one: the operation's
        raise group.exceptions[0] from None
    finally:
        trio.lowlevel.remove_instrument(watcher)
    return steps.fired
