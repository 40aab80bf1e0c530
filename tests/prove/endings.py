"""Programs that end while they use a session, one process each: how a loop ends, and what its session has afterwards.

``python endings.py DIRECTORY WAY FIRST NUMBER [broken]`` ends ``NUMBER`` programs and prints what was wrong, as JSON.
A program that never ends, since an interrupt cut Python's own event loop, is killed; its session is looked at as well.
"""

import asyncio
import importlib
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.errors import CtxfsError
from ctxfs.messages import ToolCall
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.messages.models.known import known_models
from ctxfs.messages.tokens import default_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import ItemAdded
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.port import OsFileSystem
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from patience import HANGS_S
from prove.part_cancellation import listed_tasks

__all__ = ["WAYS"]

_ID = "session_1"
_SECONDS = 0.06
"""A program ends up to this time after it has opened its session."""

_BEGUN = "begun"

Acknowledge = Callable[[str], None]
Use = Callable[[], Coroutine[Any, Any, None]]


# ---- what the programs do


class _SlowDisk(OsFileSystem):
    """A disk whose syncs take a while, as real ones do: most programs end during one."""

    def sync(self, fd: int) -> None:
        time.sleep(random.random() * 0.004)
        super().sync(fd)


def _stores(root: Path) -> LocalSessions:
    return LocalSessions(root, fs=_SlowDisk())


def _word(draw: random.Random) -> str:
    return "row of a result\n" * draw.randrange(5, 1_500)


async def _messages(root: Path, draw: random.Random, acknowledge: Acknowledge) -> None:
    """Add messages, and one more on the way out."""
    async with Context(_ID, root_path=_stores(root), keep_recent={"log": 1}) as context:
        (root / _BEGUN).touch()

        async def add(*messages: Any) -> None:
            for item in await context.add(*messages):
                acknowledge(item.id)

        try:
            number = 0
            while True:
                number += 1
                call = {"type": "tool_use", "id": f"c{number}", "name": "log", "input": {}}
                result = ToolMessage(f"c{number}", "log", _word(draw))
                await add(UserMessage("go on"), AssistantMessage((call,)), result, AssistantMessage("done"))
                await context.messages()
        finally:
            with anyio.CancelScope(shield=True):
                await add(UserMessage("the program was stopped here"))


async def _agent(root: Path, draw: random.Random, acknowledge: Acknowledge) -> None:
    """Let an agent pay; what it holds without a word of failure is durable once it is closed."""

    @tool("Pay an invoice", name="pay")
    async def pay(number: int) -> str:
        await anyio.sleep(draw.random() * 0.01)
        return f"paid {number}: {_word(draw)}"

    calls: list[Turn] = [[ToolCall("pay", {"number": n}) for _ in range(draw.choice((1, 2, 4)))] for n in range(500)]
    config = AgentConfig(tools=[pay], offload_root_path=_stores(root), session_id=_ID, max_turns=None)
    agent = Agent(ScriptedModel(calls), config)
    await agent.open()
    (root / _BEGUN).touch()
    try:
        await agent.query("pay them all")
    finally:
        with anyio.CancelScope(shield=True):
            await agent.close()
        for item in agent.context.items:
            if item.id not in agent.context.unrecorded:
                acknowledge(item.id)


# ---- how they end


class _OtherFailure(Exception):
    """Something else in the program failed."""


async def _fails(root: Path, draw: random.Random) -> None:
    await _later(root, draw)
    raise _OtherFailure


async def _later(root: Path, draw: random.Random) -> None:
    while not (root / _BEGUN).exists():  # noqa: ASYNC110 - it is made by another process, too
        await anyio.sleep(0.001)
    await anyio.sleep(draw.random() * _SECONDS)


async def _run_ends(use: Use, root: Path, draw: random.Random) -> None:
    """``asyncio.run`` cancels what is left over: here the other tasks of a ``gather`` that failed."""
    await asyncio.gather(use(), _fails(root, draw))


async def _all_tasks(use: Use, root: Path, draw: random.Random) -> None:
    """A shutdown cancels every task that it finds, once or more often."""

    async def begun() -> None:
        await use()

    task = asyncio.create_task(begun())
    with suppress(_OtherFailure):
        await _fails(root, draw)
    for _ in range(draw.randint(1, 3)):
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()
        await asyncio.sleep(draw.random() * 0.005)
    await asyncio.gather(task, return_exceptions=True)


async def _executor_ends(use: Use, root: Path, draw: random.Random) -> None:
    """The loop's executor is shut down, and drops what has not begun."""
    loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(2)
    loop.set_default_executor(executor)

    async def shuts_down() -> None:
        await _later(root, draw)
        executor.shutdown(wait=False, cancel_futures=True)
        await _fails(root, draw)

    await asyncio.gather(use(), shuts_down())


async def _nursery_ends(use: Use, root: Path, draw: random.Random) -> None:
    """A sibling fails, and the nursery cancels."""
    async with anyio.create_task_group() as group:
        group.start_soon(use)
        group.start_soon(_fails, root, draw)


async def _runs(use: Use, _root: Path, _draw: random.Random) -> None:
    """The program is interrupted from outside."""
    await use()


WAYS: dict[str, tuple[str, Callable[[Use, Path, random.Random], Coroutine[Any, Any, None]], int]] = {
    "asyncio.run ends": ("asyncio", _run_ends, 0),
    "all_tasks() are cancelled": ("asyncio", _all_tasks, 0),
    "the executor is shut down": ("asyncio", _executor_ends, 0),
    "Ctrl-C": ("asyncio", _runs, 1),
    "Ctrl-C twice": ("asyncio", _runs, 2),
    "Ctrl-C three times": ("asyncio", _runs, 3),
    "a nursery on trio": ("trio", _nursery_ends, 0),
    "Ctrl-C on trio": ("trio", _runs, 1),
    "Ctrl-C twice on trio": ("trio", _runs, 2),
}
"""The loop, how the program ends, and how often Ctrl-C is pressed."""


