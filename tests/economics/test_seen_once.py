"""What leaves right after the model has seen it, and what hides together before: only what is covered."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.economics.features import ToolClass
from ctxfs.economics.held import Outcome
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Candidate
from ctxfs.economics.next_batch import next_start
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import Why, next_plan, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates, at_price
from ctxfs.economics.ripening import Ripening


def item(item_id: str, tokens: int = 2_000, *, tool_class: ToolClass = ToolClass.OTHER, **more: Any) -> Candidate:
    return Candidate(id=item_id, tool="Bash", tool_class=tool_class, tokens=tokens, placeholder_tokens=50, **more)


def seen(*parts: Candidate | int, rates: Rates = ANTHROPIC_RATES, **parameters: Any) -> Ledger:
    """A session of 40 calls; the request before the last reply carried ``parts`` for the first time."""
    ledger = Ledger(parameters=EvictionParameters(**parameters), rates=rates).added([3_000])
    for _ in range(40):
        ledger = ledger.replied([20]).added([20])
    return ledger.added(parts).replied([100])


def test_what_the_model_saw_once_leaves_while_only_the_last_reply_stands_behind_it() -> None:
    ledger = seen(item("a"))
    found = plan(ledger)
    assert (found.item_ids, {e.why for e in found.evictions}) == (("a",), {Why.BATCH})
    assert found.rewrite_cost == pytest.approx(1.15 * 50)  # the placeholder alone
    assert not plan(ledger.added([20]).replied([20]))  # the reply behind it is in the cache now
    assert not plan(seen(item("a"), seen_tokens=0))


@pytest.mark.parametrize(
    ("stays", "parameters"),
    [
        (item("a", tool_class=ToolClass.FILE), {}),
        (item("a", tool_class=ToolClass.EDIT), {}),
        (item("a", pinned=True), {}),
        (item("a", 249), {}),
        (item("a"), {"seen_caution": 100}),
    ],
    ids=["a file", "arguments", "pinned", "small", "too likely to be read back"],
)
def test_what_stays_once_it_was_seen(stays: Candidate, parameters: dict[str, Any]) -> None:
    assert not plan(seen(stays, **parameters))


def test_a_class_leaves_once_seen_if_its_read_backs_are_known() -> None:
    known = EvictionParameters.from_mapping({"seen_needs_by_class": {"file": 0.01}}).seen_needs_by_class
    assert plan(seen(item("a", tool_class=ToolClass.FILE), seen_needs_by_class=known)).item_ids == ("a",)


def test_nothing_leaves_once_seen_where_every_change_rewrites_all() -> None:
    assert not plan(seen(item("a"), rates=replace(ANTHROPIC_RATES, rewrites_all=True)))


def test_the_read_backs_of_what_was_seen_once_are_covered() -> None:
    ledger = seen(item("a", 1_000), item("b", 1_000), max_loss=0)
    half = 0.5 * ledger.read_back_price()
    for saved, leaving in ((2.1 * half, ("a", "b")), (1.9 * half, ("b",)), (0.9 * half, ())):
        account = replace(ledger, saved=saved + ledger.saved - ledger.saved_then)
        assert plan(account).item_ids == leaving
    share = 0.9 * half / (ledger.spent_then * (1 + 0.5 * ledger.parameters.horizon(ledger.calls) / ledger.calls))
    assert not plan(seen(item("a", 1_000), item("b", 1_000), max_loss=share))
    assert plan(seen(item("a", 1_000), item("b", 1_000), max_loss=1.2 * share))


@pytest.mark.parametrize(
    ("tool_class", "tokens", "past", "read_backs"),
    [
        (ToolClass.OTHER, 1_000, Outcome(), 0.5),
        (ToolClass.OTHER, 8_000, Outcome(), 5 * 0.08 * 8**0.4),
        (ToolClass.SEARCH, 8_000, Outcome(), 5 * 0.15 * 8**0.1),
        (ToolClass.SEARCH, 1_500, Outcome(left=7, read_back=7), 1.5),
    ],
    ids=["half of one at least", "five times as many as expected", "by its class", "no more than it has pages"],
)
def test_of_what_is_more_likely_to_be_read_back_more_is_covered(
    tool_class: ToolClass, tokens: int, past: Outcome, read_backs: float
) -> None:
    ledger = seen(item("a", tokens, tool_class=tool_class), max_loss=0, seen_caution=0)
    ledger = replace(ledger, memory=MappingProxyType({ledger.held["a"].lesson: past}))
    for factor, leaving in ((0.999, ()), (1.001, ("a",))):
        saved = factor * read_backs * ledger.read_back_price()
        assert plan(replace(ledger, saved=saved + ledger.saved - ledger.saved_then)).item_ids == leaving


def test_a_tool_whose_results_are_read_back_is_not_evicted_once_seen() -> None:
    ledger = seen(item("a"))
    memory = {ledger.held["a"].lesson: Outcome(left=8, read_back=8)}
    assert not plan(replace(ledger, memory=MappingProxyType(memory)))


def test_a_breakpoint_stands_before_what_will_leave_once_seen() -> None:
    ledger = seen(max_loss=1).added([item("file", tool_class=ToolClass.FILE), item("a"), item("b")])
    assert next_start(ledger) == "a"
    assert next_start(ledger, Ripening()) == "a"


@given(st.lists(st.integers(60, 9_000), min_size=1, max_size=12), st.integers(0, 12))
def test_a_plan_that_passes_over_blocks_finds_what_was_seen_once(sizes: list[int], quiet: int) -> None:
    ledger = seen(*[item(f"old{n}", tool_class=ToolClass.FILE) for n in range(200)])
    for _ in range(quiet):
        ledger = ledger.added([20]).replied([20])
    ledger = ledger.added([item(f"new{n}", size) for n, size in enumerate(sizes)]).replied([100])
    assert next_plan(ledger, Ripening(), now=None) == plan(ledger)


def test_a_batch_may_cost_twice_its_share_if_that_is_earned_back_soon() -> None:
    def costs(behind: int, size: int) -> bool:
        ledger = seen(item("a", size), behind, seen_tokens=0, caution=0.01, rent_share=0.0)
        return bool(plan(replace(ledger.added([20]).replied([20]), spent=100_000.0)))

    assert costs(2_300, 3_000)  # 1.15 tokens each: 3 % are 3,000
    assert costs(4_000, 40_000)
    assert not costs(4_000, 3_000)
    assert not costs(5_200, 40_000)  # more than twice the share


@pytest.mark.parametrize(("read", "weight"), [(0.1, 8.0), (0.5, 8.0), (0.05, 8 * 0.5**1.5), (0.02, 1.0)])
def test_caution_falls_to_the_price_of_a_read_back_where_cached_tokens_cost_little(read: float, weight: float) -> None:
    assert at_price(8.0, replace(ANTHROPIC_RATES, read=read)) == pytest.approx(weight)
    assert at_price(0.0, replace(ANTHROPIC_RATES, read=read)) == 0
