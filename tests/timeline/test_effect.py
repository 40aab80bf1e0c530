"""What all evictions of a session together saved and cost."""

from dataclasses import replace

import pytest

from ctxfs.errors import ConfigError
from ctxfs.messages.base import Usage
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade, EvictionSet
from ctxfs.session.timeline.changes import Call
from ctxfs.session.timeline.costs import Account, Departure
from ctxfs.session.timeline.effect import effect, known_window, recorded_parameters

RATES = EvictionSet(rates=Rates(read=0.1, write=1.25, output=5.0).to_mapping(), window_tokens=10_000)


def costs(model: str = "m") -> Account:
    """Two calls did without 1,000 tokens; the first of them had to write 300 again."""
    left = Departure(item_ids=("a",), reason="due", after_call=1, tokens_before=1_200, tokens_after=200, sent=True)
    return Account(
        departures=(left,),
        requests=(
            Call(number=1, end=0, tokens=2_000),
            Call(number=2, end=0, tokens=1_000, evicted=1_000, rewritten=300, kept=50),
            Call(number=3, end=0, tokens=1_001, evicted=1_000),
        ),
        calls=(CallMade(number=1, usage=Usage(), model=model),),
    )


def test_what_was_saved_less_what_it_cost() -> None:
    found = effect(costs(), RATES, prices=Prices(input=10.0, output=50.0, cache_read=1.0))
    assert (found.evictions, found.tokens_freed, found.read_backs) == (1, 1_000, 0)
    assert [found.saved, found.rewriting] == pytest.approx([200, 345])
    assert found.net == pytest.approx(-145)
    assert found.net_usd == pytest.approx(-145 * 10 / 1e6)


def test_read_backs_that_are_not_recorded_are_not_none_of_them() -> None:
    found = effect(replace(costs(), is_elsewhere=True), RATES)
    assert (found.read_backs, found.reading_back) == (None, None)
    assert found.net == pytest.approx(found.saved - found.rewriting)


def test_nothing_is_compared_with_a_session_that_would_not_have_fitted_the_window() -> None:
    assert effect(costs(), RATES).too_long_from is None
    narrow = effect(costs(), EvictionSet(rates=RATES.rates, window_tokens=2_000))
    assert narrow.too_long_from == 3
    assert [narrow.saved, narrow.rewriting] == pytest.approx([0.1 * 1_000, 345])
    small = effect(costs(), EvictionSet(rates=RATES.rates, window_tokens=1_999))
    assert (small.too_long_from, small.evictions, small.saved, small.rewriting, small.net) == (1, 1, 0, 0, 0)


def test_what_is_billed_for_a_counted_token_is_told_of_all_models() -> None:
    assert effect(Account(), RATES).billed_per_counted == (1.0, 1.0)
    sizes = (1_000, 3_000, 4_000, 9_000, 9_200, 15_000)
    bills = [
        CallMade(number=1, usage=Usage(input_tokens=round(size * factor)), model=model, counted_tokens=size)
        for model, factor, times in (("a", 1.7, 6), ("b", 1.2, 3))  # three prompts do not show what b bills
        for size in sizes[:times]
    ]
    requests = [Call(number=n, end=0, tokens=bill.counted_tokens, bill=bill) for n, bill in enumerate(bills, 1)]
    found = effect(Account(requests=tuple(requests), calls=tuple(bills)), RATES)
    assert list(found.billed_per_counted) == pytest.approx([1.0, 1.7], rel=0.001)


def test_without_recorded_rules_the_defaults_hold_and_no_model_has_no_dollars() -> None:
    found = effect(costs("nobody-knows"), None)
    assert found.saved == pytest.approx(200)
    assert found.net_usd is None
    priced = effect(costs("claude-sonnet-4-5"), EvictionSet())
    assert priced.net_usd is not None


def test_the_rates_of_another_version_are_refused() -> None:
    with pytest.raises(ConfigError, match="the session's prices cannot be read"):
        effect(costs(), EvictionSet(rates={"unheard": 1}))


def test_a_window_is_known_as_recorded_or_by_the_model() -> None:
    assert known_window(EvictionSet(window_tokens=50_000), "claude-sonnet-4-5") == 50_000
    assert known_window(None, "claude-sonnet-4-5") == known_window(EvictionSet(), "claude-sonnet-4-5") == 183_616
    assert known_window(None, "mine") is None
    assert known_window(None, "") is None


def test_numbers_of_another_version_are_refused_as_such() -> None:
    assert recorded_parameters(EvictionSet()) is None
    with pytest.raises(ConfigError, match="another version of ctxfs recorded this session"):
        recorded_parameters(EvictionSet(parameters={"horizon": 3}))


def test_a_request_has_what_the_last_counted_one_had_beside_its_messages() -> None:
    def call(number: int, tokens: int, counted: int) -> Call:
        bill = CallMade(number=number, usage=Usage(), model="m", counted_tokens=counted)
        return Call(number=number, end=0, tokens=tokens, bill=bill)

    assert Account().request_tokens(40) == 40
    assert Account(requests=(Call(number=1, end=0, tokens=10), call(2, 10, 0))).request_tokens(40) == 40
    counted = Account(requests=(call(1, 10, 90), call(2, 20, 25), call(3, 30, 0)))
    assert counted.request_tokens(40) == 45
    assert counted.request_tokens(0) == 25, "somebody else owns the messages"
    assert Account(requests=(call(1, 30, 25),)).request_tokens(40) == 40
