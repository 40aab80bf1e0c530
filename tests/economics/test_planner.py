"""The rules of the planner: when an item leaves, what a batch waits for, and what may be lost."""

import pickle
import random
from dataclasses import replace
from math import floor, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError
from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import ASKING_TOKENS, PAGE_TOKENS, Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.economics.planner import Terms, Walk, decisions, plan
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates

BOLD = EvictionParameters(max_loss=1.0, cover=0.0)
PRICES = (
    ANTHROPIC_RATES,
    replace(ANTHROPIC_RATES, read=0.025),
    replace(ANTHROPIC_RATES, rewrites_all=True),
    Rates(read=0.25, write=1.0, output=4.0),
    replace(ANTHROPIC_RATES, steps=((15_000, Rates(read=0.2, write=2.5, output=10.0)),)),
)


def item(item_id: str, tokens: int = 6_000, **more: Any) -> Candidate:
    return Candidate(**{"id": item_id, "kind": ItemKind.RESULT, "tokens": tokens, "placeholder_tokens": 50, **more})


def file(item_id: str, tokens: int = 6_000) -> Candidate:
    return item(item_id, tokens, kind=ItemKind.FILE)


def later(ledger: Ledger, calls: int) -> Ledger:
    """So many calls in which nothing happens but talk."""
    for _ in range(calls):
        ledger.added([5]).replied([5])
    return ledger


def batch(candidate: Candidate, *, behind: int = 300, **settings: Any) -> Ledger:
    """A context in which an item came with others, so that it does not leave as soon as it was seen."""
    ledger = Ledger(**{"parameters": BOLD, **settings}).added([3_000, candidate]).replied([100])
    return ledger.added([behind]).replied([100])


def leaves_after(ledger: Ledger, limit: int = 400) -> int:
    """The number of quiet calls after which the plan is not empty any more."""
    for calls in range(limit):
        if plan(ledger):
            return calls
        later(ledger, 1)
    return limit


# Seen first, seen once -----------------------------------------------------------------------------------------------


def test_nothing_leaves_before_the_model_has_seen_it() -> None:
    ledger = Ledger(parameters=replace(BOLD, read_back_weight=0.0)).added([item("a")])
    assert not plan(ledger)
    assert decisions(ledger)[0].why is Why.NEW
    assert list(plan(ledger.replied([1]))) == ["a"]


def test_what_only_a_reply_follows_leaves_if_staying_costs_more() -> None:
    printed = Ledger(parameters=BOLD).added([3_000, item("a")]).replied([100])
    assert plan(printed) == {"a": Why.SEEN}
    assert printed.saved - printed.copy().evicted(["a"]).saved == pytest.approx(1.15 * 50)  # its placeholder
    assert not plan(Ledger(parameters=BOLD).added([100_000, file("a", 500)]).replied([100]))


def test_where_a_change_rewrites_all_nothing_leaves_as_soon_as_it_was_seen() -> None:
    rates = replace(ANTHROPIC_RATES, rewrites_all=True)
    assert not plan(Ledger(parameters=BOLD, rates=rates).added([60_000, item("a")]).replied([100]))


def test_arguments_of_the_last_reply_leave_before_they_are_sent() -> None:
    careless = replace(BOLD, read_back_weight=0.01)
    written = item("a", kind=ItemKind.ARGUMENTS)
    told = Ledger(parameters=careless).added([10_000]).replied([20, written]).added([30])
    assert list(plan(told)) == ["a"]
    assert told.copy().evicted(["a"]).saved == told.saved


def test_what_no_request_has_carried_stays_after_a_rewrite_of_the_context_too() -> None:
    careless = replace(BOLD, read_back_weight=0.0)
    ledger = Ledger(parameters=careless).added([item("a")]).replied([1]).added([item("b")])
    ledger.rebuilt([item("a"), 1, item("b")])
    assert list(plan(ledger)) == ["a"]
    assert list(plan(ledger.replied([1]))) == ["a", "b"]


