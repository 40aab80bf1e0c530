"""The budget's arithmetic, and an estimate that real usage keeps honest."""

from math import ceil
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import BilledChange, Budget, Calibration
from ctxfs.eviction.window import Window

pytestmark = pytest.mark.not_measured


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("gpt-4", 8_192),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1", 1_047_576),
        ("gpt-5.1", 400_000),
        ("a-model-nobody-knows", 128_000),
    ],
)
def test_windows_go_by_the_longest_known_prefix(model: str, window: int) -> None:
    assert Budget.of_model(model).window_tokens == window


@pytest.mark.parametrize(
    ("model", "limit_tokens"),
    [
        ("gpt-5", 272_000),
        ("gpt-5-codex", 272_000),
        ("gpt-5-chat-latest", 128_000 - 16_384),
        ("claude-sonnet-4-5", 200_000 - 16_384),
        ("gpt-4", 8_192 - 2_048),
        ("a-model-nobody-knows", 128_000 - 16_384),
    ],
)
def test_the_budget_of_a_model_knows_its_window_and_its_limit_of_input(model: str, limit_tokens: int) -> None:
    assert Budget.of_model(model).limit_tokens == limit_tokens


def test_the_smaller_of_window_and_input_limit_counts() -> None:
    budget = Budget(window_tokens=400_000, input_tokens=272_000)
    assert (budget.limit_tokens, budget.high_tokens) == (272_000, 231_200)
    assert Budget(window_tokens=100_000, reply_tokens=0, input_tokens=272_000).limit_tokens == 100_000


def test_marks_are_shares_of_what_the_reply_leaves() -> None:
    budget = Budget(window_tokens=110_000, reply_tokens=10_000, high_water=0.9, low_water=0.5)
    assert (budget.limit_tokens, budget.high_tokens, budget.low_tokens) == (100_000, 90_000, 50_000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window_tokens": "AUTO"},
        {"window_tokens": 1000.5},
        {"window_tokens": 1000, "reply_tokens": 1000},
        {"window_tokens": 1000, "reply_tokens": -1},
        {"window_tokens": 100_000, "high_water": 0.5, "low_water": 0.5},
        {"window_tokens": 100_000, "high_water": 1.1},
        {"window_tokens": 100_000, "low_water": 0},
    ],
)
def test_windows_without_room_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Window(**wrong)


def test_before_the_first_call_the_estimate_is_cautious() -> None:
    assert Calibration(model="claude-sonnet-4-5").estimate(1000) == 1350
    assert Calibration(model="gpt-4o").estimate(1000) == 1000
    assert Calibration(model="unknown").estimate(1000) == 1350


def test_the_last_real_prompt_is_the_base_and_only_growth_is_estimated() -> None:
    value = Calibration().observed(model="claude-x", counted=1000, real=5000)
    assert value.estimate(1000) == 5000
    assert value.estimate(2000) == 5000 + 1350


def test_the_factor_is_learned_and_outliers_do_not_move_it() -> None:
    value = Calibration().observed(model="m", counted=0, real=700)
    real, counted = 700, 0
    for step in range(9):
        counted += 1000
        real += 1200 if step != 4 else 2900
        value = value.observed(model="m", counted=counted, real=real)
    assert value.factor == pytest.approx(1.2)
    jump = value.observed(model="m", counted=counted + 1000, real=real + 50_000)
    assert jump.ratios == value.ratios
    assert jump.estimate(counted + 1000) == real + 50_000


def test_small_or_negative_growth_teaches_nothing() -> None:
    value = Calibration().observed(model="m", counted=5000, real=6000)
    assert value.observed(model="m", counted=5100, real=9000).ratios == ()
    assert value.observed(model="m", counted=100, real=150).ratios == ()


@pytest.mark.parametrize("real", [2_191, 2_192, 900, 0])
def test_the_count_that_fits_is_the_largest_one(real: int) -> None:
    value = Calibration().observed(model="m", counted=1_000, real=1_300)
    counted = value.counted_for(real)
    assert value.estimate(counted) <= real < value.estimate(counted + 1)


