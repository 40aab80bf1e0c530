"""Work on both cores: numbered batches in processes of their own, and work of threads that needs none."""

import asyncio
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from ctxfs.storage import threads
from ctxfs.storage.pool import Work
from ctxfs.storage.threads import without_threads
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["PROCESSES", "counted_in_batches", "in_order", "in_turns", "no_threads"]

PROCESSES = 2

T = TypeVar("T")


def in_order(work: Callable[[int], T], numbers: Iterable[int], ends_at: float) -> Generator[T, None, None]:
    """Yield what ``work`` makes of each number, in their order; several are worked on at a time.

    No more are begun once it is ``ends_at`` (monotonic, seconds), or when the caller stops to ask.
    """
    left = iter(numbers)
    begun: deque[Future[T]] = deque()
    spawn = get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=spawn, initializer=_end_with_parent) as pool:
        try:
            while True:
                while (
                    len(begun) <= PROCESSES and time.monotonic() < ends_at and (number := next(left, None)) is not None
                ):
                    begun.append(pool.submit(work, number))
                if not begun:
                    return
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()


def counted_in_batches(
    batch: Callable[[int], tuple[Counter[str], list[str]]], numbers: range, what: str, *, file: Path, budget_s: float
) -> tuple[int, Counter[str], list[str]]:
    """Add up what ``batch`` counts and finds wrong from each number on, one step of ``numbers`` at a time.

    Returns how many are done, what was counted and what was wrong. ``file`` keeps that for the next run, which goes on
    from there; none is begun after ``budget_s`` seconds. ``what`` is what the numbers count, for the progress.
    """
    ends_at = time.monotonic() + budget_s
    state: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    counted: Counter[str] = Counter(state.get("counted", {}))
    wrong: list[str] = state.get("wrong", [])
    done: int = state.get("done", 0)
    for more, bad in in_order(batch, range(done, numbers.stop, numbers.step), ends_at):
        counted += more
        wrong += bad
        done = min(numbers.stop, done + numbers.step)
        file.write_bytes(json_codec.dumps({"done": done, "counted": dict(counted), "wrong": wrong}))
        if done % 5_000 == 0:
            print(f"{file.stem}: {done:,} of {numbers.stop:,} {what}, {len(wrong)} violations", flush=True)
    return done, counted, wrong


def _end_with_parent() -> None:
    """End this process when its parent is killed: nobody waits then for what it finds."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class _Turns:
    """Does in the event loop, at its next turn, what is meant for a worker thread."""

    def submit(self, work: Work[Any]) -> None:
        asyncio.get_running_loop().call_soon(work.run)


@contextmanager
def in_turns() -> Iterator[None]:
    """Let asyncio's loop do all work itself: tasks still take turns, in the same order each time."""
    turns = _Turns()
    before = threads._threads  # noqa: SLF001 - what decides who works
    threads._threads = lambda _process, _most: turns  # type: ignore[assignment] # noqa: SLF001
    try:
        yield
    finally:
        threads._threads = before  # noqa: SLF001


@contextmanager
def no_threads() -> Iterator[None]:
    """Let no thread be started within: for a proof of what is done, not of what is done at the same time."""

    async def run_sync(func: Callable[..., T], *args: Any, **_: Any) -> T:
        return func(*args)

    to_thread.run_sync, before = run_sync, to_thread.run_sync  # type: ignore[assignment]
    try:
        with without_threads():
            yield
    finally:
        to_thread.run_sync = before
