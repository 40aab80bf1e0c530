"""What the agent's loop and its parts cost: CPU of a model call with a tool result of 20 KB, and of an exchange alone.

    python benchmarks/bench_loop.py [--quick] [DIRECTORY]

An exchange is a reply that calls a tool, its result of 20 KB made durable, and the next request. Its floor is the bare
system calls for that and one count of the result's tokens. All times are CPU times of the whole process. Limit: 5 ms a
call of the loop. DIRECTORY should be on the disk that will hold the sessions (default: a new one in the current one).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.llm.checker import Checker
from ctxfs.llm.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from ctxfs.testing import PromptCache, ScriptedModel
from ctxfs.tokens import TokenCounter, load_counter

CALL_LIMIT_MS = 5.0
RESULT_CHARS = 20_000
LINE = "2026-01-15 12:34:56 INFO worker-7 handled request 8b1f in 12 ms, status 200\n"
SIZES = (100, 1_000, 10_000)


def result(number: int) -> str:
    return f"{number:08}\n{LINE * (RESULT_CHARS // len(LINE))}"


@tool("Read a part of the log.")
def read_log(part: int) -> str:
    return result(part)


async def loop_ms(root: Path, calls: int) -> tuple[float, float]:
    """Return the CPU of one call of the loop, and the part of it that is the scripted model's own checks."""
    turns = [[ToolCall("read_log", {"part": number})] for number in range(calls)]
    model = ScriptedModel([*turns, "done"])
    agent = Agent(model, AgentConfig(offload_root_path=root, tools=[read_log], max_turns=None))
    async with agent:
        start = time.process_time()
        await agent.query("Read all of the log.")
        total = (time.process_time() - start) * 1e3
    checker, cache = Checker(), PromptCache(explicit=False)
    start = time.process_time()
    for body in model.requests:
        checker.check(body)
        cache.account(body)
    checks = (time.process_time() - start) * 1e3
    return total / calls, checks / calls


def exchange(number: int, text: str) -> tuple[AssistantMessage, ToolMessage]:
    call_id = f"call_{number:06}"
    block = {"type": "tool_use", "id": call_id, "name": "read_log", "input": {"part": number}}
    return AssistantMessage((block,)), ToolMessage(call_id, "read_log", text)


async def exchange_ms(root: Path, rounds: int) -> tuple[float, float, float]:
    """Return the CPU of taking an exchange in, of the next request, and of the floor, in turn."""
    counter = await load_counter()
    floor = Floor(root, counter)
    taking, asking, bare = 0.0, 0.0, 0.0
    async with Context(root_path=root) as context:
        await context.add(UserMessage("Read all of the log."))
        for number in range(rounds):
            reply, answer = exchange(number, result(number))
            begin = time.process_time()
            await context.add(reply)
            await context.add(answer)
            taken = time.process_time()
            await context.request()
            asked = time.process_time()
            floor.exchange(result(number))
            taking, asking, bare = taking + taken - begin, asking + asked - taken, bare + time.process_time() - asked
    return taking / rounds * 1e3, asking / rounds * 1e3, bare / rounds * 1e3


class Floor:
    """The least that a durable exchange can be: bare system calls in one thread, and one count."""

    def __init__(self, root: Path, counter: TokenCounter) -> None:
        self._root = root / "floor"
        self._root.mkdir()
        self._journal = os.open(self._root / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._counter = counter
        self._number = 0

    def exchange(self, text: str) -> None:
        """Note a reply, then store ``text`` and note it."""
        self._note()
        self._number += 1
        self._counter.count(text)
        fd = os.open(self._root / "temporary", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, text.encode())
        os.fsync(fd)
        os.close(fd)
        os.link(self._root / "temporary", self._root / f"{self._number}.json")
        (self._root / "temporary").unlink()
        self._note()

    def _note(self) -> None:
        os.write(self._journal, b"x" * 500)
        os.fsync(self._journal)


def short_messages(count: int) -> Iterator[Message]:
    yield UserMessage("Go on.")
    for number in range(count // 2):
        yield from exchange(number, "status 200")


async def request_ms(root: Path, messages: int, rounds: int) -> float:
    """Return the CPU of a request after one more exchange, with so many messages before it."""
    total = 0.0
    async with Context(root_path=root, window=None) as context:
        await context.add(*short_messages(messages))
        await context.request()
        for number in range(messages, messages + rounds):
            await context.add(*exchange(number, "status 200"))
            start = time.process_time()
            await context.request()
            total += time.process_time() - start
    return total / rounds * 1e3


async def main(root: Path, *, quick: bool) -> int:
    total, checks = await loop_ms(root, 100 if quick else 300)
    print(f"a call of the loop:      {total:6.2f} ms of CPU (limit {CALL_LIMIT_MS:.0f})")
    print(f"  the model's checks:    {checks:6.2f} ms, {checks / total:.0%}")
    taking, asking, bare = await exchange_ms(root, 50 if quick else 200)
    print(f"an exchange by itself:   {taking + asking:6.2f} ms, {(taking + asking) / bare:.1f} x its floor")
    print(f"  taken in:              {taking:6.2f} ms, {taking / bare:.1f} x")
    print(f"  the next request:      {asking:6.2f} ms, {asking / bare:.1f} x")
    print(f"  floor:                 {bare:6.2f} ms")
    for size in SIZES[: 2 if quick else 3]:
        print(f"request, {size:6,} messages: {await request_ms(root, size, 20):5.2f} ms")
    return int(total > CALL_LIMIT_MS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", default=".")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory, prefix=".bench-") as directory:
        sys.exit(anyio.run(lambda: main(Path(directory), quick=options.quick)))
