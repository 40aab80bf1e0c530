"""The budget's arithmetic, and an estimate that real usage keeps honest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget, Calibration


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
        {"window_tokens": 1000, "reply_tokens": 1000},
        {"window_tokens": 1000, "reply_tokens": -1},
        {"window_tokens": 100_000, "input_tokens": 0},
        {"window_tokens": 100_000, "high_water": 0.5, "low_water": 0.5},
        {"window_tokens": 100_000, "high_water": 1.1},
        {"window_tokens": 100_000, "low_water": 0},
    ],
)
def test_budgets_without_room_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Budget(**wrong)  # type: ignore[arg-type]


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