def test_pages_that_are_read_one_after_the_other_stay_until_the_reading_ends() -> None:
    ledger = Ledger(parameters=BOLD).added([3_000, item("a", 60_000)]).replied([10]).evicted(["a"])
    for number in range(3):
        ledger.read_back("a", [item(f"page {number}", 1_000)])
        assert not plan(ledger)
        assert [decision.why for decision in decisions(ledger)] == [Why.YOUNG] * number + [Why.NEW]
        ledger.replied([10])
    assert list(plan(ledger.copy())) == ["page 0", "page 1", "page 2"]
    ledger.read_back("a", [])  # a page whose placeholder would save nothing is a part of the reading too
    assert not plan(ledger)
    ledger.replied([10])
    assert list(plan(ledger)) == ["page 0", "page 1", "page 2"]


def test_a_page_that_is_read_later_begins_another_reading() -> None:
    ledger = Ledger(parameters=BOLD).added([3_000, item("a", 60_000)]).replied([10]).evicted(["a"])
    ledger.read_back("a", [item("first", 1_000)]).replied([10])
    ledger.added([5]).replied([10])
    ledger.read_back("a", [item("second", 1_000)])
    assert (ledger.held["first"].used, ledger.reading) == (1, ["second"])


def test_a_page_that_left_in_the_middle_of_a_reading_is_not_missed() -> None:
    ledger = Ledger(parameters=BOLD).added([3_000, item("a", 60_000)]).replied([10]).evicted(["a"])
    ledger.read_back("a", [item("first", 1_000)]).replied([10]).evicted(["first"])
    ledger.read_back("a", [item("second", 1_000)])
    assert list(ledger.held) == ["second"]
    assert ledger.copy().reading == ["first", "second"]


# Batches -------------------------------------------------------------------------------------------------------------


def test_a_plan_goes_on_until_nothing_more_pays() -> None:
    ledger = later(batch(item("a")), 60)
    assert list(plan(ledger)) == ["a"]
    assert not plan(ledger.evicted(["a"]))


def test_kinds_that_are_read_back_more_often_stay_longer() -> None:
    found = {kind: leaves_after(batch(item("a", kind=kind))) for kind in ItemKind}
    assert found[ItemKind.RESULT] < found[ItemKind.FILE] < found[ItemKind.ARGUMENTS] < 400


def test_the_dearer_a_read_back_the_longer_all_stay() -> None:
    assert leaves_after(batch(file("a"))) < leaves_after(batch(file("a"), behind=100_000))
    careful = replace(BOLD, read_back_weight=4.0)
    assert leaves_after(batch(file("a"))) < leaves_after(batch(file("a"), parameters=careful))


def test_a_rewrite_waits_until_the_rents_have_paid_for_it() -> None:
    ledger = batch(item("a"), behind=30_000)
    calls = leaves_after(ledger)
    assert 0 < calls < 400
    (found,) = decisions(ledger)
    assert found.ripe_in_calls == 0
    assert list(plan(ledger)) == ["a"]
    cost = ledger.saved - ledger.copy().evicted(["a"]).saved
    assert cost <= found.rent * (calls + 4)  # it was ripe for no longer than that


def test_what_stands_behind_decides_what_is_worth_a_rewrite() -> None:
    near = Ledger(parameters=BOLD).added([3_000, item("a"), item("b", 2_000)]).replied([100])
    far = Ledger(parameters=BOLD).added([3_000, item("a"), 60_000, item("b", 2_000)]).replied([100])
    assert list(plan(later(near, 30))) == ["a", "b"]
    assert list(plan(later(far, 30))) == ["b"]


def test_what_is_not_ripe_joins_a_batch_if_that_gains() -> None:
    ledger = later(batch(item("old")), 60)
    ledger.added([file("young", 5_000)]).replied([100])
    ledger.added([5]).replied([5])
    young = {v.item_id: v for v in decisions(ledger)}["young"]
    assert young.ripe_in_calls > 0
    assert young.why is Why.BATCH
    hopeless = later(batch(item("old")), 60).added([file("young", 300)]).replied([100])
    assert [v.why for v in decisions(hopeless)] == [Why.BATCH, Why.YOUNG]


