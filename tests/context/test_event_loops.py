"""One context in several event loops: one after the other works; at the same time is an error, and never a hang."""

import asyncio
import threading
from pathlib import Path

import pytest

from ctxfs import Context
from ctxfs.errors import SessionError
from ctxfs.messages import Usage
from ctxfs.storage.loop_lock import LoopLock
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
