"""Work in a thread ends before its caller goes on, and a cancellation is delivered once, right after."""

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ctxfs.storage import pool, threads
from ctxfs.storage.threads import answer_of, begin, result_of, run_in_steps, run_to_completion, uninterrupted
from interrupting import Interrupt, interrupted_by, press_ctrl_c_on_trio
from patience import HANGS_S


class Work:
    """Something to do in a thread of an asyncio program, which ends when it is let go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self.go_on = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.go_on.wait(HANGS_S)
        self.ended = True
        return "done"


async def cancelled(run: Callable[[Work], Awaitable[str]], times: int) -> tuple[list[str], Work]:
    work, said = Work(), list[str]()

    async def caller() -> None:
        said.append(await run(work))
        await checkpoint()
        said.append("it was not cancelled")

    task = asyncio.create_task(caller())
    await work.begun.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    work.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    return said, work


@pytest.mark.parametrize("times", [1, 2])
def test_who_is_cancelled_waits_for_the_end_and_may_learn_the_result_first(times: int) -> None:
    for run, expected in (run_to_completion, []), (result_of, ["done"]):
        said, work = asyncio.run(cancelled(run, times))
        assert said == expected
        assert work.ended


@pytest.mark.parametrize("learns_first", [False, True])
def test_a_timeout_is_a_timeout(learns_first: bool) -> None:
    """It counts cancellations: one that was delivered twice would be somebody else's."""

    async def caller() -> str:
        work = Work()
        try:
            async with asyncio.timeout(None) as limit:
                running = asyncio.create_task(release(work, limit))
                result = await (result_of(work) if learns_first else run_to_completion(work))
                await checkpoint()
                return f"{result}, and no timeout"
        except TimeoutError:
            assert work.ended
            await running
            return "timeout"

    async def release(work: Work, limit: asyncio.Timeout) -> None:
        await work.begun.wait()
        limit.reschedule(0)
        for _ in range(5):
            await asyncio.sleep(0)
        work.go_on.set()

    assert asyncio.run(caller()) == "timeout"


@pytest.mark.anyio
async def test_who_was_cancelled_before_does_not_begin() -> None:
    begun: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_to_completion(lambda: begun.append(1))
    assert scope.cancelled_caught
    assert begun == []


@pytest.mark.anyio
async def test_an_error_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        await run_to_completion(fail)


@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_what_is_uninterrupted_ends_before_the_cancellation_is_raised(times: int) -> None:
    steps: list[int] = []

    @uninterrupted
    async def work() -> str:
        for step in range(5):
            await asyncio.sleep(0)
            steps.append(step)
        return "done"

    async def run() -> str:
        task = asyncio.create_task(work())
        for _ in range(times):
            await asyncio.sleep(0)
            task.cancel()
        return await task

    if times:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
    else:
        assert asyncio.run(run()) == "done"
    assert steps == [0, 1, 2, 3, 4]