def test_what_another_rule_evicts_stays() -> None:
    ledger = later(batch(item("a", pinned=True)), 100)
    assert not plan(ledger)
    assert decisions(ledger)[0].why is Why.PINNED
    assert list(plan(ledger.pin(["a"], pinned=False))) == ["a"]


@pytest.mark.parametrize(
    ("rates", "expires_at"),
    [(ANTHROPIC_RATES, 10.0), (Rates(read=1, write=1, output=5), None)],
    ids=["cold", "no cache"],
)
def test_without_a_warm_cache_a_rewrite_costs_nothing(rates: Rates, expires_at: float | None) -> None:
    ledger = Ledger(rates=rates).added([file("a", 2_000)]).replied([100]).added([150_000]).replied([10])
    later(ledger, 60)
    ledger.cache_expires_at = expires_at
    assert plan(ledger, now=11.0) == {"a": Why.EXPIRED}
    assert bool(plan(ledger, now=9.0)) is (expires_at is None)


def test_the_reason_says_so_where_the_cache_has_lost_what_follows() -> None:
    ledger = later(batch(item("a")), 100)
    assert plan(ledger) == {"a": Why.BATCH}
    assert plan(ledger.lost(ledger.total_tokens - 1)) == {"a": Why.EXPIRED}


def test_no_batch_leaves_that_makes_the_context_too_short_for_the_cache() -> None:
    def left(least: int) -> list[str]:
        rates = replace(ANTHROPIC_RATES, least_cached_tokens=least)
        ledger = Ledger(parameters=BOLD, rates=rates).added([3_000, item("a"), item("b")]).replied([100])
        return list(plan(later(ledger, 150)))

    total = 3_000 + 2 * 50 + 100 + 150 * 10
    assert left(total) == ["a", "b"]
    assert left(total + 1) == ["b"]
    assert left(total + 6_000) == []


def test_a_placeholder_that_saves_too_little_is_never_planned() -> None:
    ledger = later(batch(item("a", 59)), 300)
    assert (dict(ledger.held), plan(ledger)) == ({}, {})


# Blocks --------------------------------------------------------------------------------------------------------------

SESSIONS = st.lists(
    st.tuples(st.sampled_from(ItemKind), st.integers(20, 4_000), st.booleans(), st.integers(0, 300)),
    min_size=1,
    max_size=40,
)


@given(SESSIONS, st.sampled_from(PRICES), st.integers(0, 40))
def test_blocks_leave_out_nothing_that_an_item_alone_would_not(
    drawn: list[tuple[ItemKind, int, bool, int]], rates: Rates, quiet: int
) -> None:
    """Items repeated to many blocks leave, or stay, as they do without blocks: in the same order, and no fewer."""
    ledger = Ledger(parameters=BOLD, rates=rates)
    for number in range(4):
        for n, (kind, tokens, pinned, text) in enumerate(drawn):
            ledger.added([item(f"{number}-{n}", tokens, kind=kind, pinned=pinned), text]).replied([10])
    later(ledger, quiet)
    found = plan(ledger)
    order = {one: n for n, one in enumerate(ledger.held)}
    places = [order[one] for one in found]
    assert places == sorted(places)
    assert not any(ledger.held[one].candidate.pinned or ledger.held[one].is_new(ledger.calls) for one in found)
    assert_costs_as_decided(ledger)


def assert_costs_as_decided(ledger: Ledger) -> None:
    """What the planner expects all to free and to cost that it would choose is what the ledger then counts."""
    walk = Walk(ledger, Terms(ledger, cold=ledger.is_cold(None)))
    for _ in walk.portions():
        pass
    left = ledger.copy().evicted([held.id for held in walk.chosen])
    assert ledger.total_tokens - left.total_tokens == walk.freed
    rewritten = 0.0 if ledger.is_cold(None) else ledger.saved - left.saved
    if ledger.rates.at(left.total_tokens) == ledger.rates.at(ledger.total_tokens):
        assert rewritten == pytest.approx(walk.cost)
    else:  # below a step in price, which the context was above: the request costs less than was expected
        assert rewritten <= walk.cost


