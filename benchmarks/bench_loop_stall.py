"""How long the event loop stands still while a 10 MB tool result is counted, described, stored and replaced.

Limit: 25 ms. The same is measured for the heartbeat alone, since the machine itself makes the loop wait; the
vocabulary's first load happens before the first turn and is reported apart.
"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from ctxfs.context import Context
from ctxfs.messages import load_counter
from ctxfs.messages.messages import UserMessage

LIMIT_MS = 25.0
SIZE_BYTES = 10_000_000
ROUNDS = 5


def contents() -> dict[str, str]:
    rng = random.Random(1)
    words = [f"{rng.choice('abcdefgh')}{n:x}" for n in range(4000)]
    log, size = [], 0
    while size < SIZE_BYTES:
        line = f"2026-01-01T00:00:00Z {rng.choice(['INFO', 'ERROR'])} " + " ".join(rng.choices(words, k=12))
        log.append(line)
        size += len(line) + 1
    return {
        "a log": "\n".join(log),
        "one line": "x" * SIZE_BYTES,
        "not ASCII": "größer 漢字 " * (SIZE_BYTES // 10),
        "JSON": "[" + ",".join(f'{{"id":{n},"name":"item {n}"}}' for n in range(SIZE_BYTES // 33)) + "]",
    }


class Heartbeat:
    """The longest gap between two turns of the loop, in ms."""

    async def __aenter__(self) -> Self:
        self.worst_ms = 0.0
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0.05)
        self.worst_ms = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.005)
        self._task.cancel()

    async def _beat(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            self.worst_ms = max(self.worst_ms, (now - last) * 1000)
            last = now


async def stall_ms(content: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as root:
        async with Context(root_path=Path(root), keep_recent={"Read": 1}) as context:
            start = time.perf_counter()
            async with Heartbeat() as heart:
                await context.add(UserMessage("go"), call(1))
                await context.add(answer(1, content))
                await context.add(call(2))
                await context.add(answer(2, "small"), call(3))
                await context.add(answer(3, "small"))
                await context.messages()
            assert context.items[2].offloaded
            return heart.worst_ms, (time.perf_counter() - start) * 1000


def call(number: int) -> dict[str, object]:
    block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {}}
    return {"role": "assistant", "content": [block]}


def answer(number: int, content: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": content}]}


async def main() -> int:
    start = time.perf_counter()
    async with Heartbeat() as heart:
        await load_counter()
    print(f"vocabulary loaded in {(time.perf_counter() - start) * 1000 - 55:.0f} ms, loop held {heart.worst_ms:.1f} ms")
    async with Heartbeat() as heart:
        await asyncio.sleep(1)
    print(f"heartbeat alone, for one second: {heart.worst_ms:.1f} ms")
    failed = False
    for name, content in contents().items():
        runs = [await stall_ms(content) for _ in range(ROUNDS)]
        worst = sorted(ms for ms, _ in runs)
        median = worst[len(worst) // 2]
        total = min(ms for _, ms in runs)
        print(f"{name:10} loop held {median:6.1f} ms (worst {worst[-1]:.1f}; limit {LIMIT_MS}), {total:.0f} ms in all")
        failed |= median > LIMIT_MS
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
