"""How fast tokens are counted, by which engine, and how long an event loop waits meanwhile.

Limit: while a 10 MB text is counted in a worker thread, the loop never stands still for more than 25 ms.
"""

import asyncio
import json
import random
import string
import sys
import time
from collections.abc import Callable

from ctxfs.messages import O200kCounter, TokenCounter
from ctxfs.messages.tokens import exceeds, tiktoken_counter, toktok_counter

MB = 1_000_000
STALL_LIMIT_MS = 25
ROUNDS = 3


def samples() -> dict[str, str]:
    """Return 10 MB each of what tools return, and of what hurts."""
    rng = random.Random(0)
    log = "".join(
        f"2026-01-02 12:00:{i % 60:02} INFO worker-{i % 7} request id={rng.getrandbits(64):x} took {i % 977} ms\n"
        for i in range(150_000)
    )
    rows = [{"id": i, "name": f"user {i}", "tags": ["a", "b"], "score": rng.random()} for i in range(160_000)]
    code = (
        "    def method(self, value: int) -> str:\n        return f'{self.name}: {value!r}'  # it's fine\n\n" * 110_000
    )
    base64 = "".join(rng.choices(string.ascii_letters + string.digits + "+/", k=10 * MB))
    texts = {
        "log": log,
        "JSON": json.dumps(rows, separators=(",", ":")),
        "code": code,
        "base64": base64,
        "one letter": "a" * (10 * MB),
        "spaces": " " * (10 * MB),
    }
    return {name: text[: 10 * MB] for name, text in texts.items()}


async def longest_stall(until: Callable[[], bool]) -> float:
    """Return the longest time in seconds that the loop overslept a timer of 1 ms."""
    longest = 0.0
    while not until():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - before - 0.001)
    return longest


async def count_beside_a_loop(counter: TokenCounter, text: str) -> tuple[float, float]:
    """Return the seconds that counting in a thread took, and the longest stall of the loop."""
    start = time.perf_counter()
    counting = asyncio.create_task(asyncio.to_thread(counter.count, text))
    stall = await longest_stall(counting.done)
    await counting
    return time.perf_counter() - start, stall


async def idle(seconds: float) -> float:
    """Return the longest stall of a loop with nothing beside it: what the machine does by itself."""
    end = time.perf_counter() + seconds
    return await longest_stall(lambda: time.perf_counter() > end)


async def load_beside_a_loop(load: Callable[[], O200kCounter | None]) -> tuple[O200kCounter | None, float]:
    """Return the counter, and the longest stall of the loop while it was loaded in a thread."""
    loading = asyncio.create_task(asyncio.to_thread(load))
    stall = await longest_stall(loading.done)
    return await loading, stall


def load() -> list[O200kCounter]:
    counters: list[O200kCounter] = []
    for one in (tiktoken_counter, toktok_counter):
        counter, stall = asyncio.run(load_beside_a_loop(one))
        if counter is not None:
            counters.append(counter)
            print(f"{counter.engine:10} {counter.load_s * 1000:8.0f} {stall * 1000:22.1f}")
    return counters


def main() -> int:
    print(f"an idle loop stands still for up to {asyncio.run(idle(1)) * 1000:.1f} ms")
    print(f"\n{'loads once':10} {'in ms':>8} {'loop stands still, ms':>22}")
    counters = load()
    print(f"\n{'10 MB of':12} {'engine':10} {'MB/s':>6} {'loop stands still, ms':>22}")
    worst = 0.0
    texts = samples()
    for name, text in texts.items():
        for counter in counters:
            runs = [asyncio.run(count_beside_a_loop(counter, text)) for _ in range(ROUNDS)]
            took, stalls = min(run[0] for run in runs), sorted(run[1] * 1000 for run in runs)
            worst = max(worst, stalls[0])
            print(f"{name:12} {counter.engine:10} {len(text) / MB / took:6.1f} {stalls[0]:12.1f} to {stalls[-1]:5.1f}")
    print(f"\nlongest stall {worst:.1f} ms, the best of {ROUNDS} runs each (limit {STALL_LIMIT_MS})")
    for counter in counters:
        start = time.perf_counter()
        assert exceeds(counter, texts["log"][:MB], 20_000)
        print(f"over 20,000 tokens? 1 MB of log, {counter.engine}: {(time.perf_counter() - start) * 1000:.1f} ms")
    return int(worst > STALL_LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
