"""What a transport or a proxy counts as saved, in several threads and from the first call of a run on."""

from collections.abc import Sequence

import pytest

from ctxfs.adapters.serve import savings as module
from ctxfs.adapters.serve.savings import Savings
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade, Decided, Record
from ctxfs.session.timeline.cached import Billed, Cached, cached
from ctxfs.session.timeline.costs import account

MODEL = "claude-sonnet-4-5"
PLACE = ("session", "")
OUT = 50_000
"""The tokens that were evicted before the first of the calls."""


def take(savings: Savings, usage: Usage, place: tuple[str, str] = PLACE) -> None:
    counted = usage.total_input_tokens
    savings.called(place, usage, MODEL, counted_tokens=counted, freed_tokens=OUT, window_tokens=None)


def warm(calls: int) -> list[Usage]:
    """The bills of a conversation that its cache holds: each call reads the prompt before, and adds a turn."""
    first = Usage(cache_creation_input_tokens=10_000)
    return [
        first,
        *(Usage(cache_read_input_tokens=10_000 + 500 * n, cache_creation_input_tokens=500) for n in range(calls - 1)),
    ]


@pytest.mark.parametrize("place", [PLACE, ("another", "")])
def test_calls_that_are_billed_while_it_is_summed_up_do_not_disturb(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    savings = Savings()
    bills = warm(3)
    for usage in bills[:2]:
        take(savings, usage)
    savings.problem("a reason")
    whole_usd = savings.whole_usd
    lines = savings.lines()

    def while_others_write(calls: Sequence[Billed]) -> list[Cached]:
        take(savings, bills[2], place)
        savings.problem("another reason")
        return cached(calls)

    with monkeypatch.context() as patch:
        patch.setattr(module, "cached", while_others_write)
        assert savings.whole_usd == whole_usd
    for_two = savings.lines()
    assert for_two != lines
    assert savings.heard == 3
    with monkeypatch.context() as patch:
        patch.setattr(module, "cached", while_others_write)
        assert savings.lines() == for_two, "all of its figures are of one moment"


def test_a_run_in_which_nothing_was_replaced_says_why() -> None:
    why = (
        "nothing was replaced: the requests held no tool result that was due or would have paid for a change "
        "of the prompt, or no tool that could open it (a proxy has --read-tool and --reading-turns)"
    )
    savings = Savings()
    assert why not in savings.lines(), "no call was made"
    savings.answered(PLACE, replaced=0)
    assert savings.lines()[-1] == why
    unchanged = Savings()
    unchanged.answered(PLACE, replaced=0)
    unchanged.problem("a reason")
    replaced = Savings()
    replaced.answered(PLACE, replaced=1)
    assert why not in [*unchanged.lines(), *replaced.lines()]


def test_the_first_call_of_a_run_of_a_warm_conversation_counts_as_read() -> None:
    known = known_model(MODEL)
    assert known is not None
    assert known.prices is not None
    bills = warm(12)
    records: list[Record] = [
        Decided(
            kind="result",
            call_id="c",
            sha256="0",
            item_id="c",
            content="…",
            tokens_before=OUT,
            tokens=0,
            reason="due",
            tokens_rewritten=0,
        )
    ]
    for number, usage in enumerate(bills):
        counted = usage.total_input_tokens
        records.append(CallMade(number=number, usage=usage, model=MODEL, counted_tokens=counted, made_at=0.0))
    by_call = account(records).saved_by_call(Rates.of(known.prices))
    savings = Savings()
    take(savings, bills[-1])
    saved = savings.whole_usd - savings.usd
    assert saved == pytest.approx(by_call[-1] * known.prices.input / 1e6)
    assert saved == pytest.approx(OUT * known.prices.cache_read / 1e6)


def test_behind_a_system_prompt_that_is_still_cached_what_was_replaced_counts_as_written() -> None:
    known = known_model(MODEL)
    assert known is not None
    assert known.prices is not None
    savings = Savings()
    take(savings, Usage(cache_read_input_tokens=58_000, cache_creation_input_tokens=2_000))
    take(savings, Usage(cache_read_input_tokens=15_000, cache_creation_input_tokens=48_000))
    prices = known.prices
    saved = savings.whole_usd - savings.usd
    assert saved == pytest.approx(OUT * (prices.cache_read + prices.cache_write["5m"]) / 1e6)


def test_the_first_call_of_a_run_of_a_conversation_that_had_expired_counts_as_written() -> None:
    known = known_model(MODEL)
    assert known is not None
    assert known.prices is not None
    savings = Savings()
    take(savings, Usage(cache_creation_input_tokens=10_000))
    assert savings.whole_usd - savings.usd == pytest.approx(OUT * known.prices.cache_write["5m"] / 1e6)


def test_dollars_are_counted_up_to_where_nothing_replaced_would_not_have_fitted() -> None:
    """A conversation that could not have gone on saved nothing from there on: the same rule as `explain` has."""

    def after(*windows: int) -> Savings:
        savings = Savings()
        for usage, window in zip(warm(3), windows, strict=True):
            counted = usage.total_input_tokens
            savings.called(PLACE, usage, MODEL, counted_tokens=counted, freed_tokens=OUT, window_tokens=window)
        return savings

    fits = after(100_000, 100_000, 100_000)
    narrow = after(100_000, 60_499, 100_000)
    cost_usd = fits.whole_usd - fits.usd
    assert narrow.whole_usd - narrow.usd == pytest.approx(cost_usd * 1.25 / 1.45), "the first call alone: it wrote"
    said = "1 conversation would not have fitted the window with everything sent: dollars are counted up to there"
    assert said in narrow.lines()
    assert said not in fits.lines()
    assert narrow.freed_tokens == fits.freed_tokens == 3 * OUT


def test_what_was_replaced_is_in_the_tokens_that_are_billed() -> None:
    """Prompts are billed 0.6 tokens for one of ours and 9,000 that are not counted, so what was replaced is, too."""
    savings = Savings()
    for counted in (1_000, 4_000, 5_000, 9_000, 9_500, 12_000):
        usage = Usage(input_tokens=9_000 + round(0.6 * counted))
        savings.called(PLACE, usage, MODEL, counted_tokens=counted, freed_tokens=1_000, window_tokens=None)
    assert savings.freed_tokens == 6 * 600
    known = known_model(MODEL)
    assert known is not None
    assert known.prices is not None
    assert savings.whole_usd - savings.usd == pytest.approx(3_600 * known.prices.input / 1e6)
