"""One context in several event loops: one after the other works; at the same time is an error, and never a hang."""

import asyncio
import threading
from pathlib import Path

import anyio
import pytest

from ctxfs import Context
from ctxfs.errors import SessionError
from ctxfs.messages import Usage
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import uninterrupted
from patience import HANGS_S


def test_a_context_goes_from_loop_to_loop(tmp_path: Path) -> None:
    context = Context("session_1", root_path=tmp_path)
    asyncio.run(context.open())
    for n in range(3):
        asyncio.run(_add(context, f"question {n}"))
    asyncio.run(context.close())
    assert [item.message.content for item in context.items] == [f"question {n}" for n in range(3)]


async def _add(context: Context, text: str) -> None:
    await context.add({"role": "user", "content": text})


def test_who_would_wait_for_another_loop_gets_an_error() -> None:
    lock, held, done = LoopLock(), threading.Event(), threading.Event()

    async def hold() -> None:
        async with lock:
            held.set()
            await asyncio.to_thread(done.wait, HANGS_S)

    async def wait() -> None:
        async with lock:
            pass

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    try:
        assert held.wait(HANGS_S)
        with pytest.raises(SessionError, match="in use in another event loop: use it in one loop at a time"):
            asyncio.run(wait())
    finally:
        done.set()
        thread.join()
    asyncio.run(wait())


def test_a_task_that_is_cancelled_while_it_waits_waits_no_longer() -> None:
    lock = LoopLock()

    async def cancelled() -> None:
        async with lock:
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    async def wait() -> None:
        async with lock:
            pass

    asyncio.run(cancelled())
    asyncio.run(wait())


def test_three_threads_with_a_loop_each_end(tmp_path: Path) -> None:
    context = Context("session_1", root_path=tmp_path)
    asyncio.run(context.open())
    asyncio.run(_add(context, "hi"))
    errors: list[BaseException] = []

    async def work() -> None:
        for _ in range(20):
            calls = (context.fs.writer.record_call(Usage(), "m") for _ in range(5))
            await asyncio.gather(*calls, context.evict())

    def run() -> None:
        try:
            asyncio.run(work())
        except SessionError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    assert not any(thread.is_alive() for thread in threads), "none waits for ever"
    asyncio.run(_add(context, "still there"))
    asyncio.run(context.close())


async def _hold_for_ever(lock: LoopLock) -> None:
    """Take the lock, and end without leaving it, as where an interrupt hits the entry of ``__aexit__``."""
    await lock.__aenter__()


async def _take(lock: LoopLock) -> None:
    async with lock:
        pass


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_nobody_waits_for_a_task_that_ended_with_the_lock() -> None:
    lock = LoopLock()
    async with anyio.create_task_group() as group:
        group.start_soon(_hold_for_ever, lock)
    with anyio.fail_after(HANGS_S):
        await _take(lock)


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_who_waits_when_the_holder_ends_takes_the_lock() -> None:
    lock = LoopLock()
    ends = anyio.Event()

    async def hold() -> None:
        await lock.__aenter__()
        await ends.wait()

    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(_take, lock)
            await anyio.wait_all_tasks_blocked()
            ends.set()


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_task_does_not_wait_for_the_lock_that_it_kept() -> None:
    lock = LoopLock()
    await lock.__aenter__()
    with anyio.fail_after(HANGS_S):
        await uninterrupted(_take)(lock)
        await _take(lock)


def test_a_lock_that_an_event_loop_kept_when_it_was_closed_is_free() -> None:
    lock = LoopLock()
    loop = asyncio.new_event_loop()
    coroutine = _hold_and_sleep(lock)
    holding = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.run(_take(lock))
    assert not holding.done()
    coroutine.close()


async def _hold_and_sleep(lock: LoopLock) -> None:
    await lock.__aenter__()
    await asyncio.get_running_loop().create_future()
