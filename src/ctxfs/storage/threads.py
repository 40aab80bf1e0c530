"""Work in a thread that always ends before its caller goes on, however the caller is cancelled."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

__all__ = ["run_to_completion"]

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
