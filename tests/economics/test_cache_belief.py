"""What the planner takes the provider's cache to hold: what a change rewrites, and what bills say."""

from dataclasses import replace

import pytest

from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Billed, Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.economics.planner import next_start, plan
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES

REWRITES_ALL = replace(ANTHROPIC_RATES, rewrites_all=True)
CALLS = 200
SEEN = EvictionParameters(max_loss=1.0)


def item(item_id: str, tokens: int = 6_000) -> Candidate:
    return Candidate(id=item_id, kind=ItemKind.RESULT, tokens=tokens, placeholder_tokens=50)


def later(ledger: Ledger, calls: int) -> Ledger:
    """So many calls in which nothing happens but talk."""
    for _ in range(calls):
        ledger = ledger.added([5]).replied([5])
    return ledger


def old_item_behind(tokens: int, *, rewrites_all: bool) -> Ledger:
    """An item that got old, behind so many tokens that stay."""
    rates = REWRITES_ALL if rewrites_all else ANTHROPIC_RATES
    return later(Ledger(parameters=SEEN, rates=rates).added([tokens, item("a")]).replied([100]), CALLS)


def test_where_a_change_rewrites_everything_what_stands_before_it_counts_too() -> None:
    assert list(plan(old_item_behind(60_000, rewrites_all=False))) == ["a"]
    assert not plan(old_item_behind(600_000, rewrites_all=True))
    assert list(plan(old_item_behind(2_000, rewrites_all=True))) == ["a"]


def test_a_rewrite_of_everything_is_accounted_for() -> None:
    for rewrites_all, rewritten in ((False, 50 + 100 + 10 * CALLS - 5), (True, 2_000 + 50 + 100 + 10 * CALLS - 5)):
        ledger = old_item_behind(2_000, rewrites_all=rewrites_all)
        assert ledger.saved - ledger.copy().evicted(["a"]).saved == 1.15 * rewritten


def test_a_change_of_what_was_never_sent_rewrites_nothing() -> None:
    ledger = Ledger(parameters=SEEN, rates=REWRITES_ALL).added([50_000]).replied([100, item("a")])
    assert ledger.copy().evicted(["a"]).saved == ledger.saved


def test_an_older_item_leaves_with_the_others_where_all_is_written_anyway() -> None:
    parameters = EvictionParameters(max_loss=1.0)

    def left(*, rewrites_all: bool) -> list[str]:
        rates = REWRITES_ALL if rewrites_all else ANTHROPIC_RATES
        ledger = Ledger(parameters=parameters, rates=rates).added([1_000, item("a"), item("b", 20_000)])
        return list(plan(later(ledger.replied([100]), 200)))

    assert left(rewrites_all=True) == ["a", "b"]


def test_the_price_of_a_whole_rewrite_keeps_within_the_budget() -> None:
    bold = replace(SEEN, max_loss=0.0)
    ledger = replace(old_item_behind(2_000, rewrites_all=True), parameters=bold, saved=0.0)
    assert not plan(ledger)


# Bills ---------------------------------------------------------------------------------------------------------------

EXPLICIT = {"charges_writes": True}
BY_ITSELF = {"charges_writes": False}


def billed(read: int, written: int, rest: int = 0, *, charges_writes: bool) -> Billed:
    usage = Usage(input_tokens=rest, cache_read_input_tokens=read, cache_creation_input_tokens=written)
    return Billed.of(usage, charges_writes=charges_writes)


def asked(bill: Billed | None) -> Ledger:
    """A session of two calls: 1,000 tokens are cached, then 500 come in, and a reply of 100."""
    ledger = Ledger(parameters=SEEN).added([900]).replied([100]).added([500])
    return ledger.replied([100], billed=bill)


@pytest.mark.parametrize("bill", [None, billed(900, 600, **EXPLICIT), billed(900, 0, 600, **BY_ITSELF)])
def test_a_bill_as_expected_changes_nothing(bill: Billed | None) -> None:
    expected = asked(None)
    found = asked(bill)
    assert (found.spent, found.saved, found.new_tokens) == (expected.spent, expected.saved, expected.new_tokens)
    assert (expected.new_tokens, expected.misses) == (100, 0)


def test_a_miss_is_counted_with_and_without_eviction() -> None:
    missed = asked(billed(0, 1_500, **EXPLICIT))
    assert missed.spent - asked(None).spent == pytest.approx(1.15 * 900)
    assert missed.saved == asked(None).saved == 0
    assert (missed.new_tokens, missed.misses) == (100, 1)  # what was written again is held again


def test_a_miss_costs_less_where_less_was_there() -> None:
    def saved(bill: Billed | None) -> float:
        ledger = Ledger(parameters=SEEN).added([1_000, item("a")]).replied([100]).evicted(["a"])
        return ledger.replied([100], billed=bill).replied([100], billed=bill).saved

    read = 1_000 + 50 + 100
    assert saved(billed(0, read, **EXPLICIT)) - saved(None) > 1.15 * 5_950  # never evicting would have missed that too


def test_what_an_eviction_rewrites_is_no_miss() -> None:
    ledger = Ledger(parameters=SEEN).added([1_000, item("a"), 500]).replied([100]).evicted(["a"])
    before = ledger.copy()
    after = ledger.replied([100], billed=billed(1_000, 50 + 500 + 100, **EXPLICIT))
    assert (after.misses, after.spent) == (0, before.replied([100]).spent)


