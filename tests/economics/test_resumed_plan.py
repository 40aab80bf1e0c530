"""A resumed session plans as one that goes on: what the planner knew is rebuilt from the journal."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context import Context
from ctxfs.eviction import Window
from ctxfs.eviction.economics.plans import EvictionDecision
from ctxfs.messages import CharsCounter, ContentRange, Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.session import ContextFileSystem, erase
from ctxfs.testing.history_conformance import pricing_on

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS = 40


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(root: Path, clock: Clock, session_id: str, **settings: Any) -> Context:
    fs = ContextFileSystem(session_id, root_path=root, clock=clock)
    return Context(fs, counter=CharsCounter(), pricing=pricing_on(clock), **settings)


def text_of(rng: random.Random, number: int) -> str:
    lines = rng.choice([2, 30, 200, 1_500])
    return "".join(f"unit {number} line {line} value {rng.random()}\n" for line in range(lines))


def turn(rng: random.Random, number: int, items: Sequence[ContextItem]) -> tuple[list[Any], dict[str, ContentRange]]:
    """A reply with a call, and its result: of a command, a file, a patch, or what is read back of an evicted item."""
    offloaded = [item for item in items if item.offloaded and item.source is None]
    call_id = f"t{number}"
    sources: dict[str, ContentRange] = {}
    name = rng.choice(["Bash", "Read", "Write", "context"])
    arguments: dict[str, Any] = {"command": rng.choice(["cat x.py", "ls"])}
    content = text_of(rng, number)
    if name == "context" and offloaded:
        item = rng.choice(offloaded)
        path = str(item.offload_path)
        arguments = {"file_path": path}
        sources = {call_id: ContentRange(item_id=item.id, path=path, first_line=1, last_line=5)}
        content = f"a page of {item.id}\n" * rng.choice([5, 100])
    elif name == "Write":
        lines = rng.choice([3, 80, 500])
        arguments = {"file_path": "a.py", "content": "".join(f"def f_{number}_{n}(): ...\n" for n in range(lines))}
        content = "ok"
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}], sources


def bill(rng: random.Random, tokens: int) -> Usage | None:
    """What the request was billed: not known, found in the cache, or lost by it."""
    if rng.random() < 0.4:
        return None
    if rng.random() < 0.15:
        return Usage(cache_creation_input_tokens=tokens)
    return Usage(cache_read_input_tokens=tokens, cache_creation_input_tokens=100)


async def change(rng: random.Random, context: Context, other: Context) -> None:
    """Sometimes an item is restored, pinned or unpinned, or an eviction is undone: in both."""
    chance = rng.random()
    results = [item for item in context.items if item.item_type is ItemType.TOOL_RESULT and item.source is None]
    gone = [item.id for item in results if item.offloaded]
    pinned = [item.id for item in results if item.pinned]
    for one in (context, other):
        if chance < 0.06 and gone:
            await one.restore(gone[0])
        elif chance < 0.1 and results:
            await one.pin(results[-1].id)
        elif chance < 0.13 and pinned:
            await one.unpin(pinned[0])
        elif chance < 0.16 and gone:
            await one.undo()


def nameless(text: str) -> str:
    """Without the numbers of messages: a session that goes on has reserved some for an archive."""
    return re.sub(r"msg_\d+(~\d+)?", "msg", text)


def thought(context: Context) -> list[EvictionDecision]:
    """What is thought of each item; arguments that were counted again have another number in their id."""
    return [replace(one, item_id=nameless(one.item_id.partition("~")[0])) for one in context.decisions()]


def read_backs(context: Context) -> float:
    """How many read-backs are expected in the next ten calls of all that ever left."""
    economy = context._live.transcript.economy  # noqa: SLF001 - decisions show it only when they differ
    assert economy is not None
    return economy.ledger.open_read_backs.expected(economy.ledger.calls, 10)


async def play(tmp_path: Path, seed: int, *, changes: bool, **settings: Any) -> tuple[int, int]:
    """The same history in a session that goes on, and in one that is resumed for each call; both plan the same.

    How many items were evicted in the end, and how many read back.
    """
    rng = random.Random(seed)
    clock = Clock()
    going_on = opened(tmp_path / "one", clock, "s", **settings)
    async with going_on:
        await going_on.add({"role": "user", "content": "do it"})
        async with opened(tmp_path / "two", clock, "s", **settings) as first:
            await first.add({"role": "user", "content": "do it"})
        for number in range(CALLS):
            clock.now += rng.choice([1, 5, 30, 290, 4_000])
            async with opened(tmp_path / "two", clock, "s", **settings) as resumed:
                assert nameless(resumed.plan().explain()) == nameless(going_on.plan().explain()), (
                    f"seed {seed}, call {number}"
                )
                assert thought(resumed) == thought(going_on), f"seed {seed}, call {number}"
                assert read_backs(resumed) == pytest.approx(read_backs(going_on)), f"seed {seed}, call {number}"
                await going_on.request()
                await resumed.request()
                if changes:
                    await change(rng, going_on, resumed)
                messages, sources = turn(rng, number, going_on.items)
                usage = bill(rng, sum(item.token_count for item in going_on.items))
                for context in (going_on, resumed):
                    await context.add(messages[0], usage=usage)
                    await context.add(messages[1], sources=sources)
                assert [item.token_count for item in resumed.items] == [item.token_count for item in going_on.items]
        items = going_on.items
        return sum(i.offloaded or bool(i.trimmed) for i in items), sum(i.source is not None for i in items)


@pytest.mark.parametrize("seed", range(2))
async def test_it_plans_the_same_at_every_call(tmp_path: Path, seed: int) -> None:
    evicted, read_back = await play(tmp_path, seed, changes=False)
    assert evicted >= 10
    assert read_back >= 2


@pytest.mark.parametrize("seed", range(2))
async def test_so_it_does_after_restoring_pinning_and_undoing(tmp_path: Path, seed: int) -> None:
    evicted, _ = await play(tmp_path, seed, changes=True)
    assert evicted >= 5


@pytest.mark.parametrize("seed", range(2))
async def test_so_it_does_after_compactions(tmp_path: Path, seed: int) -> None:
    evicted, _ = await play(tmp_path, seed, changes=False, window=Window(12_000))
    assert evicted >= 5


async def test_so_it_does_where_a_tool_keeps_its_last_results(tmp_path: Path) -> None:
    evicted, _ = await play(tmp_path, 9, changes=False, keep_recent={"Bash": 2})
    assert evicted >= 10


async def test_a_session_is_resumed_whose_evicted_arguments_were_erased(tmp_path: Path) -> None:
    clock = Clock()
    patch = "".join(f"def function_{n}(): return {n}\n" for n in range(600))
    call = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"file_path": "a.py", "content": patch}}
    async with opened(tmp_path, clock, "s") as context:
        await context.add({"role": "user", "content": "go"})
        await context.add({"role": "assistant", "content": [{"type": "text", "text": "I write it"}, call]})
        await context.add({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]})
        for number in range(60):
            await context.add({"role": "assistant", "content": f"step {number}"}, {"role": "user", "content": "on"})
        clock.now += 4_000
        await context.evict()
        (trimmed,) = [item for item in context.items if item.trimmed]
    await erase("s", [trimmed.id], root_path=tmp_path)
    async with opened(tmp_path, clock, "s") as resumed:
        assert not resumed.plan()
        assert len(resumed.items) == len(context.items)
