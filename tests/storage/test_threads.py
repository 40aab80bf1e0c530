"""Work in a thread ends before its caller goes on, and a cancellation is delivered once, right after."""

import asyncio
import multiprocessing
import os
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ctxfs.storage.threads import begin, outcome, run_to_completion


class Work:
    """Something to do in a thread of an asyncio program, which ends when it is let go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self.go_on = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.go_on.wait(30)
        self.ended = True
        return "done"


async def cancelled_twice(times: int) -> tuple[list[str], Work]:
    work, said = Work(), list[str]()

    async def caller() -> None:
        said.append(await run_to_completion(work))
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
def test_who_is_cancelled_learns_the_outcome_first(times: int) -> None:
    said, work = asyncio.run(cancelled_twice(times))
    assert said == ["done"]
    assert work.ended


def test_a_timeout_is_a_timeout() -> None:
    """It counts cancellations: one that was delivered twice would be somebody else's."""

    async def caller() -> str:
        work = Work()
        try:
            async with asyncio.timeout(None) as limit:
                running = asyncio.create_task(release(work, limit))
                result = await run_to_completion(work)
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


@pytest.mark.anyio
async def test_what_was_begun_goes_on_beside_and_is_waited_for() -> None:
    go_on = threading.Event()
    begun = begin(lambda: go_on.wait(30))
    assert not begun.done()
    go_on.set()
    assert await outcome(begun) is True
    assert await outcome(begun) is True

    def fail() -> None:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        await outcome(begin(fail))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_forks_can_begin_too() -> None:
    assert begin(lambda: 1).result(30) == 1
    child = multiprocessing.get_context("fork").Process(target=lambda: begin(lambda: 1).result(30))
    child.start()
    child.join()
    assert child.exitcode == 0
