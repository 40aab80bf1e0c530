"""A setting does what it says, or is refused where it is given: types, and settings that have no effect together."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, History, OffloadPolicy, tool
from ctxfs.agent import ChatAnthropic, ChatOpenAI
from ctxfs.context import Histories
from ctxfs.errors import ConfigError, ToolDefinitionError
from ctxfs.eviction import EvictionPricing, SelectiveCompaction, Strategy, Window
from ctxfs.eviction.economics.economy import ModelPricing
from ctxfs.messages import TEXT, CharsCounter, LegacyToolCalls, known_model
from ctxfs.messages.items import ItemType
from ctxfs.messages.rates import ANTHROPIC_RATES
from ctxfs.session import ForgetPolicy, keep_quota
from ctxfs.storage import LocalStore, MemoryStore
from ctxfs.testing import ScriptedModel
from ctxfs.tools import (
    Artifact,
    Bash,
    KnowledgeService,
    Materialize,
    Materializer,
    Tool,
    ToolResultOffload,
    read_tool,
    retrieval_tools,
    workspace_tools,
)


def named(name: str, ephemeral: int | None = None) -> Tool:
    @tool("Does it", name=name, ephemeral=ephemeral)
    def function() -> str:
        return ""

    return function


def openai(**settings: Any) -> ChatOpenAI:
    return ChatOpenAI("m", **settings)


def in_memory(**settings: Any) -> ContextFileSystem:
    return ContextFileSystem("session_1", store=MemoryStore("session_1"), **settings)


WRONG_TYPES: list[tuple[Callable[..., Any], Mapping[str, Any]]] = [
    *(
        (make, {name: value})
        for make in (ChatAnthropic, openai)
        for name, value in {
            "api_key": 5,
            "base_url": 5,
            "max_tokens": "5",
            "options": ["x"],
            "max_retries": "5",
            "timeout_s": "5",
        }.items()
    ),
    (ChatAnthropic, {"model": 5}),
    (ChatAnthropic, {"max_tokens": 0}),
    (ChatAnthropic, {"max_retries": 1.5}),
    (ChatAnthropic, {"max_retries": -1}),
    (ChatAnthropic, {"cache_ttl": "2h"}),
    (ChatAnthropic, {"timeout_s": -1}),
    (ChatAnthropic, {"timeout_s": 0}),
    (ChatAnthropic, {"options": {"stream": False}}),
    (LegacyToolCalls, {"model": 5}),
    (LegacyToolCalls, {"model": ChatOpenAI}),
    (Bash, {"cwd": 5}),
    (Bash, {"env": 5}),
    (Bash, {"env": {"A": 5}}),
    (ContextFileSystem, {"read_only": "no"}),
    (ContextFileSystem, {"inline_limit_chars": -1}),
    (ContextFileSystem, {"inline_limit_chars": "5"}),
    (ContextFileSystem, {"layout": "xml"}),
    (ContextFileSystem, {"layout": None}),
    (ContextFileSystem, {"store": 5}),
    (ContextFileSystem, {"store": LocalStore}),
    (ContextFileSystem, {"clock": 5}),
    (Context, {"counter": 5}),
    (Context, {"counter": CharsCounter}),
    (Context, {"counter": "o200k"}),
    (Context, {"counter": [1]}),
    (Context, {"model": None}),
    (Context, {"model": 3}),
    (History, {"counter": "o200k"}),
    (History, {"counter": 3}),
    (History, {"model": None}),
    (known_model, {"model": None}),
    (AgentConfig, {"read_roots": [5]}),
    (KnowledgeService, {"layout": "xml"}),
    (KnowledgeService, {"counter": 5}),
    (partial(workspace_tools, KnowledgeService(), "session_1"), {"max_tokens": "5"}),
    (partial(workspace_tools, KnowledgeService(), "session_1"), {"counter": 5}),
    (partial(retrieval_tools, in_memory()), {"max_tokens": "5"}),
    (partial(read_tool, in_memory()), {"counter": 5}),
    (Materializer, {"settings": None}),
    (Materializer, {"tools": "context_read"}),
    (Materializer, {"tools": 5}),
    (Materializer, {"reader": 5}),
    (partial(Artifact, artifact_id="a", content="x"), {"artifact_type": "yaml"}),
    (partial(Artifact, artifact_id="a", content="x"), {"metadata": None}),
]


@pytest.mark.parametrize(("make", "settings"), WRONG_TYPES)
def test_a_setting_of_another_type_is_refused_and_named(make: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        make(**settings)


def test_a_tool_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="5 cannot be a tool's name"):
        named(5)  # type: ignore[arg-type]


DROP_USERS = SelectiveCompaction(rules={"user_message": Strategy.DROP})  # type: ignore[dict-item]
DROPPING_USERS = Window(window_tokens=90_000, compaction=DROP_USERS)

NO_EFFECT: list[tuple[Callable[..., Any], Mapping[str, Any], str]] = [
    (AgentConfig, {"materialize": Materialize(), "offload_token_threshold": 9}, "materialize has its own limits"),
    (AgentConfig, {"materialize": ToolResultOffload(), "offload_token_threshold": 9}, "materialize has its own limits"),
    (
        AgentConfig,
        {"materialize": Materialize(), "offload_policy": OffloadPolicy(type_thresholds={"tool_result": 9})},
        "materialize has its own limits",
    ),
    (AgentConfig, {"offload_root_path": ""}, "the directory '' cannot be used"),
    (AgentConfig, {"pin_user_messages": True, "window": DROPPING_USERS}, "pin_user_messages keeps them all"),
    (Context, {"pin_user_messages": True, "window": DROPPING_USERS}, "pin_user_messages keeps them all"),
    (AgentConfig, {"read_roots": ["/tmp"], "tools": [named("Read")]}, "read_roots has no effect"),
    (
        OffloadPolicy,
        {"type_enabled": {"tool_result": False}, "type_thresholds": {"tool_result": 9}},
        "type_enabled says that the type stays",
    ),
    (SelectiveCompaction, {"rules": {"system_prompt": Strategy.DROP}}, "the system prompt always stays"),
    (Window, {"window_tokens": None, "compaction": SelectiveCompaction()}, "a Window of None tokens sets no limit"),
    (Window, {"window_tokens": None, "summarize": keep_quota}, "a Window of None tokens sets no limit"),
    (Window, {"window_tokens": None, "low_water": 0.5}, "a Window of None tokens sets no limit"),
    (Window, {"window_tokens": 1_000, "reply_tokens": 1_000}, "has no room"),
    (Window, {"low_water": 0.9}, "use 0 < low < high <= 1"),
    (
        Context,
        {
            "window": None,
            "pricing": None,
            "preview_above_tokens": None,
            "keep_recent": {"a": 1},
            "offload_policy": OffloadPolicy(),
        },
        r"^offload_policy \(or an agent's offload_token_threshold\) has no effect: window, pricing, previews",
    ),
]


@pytest.mark.parametrize(("make", "settings", "reason"), NO_EFFECT)
def test_a_setting_without_effect_is_refused(
    make: Callable[..., Any], settings: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        make(**settings)


@pytest.mark.parametrize(
    ("setting", "value", "name"),
    [
        ("bash", Bash(), "Bash"),
        ("bash", Bash(), "context_read"),
        ("materialize", Materialize(), "context_grep"),
        ("materialize", ToolResultOffload(), "query_artifacts"),
        ("recall", True, "history_search"),
    ],
)
def test_a_tool_with_the_name_of_one_that_a_setting_gives_is_refused(
    tmp_path: Path, setting: str, value: object, name: str
) -> None:
    settings: dict[str, Any] = {setting: value, "approve": lambda _: True}
    config = AgentConfig(offload_root_path=tmp_path, tools=[named(name)], **settings)
    with pytest.raises(ConfigError, match=f"your tool '{name}' has the name of one that {setting} gives the model"):
        Agent(ScriptedModel([]), config)


def test_each_of_them_is_taken_where_it_has_an_effect(tmp_path: Path) -> None:
    ChatAnthropic(cache_ttl="1h", max_retries=0)
    ChatAnthropic(cache_ttl=None)
    AgentConfig(pricing=EvictionPricing(cache_ttl="1h"))
    AgentConfig(ephemeral_keep_recent=2, tools=[named("a"), named("b", 1)])
    others = OffloadPolicy(token_threshold=9, type_thresholds={"tool_result": 0})
    AgentConfig(materialize=Materialize(), offload_policy=others)
    AgentConfig(materialize=Materialize(), offload_token_threshold=0)
    AgentConfig(pin_user_messages=True, window=Window(compaction=SelectiveCompaction()))
    Context(window=DROPPING_USERS, root_path=tmp_path)
    nothing_by_price = AgentConfig(window=None, pricing=None, preview_above_tokens=None, offload_root_path=tmp_path)
    Agent(ScriptedModel([]), nothing_by_price)
    AgentConfig(read_roots=["/tmp"], bash=Bash(), approve=lambda _: True, tools=[named("read")])
    OffloadPolicy(type_enabled={"tool_result": True}, type_thresholds={"tool_result": 9, "user_message": 9})
    Context(window=Window(window_tokens=90_000, compaction=SelectiveCompaction()), root_path=tmp_path)
    Context(window=None, offload_policy=OffloadPolicy(), root_path=tmp_path)
    Context(keep_recent={"a": "all", "b": 1}, root_path=tmp_path)
    SelectiveCompaction(rules={ItemType.SYSTEM_PROMPT: Strategy.KEEP})
    Context(window=None, pricing=None, offload_policy=OffloadPolicy(), offload_enabled=False, root_path=tmp_path)
    in_memory(layout=TEXT, inline_limit_chars=0)


@pytest.mark.parametrize("tools", [[], [named("a")]], ids=len)
def test_a_number_for_ephemeral_tools_may_find_none_and_says_so(tools: list[Tool]) -> None:
    with pytest.warns(UserWarning, match="ephemeral_keep_recent has no effect: no tool is declared with"):
        AgentConfig(ephemeral_keep_recent=2, tools=tools)


def test_a_threshold_that_nothing_asks_is_refused_by_its_own_name() -> None:
    config = AgentConfig(window=None, pricing=None, preview_above_tokens=None, offload_token_threshold=500)
    with pytest.raises(ConfigError, match="offload_token_threshold"):
        Agent(ScriptedModel([]), config)


def test_a_policy_that_only_previews_ask_is_taken() -> None:
    large_only = OffloadPolicy(type_thresholds={"tool_result": 20_000})
    assert Context(window=None, pricing=None, offload_policy=large_only).items == ()


def test_what_the_main_switch_turns_off_is_taken(tmp_path: Path) -> None:
    AgentConfig(offload_enabled=False, materialize=Materialize(), pricing=None)
    AgentConfig(offload_enabled=False, materialize=ToolResultOffload(), tools=[named("a", 1)])
    Context(offload_enabled=False, eager=Materializer(), root_path=tmp_path)


@pytest.mark.parametrize(("model", "write"), [("claude-sonnet-4-5", 2.0), ("a-model-that-nobody-knows", 2.0)])
def test_a_cache_that_lasts_an_hour_costs_more_to_write_whatever_the_model(model: str, write: float) -> None:
    economy = ModelPricing.of(EvictionPricing(cache_ttl="1h"), model)
    assert (economy.rates.write, economy.ttl_s) == (write, 3600.0)
    assert ModelPricing.of(EvictionPricing(), model).rates.write == ANTHROPIC_RATES.write


GONE: list[tuple[type, str, str]] = [
    (ChatAnthropic, "retry", "give max_retries"),
    (ChatOpenAI, "retry", "give max_retries"),
    (ChatAnthropic, "sleep", "give max_retries=0"),
    (ChatAnthropic, "thinking", 'give options={"thinking"'),
    (Histories, "idle_s", "not used for five minutes is closed.* max_open"),
    (EvictionPricing, "clock", "its method now"),
    (EvictionPricing, "ttl_s", "give cache_ttl, such as '1h'"),
    (EvictionPricing, "terms", r"give prices=Prices\(...\) and cache_ttl"),
    (Context, "overhead_tokens", "context.overhead_tokens = ... sets it"),
    (History, "lease_wait_s", "40 outside of a directory"),
    (ToolResultOffload, "digest_tokens", "at most 200 tokens"),
    (AgentConfig, "digest_tokens", "give offload_policy=OffloadPolicy"),
    (Context, "digest_tokens", "give offload_policy=OffloadPolicy"),
    (History, "digest_tokens", "give offload_policy=OffloadPolicy"),
    (Bash, "max_output_bytes", "let it write to a file"),
    (Bash, "allow_unapproved", "give an agent approve=lambda call: True"),
    (ForgetPolicy, "keep_within_s", "give older_than_s"),
    (Window, "budget", "give window_tokens and reply_tokens"),
    (Window, "input_tokens", "give reply_tokens"),
    (AgentConfig, "on_open", "await keep_quota"),
    (AgentConfig, "on_close", "await prune_session"),
    (Context, "pin_tools", 'give keep_recent={"plan": "all"}'),
    (Context, "fs", "give it as session_id"),
    (Bash, "max_timeout_s", "timeout_s if that is more"),
    (Bash, "shell", "let the command begin with it"),
    (Materialize, "snippet_lines", "give max_inline_chars"),
    (Materialize, "snippet_bytes", "give max_inline_chars"),
    (Context, "store", "give it as root_path"),
    (History, "store", "give it as root_path"),
    (AgentConfig, "store", "give it as offload_root_path"),
    (KnowledgeService, "store", "give it as namespace"),
]


@pytest.mark.parametrize(("make", "name", "instead"), GONE)
def test_a_setting_that_is_gone_is_refused_with_what_replaces_it(make: type, name: str, instead: str) -> None:
    with pytest.raises(TypeError, match=f"{make.__name__} has no setting {name!r}: .*{instead}"):
        make(**{name: 5})
