"""Work in threads ends soon after its caller was cancelled, whatever cancelled it."""

import asyncio
import threading

import anyio
import pytest
from anyio import to_thread

from ctxfs.storage.threads import run_in_steps
from ctxfs.text.steps import Abandoned, CpuBudget, checkpoint
from patience import HANGS_S


class Work:
    """Steps without end; the first one waits until it may go on."""

    def __init__(self) -> None:
        self.started, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.steps = 0

    def __call__(self) -> None:
        try:
            while True:
                checkpoint()
                self.steps += 1
                self.started.set()
                assert self.go_on.wait(HANGS_S)
        except Abandoned:
            self.ended.set()
            raise

    async def ends(self) -> None:
        self.go_on.set()
        assert await to_thread.run_sync(self.ended.wait, HANGS_S)


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_work_ends_at_its_next_checkpoint_when_its_scope_is_cancelled() -> None:
    work = Work()
    async with anyio.create_task_group() as group:
        group.start_soon(run_in_steps, work)
        assert await to_thread.run_sync(work.started.wait, HANGS_S)
        group.cancel_scope.cancel()
    await work.ends()
    assert work.steps == 1


def test_work_ends_at_its_next_checkpoint_when_its_task_is_cancelled() -> None:
    async def main() -> None:
        work = Work()
        task = asyncio.create_task(run_in_steps(work))
        assert await to_thread.run_sync(work.started.wait, HANGS_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await work.ends()
        assert work.steps == 1

    asyncio.run(main())


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_results_and_errors_come_back() -> None:
    assert await run_in_steps(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await run_in_steps(lambda: 1 // 0)
    checkpoint()  # does nothing where nobody waits


def test_a_budget_is_charged_from_one_time_to_the_next_and_may_have_no_bound() -> None:
    times = iter([0.0, 0.25, 0.5])
    budget = CpuBudget(1.0, clock=lambda: next(times))
    assert budget.charge_since(budget.charge_since(budget.now())) == 0.5
    assert budget.left_s == 0.5
    assert CpuBudget(None, clock=lambda: 1 / 0).charge_since(5.0) == 5.0
    assert CpuBudget(None).left_s == float("inf")


def test_items_are_charged_to_a_budget_that_count() -> None:
    budget = CpuBudget(5.0, clock=iter([0.0, 1.0, 1.5, 2.0]).__next__)
    assert list(budget.charge_items("ab", lambda item: item == "b")) == ["a", "b"]
    assert budget.left_s == 4.5