def _play(root: Path, way: str, number: int) -> None:
    """The program: run in a process of its own, with a log of what was acknowledged."""
    draw = random.Random(number)
    backend, ends, _ = WAYS[way]
    log = os.open(root / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def acknowledge(item_id: str) -> None:
        os.write(log, f"{item_id}\n".encode())

    def warn(message: object, *_: object, **__: object) -> None:
        # Ctrl-C may come between the making of a coroutine and its first step: Python itself warns then.
        if not WAYS[way][2] and "never awaited" in str(message):
            os.write(log, f"! {message}\n".encode())

    warnings.showwarning = warn
    use = partial((_messages, _agent)[number % 2], root, draw, acknowledge)
    if backend == "asyncio":
        asyncio.run(ends(use, root, draw))
    else:
        anyio.run(ends, use, root, draw, backend=backend)


# ---- what is left


async def _wrong(root: Path) -> list[str]:
    lines = (root / "acknowledged").read_text().split("\n")
    async with ContextFileSystem(_ID, root_path=root) as fs:
        wrong = [*fs.recovery.damage_lines, *[f"{p.name}: {p.detail}" for p in (await fs.verify()).problems]]
        added = [
            record.item.id for record in await fs.history() if isinstance(record, ItemAdded) and not record.returned
        ]
        held = {*fs.state.items, *fs.state.archived}
    wrong += [line for line in lines if line.startswith("! ")]
    wrong += [
        f"{line} was acknowledged and is lost" for line in lines if line[:1] not in {"", "!"} and line not in held
    ]
    wrong += [f"{one} was recorded twice" for one in sorted(set(added)) if added.count(one) > 1]
    return wrong


def _look(root: Path) -> None:
    found = anyio.run(_wrong, root) if (root / _ID).is_dir() else []
    (root / "wrong").write_text(json.dumps(found))


def _exit_after(work: Callable[[], None], *, interrupts: int = 3) -> None:
    """Do ``work`` and end this process, whatever it raises, also if Ctrl-C is pressed so often on the way out."""
    try:
        if interrupts:
            _exit_after(work, interrupts=interrupts - 1)
        else:
            work()
    finally:
        os._exit(0)


@contextmanager
def _child(work: Callable[[], None], waited: list[int]) -> Iterator[int]:
    """Do ``work`` in a process of its own, and wait for its end; ``work``'s errors end it.

    If it never ends, it is killed, and its id is added to ``waited``.
    """
    ended_before = len(waited)
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it runs in the background
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _exit_after(work)
    try:
        yield child
    finally:

        def kill() -> None:
            waited.append(child)
            os.kill(child, signal.SIGKILL)

        alarm = threading.Timer(HANGS_S, kill)
        alarm.start()
        _, status = os.waitpid(child, 0)
        alarm.cancel()
        alarm.join()  # the next fork is that of a process with one thread
    if status and len(waited) == ended_before:
        raise AssertionError(f"a program ended with the status {status}, which is none of its own")


def _one(root: Path, way: str, number: int, waited: list[int]) -> list[str]:
    """End one program, and say what is wrong with its session; see ``_child`` for ``waited``."""
    root.mkdir()
    (root / "acknowledged").touch()
    draw = random.Random(-number)
    try:
        ended_before = len(waited)
        _end(root, way, number, draw, waited)
        for_ever = ["it never ended, though nothing interrupted it"] * (len(waited) - ended_before)
        with _child(partial(_look, root), looking := list[int]()):
            pass
        if looking:
            return ["its session cannot be looked at: that never ends"]
    except AssertionError as error:
        return [str(error)]
    return [*json.loads((root / "wrong").read_text()), *(for_ever if not WAYS[way][2] else ())]


def _end(root: Path, way: str, number: int, draw: random.Random, waited: list[int]) -> None:
    with _child(partial(_play, root, way, number), waited) as child:
        presses = WAYS[way][2]
        if presses:
            until = time.monotonic() + HANGS_S
            while not (root / _BEGUN).exists() and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(draw.random() * _SECONDS)
        for _ in range(presses):
            os.kill(child, signal.SIGINT)  # not waited for yet, so the number is its own
            time.sleep(draw.random() * 0.02)


def main(directory: str, way: str, first: str, number: str, broken: str = "") -> None:
    """End programs, and print how many, how much they had acknowledged, and what was wrong."""
    default_counter()  # loaded once, before the first program, and so is all else that programs would load each
    known_models()
    for backend in ("asyncio", "trio"):
        importlib.import_module(f"anyio._backends._{backend}")
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", ResourceWarning)
    wrong: list[str] = []
    waited: list[int] = []
    acknowledged = 0
    with listed_tasks() if broken else nullcontext():
        for one in range(int(first), int(first) + int(number)):
            root = Path(directory) / str(one)
            wrong += [f"{way}, number {one}: {what}" for what in _one(root, way, one, waited)]
            acknowledged += (root / "acknowledged").read_text().count("\n")
    print(json.dumps({"runs": int(number), "acknowledged": acknowledged, "waited": len(waited), "wrong": wrong}))


if __name__ == "__main__":
    with suppress(CtxfsError):
        main(*sys.argv[1:])
