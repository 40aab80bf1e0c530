"""Reading back: a page anywhere in 1 GB, a search of 100 MB, and how long the loop stands still meanwhile.

Limits: a page of 1 GB in at most 3 ms, checksum included, wherever it stands; a search at most twice a bare RE2 scan
of the same bytes in memory; the loop held for less than 25 ms, also by JSON of 10 MB. Each in both layouts; with
``--quick`` 100 MB and 20 MB. The search is also compared with one thread that does no more than read a file, check its
sums block by block and scan it: what reading back with checksums costs at least without a second core. Both are wall
time, which is right on an idle machine only; the processor time of the whole process, given beside them, is always.
"""

import asyncio
import hashlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import re2

from bench_loop_stall import Heartbeat
from ctxfs.messages import load_counter
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.jsontext.write_stream import BLOCK
from ctxfs.tools.retrieval import retrieval_tools
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.page import grep_page
from ctxfs.tools.stored import Scope

PAGE_LIMIT_MS = 3.0
GREP_LIMIT = 2.0
STALL_LIMIT_MS = 25.0
ROUNDS = 5
PATTERNS = {
    "rare": "needle in the hay",
    "alternation": "never|nowhere|nothing at all",
    "any case": "(?i)needle in the hay",
    "hostile": "(a+)+$",
}


def log_lines(size_bytes: int) -> Iterator[str]:
    rng = random.Random(7)
    # Letters as frequent as in English: a search that skips to a rare letter would measure nothing else.
    letters = "eeeeeeeeeeeetttttttttaaaaaaaaoooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrrddddlllluuucccmmmwwffggyyppbbvk"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(3000)]
    block = [f"2026-01-01T00:00:{n % 60:02} INFO " + " ".join(rng.choices(words, k=14)) for n in range(5000)]
    size = 0
    while size < size_bytes:
        for line in block:
            yield line
            size += len(line) + 1


async def stored(fs: ContextFileSystem, content: Content, call_id: str) -> str:
    item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, call_id, "Bash")
    message = ToolMessage(call_id, "Bash", content)
    item = ContextItem(
        id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=1, content_tokens=1
    )
    await fs.offload(item)
    return item_id


async def page_ms(fs: ContextFileSystem, item_id: str) -> list[float]:
    """Return the median cost of a page of 50 lines at ten places, the sidecar's first read left out."""
    total = fs.reader(item_id).stored.lines
    await fs.reader(item_id).lines(1, 1)
    times = []
    for tenth in range(10):
        runs = []
        for shift in range(7):
            first = 1 + (total - 60) * tenth // 9 + shift
            start = time.perf_counter()
            lines = await fs.reader(item_id).lines(first, first + 49)
            runs.append((time.perf_counter() - start) * 1000)
            assert len(lines) == 50
        times.append(statistics.median(runs))
    return times


def compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(f"(?m){pattern}".encode(), options)


class Clock:
    """Wall time and the processor time of the whole process, in ms."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """What has passed."""
        wall, cpu = self._start
        return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


def bare_ms(data: bytes, pattern: str) -> tuple[float, float]:
    scan = compiled(pattern)
    clock = Clock()
    for begin in range(0, len(data), 1_048_576):
        for _ in scan.finditer(data[begin : begin + 1_048_576]):
            pass
    return clock.read()


def checked_ms(path: Path, sums: list[bytes], pattern: str) -> tuple[float, float]:
    """Read, check and scan a file that holds the text as it is."""
    scan = compiled(pattern)
    clock = Clock()
    with path.open("rb", buffering=0) as file:
        for expected in sums:
            block = file.read(BLOCK)
            assert hashlib.sha256(block).digest() == expected
            for _ in scan.finditer(block):
                pass
    return clock.read()


def block_sums(path: Path) -> list[bytes]:
    with path.open("rb", buffering=0) as file:
        return [hashlib.sha256(block).digest() for block in iter(lambda: file.read(BLOCK), b"")]


def ratios(ours: list[tuple[float, float]], others: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the median ratio of wall times, and that of the least processor times, which nothing else adds to."""
    wall = statistics.median(our[0] / other[0] for our, other in zip(ours, others, strict=True))
    return wall, min(cpu for _, cpu in ours) / min(cpu for _, cpu in others)