def many(count: int, **more: Any) -> Ledger:
    """So many items that came one after the other, some blocks of them, and the calls since then."""
    ledger = Ledger(parameters=BOLD)
    for number in range(count):
        ledger.added([item(str(number), **more), 20]).replied([10])
    return later(ledger, 100)


def test_blocks_of_which_all_are_ripe_leave_as_a_whole() -> None:
    ledger = many(200)
    assert list(plan(ledger)) == list(map(str, range(200)))
    assert_costs_as_decided(ledger)


@pytest.mark.parametrize("quiet", range(0, 60, 4))
def test_what_leaves_of_blocks_costs_what_the_plan_says(quiet: int) -> None:
    ledger = Ledger(parameters=BOLD)
    for number in range(200):
        ledger.added([file(str(number), 1_000), 20])
    assert_costs_as_decided(later(ledger.replied([10]), quiet))


def test_blocks_of_pinned_items_stay() -> None:
    assert not plan(many(200, pinned=True))


def test_a_plan_looks_at_what_is_left_of_blocks() -> None:
    ledger = many(200)
    gone = [str(number) for number in range(200) if number % 10]
    ledger.evicted(gone)
    assert list(ledger.held) == [str(number) for number in range(0, 200, 10)]
    assert list(plan(ledger)) == list(ledger.held)
    assert_costs_as_decided(ledger)


# The bound -----------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1_000, 20_000), min_size=1, max_size=30), max_loss=st.floats(0, 0.2))
def test_a_session_that_ends_has_lost_no_more_than_the_parameter_allows(sizes: list[int], max_loss: float) -> None:
    ledger = Ledger(parameters=EvictionParameters(max_loss=max_loss, read_back_weight=0.0, cover=0.0))
    for number, size in enumerate(sizes):
        ledger.added([item(str(number), size)])
        ledger.evicted(plan(ledger)).replied([100])
        paid = ledger.spent - ledger.saved
        assert paid <= ledger.spent * (1 + max_loss) + 1e-6


@given(
    st.lists(
        st.tuples(st.sampled_from(ItemKind), st.integers(100, 12_000), st.integers(0, 3_000)), min_size=5, max_size=60
    ),
    st.sampled_from(PRICES),
    st.builds(
        EvictionParameters,
        max_loss=st.sampled_from((0.0, 0.03, 0.1)),
        cover=st.sampled_from((1.0, 3.0)),
        read_back_weight=st.sampled_from((0.0, 1.0)),
    ),
    st.integers(0, 2**32),
)
def test_what_left_is_opened_at_the_worst_moment_and_is_covered(
    drawn: list[tuple[ItemKind, int, int]], rates: Rates, parameters: EvictionParameters, seed: int
) -> None:
    """After each eviction as many pages are opened at once as the parameters promise to cover: it costs no more.

    With a weight of 0 nothing but the bound holds an item back.
    """
    ledger = Ledger(parameters=parameters, rates=rates)
    draw = random.Random(seed)
    for number, (kind, tokens, text) in enumerate(drawn):
        hidden = 10_000 if draw.random() < 0.05 else 0
        ledger.added([item(str(number), tokens, kind=kind, hidden_tokens=hidden), text])
        found = plan(ledger)
        ledger.evicted(found).replied([draw.randrange(500)])
        if not found:
            continue
        worst = ledger.copy()
        expected = worst.open_read_backs.expected(worst.calls - 1, 2)
        for _ in range(floor(expected + parameters.cover * sqrt(expected))):
            worst.replied([ASKING_TOKENS]).read_back(draw.choice(list(found)), [PAGE_TOKENS])
        worst.replied([])
        assert worst.spent - worst.saved <= worst.spent * (1 + parameters.max_loss) + 1e-6


