"""A thousand agents on this machine: each has a turn every few seconds, and workers die; nothing may be lost.

    python benchmarks/bench_agents.py [--store postgres|s3|directory] [--agents 1000] [--every 5] [--seconds 60]
                                      [--workers 2] [--kill-every 10]

A turn is one query with one call of a tool that only reads: three commits. Its result has 1 KB (70 %), 10 KB (25 %) or
100 KB (5 %). The model answers at once, so that a turn's time is that of ctxfs and the store. Workers are processes;
one that is killed is started again, and takes its sessions up. In the end every session is read, and each question
that was answered must be there, once, in order, with its answer. Printed: turns a second against what was asked for,
the times of turns, the CPU time of a turn in the workers, and the load of the machine. Turns begin late where the
machine cannot keep up; the time of a turn is counted from its beginning.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.errors import SessionLocked
from ctxfs.messages import AssistantMessage, ToolMessage, Usage, UserMessage
from ctxfs.messages.base import ModelEvent, ModelRequest, Reply
from ctxfs.storage import SessionStores, stores_at
from ctxfs.stores import ObjectSessions
from storage.contest import bucket_at
from storage.object_servers import seaweedfs
from storage.postgres_server import postgres

TTL_S = 1.0
SIZES = [1_000] * 14 + [10_000] * 5 + [100_000]


def stores_of(url: str, options: dict[str, Any]) -> SessionStores:
    if options or url.startswith("postgresql"):
        return ObjectSessions(bucket_at(url, options), url=url, ttl_s=TTL_S)
    return stores_at(url)


# --- A worker --------------------------------------------------------------------------------------------------------


class Model:
    """Looks once, and answers what it was asked."""

    model = "claude-sonnet-5-5"

    def check(self) -> None:
        """See ``ChatModel``: no key is needed."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See ``ChatModel``."""
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            asked = next(m for m in reversed(request.messages) if isinstance(m, UserMessage))
            yield reply(AssistantMessage(f"answer to {asked.content}"), "end_turn")
        else:
            number = len(request.messages)
            block = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
            yield reply(AssistantMessage((block,)), "tool_use")

    async def close(self) -> None:
        """See ``ChatModel``: nothing is open."""


def reply(message: AssistantMessage, stop_reason: str) -> Reply:
    return Reply(
        message=message, usage=Usage(input_tokens=100, output_tokens=10), stop_reason=stop_reason, model="bench"
    )


