"""What materializing an over-size result costs over the core's durable write, and what a huge output holds in memory.

Limits: 1 MB materialized in at most 1.5 times the time of the core's durable write of the same content, each the
fastest of runs that alternate; a command that prints 1 GB raises the resident memory by less than 20 MB.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from ctxfs import ContextFileSystem
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.tools import bash_tool, materialize

LIMIT_RATIO = 1.5
LIMIT_MB = 20.0
PAIRS = 60
OUTPUT_BYTES = 1_000_000_000

LOG = "".join(
    f"2024-01-15 12:{n // 60 % 60:02}:{n % 60:02} INFO request {n} served in {n % 97} ms\n" for n in range(40_000)
)
CONTENTS = {
    "log": LOG[:1_000_000],
    "log with errors": LOG.replace("INFO request 7", "ERROR Traceback: request 7")[:1_000_000],
    "JSON": json.dumps({"rows": [{"id": n, "name": f"row {n}"} for n in range(26_500)]}),
    "one line": "x" * 1_000_000,
}


async def timed_ms(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1000


async def ratio(fs: ContextFileSystem, name: str, content: str) -> tuple[float, float, float]:
    """Return the ratio and both times in ms: durable write, and decision, write and replacement.

    Both count the content's tokens as it comes in: a counter that takes no time leaves that out.
    """
    counter = CharsCounter()
    writes, whole = [], []
    for number in range(PAIRS):
        call_id = f"{name}{number}".replace(" ", "_")
        item = await new_item(fs, f"{call_id}_alone", content)

        async def store(item: ContextItem = item) -> None:
            await fs.offload(item)

        async def through(call_id: str = call_id) -> None:
            tools = ("context_tail", "context_grep")
            done = await materialize(content, fs=fs, tool_name="show", call_id=call_id, tools=tools, counter=counter)
            assert done.ref is not None

        writes.append(await timed_ms(store))
        whole.append(await timed_ms(through))
    return min(whole) / min(writes), min(writes), min(whole)


async def new_item(fs: ContextFileSystem, call_id: str, content: str) -> ContextItem:
    item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, call_id, "show")
    message = ToolMessage(call_id, "show", content)
    return ContextItem(
        id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=1, content_tokens=1
    )


def resident_mb() -> float:
    """Return the resident memory of this process; the page cache is not in it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def growth_mb(fs: ContextFileSystem) -> tuple[float, float]:
    """Run a command that prints 1 GB; return by how much the memory rose at most, in MB, and the time in s."""
    bash = bash_tool(fs, asks_first=True)
    await bash.run({"command": "seq 1 100000"})  # whatever is loaded once is loaded
    before = peak = resident_mb()
    start = time.perf_counter()
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, resident_mb())
                await anyio.sleep(0.005)

        group.start_soon(watch)
        result = await bash.run(
            {"command": f"yes 'a line of output that goes on for a while' | head -c {OUTPUT_BYTES}"}
        )
        group.cancel_scope.cancel()
    assert f"{OUTPUT_BYTES:,} bytes" in str(result.content), result.content
    return peak - before, time.perf_counter() - start


async def main() -> int:
    """Measure, print and compare."""
    root = tempfile.mkdtemp(dir=".")
    missed = 0
    try:
        async with ContextFileSystem(root_path=root) as fs:
            await materialize("warm " * 2_000, fs=fs, tool_name="show", call_id="warm")
            print(f"{'1 MB of':18} {'write':>8} {'materialize':>12} {'ratio':>6}   (limit {LIMIT_RATIO})")
            for name, content in CONTENTS.items():
                found, write_ms, whole_ms = await ratio(fs, name, content)
                print(f"{name:18} {write_ms:5.1f} ms {whole_ms:9.1f} ms {found:6.2f}")
                missed += found > LIMIT_RATIO
            if sys.platform == "linux":
                rose, seconds = await growth_mb(fs)
                print(f"\na command that prints 1 GB: {rose:.1f} MB more (limit {LIMIT_MB:.0f}), {seconds:.1f} s")
                missed += rose > LIMIT_MB
    finally:
        shutil.rmtree(root)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