def test_another_model_starts_anew() -> None:
    value = Calibration().observed(model="a", counted=0, real=0).observed(model="a", counted=1000, real=2000)
    assert value.ratios == (2.0,)
    assert value.observed(model="b", counted=1000, real=1500).ratios == ()


@given(
    factor=st.floats(0.6, 2.5),
    overhead=st.integers(0, 20_000),
    grown=st.lists(st.integers(200, 20_000), min_size=2, max_size=12),
)
def test_a_steady_provider_is_predicted_within_one_percent(factor: float, overhead: int, grown: list[int]) -> None:
    value, counted = Calibration().observed(model="m", counted=0, real=overhead), 0
    for step in grown:
        counted += step
        value = value.observed(model="m", counted=counted, real=overhead + round(factor * counted))
    more = counted + 1000
    assert value.estimate(more) == pytest.approx(overhead + factor * more, rel=0.01, abs=20)
    assert value.counted_for(value.estimate(more)) == pytest.approx(more, abs=2)


def played(
    calls: list[tuple[int, int]], *, rate: float, per_message: float, base_tokens: int, messages: int = 2
) -> list[tuple[bool, float]]:
    """Play calls against a server that bills ``rate`` for each counted token, and something for each message.

    A call adds ``messages`` with some tokens, and may evict others before them: nothing of a message but its content
    leaves. Return for each call, once five have taught the rate, whether it evicted, and by what share its prediction
    is off.
    """
    value = Calibration(model="m")
    counted, sent = base_tokens, 1
    offs: list[tuple[bool, float]] = []
    for number, (added, evicted) in enumerate([(0, 0), *calls]):
        if number:
            counted += added - evicted
            sent += messages
        real = round(rate * counted + per_message * sent)
        if number > 5:
            offs.append((evicted > 0, value.estimate(counted) / real - 1))
        value = value.observed(model="m", counted=counted, real=real)
    return offs


def test_evictions_free_nothing_of_what_the_wire_puts_around_messages() -> None:
    same_sizes = [(200, 0)] * 5 + [(200, 130)] * 20
    offs = played(same_sizes, rate=1.08, per_message=22, base_tokens=1_000)
    assert abs(offs[0][1]) < 0.015, "nothing has shown yet what is billed for tokens, and what for messages"
    assert max(abs(off) for _, off in offs[1:]) < 0.002
    all_at_once = [(250, 0), (900, 0), (400, 0), (2_000, 0), (600, 0), (300, 3_500)]
    assert max(abs(off) for _, off in played(all_at_once, rate=1.3, per_message=12, base_tokens=2_000)) < 0.01


@example(rate=2.0, per_message=40.0, base_tokens=2_000, sizes=[200] * 5, freed=[0.9] * 5)
@given(
    rate=st.floats(0.6, 2.8),
    per_message=st.floats(0, 40),
    base_tokens=st.integers(2_000, 20_000),
    sizes=st.lists(st.integers(200, 4_000), min_size=5, max_size=25),
    freed=st.lists(st.floats(0, 0.95), min_size=5, max_size=25),
)
def test_a_provider_that_bills_for_messages_too_is_predicted_within_one_percent_after_evictions(
    rate: float, per_message: float, base_tokens: int, sizes: list[int], freed: list[float]
) -> None:
    calls = [(size, 0) for size in (300, 1_000, 4_000, 300, 1_000)]  # none of the others adds more
    calls += [(size, int(share * size)) for size, share in zip(sizes, freed, strict=False)]
    offs = played(calls, rate=rate, per_message=per_message, base_tokens=base_tokens)
    assert max([abs(off) for evicted, off in offs if evicted], default=0) < 0.01


