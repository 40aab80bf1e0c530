"""The settings of a context: defaults of the model, the developer's veto, types, and combinations."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Context, ContextFileSystem, OffloadPolicy
from ctxfs.context.settings import as_window, check_preview, policy_with
from ctxfs.errors import ConfigError, ContextOverflow
from ctxfs.eviction import Evicted, SelectiveCompaction, Strategy, Window
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.economics.economy import EvictionPricing, ModelPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.window import WindowGuard
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ItemType
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from ctxfs.storage import MemoryStore
from ctxfs.tools import Bash, Materialize, Materializer

pytestmark = pytest.mark.anyio


def memory() -> ContextFileSystem:
    return ContextFileSystem("s", root_path="/sessions", store=MemoryStore("s"))


def log(n: int, lines: int) -> str:
    return "".join(f"result {n}: request {line} was served in {line % 7} ms\n" for line in range(lines))


async def session(
    calls: int = 8, lines: int = 400, *, written: int = 0, tool: str = "search", **settings: Any
) -> tuple[Context, list[str]]:
    """A session of ``calls`` calls with results of so many lines; the first call has an argument of ``written``."""
    events: list[ContextEvent] = []
    context = Context(memory(), counter=CharsCounter(), on_event=events.append, **settings)
    async with context:
        await context.add({"role": "user", "content": "go"})
        for n in range(calls):
            arguments = {"n": n, "text": log(n, written)} if n == 0 and written else {"n": n}
            call = {"type": "tool_use", "id": f"call_{n}", "name": tool, "input": arguments}
            await context.messages()
            await context.add({"role": "assistant", "content": [call]})
            result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": log(n, lines)}
            await context.add({"role": "user", "content": [result]})
        await context.messages()
    return context, [event.item_id for event in events if isinstance(event, Evicted)]


# What is left out comes from the model -------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_context_without_settings_stays_bounded() -> None:
    bounded, left = await session(30, 700)
    assert left
    assert bounded.token_count < 40_000
    unbounded, left = await session(30, 700, pricing=None, window=None)
    assert left == []
    assert unbounded.token_count > 200_000


@pytest.mark.slow
async def test_the_window_alone_bounds_a_context_too() -> None:
    context, left = await session(30, 700, pricing=None)
    assert left
    assert context.token_count < Budget.of_model("").high_tokens


def test_windows_as_they_can_be_written() -> None:
    own = Budget.of_model("gpt-5")
    for written, meant in (
        ("auto", own),
        (50_000, Budget(window_tokens=50_000, reply_tokens=12_500)),
        (Window(9_000, reply_tokens=500), Budget(window_tokens=9_000, reply_tokens=500)),
        (Window(high_water=0.5, low_water=0.4), replace(own, high_water=0.5, low_water=0.4)),
        (Window(reply_tokens=200_000), replace(own, reply_tokens=200_000)),
        (None, None),
    ):
        assert WindowGuard.of(as_window(written), "gpt-5", OffloadPolicy()) == WindowGuard(budget=meant, model="gpt-5")  # type: ignore[arg-type]


def test_a_reply_that_leaves_no_room_in_the_models_own_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="a window of 8,192 tokens with 9,000 kept for the reply has no room"):
        Context(model="gpt-4", window=Window(reply_tokens=9_000))


def test_the_economy_has_the_prices_of_the_model() -> None:
    rates = ModelPricing.of(EvictionPricing(), "gpt-5").rates
    assert (rates.read, rates.write, rates.output) == pytest.approx((0.1, 1.0, 8.0))
    assert ModelPricing.of(EvictionPricing(), "a-model-of-mine").rates == ANTHROPIC_RATES
    assert ModelPricing.of(EvictionPricing(cache_ttl="1h"), "claude-opus-5").ttl_s == 3600


# The developer's word ------------------------------------------------------------------------------------------------

STAYS = OffloadPolicy(type_enabled={"tool_result": False})
DROPS = SelectiveCompaction(rules={ItemType.TOOL_RESULT: Strategy.DROP})
LARGE_ONLY = OffloadPolicy(token_threshold=50_000)


@pytest.mark.not_measured
@pytest.mark.parametrize("policy", [STAYS, LARGE_ONLY, OffloadPolicy(type_thresholds={"tool_result": 50_000})])
@pytest.mark.parametrize("eager", [None, Materializer()])
async def test_what_the_policy_refuses_leaves_neither_on_arrival_nor_by_price(
    policy: OffloadPolicy, eager: Materializer | None
) -> None:
    _, left = await session(eager=eager)
    assert left
    if eager is not None and policy is STAYS:
        return  # refused, as is tested below
    assert (await session(offload_policy=policy, eager=eager))[1] == []


def test_results_that_leave_on_arrival_and_stay_are_refused() -> None:
    with pytest.raises(ConfigError, match="eager evicts tool results"):
        Context(eager=Materializer(), offload_policy=STAYS)


@pytest.mark.slow
async def test_tool_inputs_have_a_veto_of_their_own() -> None:
    # Many calls, so that the argument is worth evicting.
    _, left = await session(40, 4, written=1_500, tool="write_file")
    assert "call_0.input" in left
    policy = OffloadPolicy(type_enabled={"tool_input": False})
    assert "call_0.input" not in (await session(40, 4, written=1_500, tool="write_file", offload_policy=policy))[1]


async def test_keep_recent_goes_past_the_policy() -> None:
    _, left = await session(keep_recent={"search": 2}, offload_policy=STAYS)
    assert left == [f"call_{n}" for n in range(6)]


async def test_a_compaction_asks_the_policy() -> None:
    window = Window(window_tokens=24_000, reply_tokens=2_000)
    _, left = await session(window=window, pricing=None)
    assert any(item_id.startswith("call_") for item_id in left)
    context, left = await session(window=window, pricing=None, offload_policy=STAYS)
    assert not any(item_id.startswith("call_") for item_id in left)  # whole exchanges go into an archive
    assert any(item.item_type is ItemType.COMPACTION_SUMMARY for item in context.items)


async def test_the_main_switch_leaves_the_window_guarded() -> None:
    with pytest.raises(ContextOverflow, match="offload_enabled=False"):
        await session(window=20_000, offload_enabled=False)
    _, left = await session(offload_enabled=False, keep_recent={"search": 1}, eager=Materializer())
    assert left == []


async def test_a_resumed_session_explains_itself_by_the_policy_it_had(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, offload_policy=LARGE_ONLY) as context:
        pass
    async with ContextFileSystem(context.session_id, root_path=tmp_path, read_only=True) as fs:
        assert fs.state.eviction is not None
        assert fs.state.eviction.policy == LARGE_ONLY.to_mapping()


# Types and combinations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"keep_recent": 2}, r"keep_recent is 2: give a number for each tool, as in \{"),
        ({"keep_recent": {1: "all"}}, "a tool in keep_recent is 1: it must be text"),
        ({"keep_recent": {"search": 0}}, "'search'.* is 0: use a whole number, 1 or more"),
        ({"keep_recent": {"search": "2"}}, 'use a whole number, 1 or more, or in a Context "all"'),
        ({"keep_recent": {"search": True}}, "use a whole number"),
        ({"window": "100k"}, "window is '100k': use a number of tokens"),
        ({"window": 0}, "window is 0"),
        ({"window": True}, "window is True"),
        ({"pricing": True}, "pricing is True: use EvictionPricing"),
        ({"offload_enabled": "no"}, "use True or False"),
        ({"offload_policy": "never"}, "OffloadPolicy"),
        ({"model": 4}, "model is 4"),
        ({"on_event": "print"}, "on_event"),
        ({"eager": "x"}, "eager is 'x': use a policy"),
        ({"eager": Materializer}, "eager is <class"),
        ({"session_id": ContextFileSystem("s"), "root_path": "."}, "leave out root_path"),
        ({"offload_policy": STAYS, "window": Window(compaction=DROPS)}, "offload_policy's type_enabled says that it"),
    ],
)
def test_a_setting_that_cannot_work_says_what_to_write(settings: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Context(**settings)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (Window, {"window_tokens": "200000"}),
        (Window, {"window_tokens": 9_000.5, "reply_tokens": 1}),
        (Window, {"window_tokens": 9_000, "reply_tokens": True}),
        (Window, {"window_tokens": 90_000, "low_water": "0.5"}),
        (Window, {"compaction": "types"}),
        (Window, {"summarize": "yes"}),
        (Window, {"window_tokens": "x"}),
        (Window, {"window_tokens": 0}),
        (Window, {"window_tokens": True}),
        (SelectiveCompaction, {"rules": {"tool_result": "shrink"}}),
        (SelectiveCompaction, {"rules": {"tool_result": "2"}}),
        (SelectiveCompaction, {"rules": {"tool_result": -1}}),
        (SelectiveCompaction, {"rules": {"tool_result": True}}),
        (SelectiveCompaction, {"rules": {"tool_result": None}}),
        (SelectiveCompaction, {"rules": [Strategy.DROP]}),
        (SelectiveCompaction, {"rules": {"image": Strategy.DROP}}),
        (SelectiveCompaction, {"rules": {"tool_input": Strategy.DROP}}),
        (SelectiveCompaction, {"rules": {"system_prompt": 0}}),
        (SelectiveCompaction, {"rules": {"compaction_summary": 0}}),
        (EvictionPricing, {"parameters": {"read_back_weight": 2}}),
        (EvictionPricing, {"prices": 300}),
        (EvictionPricing, {"cache_ttl": "2h"}),
        (EvictionPricing, {"host_breakpoints": 1}),
        (EvictionParameters, {"cover": "many"}),
        (OffloadPolicy, {"digest_tokens": "200"}),
        (OffloadPolicy, {"digest_tokens": None}),
        (OffloadPolicy, {"digest_tokens": -1}),
        (Rates, {"read": "0.1", "write": 1, "output": 5}),
        (Prices, {"input": "3", "cache_read": 0.3, "output": 9}),
        (Materialize, {"max_inline_chars": True}),
        (Bash, {"timeout_s": "60"}),
    ],
)
def test_the_values_that_settings_are_made_of_are_checked_too(make: Any, settings: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make(**settings)


def test_a_rule_and_a_type_can_be_written_as_text() -> None:
    written: Any = {"tool_result": "drop"}
    named = {ItemType.TOOL_RESULT: Strategy.DROP}
    assert SelectiveCompaction(rules=written) == SelectiveCompaction(rules=named)


def test_one_threshold_is_agreed_on() -> None:
    assert policy_with(None, None) == OffloadPolicy()
    assert policy_with(STAYS, 9) == OffloadPolicy(token_threshold=9, type_enabled={"tool_result": False})
    assert policy_with(LARGE_ONLY, 50_000) == LARGE_ONLY
    with pytest.raises(ConfigError, match=r"offload_token_threshold is 100, .* of offload_policy 50000"):
        policy_with(LARGE_ONLY, 100)


def test_a_limit_of_previews_that_another_setting_decides_is_refused() -> None:
    with pytest.raises(ConfigError, match="preview_above_tokens has no effect: eager decides about new results"):
        check_preview(2_000, OffloadPolicy(), decides="eager")
    with pytest.raises(ConfigError, match="preview_above_tokens evicts tool results, but"):
        check_preview(2_000, STAYS)
    check_preview(2_000, OffloadPolicy())
    check_preview(None, STAYS, decides="eager")


def test_the_size_of_all_else_is_checked_where_it_is_set() -> None:
    context = Context(memory())
    assert context.overhead_tokens == 0
    with pytest.raises(ConfigError, match="overhead_tokens is -1: use a whole number, 0 or more"):
        context.overhead_tokens = -1
    context.overhead_tokens = 300
    assert context.counted_tokens == 300
