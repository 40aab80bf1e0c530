"""What each level of durability costs: single offloads, and 16 at a time, which share their syncs.

    python benchmarks/bench_durability.py [--quick] [DIRECTORY]

The levels take turns within one run, because disks are noisy. DIRECTORY should be on the disk that will hold the
sessions (default: a new directory under the current one). It states no limit: how much a sync costs is the disk's.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import Durability, LocalStore

LINE = "2026-01-15 12:34:56 INFO worker-7 handled request 8b1f in 12 ms, status 200\n"
LEVELS: tuple[Durability, ...] = ("full", "process")
SIZES = (4_000, 100_000, 1_000_000)
TOGETHER = 16
ROUNDS = 60
QUICK_ROUNDS = 8


async def measure(root: Path, rounds: int) -> None:
    sessions = {level: session(root, level) for level in LEVELS}
    for fs in sessions.values():
        await fs.open()
    print(
        f"{'characters':>12}{'at a time':>11}"
        + "".join(f"{level + ', ms each':>20}" for level in LEVELS)
        + f"{'ratio':>8}"
    )
    for size in SIZES:
        for together in (1, TOGETHER):
            times: dict[Durability, list[float]] = {level: [] for level in LEVELS}
            for _ in range(rounds if together == 1 else max(rounds // 8, 2)):
                for level, fs in sessions.items():
                    times[level].append(await offloads(fs, size, together) / together)
            middle = {level: statistics.median(found) * 1000 for level, found in times.items()}
            figures = "".join(f"{middle[level]:20.2f}" for level in LEVELS)
            print(f"{size:12,}{together:11}{figures}{middle['full'] / middle['process']:8.1f}", flush=True)
    for fs in sessions.values():
        await fs.close()


def session(root: Path, level: Durability) -> ContextFileSystem:
    session_id = f"session_{level}"
    return ContextFileSystem(session_id, root_path=root, store=LocalStore(root, session_id, durability=level))


async def offloads(fs: ContextFileSystem, size: int, together: int) -> float:
    """Offload contents at the same time, and return the seconds until all are acknowledged."""
    items = [item_for(fs, (LINE * (size // len(LINE) + 1))[:size]) for _ in range(together)]
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(fs.offload, item)
    return time.perf_counter() - start


def item_for(fs: ContextFileSystem, content: str) -> ContextItem:
    item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, None, "Read")
    message = ToolMessage(tool_call_id=item_id, tool_name="Read", content=content)
    return ContextItem(
        id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=1, content_tokens=1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the levels of durability.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("directory", nargs="?", type=Path, default=Path())
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=options.directory)).absolute()
    try:
        anyio.run(measure, root, QUICK_ROUNDS if options.quick else ROUNDS)
    finally:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