def test_what_a_provider_did_not_write_is_not_held() -> None:
    uncached = asked(billed(0, 0, 1_500, **EXPLICIT))
    assert uncached.new_tokens == uncached.total_tokens
    assert uncached.is_cold(None)
    beginning = asked(billed(400, 0, 1_100, **EXPLICIT))
    assert beginning.new_tokens == 1_100 + 100
    assert not beginning.is_cold(None)


def test_tokens_of_the_provider_are_those_of_the_ledger_in_proportion() -> None:
    assert asked(billed(800, 0, 2_200, **EXPLICIT)).new_tokens == 1_100 + 100


@pytest.mark.parametrize(("misses", "held"), [(1, True), (3, True), (4, False)])
def test_a_provider_that_caches_by_itself_has_no_cache_after_four_misses_in_a_row(misses: int, held: bool) -> None:
    ledger = Ledger(parameters=SEEN).added([900]).replied([100])
    for _ in range(misses):
        ledger = ledger.added([500])
        ledger = ledger.replied([100], billed=billed(0, 0, ledger.total_tokens, **BY_ITSELF))
    assert ledger.misses == misses
    assert ledger.is_cold(None) != held


def test_where_nothing_is_held_what_is_due_leaves_at_once() -> None:
    def left(bill: Billed | None) -> dict[str, Why]:
        ledger = Ledger(parameters=SEEN).added([3_000, item("a", 2_000), 60_000]).replied([100])
        ledger = later(ledger, 70).added([5])
        return plan(ledger.replied([5], billed=bill))

    assert left(None) == {}
    assert left(billed(0, 0, 60_000, **EXPLICIT)) == {"a": Why.EXPIRED}


def test_a_rewrite_behind_what_was_lost_costs_nothing() -> None:
    ledger = Ledger(parameters=SEEN).added([3_000, item("a"), 1_000]).replied([100])
    lost = ledger.copy().lost(6_000 + 1_000 + 10)
    assert ledger.copy().evicted(["a"]).saved < 0
    assert lost.copy().evicted(["a"]).saved == 0
    assert lost.copy().lost(0).new_tokens == lost.new_tokens == lost.copy().lost(-5).new_tokens
    assert lost.lost(10**9).new_tokens == lost.total_tokens


def test_what_would_be_there_without_eviction_is_lost_with_the_rest() -> None:
    ledger = Ledger(parameters=SEEN).added([1_000, item("a")]).replied([100]).evicted(["a"]).replied([100])
    lost = ledger.copy().lost(ledger.total_tokens - ledger.new_tokens)
    assert (lost.gone_tokens, lost.gone_new_tokens) == (0, ledger.gone_tokens)


def test_behind_a_rewrite_in_the_middle_the_beginning_is_still_held() -> None:
    ledger = Ledger(parameters=SEEN).added([3_000, item("a"), 500]).replied([100])
    assert ledger.copy().rebuilt([3_000, 6_000, 700]).new_tokens == 9_700
    assert ledger.copy().rebuilt([3_000, 6_000, 700], unchanged_tokens=3_000).new_tokens == 6_700
    assert (
        ledger.copy().rebuilt([3_000, 6_000, 700], unchanged_tokens=9_600).new_tokens == 9_700 - 9_500
    )  # the reply is new


def test_a_context_that_goes_on_knows_what_was_learned() -> None:
    before = Ledger(parameters=SEEN).added([3_000, item("a"), item("b"), 500]).replied([100])
    before = before.evicted(["a", "b"]).replied([100], cache_expires_at=7.0)
    same = Ledger(parameters=SEEN).added([3_000, item("a"), 50, 500]).replied([100]).replied([100])
    known = before.total_tokens - before.new_tokens
    after = same.going_on_from(before)
    assert after.new_tokens == after.total_tokens - known > 0
    assert (after.spent, after.saved, after.cache_expires_at) == (before.spent, before.saved, 7.0)
    assert set(after.left) == {"b"}


# Where the next batch begins -----------------------------------------------------------------------------------------


def test_the_next_batch_begins_where_it_would_pay_soon() -> None:
    kept = replace(item("kept"), kind=ItemKind.ARGUMENTS)
    pinned = replace(item("pinned"), pinned=True)
    parameters = replace(SEEN, read_backs={**SEEN.read_backs, ItemKind.ARGUMENTS: 50.0})
    ledger = Ledger(parameters=parameters).added([1_000, pinned, kept, item("a"), item("b")]).replied([100])
    assert next_start(Ledger()) is None
    assert next_start(ledger) == "a"
    assert next_start(ledger.evicted(["a"])) == "b"
    assert next_start(ledger.evicted(["b"])) is None


def test_a_new_result_that_would_leave_once_it_is_seen_is_where_the_next_eviction_begins() -> None:
    ledger = Ledger(parameters=SEEN).added([40_000]).replied([10]).added([item("new"), 30])
    assert next_start(ledger) == "new"
    older = Ledger(parameters=SEEN).added([40_000, item("a", 2_000)]).replied([10]).added([item("new"), 30])
    assert next_start(older) == "a"
