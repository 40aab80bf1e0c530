"""Eviction that pays, inside a context: what leaves by it, what does not, and that nothing is lost by it."""

from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.context import Context
from ctxfs.errors import ConfigError
from ctxfs.eviction import Evicted
from ctxfs.eviction.economics.economy import EvictionPricing, ModelPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages import CharsCounter, ContentRange, ItemType, ToolCall
from ctxfs.messages.names import Layout, LayoutName
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing import ScriptedModel
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.testing.invariants import check
from ctxfs.tools import Materializer

pytestmark = pytest.mark.anyio

WORDS = " ".join(f"identifier_{n:05d}" for n in range(1500))


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def call(number: int, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
    return {"role": "assistant", "content": [block]}


def answer(number: int, content: object) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": content}]}


def careless(clock: Clock) -> EvictionPricing:
    """Read-backs count nothing: what was seen leaves as soon as the cache is cold.

    Nothing is left to chance either, or the bound would hold it back: these sessions are a few calls long.
    """
    return pricing_on(clock, parameters=EvictionParameters(read_back_weight=0.0, cover=0.0))


def context_in(root: Path, clock: Clock, session_id: str | None = None, **settings: Any) -> Context:
    settings = {"pricing": pricing_on(clock), **settings}
    return Context(session_id, root_path=root, counter=CharsCounter(), **settings)


async def seen_and_gone(context: Context, clock: Clock) -> str:
    """What stands for a large result once the model has replied to it and the cache has expired."""
    await context.add({"role": "user", "content": "go"}, call(1), answer(1, WORDS))
    request = await context.request(cache=False)
    assert request["messages"][-1]["content"][0]["content"] == WORDS
    await context.add({"role": "assistant", "content": "I see."}, {"role": "user", "content": "go on"})
    clock.now += 3600
    request = await context.request(cache=False)
    return str(request["messages"][2]["content"][0]["content"])


async def test_a_large_result_leaves_once_it_was_seen_and_its_placeholder_mentions_what_it_brought(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with context_in(tmp_path, clock, pricing=careless(clock)) as context:
        text = await seen_and_gone(context, clock)
        (item,) = [i for i in context.items if i.offloaded]
        assert await context.fs.load(item.id) == WORDS
    assert text.startswith("[Content offloaded: Read stored/")
    assert text.endswith("\nMentions: identifier_00000…01499")


async def test_a_placeholder_names_what_the_models_tools_find(tmp_path: Path) -> None:
    clock = Clock()
    async with context_in(tmp_path, clock, pricing=careless(clock)) as context:
        text = await seen_and_gone(context, clock)
        named = text.split("]")[0].removeprefix("[Content offloaded: Read ")
        assert context.fs.find(named) == "t1"
        assert CharsCounter().count(f"[Content offloaded: Read {named}]") <= 12


@pytest.mark.parametrize(
    ("layout", "own"), [("envelope", False), ("envelope", True), ("text", False)], ids=["short", "own Read", "text"]
)
async def test_a_path_stands_in_the_placeholder_where_other_tools_read(
    tmp_path: Path, layout: LayoutName, own: bool
) -> None:
    clock = Clock()
    fs = ContextFileSystem(root_path=tmp_path, layout=Layout(layout, compress_from_chars=0))
    async with Context(fs, pricing=careless(clock), counter=CharsCounter()) as context:
        if own:
            context.tools = [{"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}]
        text = await seen_and_gone(context, clock)
        (item,) = [i for i in context.items if i.offloaded]
    three_lines = text.startswith(f"[Content offloaded]\nPath: {item.offload_path}\nUse Read tool")
    assert three_lines is (own or layout == "text")


async def test_what_was_read_back_is_seen_before_it_may_leave(tmp_path: Path) -> None:
    clock = Clock()
    async with context_in(tmp_path, clock, pricing=careless(clock)) as context:
        await seen_and_gone(context, clock)
        (item,) = [i for i in context.items if i.offloaded]
        source = ContentRange(item_id=item.id, path=str(item.offload_path), first_line=1, last_line=1)
        await context.add(call(2, "Read", file_path=item.offload_path))
        await context.add(answer(2, WORDS), sources={"t2": source})
        request = await context.request(cache=False)
        assert request["messages"][-1]["content"][0]["content"] == WORDS


async def test_what_was_materialized_may_shrink_after_a_resume_too(tmp_path: Path) -> None:
    text = "".join(f"src/package_{n % 9}/module.py:{n}: def function_{n}(self, value):\n" for n in range(900))
    async with Context(root_path=tmp_path, eager=Materializer()) as context:
        await context.add({"role": "user", "content": "go"}, call(1), answer(1, text))
        await context.request()
        items = context.items
    assert items[-1].can_shrink
    async with Context(context.session_id, root_path=tmp_path, eager=Materializer()) as resumed:
        assert resumed.items == items


async def test_exact_tools_are_counted_but_never_leave_by_price(tmp_path: Path) -> None:
    async with context_in(tmp_path, Clock(), keep_recent={"Bash": 2}) as context:
        await context.add({"role": "user", "content": "go"}, call(1), answer(1, WORDS))
        await context.request()
        assert not any(i.offloaded for i in context.items)
        await context.add(call(2), answer(2, WORDS), call(3), answer(3, WORDS))
        await context.request()
        assert [i.id for i in context.items if i.offloaded] == ["t1"]


@pytest.mark.not_measured
async def test_large_arguments_leave_when_the_cache_is_cold_and_can_be_read_back(tmp_path: Path) -> None:
    clock = Clock()
    patch = "\n".join(f"def function_{n}(): return {n}" for n in range(400))
    async with context_in(tmp_path, clock) as context:
        await context.add({"role": "user", "content": "go"})
        await context.add(call(1, "Write", file_path="a.py", content=patch), answer(1, "ok"))
        for number in range(2, 60):
            await context.add(call(number, "Bash", command="ls"), answer(number, "a short answer"))
        clock.now += 3600
        plan = context.plan()
        await context.evict()
        request = await context.request(cache=False)
        stored = [s for s in context.fs.state.stored.values() if s.item_type is ItemType.TOOL_INPUT]
        assert [o.reason for o in plan.offloads] == [str(Why.EXPIRED)]
        assert len(stored) == 1
        blocks = await context.fs.load(stored[0].item_id)
        items = context.items
    block = request["messages"][1]["content"][0]
    assert block["input"]["file_path"] == "a.py"
    assert block["input"]["content"].startswith("[Content offloaded: Read stored/")
    assert blocks == ({"type": "text", "text": patch, "argument": "content", "json": False},)
    check({"model": "m", "max_tokens": 1, **request})
    async with context_in(tmp_path, clock, context.session_id) as resumed:
        assert resumed.items == items
        assert not resumed.plan()
        report = await resumed.fs.verify()
        assert report.ok


async def test_a_resume_counts_the_calls_that_were_made_before(tmp_path: Path) -> None:
    async with context_in(tmp_path, Clock()) as context:
        await context.add({"role": "user", "content": "go"}, call(1), answer(1, "middling " * 120), call(2))
        decisions = context.decisions()
        assert [(v.item_id, v.age_calls) for v in decisions] == [("t1", 2)]
    async with context_in(tmp_path, Clock(), context.session_id) as resumed:
        assert resumed.decisions() == decisions


async def test_verdicts_say_why_everything_stays_or_goes(tmp_path: Path) -> None:
    async with context_in(tmp_path, Clock()) as context:
        await context.add({"role": "user", "content": "go"}, call(1), answer(1, "middling " * 120), call(2))
        decisions = {v.item_id: v for v in context.decisions()}
        assert decisions["t1"].why in {Why.YOUNG, Why.WAITING}
        assert Context(root_path=tmp_path).decisions() == ()


@pytest.mark.not_measured
@pytest.mark.parametrize("mode", ["by price", "exactly", "both"])
async def test_an_agent_evicts_by_price_or_exactly_or_both(tmp_path: Path, mode: str) -> None:
    @tool("Keep two", ephemeral=None if mode == "by price" else 2)
    def recent(n: int) -> str:
        return f"{n} " + "word " * 300

    @tool("Keep all")
    def plain(n: int) -> str:
        return f"{n} {WORDS}"

    turns: list[Any] = [[ToolCall("recent", {"n": n}), ToolCall("plain", {"n": n})] for n in range(4)]
    model = ScriptedModel([*turns, "done"])
    pricing = None if mode == "exactly" else EvictionPricing()
    config = AgentConfig(tools=[recent, plain], offload_root_path=tmp_path, pricing=pricing)
    async with Agent(model, config) as agent:
        events = [e async for e in agent.stream("go")]
    left = [
        (e.tool_name, "keep_recent" in e.reason or "ephemeral" in e.reason) for e in events if isinstance(e, Evicted)
    ]
    assert left.count(("recent", True)) == (0 if mode == "by price" else 2)
    assert (("plain", False) in left) == (mode != "exactly")
    for request in model.requests:
        check(request)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="pricing"):
        AgentConfig(pricing="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cache_ttl"):
        EvictionPricing(cache_ttl="2h")  # type: ignore[arg-type]


def test_terms_have_defaults() -> None:
    assert ModelPricing().ttl_s == 300.0
