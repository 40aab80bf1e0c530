"""Intervals of paired differences: they hold the true one, and an A/A comparison finds no difference."""

import random

import pytest

from ctxfs.lab.ab.statistics import (
    EXACT_UP_TO,
    clopper_pearson,
    exact_bounds,
    mean_difference,
    newcombe_bounds,
    solved_difference,
    t_quantile,
    wilson_bounds,
)

RUNS = 400
NOISE = 9
"""Twice the standard deviation of how many of the runs miss, where 5 % do."""


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (49, 2.010), (100, 1.984)]
)
def test_students_t_as_in_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=6e-4)


def test_bounds_of_one_share_as_in_the_tables() -> None:
    assert clopper_pearson(3, 50, 0.05) == pytest.approx((0.01255, 0.16548), abs=1e-5)
    assert clopper_pearson(0, 10, 0.05) == pytest.approx((0.0, 0.30850), abs=1e-5)
    assert clopper_pearson(10, 10, 0.05) == pytest.approx((0.69150, 1.0), abs=1e-5)
    assert wilson_bounds(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998, table I


def test_a_better_arm_is_better_in_both_directions() -> None:
    low, high = exact_bounds(20, 12, 1)
    assert 0 < low < 11 / 20 < high <= 1
    assert exact_bounds(20, 1, 12) == (-high, -low)
    assert exact_bounds(5, 5, 0) == pytest.approx((2 * 0.02**0.2 - 1, 1.0), abs=1e-4)  # all pairs are discordant
    low, high = newcombe_bounds(60, 20, 25, 3)
    assert 0 < low < 22 / 60 < high < 1
    assert newcombe_bounds(60, 20, 3, 25) == pytest.approx((-high, -low))


def test_nothing_different_in_few_pairs_shows_little() -> None:
    """Ten tasks that both arms solve do not show that one is not worse by five points."""
    found = solved_difference([(1.0, 1.0)] * 10)
    assert found is not None
    assert found.value == 0
    assert found.low < -0.05
    many = solved_difference([(1.0, 1.0)] * 200)
    assert many is not None
    assert -0.05 < many.low <= 0 <= many.high


@pytest.mark.slow
@pytest.mark.parametrize(("count", "discordant"), [(5, 0.4), (10, 0.3), (20, 0.2), (50, 0.1), (200, 0.3)])
def test_an_a_a_comparison_shows_no_difference_in_95_percent_of_runs(count: int, discordant: float) -> None:
    draw = random.Random(f"{count} {discordant}")
    shown = 0
    for _ in range(RUNS):
        pairs = [drawn(draw, discordant / 2, discordant / 2) for _ in range(count)]
        found = solved_difference(pairs)
        assert found is not None
        shown += found.low > 0 or found.high < 0
    assert shown <= 0.05 * RUNS + NOISE


@pytest.mark.slow
@pytest.mark.parametrize(("count", "better", "worse"), [(20, 0.3, 0.1), (12, 0.05, 0.4), (80, 0.05, 0.2)])
def test_the_interval_holds_the_true_difference(count: int, better: float, worse: float) -> None:
    draw = random.Random(f"{count} {better}")
    held = 0
    for _ in range(RUNS):
        found = solved_difference([drawn(draw, better, worse) for _ in range(count)])
        assert found is not None
        held += found.low <= better - worse <= found.high
    assert held >= 0.95 * RUNS - NOISE


def test_a_large_loss_is_found() -> None:
    found = solved_difference([(0.0, 1.0)] * 12 + [(1.0, 1.0)] * 8)
    assert found is not None
    assert found.high < 0


def drawn(draw: random.Random, better: float, worse: float) -> tuple[float, float]:
    """One pair: an arm alone solves it with the chance ``better``, the other one alone with ``worse``."""
    at = draw.random()
    if at < better:
        return 1.0, 0.0
    if at < better + worse:
        return 0.0, 1.0
    return (1.0, 1.0) if draw.random() < 0.7 else (0.0, 0.0)


def test_repeats_of_a_task_are_one_pair() -> None:
    """Ten repeats of two tasks say about as little as two tasks."""
    found = solved_difference([(0.6, 0.5), (0.4, 0.6)])
    assert found is not None
    assert found.value == pytest.approx(-0.05)
    assert found.low < -0.4
    assert found.method.startswith("Newcombe")


def test_the_method_is_exact_for_few_whole_pairs_only() -> None:
    few = solved_difference([(1.0, 0.0)] * EXACT_UP_TO)
    many = solved_difference([(1.0, 0.0)] * (EXACT_UP_TO + 1))
    assert few is not None
    assert many is not None
    assert few.method.endswith("exact")
    assert many.method.startswith("Newcombe")
    assert solved_difference([]) is None


def test_dollars_by_t() -> None:
    found = mean_difference([(1.0, 2.0), (1.5, 2.0), (2.0, 2.5), (1.0, 1.9)])
    assert found is not None
    assert found.value == pytest.approx(-0.725)
    assert found.low == pytest.approx(-0.725 - 3.182 * 0.1315, abs=2e-3)
    assert found.high < 0
    assert mean_difference([(1.0, 2.0)]) is None


def test_an_a_a_comparison_of_dollars() -> None:
    draw = random.Random(3)
    shown = 0
    for _ in range(RUNS):
        found = mean_difference([(draw.lognormvariate(0, 1), draw.lognormvariate(0, 1)) for _ in range(12)])
        assert found is not None
        shown += found.low > 0 or found.high < 0
    assert shown <= 0.05 * RUNS + NOISE
