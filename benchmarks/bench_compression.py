"""Compressed contents beside contents as they are: bytes, the cost of a write, a page deep in 1 GB, a search of it.

Limits: a page and a search cost at most twice as much as without compression. With ``--quick`` 100 MB. With
``CTXFS_TRACES`` also the contents of recorded sessions, or ``--recordings`` only these: what compressing them saves,
and costs. Processor time of the whole process, the best of several runs.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from bench_retrieval import log_lines
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.content.file import ContentFile
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.page import grep_page
from ctxfs.tools.stored import Scope

LIMIT = 2.0
PAGES = 50
DISK_BLOCK = 4096


async def best_ms(rounds: int, work: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        await work()
        times.append(time.process_time() - start)
    return min(times) * 1000


async def measured(layout: Layout, text: str, root: Path) -> tuple[float, float, float, float, int]:
    """Return the cost of a write, of a page, of a search with few matches and of one with none, and the file's size."""
    async with ContextFileSystem(f"s{time.monotonic_ns()}", root_path=root, layout=layout) as fs:
        start = time.process_time()
        item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, "call", "Bash", text)
        message = ToolMessage("call", "Bash", text)
        await fs.offload(
            ContextItem(
                id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=1, content_tokens=1
            )
        )
        written = (time.process_time() - start) * 1000
        total = fs.reader(item_id).stored.lines

        async def pages() -> None:
            for number in range(PAGES):
                await fs.reader(item_id).lines(first := total * (number + 1) // (PAGES + 1), first + 49)

        async def search(pattern: str) -> None:
            await grep_page(Scope(fs), item_id, LinePattern(pattern))

        await pages()
        page = await best_ms(5, pages) / PAGES
        rare = await best_ms(3, lambda: search("needle in the hay"))
        none = await best_ms(3, lambda: search("never|nowhere|nothing at all"))
        return written, page, rare, none, sum(f.stat().st_size for f in (root / fs.session_id).rglob("call*"))


def recorded(folder: Path) -> Iterator[str]:
    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | dict):
            for part in value if isinstance(value, list) else value.values():
                yield from texts(part)

    for file in sorted(folder.rglob("*.json")):
        yield from texts(orjson.loads(file.read_bytes()))


def file_bytes(text: str, compressed: bool) -> int:
    made = ContentFile(
        text,
        item_id="c",
        item_type=ItemType.TOOL_RESULT,
        name="c",
        raw=False,
        offloaded_at=0,
        extra={},
        compressed=compressed,
    )
    return sum(map(len, made))


def on_disk(size_bytes: int) -> int:
    return -(-size_bytes // DISK_BLOCK) * DISK_BLOCK


def traces(folder: Path) -> None:
    contents = {text for text in recorded(folder) if len(text) > 8192}
    print(
        "\n| contents of recordings | number | bytes | compressed | blocks saved | CPU more a write (µs) |\n"
        "|---|---|---|---|---|---|"
    )
    for low, high in ((8_192, 16_384), (16_384, 32_768), (32_768, 1 << 30)):
        chosen = [text for text in contents if low <= len(text) < high]
        sizes, seconds = {}, {}
        for compressed in (False, True):
            seconds[compressed] = min(timed(chosen, compressed) for _ in range(5))
            sizes[compressed] = [file_bytes(text, compressed) for text in chosen]
        saved = 1 - sum(map(on_disk, sizes[True])) / sum(map(on_disk, sizes[False]))
        more = (seconds[True] - seconds[False]) / len(chosen) * 1e6
        print(
            f"| {low:,}-{min(high, max(map(len, chosen))):,} characters | {len(chosen)} | {sum(sizes[False]):,} "
            f"| {sum(sizes[True]):,} | {saved:.0%} | {more:.0f} |"
        )


def timed(texts: list[str], compressed: bool) -> float:
    start = time.process_time()
    for text in texts:
        file_bytes(text, compressed)
    return time.process_time() - start


async def main() -> int:
    size = 100 << 20 if "--quick" in sys.argv else 1 << 30
    text = "\n".join(log_lines(size))
    slow = []
    print(
        f"| {size >> 20} MB of log | bytes | write (ms) | page (ms) | search (ms) | another (ms) |\n"
        "|---|---|---|---|---|---|"
    )
    for layout in (ENVELOPE, TEXT):
        plain = None
        for chars in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                *times, file_size = await measured(replace(layout, compress_from_chars=chars), text, Path(folder))
            shown = " | ".join(
                f"{value:,.2f}" + (f" ({value / base:.2f} x)" if plain else "")
                for value, base in zip(times, plain or times, strict=True)
            )
            print(f"| {layout.name}{', compressed' if chars else ''} | {file_size:,} | {shown} |", flush=True)
            if plain:
                slow += [value / base for value, base in zip(times[1:], plain[1:], strict=True) if value / base > LIMIT]
            plain = plain or times
    if recordings := os.environ.get("CTXFS_TRACES"):
        traces(Path(recordings))
    return bool(slow)


if __name__ == "__main__":
    if "--recordings" in sys.argv:
        traces(Path(os.environ["CTXFS_TRACES"]))
        sys.exit()
    sys.exit(asyncio.run(main()))
