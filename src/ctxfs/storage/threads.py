"""Work in threads: such that always ends before its caller goes on, and such that goes on beside it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

__all__ = ["begin", "deliver_cancellation", "outcome", "run_to_completion"]

T = TypeVar("T")


async def run_to_completion(func: Callable[[], T]) -> T:
    """Run ``func`` in a worker thread and return its result.

    A cancellation that arrives before the start prevents it; one that arrives later is delivered at the caller's next
    checkpoint, so that the caller always learns the outcome.
    """
    await checkpoint_if_cancelled()
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return await to_thread.run_sync(func)  # no cancellation reaches a running thread here
    work = asyncio.get_running_loop().run_in_executor(None, func)
    cancelled = False
    with anyio.CancelScope(shield=True):  # anyio's cancellation waits; the loop takes Task.cancel()
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.uncancel()  # the same cancellation again, not a second one: asyncio.timeout counts them
        task.cancel()
    return work.result()


async def deliver_cancellation() -> None:
    """Raise the cancellation that ``run_to_completion`` put off, if there is one: here everything is in order.

    Put off for longer, it would hit whoever awaits next: before Python 3.13 ``asyncio.timeout`` does not take it back.
    """
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return
    if (task := asyncio.current_task()) is not None and task.cancelling():
        await asyncio.sleep(0)


def begin(func: Callable[[], T]) -> Future[T]:
    """Begin ``func`` in a thread of its own; whoever asks for the ``result`` waits: see ``outcome``.

    The thread ends with the work: one that is kept would be missing in a process that forks.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="ctxfs")
    begun = thread.submit(func)
    thread.shutdown(wait=False)
    return begun


async def outcome(begun: Future[T]) -> T:
    """Wait for what ``begin`` began, without holding up the event loop."""
    return begun.result() if begun.done() else await to_thread.run_sync(begun.result)