def test_below_some_forty_calls_next_to_nothing_leaves() -> None:
    ledger = Ledger()
    ledger.added([20_000]).replied([100])
    for number in range(12):
        ledger.added([file(str(number), 3_000)]).replied([100])
        assert not plan(ledger)


# What is said --------------------------------------------------------------------------------------------------------


def test_a_plan_says_of_each_item_why_it_leaves() -> None:
    (why,) = plan(later(batch(item("a")), 60)).values()
    assert why is Why.BATCH
    assert why.startswith("evicted: keeping it would cost more than reading it back")
    assert plan(Ledger()) == {}


def test_a_verdict_says_when_an_item_will_be_ripe() -> None:
    ledger = batch(file("a"))
    (verdict,) = decisions(ledger)
    assert verdict.risk > verdict.rent == pytest.approx(595)
    age = ledger.calls - ledger.held["a"].came + 1
    price = ledger.read_back_price(ledger.rates)
    assert verdict.risk == pytest.approx(EvictionParameters().hazard(ItemKind.FILE, 6_000) * price / age)
    ledger.calls += int(verdict.ripe_in_calls) + 20
    (ripe,) = decisions(ledger)
    assert ripe.risk < ripe.rent
    assert ripe.ripe_in_calls == 0


# Parameters ----------------------------------------------------------------------------------------------------------


def test_parameters_come_from_a_table() -> None:
    parameters = EvictionParameters.from_mapping({"cover": 2.5, "read_backs": {"file": 0.7}, "max_loss": 0})
    assert (parameters.cover, parameters.max_loss) == (2.5, 0)
    assert parameters.hazard(ItemKind.FILE, 1_000) == pytest.approx(0.7)
    assert parameters.hazard(ItemKind.RESULT, 500) == EvictionParameters().hazard(ItemKind.RESULT, 500)
    assert EvictionParameters.from_mapping(parameters.to_mapping()) == parameters
    assert parameters.to_mapping()["read_backs"]["file"] == 0.7
    assert pickle.loads(pickle.dumps(parameters)) == parameters


@pytest.mark.parametrize(
    "values",
    [
        {"covr": 1},
        {"cover": -1},
        {"cover": float("nan")},
        {"cover": "much"},
        {"read_backs": {"pictures": 1}},
        {"read_backs": {"file": -1}},
        {"read_backs": 3},
    ],
)
def test_parameters_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EvictionParameters.from_mapping(values)


@pytest.mark.parametrize("value", [None, 3, ["file"], {"pictures": 1.0}, {ItemKind.FILE: 0.1}])
def test_read_backs_are_given_for_each_kind(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^read_backs"):
        EvictionParameters(read_backs=value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("caution", "read_back_weight"),
        ("needs_by_class", "read_backs"),
        ("arrival_tokens", "preview_above_tokens"),
        ("size_exponent", "by_size"),
        ("rent_share", "max_loss and cover"),
        ("tool_inputs", r"OffloadPolicy\(type_thresholds="),
        ("short_placeholders", "the layout"),
        ("horizon_growth", "nothing"),
    ],
)
def test_a_number_that_is_gone_is_refused_by_name_with_what_replaces_it(name: str, instead: str) -> None:
    said = rf"EvictionParameters has no setting '{name}': it is replaced by {instead}"
    with pytest.raises(ConfigError, match=said):
        EvictionParameters.from_mapping({name: 1})
    with pytest.raises(TypeError, match=said):
        EvictionParameters(**{name: 1})  # type: ignore[arg-type]


def test_a_parameter_that_is_not_known_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="EvictionParameters has no setting 'covr': did you mean 'cover'"):
        EvictionParameters.from_mapping({"covr": 1})


def test_reading_from_the_cache_is_never_dearer_than_writing_to_it() -> None:
    with pytest.raises(ConfigError):
        Rates(read=2, write=1, output=1)