async def search(fs: ContextFileSystem, item_id: str, data: bytes, plain: Path) -> bool:
    failed = False
    sums = block_sums(plain)
    for name, pattern in PATTERNS.items():
        bare, floor, ours, stalls = [], [], [], []
        for _ in range(ROUNDS):
            bare.append(await asyncio.to_thread(bare_ms, data, pattern))
            floor.append(await asyncio.to_thread(checked_ms, plain, sums, pattern))
            clock = Clock()
            await grep_page(Scope(fs), item_id, LinePattern(pattern))
            ours.append(clock.read())
            async with (
                Heartbeat() as heart
            ):  # in another run: a loop that turns all the time takes its share of two cores
                await grep_page(Scope(fs), item_id, LinePattern(pattern))
            stalls.append(heart.worst_ms)
        stall = statistics.median(stalls)
        ratio, cpu_ratio = ratios(ours, bare)
        checked, cpu_checked = ratios(ours, floor)
        print(
            f"  search, {name:12} {statistics.median(wall for wall, _ in ours):6.0f} ms, {ratio:5.2f} x a bare scan "
            f"(limit {GREP_LIMIT}), {checked:5.2f} x one that reads and checks, by processor time "
            f"{cpu_ratio:5.2f} x and {cpu_checked:5.2f} x, loop held {stall:4.1f} ms (limit {STALL_LIMIT_MS})"
        )
        failed |= ratio > GREP_LIMIT or stall > STALL_LIMIT_MS
    return failed


def json_contents() -> dict[str, tuple[Content, dict[str, Any]]]:
    """Contents of about 10 MB, each with what is asked of it."""
    rows = [{"id": n, "name": f"item {n}", "tags": ["a", "b"], "value": n * 1.5} for n in range(100_000)]
    log = "\n".join(log_lines(10_000_000))
    texts = tuple({"type": "text", "text": log[start : start + 200]} for start in range(0, len(log), 200))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 2_500_000}}
    return {
        "ten rows by path": (json.dumps({"rows": rows}), {"path": "$.rows[10:20].name"}),
        "100,000 by path": (json.dumps({"rows": rows}), {"path": "$.rows[*].name"}),
        "a text by path": (json.dumps({"log": log}), {"path": "$.log", "offset": 1_000}),
        "many blocks": (texts, {"offset": 1_000}),
        "a long block": (({"type": "text", "text": log},), {"offset": 1_000}),
        "an image block": ((image, texts[0]), {"offset": 1}),
    }


async def json_pages(fs: ContextFileSystem) -> bool:
    failed = False
    read = next(tool for tool in retrieval_tools(fs) if tool.name == "context_read")
    for number, (name, (content, arguments)) in enumerate(json_contents().items()):
        item_id = await stored(fs, content, f"json{number}")
        took, stalls = [], []
        for _ in range(ROUNDS):
            async with Heartbeat() as heart:
                start = time.perf_counter()
                result = await read.run({"ref": item_id, **arguments})
                took.append((time.perf_counter() - start) * 1000)
            assert not result.is_error, result.content
            stalls.append(heart.worst_ms)
        stall = statistics.median(stalls)
        print(
            f"  JSON, {name:16} {statistics.median(took):6.0f} ms, loop held {stall:4.1f} ms (limit {STALL_LIMIT_MS})"
        )
        failed |= stall > STALL_LIMIT_MS
    return failed


async def one_layout(layout: Layout, page_bytes: int, search_bytes: int) -> bool:
    with tempfile.TemporaryDirectory() as root:
        async with ContextFileSystem(root_path=Path(root), layout=layout) as fs:
            print(f"layout {layout.name}")
            content = "\n".join(log_lines(search_bytes))
            data = content.encode()
            plain = Path(root) / "plain.txt"
            plain.write_bytes(data)
            failed = await search(fs, await stored(fs, content, "searched"), data, plain)
            del content, data
            failed |= await json_pages(fs)
            times = await page_ms(fs, await stored(fs, "\n".join(log_lines(page_bytes)), "paged"))
            worst = max(times)
            print(
                f"  page of {page_bytes // 1_000_000:,} MB: {min(times):.2f} to {worst:.2f} ms (limit {PAGE_LIMIT_MS})"
            )
            return failed or worst > PAGE_LIMIT_MS


async def main() -> int:
    await load_counter()
    quick = "--quick" in sys.argv
    sizes = (100_000_000, 20_000_000) if quick else (1_000_000_000, 100_000_000)
    return int(any([await one_layout(layout, *sizes) for layout in (ENVELOPE, TEXT)]))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
