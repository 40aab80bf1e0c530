"""What a session in an object store costs over the bare store: SeaweedFS on loopback, by obstore.

    python benchmarks/bench_fleet.py [--items 10000]

A durable commit (100 KB of content and a line) is taken in turn with a bare put-if-absent of the same bytes: medians.
64 sessions in one process, of 20 commits each, are taken in turn with 64 tasks that use obstore's own asynchronous
client. Taking up is opening a session of so many items, each its own commit, for writing, as a writer does that was
killed: in requests, and in seconds. A page that was read before is read again with the cache: in requests.
Limits: 1.3 times a bare put, 0.8 of the bare client's throughput, 30 requests and 1 s for 10,000 items, no request for
a page. Latencies are those of a server on the same machine: those of a real one are added to both sides of each ratio.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import anyio
import obstore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from ctxfs import ContextFileSystem
from ctxfs.storage import NewFile
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import ObjectStore, ReadCache, open_bucket
from ctxfs.stores.objects.bucket import ObstoreBucket
from session_items import user_message
from storage.buckets import MemoryBucket
from storage.object_servers import seaweedfs

COMMIT_RATIO, THROUGHPUT_RATIO, REQUESTS, SECONDS = 1.3, 0.8, 30, 1.0
SESSIONS, COMMITS, ROUNDS = 64, 20, 3


class Counted(ObstoreBucket):
    """A bucket that counts its requests, one for each page of a list."""

    requests = 0

    def create(self, key: str, data: bytes) -> None:
        """See ``Bucket.create``."""
        self.requests += 1
        super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See ``Bucket.put``."""
        self.requests += 1
        super().put(key, data)

    def get(self, key: str) -> bytes:
        """See ``Bucket.get``."""
        self.requests += 1
        return super().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        """See ``Bucket.get_range``."""
        self.requests += 1
        return super().get_range(key, offset, size)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """See ``Bucket.keys``."""
        found = list(super().keys(prefix, after=after))
        self.requests += 1 + len(found) // 1000
        return iter(found)


def bucket(options: dict[str, Any]) -> Counted:
    client = {"allow_http": True, "timeout": timedelta(seconds=60)}
    opened = open_bucket("s3://ctxfs/bench", {**options, "client_options": client})
    opened.__class__ = Counted
    assert isinstance(opened, Counted)
    return opened


def content() -> bytes:
    return os.urandom(100_000)


async def commit_ratio(on: Counted, commits: int) -> tuple[float, float]:
    """Milliseconds of a bare put-if-absent, and of a commit."""
    store = ThreadedStore(ObjectStore(on, uuid4().hex))
    await store.open(create=True, write=True)
    bare: list[float] = []
    durable: list[float] = []
    for number in range(commits):
        data = content()
        started = time.perf_counter()
        on.create(f"bare/{uuid4().hex}", data)
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        await store.commit([NewFile(name=f"f{number}", chunks=[data])], lambda: b"line\n")
        durable.append(time.perf_counter() - started)
    await store.close()
    return median(bare) * 1e3, median(durable) * 1e3


async def bare_seconds(on: Counted) -> float:
    async def write() -> None:
        for _ in range(COMMITS):
            await obstore.put_async(on.store, f"bare/{uuid4().hex}", content(), mode="create", use_multipart=False)

    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(SESSIONS):
            tasks.start_soon(write)
    return time.perf_counter() - started


async def sessions_seconds(on: Counted) -> float:
    stores = [ThreadedStore(ObjectStore(on, uuid4().hex)) for _ in range(SESSIONS)]
    for store in stores:
        await store.open(create=True, write=True)

    async def write(store: ThreadedStore) -> None:
        for number in range(COMMITS):
            await store.commit([NewFile(name=f"f{number}", chunks=[content()])], lambda: b"line\n")

    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for store in stores:
            tasks.start_soon(write, store)
    seconds = time.perf_counter() - started
    for store in stores:
        await store.close()
    return seconds


async def taking_up(on: Counted, items: int) -> tuple[int, float]:
    """Requests and seconds of opening a session that was killed after so many items."""
    memory = MemoryBucket()
    fs = ContextFileSystem("taken", store=ObjectStore(memory, "taken"))
    await fs.open()
    for number in range(items):
        await fs.writer.add([user_message(fs, f"Message {number}")])
    with ThreadPoolExecutor(32) as threads:
        list(threads.map(lambda one: on.put(*one), memory.objects.items()))
    on.requests = 0
    started = time.perf_counter()
    again = ContextFileSystem("taken", store=ObjectStore(on, "taken", ttl_s=0))
    await again.open()
    seconds, requests = time.perf_counter() - started, on.requests
    assert len(await again.items()) == items
    await again.close()
    await fs.close()
    return requests, seconds


async def cached_page(on: Counted, folder: Path) -> tuple[int, int]:
    """Requests for a page of 50 KB in the middle of 5 MB: at first, and again."""
    session_id = uuid4().hex
    store = ThreadedStore(ObjectStore(on, session_id))
    await store.open(create=True, write=True)
    await store.commit([NewFile(name="f", chunks=[os.urandom(5_000_000)])], lambda: b"line\n")
    await store.close()
    counts = []
    for _ in range(2):
        reader = ThreadedStore(ObjectStore(on, session_id, cache=ReadCache(folder)))
        await reader.open(create=False, write=False)
        on.requests = 0
        await reader.read("f", 2_500_000, 50_000)
        counts.append(on.requests)
        await reader.close()
    return counts[0], counts[1]


def row(name: str, figure: str, value: float, *, reached: bool) -> int:
    print(f"{name:38} {figure:24} {value:8.2f}  {'' if reached else 'LIMIT NOT REACHED'}", flush=True)
    return not reached


async def measure(options: dict[str, Any], items: int, folder: Path) -> int:
    on, failed = bucket(options), 0
    bare, durable = await commit_ratio(on, 200)
    ratio = durable / bare
    failed += row("commit / bare put-if-absent", f"{durable:.1f} / {bare:.1f} ms", ratio, reached=ratio <= COMMIT_RATIO)
    first, again = await cached_page(on, folder)
    failed += row("a page: requests", f"{first} at first", again, reached=again == 0)
    ratios = []
    for _ in range(ROUNDS):
        bare = await bare_seconds(on)
        ratios.append(bare / await sessions_seconds(on))
    share = median(ratios)
    rate = f"{SESSIONS * COMMITS / bare * share:.0f} commits/s"
    failed += row("64 sessions / bare client", rate, share, reached=share >= THROUGHPUT_RATIO)
    requests, seconds = await taking_up(on, items)
    failed += row(f"taking up {items:,} items: requests", "", requests, reached=requests <= REQUESTS)
    failed += row(f"taking up {items:,} items: seconds", "", seconds, reached=seconds <= SECONDS)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ctxfs-bench-") as folder, seaweedfs(Path(folder)) as server:
        return anyio.run(measure, server.options, given.items, Path(folder) / "cache")


if __name__ == "__main__":
    sys.exit(main())
