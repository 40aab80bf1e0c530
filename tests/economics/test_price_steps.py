"""A context is held under the length above which every token of a request costs more, where that pays."""

from dataclasses import replace
from typing import Any

import pytest

from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Billed, Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.economics.planner import Terms, plan, under_step
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates

ABOVE = Rates(read=0.5, write=6.25, output=25.0)
STEPPED = replace(ANTHROPIC_RATES, steps=((20_000, ABOVE),))


def item(item_id: str, tokens: int = 6_000, *, kind: ItemKind = ItemKind.RESULT, **more: Any) -> Candidate:
    return Candidate(id=item_id, kind=kind, tokens=tokens, placeholder_tokens=50, **more)


def seen(*parts: Candidate | int, rates: Rates = STEPPED, **parameters: Any) -> Ledger:
    """A context whose parts the model saw 5 calls ago; talk of 20 tokens a call since."""
    careful = EvictionParameters(**{"read_back_weight": 13, **parameters})
    ledger = Ledger(parameters=careful, rates=rates).added(parts)
    for _ in range(5):
        ledger = ledger.replied([10]).added([10])
    return ledger


def test_above_the_step_something_leaves_that_would_stay_below_it() -> None:
    for length, leaving in ((13_900, {}), (13_901, {"a": Why.STEP})):
        ledger = seen(length, item("a"))
        assert ledger.total_tokens == length + 6_100
        assert plan(ledger) == leaving
    assert not plan(seen(13_901, item("a"), rates=ANTHROPIC_RATES))


def test_what_does_not_come_under_the_step_stays() -> None:
    assert not plan(seen(19_851, item("a")))
    assert list(plan(seen(19_850, item("a")))) == ["a"]


def test_those_that_lose_least_leave_and_no_more_than_pay() -> None:
    printed = item("printed", kind=ItemKind.RESULT)
    assert list(plan(seen(8_100, item("file", kind=ItemKind.FILE), printed))) == ["printed"]
    assert list(plan(seen(14_000, item("more"), printed))) == ["more", "printed"]


@pytest.mark.parametrize(("rates", "weight"), [(STEPPED, 13), (replace(STEPPED, rewrites_all=True), 4)])
def test_the_rewrite_is_paid_at_the_prices_below_the_step(rates: Rates, weight: float) -> None:
    assert plan(seen(13_950, item("a"), rates=rates, read_back_weight=weight, max_loss=1.0)) == {"a": Why.STEP}
    assert not plan(seen(13_950, item("a"), rates=rates, read_back_weight=1_000, max_loss=1.0))
    cold = replace(seen(13_950, item("a"), rates=rates), cache_expires_at=0.0)
    assert plan(cold, now=1.0) == {"a": Why.EXPIRED}


def test_what_leaves_for_a_step_costs_no_more_than_the_bound() -> None:
    early = (item("early", 10_000), 10_000)
    assert plan(seen(*early, max_loss=1.0)) == {"early": Why.STEP}
    assert not plan(seen(*early))  # 10,000 tokens would be cached again, and the session may end with this call


def test_what_is_cached_again_above_a_step_costs_what_it_costs_there() -> None:
    evicted = seen(item("early"), 30_000).evicted(["early"])
    assert evicted.saved == -(6.25 - 0.5) * evicted.rewritten_tokens
    missed = seen(30_000).replied([], billed=Billed(prompt=30_100, read=0, held=30_100))
    assert missed.spent - seen(30_000).replied([]).spent == (6.25 - 0.5) * 30_080


def test_a_miss_would_have_cost_more_where_the_context_without_eviction_is_above_the_step() -> None:
    below = seen(item("early", 18_000), 4_000).evicted(["early"]).replied([]).added([10])
    length = below.total_tokens
    assert length < 20_000 < length + below.gone_tokens
    missed = below.copy().replied([], billed=Billed(prompt=length, read=0, held=length))
    longer = length - 10 + below.gone_tokens
    assert missed.spent - below.replied([]).spent == pytest.approx((ABOVE.write - ABOVE.read) * longer)


def test_what_is_likely_to_be_read_back_at_once_stays_above_the_step_too() -> None:
    assert not plan(seen(13_950, item("a", kind=ItemKind.FILE)))


def test_what_is_pinned_or_new_stays() -> None:
    assert not plan(seen(13_950, item("a", pinned=True)))
    assert list(plan(seen(8_000, item("a", pinned=True), item("b")))) == ["b"]
    assert not plan(seen(13_950, 6_000).added([item("new")]))


def test_what_leaves_anyway_counts() -> None:
    old = Ledger(parameters=EvictionParameters(max_loss=1.0), rates=STEPPED).added([9_000, item("old")])
    for _ in range(200):
        old = old.replied([5]).added([5])
    assert list(plan(old).values()) == [Why.BATCH]
    above = old.added([item("young", 3_500, kind=ItemKind.FILE)]).replied([5])
    assert above.total_tokens > 20_000
    assert list(plan(above).values()) == [Why.BATCH]


@pytest.mark.parametrize(("kind", "leaving"), [(ItemKind.RESULT, ["more"]), (ItemKind.FILE, [])])
def test_what_leaves_anyway_may_be_read_back_too(kind: ItemKind, leaving: list[str]) -> None:
    often = {ItemKind.RESULT: 0.04, ItemKind.FILE: 1.0, ItemKind.ARGUMENTS: 0.3}
    ledger = seen(13_950, item("more"), item("leaves", kind=kind), read_backs=often)
    terms = Terms(ledger, cold=False, prompt_tokens=20_000)
    assert [held.id for held in under_step(ledger, [ledger.held["leaves"]], 20_000, terms)] == leaving


def test_calls_above_the_step_are_counted_at_its_prices() -> None:
    ledger = Ledger(rates=STEPPED).added([30_000])
    assert ledger.replied([]).spent == 6.25 * 30_000
    gone = Ledger(rates=STEPPED).added([15_000, item("a")]).evicted(["a"]).replied([100])
    assert (gone.spent, gone.saved) == (6.25 * 21_000, 6.25 * 21_000 - 1.25 * 15_050)
