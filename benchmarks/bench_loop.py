"""What the agent's loop and its parts cost: CPU of a model call with a tool result of 20 KB, and of its parts alone.

    python benchmarks/bench_loop.py [--quick] [DIRECTORY]

An exchange is a reply that calls a tool, its result of 20 KB made durable, and the next request; with default settings,
and with ``materialize``. Its floor is the bare system calls for that and one count of the result's tokens. A request is
the next one after an exchange of short messages. Results of 100 KB and 1 MB are added to a context, over the bare
system calls of ``bench_offload``. All times are CPU times of the whole process, the medians of all rounds. A busy
machine makes them longer, and changes the ratios to the floors less, which are taken in turn. Limits: 5 ms a call of
the loop, 2.5 ms an exchange; 0.2, 0.4 and 1.5 ms a request with 100, 1,000 and 10,000 messages; 2 and 1.5 times the
floor for results. DIRECTORY should be on the disk that will hold the sessions (default: a new one in the current one).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import anyio

from bench_offload import Floor as OffloadFloor
from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.messages import TokenCounter, load_counter
from ctxfs.messages.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from ctxfs.testing import ScriptedModel
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.testing.scripted import Checker
from ctxfs.tools import Materializer

CALL_LIMIT_MS = 5.0
EXCHANGE_MS = 2.5
REQUEST_MS = {100: 0.2, 1_000: 0.4, 10_000: 1.5}
CONTENT_RATIO = {100_000: 2.0, 1_000_000: 1.5}
RESULT_CHARS = 20_000
LINE = "2026-01-15 12:34:56 INFO worker-7 handled request 8b1f in 12 ms, status 200\n"


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


async def exchange_ms(root: Path, rounds: int, eager: EagerPolicy | None = None) -> tuple[float, float, float]:
    """Return the CPU of taking an exchange in, of the next request, and of the floor, in turn."""
    counter = await load_counter()
    floor = Floor(root / ("default" if eager is None else "materialize"), counter)
    taking, asking, bare = list[float](), list[float](), list[float]()
    async with Context(root_path=root, eager=eager) as context:
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
            taking.append(taken - begin)
            asking.append(asked - taken)
            bare.append(time.process_time() - asked)
    return median(taking) * 1e3, median(asking) * 1e3, median(bare) * 1e3


class Floor:
    """The least that a durable exchange can be: bare system calls in one thread, and one count."""

    def __init__(self, root: Path, counter: TokenCounter) -> None:
        self._root = root
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
    spent: list[float] = []
    async with Context(root_path=root, window=None) as context:
        await context.add(*short_messages(messages))
        await context.request()
        for number in range(messages, messages + rounds):
            await context.add(*exchange(number, "status 200"))
            start = time.process_time()
            await context.request()
            spent.append(time.process_time() - start)
    return median(spent) * 1e3


async def content_ratio(root: Path, chars: int, rounds: int) -> tuple[float, float]:
    """Return the CPU of adding a result of so many characters, and how many times its floor that is."""
    text = (LINE * (chars // len(LINE) + 1))[:chars]
    floor, adding, bare = OffloadFloor(root / f"floor-{chars}"), list[float](), list[float]()
    async with Context(root_path=root) as context:
        await context.add(UserMessage("Read all of the log."))
        for number in range(rounds):
            reply, answer = exchange(number, f"{number:08}{text}")
            await context.add(reply)
            begin = time.process_time()
            await context.add(answer)
            added = time.process_time()
            floor.offload(f"{number:08}{text}".encode(), b"x" * 500)
            adding.append(added - begin)
            bare.append(time.process_time() - added)
    return median(adding) * 1e3, median(adding) / median(bare)


def said(what: str, figure: str, limit: str, *, ok: bool) -> bool:
    print(f"{'ok  ' if ok else 'OVER'}  {what:<34} {figure:>28}  (limit {limit})")
    return ok


async def main(root: Path, *, quick: bool) -> int:
    await load_counter()
    total, checks = await loop_ms(root, 100 if quick else 300)
    figure = f"{total:.2f} ms, checks of the model {checks:.2f}"
    within = [said("a call of the loop", figure, f"{CALL_LIMIT_MS:g} ms", ok=total <= CALL_LIMIT_MS)]
    for name, eager in (("an exchange", None), ("an exchange, materialize", Materializer())):
        taking, asking, bare = await exchange_ms(root, 50 if quick else 200, eager)
        ms = taking + asking
        print(f"      {name}: taken in {taking:.2f} ms, the next request {asking:.2f}, floor {bare:.2f}")
        within.append(said(name, f"{ms:.2f} ms, {ms / bare:.1f} x floor", f"{EXCHANGE_MS:g} ms", ok=ms <= EXCHANGE_MS))
    for size, limit in list(REQUEST_MS.items())[: 2 if quick else 3]:
        ms = await request_ms(root, size, 20)
        within.append(said(f"a request, {size:,} messages", f"{ms:.2f} ms", f"{limit:g} ms", ok=ms <= limit))
    for chars, limit in CONTENT_RATIO.items():
        ms, ratio = await content_ratio(root, chars, 30 if quick else 100)
        name = f"a result of {chars // 1_000:,} KB is added"
        within.append(said(name, f"{ms:.2f} ms, {ratio:.1f} x floor", f"{limit:g} x", ok=ratio <= limit))
    return int(not all(within))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", default=".")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory, prefix=".bench-") as directory:
        sys.exit(anyio.run(lambda: main(Path(directory), quick=options.quick)))
