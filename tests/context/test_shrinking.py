"""The long placeholder of a result that was evicted before it was sent becomes short when the result falls due."""

from pathlib import Path

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.eviction import Evicted, Offloaded
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.placeholder.text import render
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel
from ctxfs.testing.invariants import check
from ctxfs.tools import Materialize

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]


def body(n: int) -> str:
    return "".join(f"src/module_{i % 7}.py:{i}: def function_{i}_{n}(self, value):\n" for i in range(1_000))


@tool("Print a lot", ephemeral=1)
def recent(n: int) -> str:
    return body(n)


@tool("Print a lot")
def plain(n: int) -> str:
    return body(n)


def calls(name: str, count: int) -> list[list[ToolCall]]:
    return [[ToolCall(name, {"n": n})] for n in range(count)]


async def test_keep_recent_shrinks_what_materialization_left(tmp_path: Path) -> None:
    model = ScriptedModel([*calls("recent", 5), "ok"])
    config = AgentConfig(tools=[recent], materialize=Materialize(), offload_root_path=tmp_path)
    async with Agent(model, config) as agent:
        events = [event async for event in agent.stream("go")]
        *old, new = [item for item in agent.context.items if item.tool_name]
        for item in old:
            assert item.message.content == render(str(item.offload_path)) == item.placeholder
            assert item.token_count == item.placeholder_tokens == agent.context.counter.count(item.placeholder)
        assert new.token_count > 5 * new.placeholder_tokens
        assert new.can_shrink
        assert [await agent.context.fs.load(item.id) for item in (*old, new)] == [body(n) for n in range(5)]
        assert not agent.context.plan()
    assert len([event for event in events if isinstance(event, Offloaded)]) == 5
    shrunk = [event for event in events if isinstance(event, Evicted) and "keeps its last 1" in event.reason]
    assert [event.item_id for event in shrunk] == [item.id for item in old]
    for request in model.requests:
        check(request)


async def test_it_shrinks_after_a_resume_too(tmp_path: Path) -> None:
    config = AgentConfig(tools=[recent], materialize=Materialize(), offload_root_path=tmp_path, session_id="s")
    async with Agent(ScriptedModel([*calls("recent", 1), "ok"]), config) as agent:
        await agent.query("go")
        (before,) = [item for item in agent.context.items if item.tool_name]
    async with Agent(ScriptedModel([[ToolCall("recent", {"n": 1}, id="second")], "ok"]), config) as agent:
        await agent.query("go on")
        first, second = [item for item in agent.context.items if item.tool_name]
        assert (first.id, first.message.content) == (before.id, before.placeholder)
        assert second.can_shrink


@pytest.mark.slow
async def test_its_price_shrinks_what_materialization_left(tmp_path: Path) -> None:
    model = ScriptedModel([*calls("plain", 30), "ok"])
    config = AgentConfig(tools=[plain], materialize=Materialize(), offload_root_path=tmp_path)
    async with Agent(model, config) as agent:
        await agent.query("go")
        results = [item for item in agent.context.items if item.tool_name]
        assert not results[0].can_shrink
        assert results[-1].can_shrink
        ledger = agent.context.decisions()
        assert {verdict.item_id for verdict in ledger} >= {item.id for item in results if item.can_shrink}
        held = sum(item.token_count for item in agent.context.items)
        assert agent.context.token_count == held


async def test_without_a_rule_the_summary_stays(tmp_path: Path) -> None:
    never = EvictionParameters(read_back_weight=1e9)
    for pricing in (None, EvictionPricing(parameters=never)):
        config = AgentConfig(
            tools=[plain],
            materialize=Materialize(),
            offload_root_path=tmp_path,
            pricing=pricing,
        )
        async with Agent(ScriptedModel([*calls("plain", 4), "ok"]), config) as agent:
            await agent.query("go")
            assert all(item.can_shrink for item in agent.context.items if item.tool_name)