@tool("Look", read_only=True)
async def look() -> str:
    return os.urandom(random.choice(SIZES) // 2).hex()


async def serve(agent: str, stores: SessionStores, every_s: float) -> None:
    """One agent: a turn every so many seconds; what was answered is printed."""
    await anyio.sleep(random.uniform(0, every_s))
    while True:
        try:
            async with Agent(Model(), AgentConfig(offload_root_path=stores, session_id=agent, tools=[look])) as one:
                turn = len(one.context.items)
                while True:
                    began = time.perf_counter()
                    turn += 1
                    question = f"{agent} turn {turn} of {os.getpid()}"
                    assert await one.query(question) == f"answer to {question}"
                    took = time.perf_counter() - began
                    print(json.dumps([agent, question, took]), flush=True)
                    await anyio.sleep(max(0.0, every_s - took))
        except SessionLocked:  # of the worker that was killed
            await anyio.sleep(random.uniform(0.2, 1))


async def work(agents: list[str], stores: SessionStores, every_s: float) -> None:
    async with anyio.create_task_group() as tasks:
        for agent in agents:
            tasks.start_soon(serve, agent, stores, every_s)


# --- The machine -----------------------------------------------------------------------------------------------------


class Fleet:
    """The workers, each with its share of the agents, and what they acknowledged."""

    def __init__(self, url: str, options: dict[str, Any], agents: list[str], workers: int, every_s: float) -> None:
        self.answered: dict[str, list[str]] = {agent: [] for agent in agents}
        self.took: list[tuple[float, float]] = []
        shares = [agents[number::workers] for number in range(workers)]
        self._programs = [
            [sys.executable, __file__, "--worker", json.dumps([url, options, share, every_s])] for share in shares
        ]
        self._listening: list[threading.Thread] = []
        self.running = [self._start(program) for program in self._programs]
        self.kills = 0

    def _start(self, program: list[str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        self._listening.append(threading.Thread(target=self._listen, args=(process,)))
        self._listening[-1].start()
        return process

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith("\n"):
                    agent, question, took = json.loads(line)
                    self.answered[agent].append(question)
                    self.took.append((time.monotonic(), took))

    def kill_one(self) -> None:
        """Kill a worker, and start another one in its place."""
        place = random.randrange(len(self.running))
        self.running[place].kill()
        self.running[place].wait()
        self.running[place] = self._start(self._programs[place])
        self.kills += 1

    def stop(self) -> None:
        """Kill all of them; returns when all that they said was heard."""
        for process in self.running:
            process.kill()
            process.wait()
        for thread in self._listening:
            thread.join()


async def lost_in(stores: SessionStores, answered: dict[str, list[str]]) -> list[str]:
    """What was answered and is not there, once, in order, with its answer."""
    wrong: list[str] = []
    limit = anyio.CapacityLimiter(8)

    async def check(agent: str, questions: list[str]) -> None:
        async with limit, ContextFileSystem(agent, root_path=stores, read_only=True) as fs:
            texts = [str(item.message.content) for item in await fs.items(load=False)]
            there = {text: place for place, text in enumerate(texts)}
            places = [there.get(question, -1) for question in questions]
            whole = all(f"answer to {question}" in there for question in questions)
            if -1 in places or places != sorted(set(places)) or not whole or len(there) < len(set(texts)):
                wrong.append(agent)

    async with anyio.create_task_group() as tasks:
        for agent, questions in answered.items():
            if questions:
                tasks.start_soon(check, agent, questions)
    return wrong


@contextmanager
def server(kind: str, directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if kind == "postgres":
        with postgres() as running:
            yield running.url, {}
    elif kind == "s3":
        with seaweedfs(directory) as weed:
            yield weed.url, weed.options
    else:
        yield (directory / "sessions").as_uri(), {}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(options: argparse.Namespace, directory: Path) -> int:
    agents = [f"agent-{number:05}" for number in range(options.agents)]
    with server(options.store, directory) as (url, settings):
        before = cpu_seconds()
        began = time.monotonic()
        fleet = Fleet(url, settings, agents, options.workers, options.every)
        killed = began + options.warm_up
        while time.monotonic() < began + options.warm_up + options.seconds:
            time.sleep(0.2)
            if options.kill_every and time.monotonic() > killed + options.kill_every:
                fleet.kill_one()
                killed = time.monotonic()
        load = os.getloadavg()[0]
        fleet.stop()
        cpu = cpu_seconds() - before
        wrong = anyio.run(lost_in, stores_of(url, settings), fleet.answered)
    took = sorted(seconds * 1e3 for at, seconds in fleet.took if at > began + options.warm_up)
    acknowledged = sum(map(len, fleet.answered.values()))
    print(f"store {options.store}, {options.agents:,} agents, {options.workers} workers, {fleet.kills} of them killed")
    asked = options.agents / options.every
    print(f"turns/s         {len(took) / options.seconds:10.1f} of {asked:.0f} asked for")
    print(f"turn p50, ms    {median(took):10.1f}")
    print(f"turn p99, ms    {took[int(0.99 * (len(took) - 1))]:10.1f}")
    print(f"CPU a turn, ms  {cpu / max(1, acknowledged) * 1e3:10.1f}   all that the workers did")
    print(f"acknowledged    {acknowledged:10,} turns")
    print(f"sessions wrong  {len(wrong):10,} {wrong[:5]}")
    print(f"load            {load:10.1f} on {os.cpu_count()} processors")
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("postgres", "s3", "directory"), default="postgres")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--every", type=float, default=5.0, help="seconds from turn to turn")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long turns are counted")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds before that, to open the sessions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-every", type=float, default=10.0, help="seconds; 0: no worker is killed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        url, settings, share, every_s = json.loads(given.worker)
        anyio.run(work, share, stores_of(url, settings), every_s)
        return 0
    with tempfile.TemporaryDirectory(prefix="ctxfs-bench-", ignore_cleanup_errors=True) as directory:
        return measure(given, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
