"""What a durable offload costs: over the bare system calls, as a session grows, and for the event loop.

    python benchmarks/bench_offload.py [--quick] [DIRECTORY]

Ratios are taken within one run, offload and floor in turn, and from its quietest part, because disks are noisy.
DIRECTORY should be on the disk that will hold the sessions (default: a new directory under the current one).
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.session.filesystem import ContextFileSystem

LINE = "2026-01-15 12:34:56 INFO worker-7 handled request 8b1f in 12 ms, status 200\n"
FLOOR_RATIO = 1.5
GROWTH_RATIO = 1.2
LINEAR_RATIO = 1.3
ROUNDS_A_PART = 30
STALL_TRIES = 5
STALL_MS = 25.0


def text_of_size(chars: int) -> str:
    return (LINE * (chars // len(LINE) + 1))[:chars]


def item_for(fs: ContextFileSystem, content: Content) -> ContextItem:
    item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, None, "Read")
    message = ToolMessage(tool_call_id=item_id, tool_name="Read", content=content)
    return ContextItem(
        id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=1, content_tokens=1
    )


class Floor:
    """The least that a durable offload can be: bare system calls, in one thread."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self._dir = os.open(root, os.O_RDONLY)
        self._journal = os.open("journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600, dir_fd=self._dir)
        self._number = 0

    def offload(self, data: bytes, line: bytes) -> None:
        """Store ``data`` and note ``line``."""
        self._number += 1
        temp = f"tmp-{self._number}"
        fd = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self._dir)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.rename(temp, f"call-{self._number}.json", src_dir_fd=self._dir, dst_dir_fd=self._dir)
        os.fsync(self._dir)
        os.write(self._journal, line)
        os.fsync(self._journal)


def timed(func: Callable[[], object]) -> float:
    start = time.perf_counter()
    func()
    return (time.perf_counter() - start) * 1e3


async def over_floor(root: Path, rounds: int) -> bool:
    """Compare with the floor, in turn."""
    text = text_of_size(100_000)
    data, line = text.encode(), b"x" * 500
    floor = Floor(root / "floor")
    ours: list[float] = []
    bare: list[float] = []
    async with ContextFileSystem(root_path=root) as fs:
        for number in range(rounds):
            bare.append(timed(lambda: floor.offload(data, line)))
            item = item_for(fs, f"{number:08}{text}")
            start = time.perf_counter()
            await fs.offload(item)
            ours.append((time.perf_counter() - start) * 1e3)
    parts = [slice(start, start + ROUNDS_A_PART) for start in range(0, rounds, ROUNDS_A_PART)]
    least, mine = min((statistics.median(bare[part]), statistics.median(ours[part])) for part in parts)
    ratio = mine / least
    return report(
        f"100 KB durably: {mine:.2f} ms, floor {least:.2f} ms (medians, the quietest {ROUNDS_A_PART} of {rounds})",
        f"{ratio:.2f} x",
        f"<= {FLOOR_RATIO} x",
        ok=ratio <= FLOOR_RATIO,
    )


