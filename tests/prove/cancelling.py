"""Runs an operation and cancels it at its n-th await, counted over all of its tasks, on asyncio and on trio.

A cancel scope of anyio's, on asyncio and on trio, cancels until it is left. What asyncio has of its own cancels once:
``Task.cancel()``, here up to three times, some awaits apart, so that the later ones hit the cleaning up after the
first; and ``asyncio.timeout``. A shutdown cancels every task of ``asyncio.all_tasks()``, not the caller's only.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import trio
from trio.abc import Instrument
from trio.lowlevel import Task as TrioTask

__all__ = ["NATIVE", "WAYS", "backend_of", "cancelled_at", "is_repeated"]

_TIMES = {"Task.cancel()": 1, "Task.cancel() twice": 2, "Task.cancel() three times": 3}
_ALL_TASKS = {"all_tasks()": 1, "all_tasks() twice": 2}
_TIMEOUT = "asyncio.timeout"
NATIVE = (*_TIMES, *_ALL_TASKS, _TIMEOUT)
WAYS = ("scope on asyncio", "scope on trio", *NATIVE)

Operation = Callable[[], Awaitable[Any]]


def backend_of(way: str) -> str:
    """The event loop that ``way`` needs."""
    return "trio" if way == "scope on trio" else "asyncio"


def is_repeated(way: str) -> bool:
    """Whether ``way`` cancels more than once."""
    return {**_TIMES, **_ALL_TASKS}.get(way, 1) > 1


async def cancelled_at(way: str, number: int, operation: Operation, *, apart: int = 1) -> int:
    """Run ``operation`` and cancel it at its await ``number``, from 1; returns how often, 0 when it ended before.

    ``apart``: after how many awaits it is cancelled again. Raises what the operation raises, but not the cancellation.
    """
    match way:
        case "scope on asyncio":
            return await _scope_on_asyncio(number, operation)
        case "scope on trio":
            return await _scope_on_trio(number, operation)
        case "asyncio.timeout":
            return await _timeout(number, operation)
        case _:
            times = {**_TIMES, **_ALL_TASKS}[way]
            return await _task_cancel(
                range(number, number + apart * times, apart), operation, everyone=way in _ALL_TASKS
            )


class _Steps:
    """Counts the awaits that really wait, and calls ``cancel`` at the chosen ones, until ``end``."""

    def __init__(self, numbers: range, cancel: Callable[[], object]) -> None:
        self._numbers = numbers
        self._cancel = cancel
        self._count = 0
        self._ended = False
        self.fired = 0
        self.begun = set[Any]()  # one that has not begun does nothing when it is cancelled, and anyio's then warn

    def step(self) -> None:
        self._count += 1
        if self._count in self._numbers and not self._ended:
            self.fired += 1
            self._cancel()

    def end(self) -> None:
        self._ended = True

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
            self.begun.add(asyncio.current_task())
            return await self.watch(inner)

        return asyncio.Task(watched(), loop=loop, **settings)


async def _scope_on_asyncio(number: int, operation: Operation) -> int:
    async def run() -> None:
        await operation()

    with anyio.CancelScope() as scope:
        steps = _Steps(range(number, number + 1), scope.cancel)
        with _watching(steps):
            await steps.watch(run())
    return steps.fired


async def _task_cancel(numbers: range, operation: Operation, *, everyone: bool) -> int:
    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await operation()
        steps.end()
        for _ in numbers:
            with suppress(asyncio.CancelledError):  # one that arrived when there was nothing left to wait for
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    def cancel() -> None:
        for one in asyncio.all_tasks() & steps.begun if everyone else {task}:
            one.cancel()

    steps = _Steps(numbers, cancel)
    with _watching(steps):
        task = asyncio.create_task(run())
        await task
    return steps.fired


async def _timeout(number: int, operation: Operation) -> int:
    async def run() -> None:
        with suppress(TimeoutError):
            async with limit:
                await operation()
        steps.end()
        for _ in range(3):
            await asyncio.sleep(0)
        if task.cancelling():
            raise AssertionError(f"{task.cancelling()} cancellations are left behind by a timeout")

    limit = asyncio.timeout(None)
    steps = _Steps(range(number, number + 1), lambda: limit.reschedule(0))
    with _watching(steps):
        task = asyncio.create_task(run())
        await task
    return steps.fired


@contextmanager
def _watching(steps: _Steps) -> Iterator[None]:
    """Count the awaits of all tasks that are begun meanwhile."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(steps.factory)
    try:
        yield
    finally:
        loop.set_task_factory(None)


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


async def _scope_on_trio(number: int, operation: Operation) -> int:
    scope = trio.CancelScope()
    steps = _Steps(range(number, number + 1), scope.cancel)
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
