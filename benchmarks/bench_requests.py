"""What sessions in a bucket ask of it: writes, lists and reads for a query, and dollars for a million at S3's prices.

    python benchmarks/bench_requests.py

The bucket is in memory and counts its requests; the model is scripted. A query has one call of a tool, whose result has
600 lines. A list is counted once, however many keys it has. It states no limit: a test compares what it prints.
"""

import asyncio
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from ctxfs import Agent, AgentConfig, History, tool
from ctxfs.messages import ToolCall
from ctxfs.stores import ObjectSessions
from ctxfs.testing import ScriptedModel
from storage.buckets import MemoryBucket

QUERIES = 20
TURNS = 30
WRITE_DOLLARS = 5.0  # for a million writes or lists
READ_DOLLARS = 0.4  # for a million reads
KINDS = {"create": "writes", "put": "writes", "list": "lists", "get": "reads", "delete": "not billed"}
MODEL = "claude-sonnet-5-5"


def log_of(day: int) -> str:
    return "".join(f"day {day} request {n} served in {n * 7 % 97} ms\n" for n in range(600))


def counted(bucket: MemoryBucket, number: int) -> list[float]:
    """Writes, lists, reads and dollars per million of each of ``number``."""
    kinds = Counter(KINDS[kind] for kind, _ in bucket.requests)
    writes, lists, reads = (kinds[kind] / number for kind in ("writes", "lists", "reads"))
    return [writes, lists, reads, (writes + lists) * WRITE_DOLLARS + reads * READ_DOLLARS]


async def queries(*, read_only: bool, reopened: bool) -> list[float]:
    """An agent that stays open, or that is opened for each query."""
    bucket = MemoryBucket()

    @tool("Read the log of a day", read_only=read_only)
    async def read_log(day: int) -> str:
        return log_of(day)

    async def ask(first: int, last: int) -> None:
        replies: list[Any] = []
        for day in range(first, last):
            replies += [[ToolCall("read_log", {"day": day})], "It has none."]
        stores = ObjectSessions(bucket, url="memory://bucket")
        config = AgentConfig(tools=[read_log], offload_root_path=stores, session_id="session")
        async with Agent(ScriptedModel(replies), config) as agent:
            if not reopened:
                bucket.requests.clear()
            for day in range(first, last):
                await agent.query(f"Has day {day} an error?")
            if not reopened:
                found.extend(counted(bucket, QUERIES))

    found: list[float] = []
    if not reopened:
        await ask(0, QUERIES)
        return found
    for day in range(QUERIES):
        await ask(day, day + 1)
    return counted(bucket, QUERIES)


async def turns(*, reopened: bool) -> list[float]:
    """A framework's history: each turn is a question, a call and its result, and an answer, in two requests."""
    bucket = MemoryBucket()
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 1_000, "messages": []}
    messages = body["messages"]

    def made() -> History:
        return History("session", root_path=ObjectSessions(bucket, url="memory://bucket"), model=MODEL)

    history = made()
    for day in range(TURNS):
        if reopened and day:
            history = made()
        call = {"type": "tool_use", "id": f"call_{day}", "name": "read_log", "input": {"day": day}}
        result = {"type": "tool_result", "tool_use_id": f"call_{day}", "content": log_of(day)}
        for asked, reply in (
            ({"role": "user", "content": f"Has day {day} an error?"}, [call]),
            ({"role": "user", "content": [result]}, [{"type": "text", "text": "It has none."}]),
        ):
            messages.append(asked)
            history.messages(
                {**body, "messages": list(messages), "tools": [tool.schema.for_messages() for tool in history.tools]}
            )
            messages.append({"role": "assistant", "content": reply})
        if reopened:
            history.close()
    return counted(bucket, TURNS)


ROWS: dict[str, Callable[[], Awaitable[list[float]]]] = {
    "an agent that stays open, the tool `read_only`": lambda: queries(read_only=True, reopened=False),
    "an agent that stays open, the tool with side effects": lambda: queries(read_only=False, reopened=False),
    "an agent opened for each query, the tool `read_only`": lambda: queries(read_only=True, reopened=True),
    "an agent opened for each query, the tool with side effects": lambda: queries(read_only=False, reopened=True),
    "a framework's history (`History`) in one worker, a turn with two model requests": lambda: turns(reopened=False),
    "the same, a new worker for each turn": lambda: turns(reopened=True),
}


async def main() -> None:
    print("| | writes | lists | reads | dollars |\n|---|---|---|---|---|")
    for name, row in ROWS.items():
        *requests, dollars = await row()
        print(f"| {name} | {' | '.join(f'{one:.1f}' for one in requests)} | {dollars:.0f} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the scripted model has no known prices
    asyncio.run(main())