async def growth(root: Path, count: int) -> bool:
    """Compare offloads at N = 100 with offloads at N = count, in turn, and the halves of all of them."""
    spent: list[float] = []
    late: list[float] = []
    early: list[float] = []
    begin = time.perf_counter()
    async with ContextFileSystem(root_path=root) as old:
        spent.extend([await offloaded(old, number, time.process_time) for number in range(count)])
        total = time.perf_counter() - begin
        for number in range(4):
            async with ContextFileSystem(root_path=root) as young:
                for index in range(75):
                    await offloaded(young, index, time.perf_counter)
                for index in range(50):
                    early.append(await offloaded(young, index, time.perf_counter))
                    late.append(await offloaded(old, count + 50 * number + index, time.perf_counter))
    young_ms, old_ms = statistics.median(early), statistics.median(late)
    halves = sum(spent[count // 2 :]) / sum(spent[: count // 2])
    first = report(
        f"the N-th offload: {young_ms:.2f} ms at N = 100, {old_ms:.2f} ms at N = {count}",
        f"{old_ms / young_ms:.2f} x",
        f"<= {GROWTH_RATIO} x",
        ok=old_ms / young_ms <= GROWTH_RATIO,
    )
    second = report(
        f"{count} offloads, index rewrites included: {total:.1f} s; processor time of the second half over the first",
        f"{halves:.2f} x",
        f"<= {LINEAR_RATIO} x",
        ok=halves <= LINEAR_RATIO,
    )
    return first and second


async def offloaded(fs: ContextFileSystem, number: int, clock: Callable[[], float]) -> float:
    item = item_for(fs, f"result {number}\n" * 10)
    start = clock()
    await fs.offload(item)
    return (clock() - start) * 1e3


async def stall(root: Path) -> bool:
    """Store 10 MB results and watch how long the event loop does not turn; the quietest of some tries counts."""
    worst = min([await longest_stall(root) for _ in range(STALL_TRIES)])
    return report(
        f"longest stall of the event loop, three 10 MB results stored (the quietest of {STALL_TRIES} tries)",
        f"{worst:.1f} ms",
        f"<= {STALL_MS} ms",
        ok=worst <= STALL_MS,
    )


async def longest_stall(root: Path) -> float:
    text = text_of_size(10_000_000)
    contents: list[Content] = [text, text.replace("status", "st\u00e4tus"), ({"type": "text", "text": text},)]
    worst = 0.0
    async with ContextFileSystem(root_path=root) as fs, anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal worst
            while True:
                start = time.perf_counter()
                await anyio.sleep(0.001)
                worst = max(worst, (time.perf_counter() - start) * 1e3 - 1)

        tasks.start_soon(watch)
        await anyio.sleep(0.05)
        worst = 0.0
        for content in contents:
            item = item_for(fs, content)
            path = await fs.offload(item)
            new = ToolMessage(item.id, "Read", "[Content offloaded]", offloaded=True, offload_path=path)
            await fs.writer.evict([(item, replaced(item, new, path), "benchmark")])
        tasks.cancel_scope.cancel()
    return worst


def replaced(item: ContextItem, message: ToolMessage, path: str) -> ContextItem:
    return ContextItem(
        id=item.id,
        item_type=item.item_type,
        message=message,
        name=item.name,
        token_count=1,
        content_tokens=1,
        offloaded=True,
        destroyed=True,
        offload_path=path,
    )


async def pages(root: Path, size: int) -> bool:
    """Read pages of 50 lines anywhere in a large text, checksums included."""
    async with ContextFileSystem(root_path=root) as fs:
        item = item_for(fs, text_of_size(size))
        await fs.offload(item)
        reader = fs.reader(item.id)
        await reader.lines(1, 1)
        times = []
        for step in range(101):
            first = 1 + (reader.stored.lines - 50) * step // 100
            start = time.perf_counter()
            await reader.lines(first, first + 49)
            times.append((time.perf_counter() - start) * 1e3)
    middle = statistics.median(times)
    return report(
        f"50 lines anywhere in {size / 1e6:.0f} MB, checksum included", f"{middle:.2f} ms", "<= 3 ms", ok=middle <= 3
    )


def report(what: str, figure: str, limit: str, *, ok: bool) -> bool:
    print(f"{'ok  ' if ok else 'OVER'}  {figure:>9}  {limit:<18} {what}")
    return ok


async def main(root: Path, *, quick: bool) -> bool:
    outcomes = [
        await over_floor(root, 60 if quick else 300),
        await growth(root, 1_000 if quick else 10_000),
        await stall(root),
        await pages(root, 20_000_000 if quick else 200_000_000),
    ]
    return all(outcomes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", default=".")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory, prefix=".bench-") as directory:
        sys.exit(0 if anyio.run(lambda: main(Path(directory), quick=options.quick)) else 1)