def test_a_timeout_of_what_is_uninterrupted_is_a_timeout_and_leaves_nothing_behind() -> None:
    @uninterrupted
    async def work(limit: asyncio.Timeout) -> None:
        limit.reschedule(0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def run() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await work(limit)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert asyncio.run(run()) == 0


@pytest.mark.anyio
async def test_a_scope_interrupts_after_what_is_uninterrupted() -> None:
    steps: list[str] = []

    @uninterrupted
    async def work(scope: anyio.CancelScope) -> str:
        scope.cancel()
        await checkpoint()
        return "done"

    with anyio.CancelScope() as scope:
        steps.append(await work(scope))
        await checkpoint()
        steps.append("it was not cancelled")
    assert scope.cancelled_caught
    assert steps == ["done"]


@pytest.mark.anyio
async def test_an_error_of_what_is_uninterrupted_is_raised_as_it_is() -> None:
    error = OSError(28, "no space")

    @uninterrupted
    async def fail() -> None:
        await checkpoint()
        raise error

    with pytest.raises(OSError, match="no space") as raised:
        await fail()
    assert raised.value is error


def test_an_error_of_what_was_cancelled_too_is_the_cause_of_the_cancellation() -> None:
    error = OSError(28, "no space")

    @uninterrupted
    async def fail(task: "asyncio.Task[None]") -> None:
        task.cancel()
        await asyncio.sleep(0)
        raise error

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        await fail(task)

    with pytest.raises(asyncio.CancelledError) as raised:
        asyncio.run(run())
    assert raised.value.__cause__ is error


def test_what_was_begun_goes_on_beside_and_is_waited_for() -> None:
    go_on = threading.Event()
    begun = begin(lambda: go_on.wait(HANGS_S))
    assert not begun.done()
    go_on.set()
    assert begun.result(HANGS_S) is True

    def fail() -> None:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        begin(fail).result(HANGS_S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_forks_can_begin_too() -> None:
    assert begin(lambda: 1).result(30) == 1
    child = multiprocessing.get_context("fork").Process(target=lambda: begin(lambda: 1).result(30))
    child.start()
    child.join()
    assert child.exitcode == 0


def test_what_is_safe_from_cancellation_calls_more_such_functions_in_its_own_task() -> None:
    tasks = list[object]()

    @uninterrupted
    async def inner() -> str:
        tasks.append(asyncio.current_task())
        return await run_to_completion(lambda: "done")

    @uninterrupted
    async def outer() -> str:
        tasks.append(asyncio.current_task())
        return await inner()

    async def caller() -> str:
        tasks.append(asyncio.current_task())
        return await outer()

    assert asyncio.run(caller()) == "done"
    assert tasks[0] is not tasks[1]
    assert tasks[1] is tasks[2]


def test_a_task_that_starts_where_nothing_is_cancelled_can_be_cancelled_itself() -> None:
    """It inherits the context variables of the one that started it."""

    async def main() -> tuple[list[str], bool]:
        work, ended = Work(), list[str]()

        @uninterrupted
        async def save() -> None:
            await run_to_completion(work)
            await asyncio.sleep(0)
            ended.append("saved")

        @uninterrupted
        async def start() -> "asyncio.Task[None]":
            return asyncio.create_task(save())

        task = await start()
        await work.begun.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        work.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended, work.ended

    assert asyncio.run(main()) == (["saved"], True)


def _in_two_steps(steps: list[str]) -> Callable[[], Coroutine[Any, Any, None]]:
    @uninterrupted
    async def save() -> None:
        await run_to_completion(lambda: steps.append("written"))
        await asyncio.sleep(0)
        steps.append("taken in")

    return save


@pytest.mark.parametrize("awaits", range(1, 6))
def test_the_end_of_a_loop_does_not_cut_what_is_uninterrupted(awaits: int) -> None:
    """It cancels all tasks that it knows of: those that ctxfs starts are not among them."""
    steps: list[str] = []

    async def main() -> None:
        left_over = asyncio.create_task(_in_two_steps(steps)())
        for _ in range(awaits):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= {left_over, asyncio.current_task()}

    asyncio.run(main())
    assert steps == ["written", "taken in"]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_shutdown_that_cancels_every_task_does_not_cut_what_is_uninterrupted(times: int) -> None:
    steps: list[str] = []

    async def main() -> None:
        task = asyncio.create_task(_in_two_steps(steps)())
        await asyncio.sleep(0)
        for _ in range(times):
            for other in asyncio.all_tasks() - {asyncio.current_task()}:
                other.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(main())
    assert steps == ["written", "taken in"]


@pytest.mark.parametrize("run", [run_to_completion, result_of, uninterrupted(run_to_completion)])
def test_a_loop_that_shuts_its_executor_down_does_not_cut_work(run: Callable[..., Coroutine[Any, Any, str]]) -> None:
    async def main() -> str:
        executor = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(executor)
        work = Work()
        running = asyncio.create_task(run(work))
        await work.begun.wait()
        executor.shutdown(wait=False, cancel_futures=True)
        work.go_on.set()
        assert await running == "done"
        return await run(lambda: "again")

    assert asyncio.run(main()) == "again"


def test_an_interrupt_wherever_it_hits_lets_the_end_of_its_task_be_told() -> None:
    """AnyIO's threads end with the task that asked for the first of them; they are no daemons, and keep the process."""
    hit: list[str] = []
    while True:
        interrupt = Interrupt(len(hit) + 1)
        ended: list[asyncio.Task[None]] = []

        async def use(interrupt: Interrupt = interrupt, ended: list[asyncio.Task[None]] = ended) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(ended.append)
            with interrupted_by(interrupt):
                await uninterrupted(checkpoint)()

        with suppress(KeyboardInterrupt):
            asyncio.run(use())
        if interrupt.where is None:
            break
        hit.append(interrupt.where)
        assert ended, interrupt.where
    assert any("_safely" in where for where in hit)


@pytest.mark.parametrize("failure", [None, OSError("the disk is full"), KeyboardInterrupt("the first one")])
def test_an_interrupt_where_uninterrupted_work_ends_on_trio_is_raised_by_itself(failure: BaseException | None) -> None:
    """A caller that got it in a group took the work for whole, although another interrupt had cut it."""

    @uninterrupted
    async def work() -> None:
        press_ctrl_c_on_trio()
        if failure is not None:
            raise failure

    with pytest.raises(KeyboardInterrupt) as raised:
        anyio.run(work, backend="trio")
    assert raised.value.__cause__ is failure


class _AtOneStep:
    """Ctrl-C hits the main thread at one step of the code that hands work to a thread: a line, or the end of a call.

    ``number``: which step, from 1. ``where``: what it was; None: there were not so many.
    """

    _PLACES = ("ctxfs/storage/", "/threading.py", "/queue.py", "concurrent/futures/")

    def __init__(self, number: int) -> None:
        self.where: str | None = None
        self._left = number

    def trace(self, frame: FrameType, event: str, _argument: object) -> "Callable[..., Any] | None":
        """Be told of a step."""
        code = frame.f_code
        if code.co_name == "<genexpr>" or not any(place in code.co_filename for place in self._PLACES):
            return None  # one may be called to be closed
        if self.where is None and event in {"line", "return"}:
            self._left -= 1
            if not self._left:
                self.where = f"{code.co_qualname}, {event} {frame.f_lineno}"
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.no_cover  # this is another tracer
@pytest.mark.parametrize("run", [run_in_steps, run_to_completion, result_of, answer_of])
def test_wherever_an_interrupt_hits_who_hands_work_over_the_next_work_is_done(
    run: Callable[..., Coroutine[Any, Any, str]],
) -> None:
    """A pool that takes locks in Python code keeps one of them then, and its threads wait for ever."""

    async def cut(interrupt: _AtOneStep) -> None:
        before = sys.gettrace()
        sys.settrace(interrupt.trace)
        try:
            await run(lambda: "cut")
        finally:
            sys.settrace(before)

    async def again() -> list[str]:
        return [await run(lambda: "done") for _ in range(2)]

    hit: list[str] = []
    while not hit or hit[-1]:
        threads._threads.cache_clear()  # noqa: SLF001 - a thread has to be begun, too
        interrupt = _AtOneStep(len(hit) + 1)
        with suppress(KeyboardInterrupt):
            asyncio.run(cut(interrupt))
        assert asyncio.run(asyncio.wait_for(again(), HANGS_S)) == ["done", "done"], interrupt.where
        hit.append(interrupt.where or "")
        pool._unended.clear()  # noqa: SLF001 - a tracer cuts between two lines where no interrupt can
    assert any("submit" in where for where in hit)


@pytest.mark.anyio
@pytest.mark.parametrize("run", [run_in_steps, run_to_completion, answer_of])
async def test_work_that_raises_stop_iteration_fails_as_a_coroutine_would(
    run: Callable[[Callable[[], object]], Awaitable[object]],
) -> None:
    nothing = iter(())

    @uninterrupted
    async def work() -> None:
        await run(lambda: next(nothing))

    with anyio.fail_after(HANGS_S):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await run(lambda: next(nothing))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await work()


async def in_a_thread_of_its_own(func: Callable[[], object]) -> object:
    return await anyio.to_thread.run_sync(begin(func).result)


@pytest.mark.anyio
@pytest.mark.parametrize("run", [run_in_steps, run_to_completion, answer_of, in_a_thread_of_its_own])
async def test_work_sees_the_context_variables_of_its_caller_and_may_run_a_loop(
    run: Callable[[Callable[[], object]], Awaitable[object]],
) -> None:
    request: ContextVar[str] = ContextVar("request", default="none")
    request.set("r1")

    async def in_a_loop() -> str:
        return request.get()

    @uninterrupted
    async def within() -> object:
        return await run(lambda: anyio.run(in_a_loop))

    assert await run(lambda: anyio.run(in_a_loop)) == "r1"
    assert await within() == "r1"
