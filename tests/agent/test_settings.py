"""The settings of an agent in pairs: each matters beside any other, or the pair is refused; all types are checked."""

from collections.abc import Mapping
from dataclasses import astuple
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, OffloadPolicy, tool
from ctxfs.context.settings import priced_at
from ctxfs.errors import ConfigError, ContextOverflow, TranscriptError
from ctxfs.eviction import SelectiveCompaction, Strategy
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.window import Window, WindowGuard
from ctxfs.messages.base import Reply
from ctxfs.messages.items import ItemType
from ctxfs.messages.models.prices import Prices
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize


@tool("Search", ephemeral=2)
def search() -> str:
    return ""


SETTINGS: tuple[tuple[str, Any], ...] = (
    ("offload_token_threshold", 500),
    ("offload_policy", OffloadPolicy(type_enabled={"user_message": False})),
    ("offload_policy", OffloadPolicy(type_enabled={"tool_result": False})),
    ("offload_policy", OffloadPolicy(token_threshold=900)),
    ("ephemeral_keep_recent", 1),
    ("pricing", None),
    ("pricing", EvictionPricing(parameters=EvictionParameters(max_loss=0))),
    ("pricing", EvictionPricing(prices=Prices(input=1, cache_read=1, output=1))),
    ("window", Window(window_tokens=50_000)),
    ("window", Window(compaction=SelectiveCompaction(rules={ItemType.TOOL_RESULT: Strategy.DROP}))),
    ("materialize", Materialize(max_inline_chars=9)),
    ("offload_policy", OffloadPolicy(digest_tokens=0)),
)
"""Each differs from the default. ``offload_enabled=False`` is not among them: it switches off whatever else is set."""

PAIRS = [(one, other) for one, other in combinations(SETTINGS, 2) if one[0] != other[0]]


async def never(_: str) -> Reply:
    raise AssertionError("nobody asks")


def in_force(**settings: Any) -> object:
    """All that a context is told by an agent with these settings."""
    config = AgentConfig(tools=[search], **settings)
    economy = priced_at("a-model", config.pricing)
    window = WindowGuard.of(config.window_with(never), "a-model", config.policy)
    return (
        config.materialize,
        (config.policy, config.keep_recent()),
        None if economy is None else (economy.parameters, economy.rates, economy.ttl_s),
        (window.budget, dict(window.compaction.rules)),
    )


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_of_two_settings_each_has_an_effect_or_they_are_refused(one: tuple[str, Any], other: tuple[str, Any]) -> None:
    try:
        both = in_force(**dict([one, other]))
    except ConfigError:
        return
    assert both not in (in_force(), in_force(**dict([one])), in_force(**dict([other])))


def test_which_pairs_are_refused() -> None:
    refused = set()
    for one, other in PAIRS:
        try:
            in_force(**dict([one, other]))
        except ConfigError:
            refused.add((one[0], other[0]))
    assert refused == {
        ("offload_token_threshold", "offload_policy"),  # two thresholds
        ("offload_policy", "window"),  # a rule for what the policy forbids
        ("offload_policy", "materialize"),  # results leave, and stay; or two limits for them
        ("offload_token_threshold", "materialize"),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"offload_enabled": "no"},
        {"offload_token_threshold": "2000"},
        {"offload_token_threshold": 2000.0},
        {"ephemeral_keep_recent": True},
        {"status_tokens": None},
        {"max_turns": "100"},
        {"system_prompt": 5},
        {"session_id": 5},
        {"offload_root_path": 5},
        {"read_roots": "src"},
        {"tools": "search"},
        {"approve": "all"},
        {"redact": True},
        {"window": "large"},
        {"window": True},
        {"pricing": 3},
    ],
)
def test_the_type_of_a_setting_is_checked(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is .*: use "):
        AgentConfig(**wrong)


@pytest.mark.parametrize("llm", [None, "claude-sonnet-4-5", ScriptedModel])
def test_a_model_that_is_none_is_refused(llm: Any) -> None:
    with pytest.raises(ConfigError, match=r"llm is .*: use a model"):
        Agent(llm)


@pytest.mark.parametrize("config", [{}, {"tools": []}, AgentConfig], ids=str)
def test_a_configuration_of_another_type_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"config is .*: use AgentConfig"):
        Agent(ScriptedModel([]), config)


def test_a_threshold_counts_beside_a_compaction() -> None:
    rules = {ItemType.TOOL_RESULT: 1}
    config = AgentConfig(offload_token_threshold=100, window=Window(compaction=SelectiveCompaction(rules=rules)))
    window = config.window_with(never)
    guard = WindowGuard.of(window, "a-model", config.policy)
    assert (guard.compaction.rules, guard.policy.token_threshold) == (rules, 100)


def test_prices_of_a_model_reach_the_planner() -> None:
    economy = priced_at("claude-sonnet-4-5", AgentConfig(pricing=EvictionPricing(cache_ttl="1h")).pricing)
    assert economy is not None
    assert astuple(economy.rates)[1] == 2.0
    assert economy.ttl_s == 3600


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "says"), [("", "the query is ''"), (" \n", "blank"), (5, "API: content is a text")], ids=repr
)
async def test_a_query_that_is_no_text_is_refused_before_anything_enters(query: Any, says: str, tmp_path: Path) -> None:
    async with Agent(ScriptedModel(["ok"]), AgentConfig(offload_root_path=tmp_path)) as agent:
        with pytest.raises(TranscriptError, match=says) as raised:
            await agent.query(query)
        assert "Error(" not in str(raised.value)
        assert agent.context.items == ()
        assert await agent.query("go") == "ok"


@pytest.mark.parametrize("status_tokens", [36_000, 10**6])
def test_a_status_that_leaves_no_room_is_refused_at_once(status_tokens: int, tmp_path: Path) -> None:
    budget = Window(window_tokens=40_000, reply_tokens=4_000)
    config = AgentConfig(window=budget, status_tokens=status_tokens, offload_root_path=tmp_path)
    with pytest.raises(ConfigError, match=f"status_tokens is {status_tokens:,}, but a prompt may have 36,000 tokens"):
        Agent(ScriptedModel(["ok"]), config)


@pytest.mark.anyio
async def test_a_status_that_fills_the_window_is_named_by_the_overflow(tmp_path: Path) -> None:
    budget = Window(window_tokens=40_000, reply_tokens=4_000)
    config = AgentConfig(window=budget, status_tokens=35_990, offload_root_path=tmp_path)
    async with Agent(ScriptedModel(["ok"]), config) as agent:
        with pytest.raises(
            ContextOverflow, match=r"36,\d\d\d of them are in no message \(tools, status: .*status_tokens"
        ):
            await agent.query("go")


@pytest.mark.anyio
async def test_a_root_that_is_not_there_is_warned_of_when_the_agent_opens(tmp_path: Path) -> None:
    roots = [tmp_path, tmp_path / "absent"]
    config = AgentConfig(read_roots=roots, offload_root_path=tmp_path)
    with pytest.warns(UserWarning, match="absent' in it, which is no directory") as seen:
        async with Agent(ScriptedModel(["ok"]), config):
            pass
    assert len(seen) == 1