def test_the_count_that_fits_is_the_largest_one_whatever_was_evicted_before() -> None:
    value, counted, real = Calibration(model="m"), 0, 500
    for change in (2_000, 300, 1_500, -4, 120, -900, 800):
        counted += change
        real += round(1.2 * change) + 40
        value = value.observed(model="m", counted=counted, real=real)
        for wanted in range(0, 3 * real, 97):
            fits = value.counted_for(wanted)
            assert fits == 0 or value.estimate(fits) <= wanted
            assert (fits >= counted) == (wanted >= real), "the last prompt is known exactly"
            assert fits in (counted - 1, counted) or value.estimate(fits + 1) > wanted
            assert value.at_least(fits) <= value.estimate(fits)


def test_one_eviction_alone_says_what_a_token_is_billed_and_nothing_about_growth() -> None:
    value = Calibration()
    for counted, real in ((5_000, 15_000), (1_500, 4_500)):
        value = value.observed(model="m", counted=counted, real=real)
    assert value.learned == BilledChange(rate=3.0, besides=0.0, least=-3_500, most=0)
    assert value.estimate(1_510) == 4_500 + 1 + ceil(10 * value.factor)


def test_what_left_may_have_been_dear_but_nothing_is_billed_less_than_its_tokens() -> None:
    value = Calibration()
    for counted, real in ((5_000, 10_000), (1_500, 2_300)):
        value = value.observed(model="m", counted=counted, real=real)
    assert value.learned == BilledChange(rate=2_300 / 1_500, besides=0.0, least=-3_500, most=0)


def test_bills_far_below_the_count_say_nothing() -> None:
    value = Calibration()
    for counted, real in ((300, 10), (350, 10), (400, 12), (410, 0)):
        value = value.observed(model="m", counted=counted, real=real)
        assert value.learned is None
        assert 0 < value.estimate(5_000) < 10_000
        assert value.counted_for(5_000) > 0


def test_one_addition_alone_says_nothing_about_evictions() -> None:
    value = Calibration()
    for counted, real in ((5_000, 5_500), (5_300, 5_860)):
        value = value.observed(model="m", counted=counted, real=real)
    assert value.learned is not None
    assert (value.learned.least, value.learned.most) == (0, 300)
    assert value.estimate(5_290) >= 5_860 - 10 * 1.2


@given(
    calls=st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from([0.0, 0.02, 0.3, 1.0, 2.7, 4.0])), max_size=20),
    refused=st.integers(1, 100_000),
)
def test_a_refused_prompt_never_counts_as_one_that_fits(calls: list[tuple[int, float]], refused: int) -> None:
    value = Calibration()
    for counted, rate in calls:
        value = value.observed(model="m", counted=counted, real=round(rate * counted))
    counted = refused // 2 + 1
    value = value.refused(counted, real=refused)
    for limit in range(0, refused, refused // 20 + 1):
        fits = value.counted_for(limit)
        assert fits < counted
        assert fits == 0 or value.estimate(fits) <= limit
    assert [value.estimate(count) for count in range(0, counted, 97)] == sorted(
        value.estimate(count) for count in range(0, counted, 97)
    )


def test_a_bill_without_tokens_lowers_no_rate() -> None:
    value = Calibration(model="m")
    for counted, real in ((1_000, 1_400), (2_000, 2_800), (2_300, 3_220), (2_500, 0), (3_500, 4_900), (13_500, 18_900)):
        value = value.observed(model="m", counted=counted, real=real)
    assert value.least_ratio == 1.4
    assert value.estimate(22_500) == pytest.approx(31_500, rel=0.01)


def test_a_refused_prompt_is_an_estimate_and_teaches_no_rate() -> None:
    value = Calibration(model="m")
    for number in range(1, 6):
        value = value.observed(model="m", counted=1_000 * number, real=1_400 * number)
    refused = value.refused(100_000, real=110_000)
    after = refused.observed(model="m", counted=60_000, real=84_000)
    assert (after.changes, after.ratios, after.learned) == (value.changes, value.ratios, value.learned)
    assert after.is_billed
    assert after.observed(model="m", counted=61_000, real=85_400).changes[-1] == (1_000, 1_400)
