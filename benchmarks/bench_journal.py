"""What a line of the journal costs, reading a session back, and taking turns in it: processor time, over bare floors.

    python benchmarks/bench_journal.py [ITEMS]

The floor of a line is orjson and the checksum alone: it encodes the data, and decodes it again, as ctxfs does before it
writes a line. A lease is compared with opening and closing the session. ITEMS (default: 10,000) are in the session that
is read back.
"""

import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import orjson

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage
from ctxfs.session.content.stored import Stored
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.record_json import to_json
from ctxfs.session.records import CallMade, ItemAdded, Record, Replaced
from ctxfs.session.shared import SharedFileSystem
from ctxfs.storage.local import LocalStore

ROUNDS = 200
REPEATS = 7
ENCODE_RATIO = 16.0
READ_RATIO = 12.0
LEASE_RATIO = 0.5
TEXT = ('a line of output with "quotes" and the number 12345\n' * 400)[:20_000]


def item(kind: ItemType, message: Message, number: int = 1, prefix: str = "call") -> ContextItem:
    item_id = f"{prefix}_{number}"
    name = f"{kind}/{item_id}.json"
    return ContextItem(id=item_id, item_type=kind, message=message, name=name, token_count=9, content_tokens=9)


def call(number: int = 1) -> ItemAdded:
    blocks = (
        {"type": "text", "text": "Let me look at the file."},
        {"type": "tool_use", "id": f"call_{number}", "name": "Read", "input": {"file_path": "/a/b/c.py", "limit": 200}},
    )
    return ItemAdded(item=item(ItemType.ASSISTANT_MESSAGE, AssistantMessage(blocks), number, "msg"))


STORED = Stored(
    item_id="call_1",
    item_type=ItemType.TOOL_RESULT,
    name="tool_result/Read/call_1.json",
    encoding="text",
    size_bytes=20_000,
    chars=20_000,
    lines=400,
    digest="ab" * 32,
    blocks=1,
    content_offset=200,
    content_length=21_000,
    raw=False,
    offloaded_at=1_700_000_000,
    metadata={"tool_name": "Read", "encoding": "text"},
)
BILLED = CallMade(number=1, usage=Usage(input_tokens=1200, output_tokens=90), model="claude-sonnet-4-5", made_at=1.7e9)
EVICTED = Replaced(
    item_id="call_1",
    content=f"[Content offloaded]\nPath: /s/{STORED.name}\nUse Read tool to view details.\n" + "head\n" * 40,
    token_count=99,
    path=STORED.name,
    destroyed=True,
    reason="beyond the last 2 of Read",
)
LINES: dict[str, list[Record]] = {
    "a result of 20 KB": [ItemAdded(item=item(ItemType.TOOL_RESULT, ToolMessage("call_1", "Read", TEXT)))],
    "a reply with a call, and its bill": [call(), BILLED],
    "an eviction": [STORED, EVICTED],
}


def best_us(work: Callable[[], object]) -> float:
    """The least processor time of one call, in microseconds."""
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(ROUNDS):
            work()
        spent.append((time.process_time() - start) / ROUNDS)
    return min(spent) * 1e6


def lines() -> bool:
    ok = True
    for name, records in LINES.items():
        data = [to_json(record) for record in records]

        def floor(data: object = data) -> None:
            rec = orjson.dumps(data)
            zlib.crc32(rec)
            orjson.loads(rec)

        line = encode_line(1, records)
        bare = best_us(floor)
        encoded = best_us(lambda records=records: encode_line(1, records))  # type: ignore[misc]
        decoded = best_us(lambda line=line: scan(line))  # type: ignore[misc]
        what = f"{name}: {encoded:.1f} us to encode, {decoded:.1f} us to decode, floor {bare:.1f} us"
        ok &= report(what, encoded / bare, ENCODE_RATIO)
    return ok


async def session_of(root: Path, items: int) -> None:
    store = LocalStore(root, "s", durability="process")
    async with SharedFileSystem("s", root_path=root, store=store) as fs:
        for number in range(items // 2):
            result = item(ItemType.TOOL_RESULT, ToolMessage(f"call_{number}", "Read", TEXT[:400]), number)
            await fs.writer.add([call(number).item, result])


async def spent_s(work: Callable[[], Awaitable[object]]) -> float:
    start = time.process_time()
    await work()
    return time.process_time() - start


async def reading(root: Path, items: int) -> bool:
    async def read() -> None:
        async with SharedFileSystem("s", root_path=root, read_only=True) as fs:
            assert len(await fs.items()) == items

    async def floor() -> None:
        for line in (root / "s" / "journal.jsonl").read_bytes().splitlines():
            zlib.crc32(line)
            orjson.loads(line)

    ours, bare = min([await spent_s(read) for _ in range(3)]), min([await spent_s(floor) for _ in range(3)])
    what = f"a session of {items:,} items read back: {ours:.2f} s, floor {bare:.3f} s"
    return report(what, ours / bare, READ_RATIO)


async def leases(root: Path) -> bool:
    fs = SharedFileSystem("s", root_path=root)

    async def lease() -> None:
        await fs.acquire()
        await fs.release()

    async def opening() -> None:
        async with SharedFileSystem("s", root_path=root):
            pass

    await fs.open()
    await fs.release()
    turns = min([await spent_s(lease) for _ in range(100)])
    await fs.close()
    opened = min([await spent_s(opening) for _ in range(3)])
    what = f"a lease in which nobody wrote: {turns * 1e3:.2f} ms, opening and closing: {opened * 1e3:.0f} ms"
    return report(what, turns / opened, LEASE_RATIO)


def report(what: str, ratio: float, limit: float) -> bool:
    ok = ratio <= limit
    print(f"{'ok' if ok else 'OVER':5} {ratio:6.2f} x  <= {limit:g} x   {what}", flush=True)
    return ok


async def main(items: int) -> int:
    ok = lines()
    with tempfile.TemporaryDirectory() as path:
        await session_of(Path(path), items)
        ok &= await reading(Path(path), items)
        ok &= await leases(Path(path))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
