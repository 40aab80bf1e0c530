"""What a difference between two arms is worth, as intervals of published methods. Pure.

A pair is one task in both arms. Repeats of a task are no pairs of their own, since they resemble each other: their
means are one pair.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, stdev

CONFIDENCE = 0.95
"""How often an interval holds the true difference, over many comparisons."""

EXACT_UP_TO = 20
"""The most pairs with the exact interval. With more, that of Newcombe holds what it promises, and is narrower."""

_SURE = 0.005
"""The chance that the share of discordant pairs is outside of the bounds that the exact interval tries (Berger & Boos).
It is taken from the confidence, so that the interval stays exact."""
_SHARES = 24
"""How many shares of discordant pairs are tried between these bounds; the chance is smooth in them."""
_HALVINGS = 20
"""After so many halvings a bound is known to a millionth."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A measured difference, and the interval that holds the true one with ``CONFIDENCE``; ``method``: its source."""

    value: float
    low: float
    high: float
    method: str


def solved_difference(pairs: Sequence[tuple[float, float]]) -> Difference | None:
    """How much more of its tasks one arm solves than the other, from -1 to 1; None without a pair.

    Args:
        pairs: for each task, the share of its repeats that was solved in the arm, and in the arm it is compared with.

    """
    if not pairs:
        return None
    count = len(pairs)
    better = sum(max(one - other, 0.0) for one, other in pairs)
    worse = sum(max(other - one, 0.0) for one, other in pairs)
    value = (better - worse) / count
    is_whole = all(share in (0.0, 1.0) for pair in pairs for share in pair)
    if is_whole and count <= EXACT_UP_TO:
        low, high = exact_bounds(count, round(better), round(worse))
        return Difference(value, low, high, "Berger & Boos 1994, exact")
    both = sum(min(pair) for pair in pairs)
    low, high = newcombe_bounds(count, both, better, worse)
    return Difference(value, low, high, "Newcombe 1998, method 10")


def mean_difference(pairs: Sequence[tuple[float, float]]) -> Difference | None:
    """The mean of the paired differences, such as of dollars, by Student's t; None with fewer than two pairs."""
    if len(pairs) < 2:
        return None
    differences = [one - other for one, other in pairs]
    mean = fmean(differences)
    error = stdev(differences) / math.sqrt(len(differences))
    reach = t_quantile((1 + CONFIDENCE) / 2, len(differences) - 1) * error
    return Difference(mean, mean - reach, mean + reach, "paired t")


# Solved, exactly ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def exact_bounds(count: int, better: int, worse: int) -> tuple[float, float]:
    """The exact interval of a paired difference of shares.

    A pair is better, worse or equal. The chance of a result is the highest one over the shares of discordant pairs that
    the data allow (R. L. Berger and D. D. Boos, "P values maximized over a confidence set for the nuisance parameter",
    JASA 89, 1994); those are the Clopper-Pearson bounds of the discordant share.
    """
    low = _lower_bound(count, better, worse)
    high = -_lower_bound(count, worse, better)
    return low, high


def _lower_bound(count: int, better: int, worse: int) -> float:
    """The smallest true difference under which a result this good or better is not too unlikely."""
    least, most = clopper_pearson(better + worse, count, _SURE)
    allowed = (1 - CONFIDENCE) / 2 - _SURE
    low = -most
    high = (better - worse) / count
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _highest_chance(count, better - worse, middle, least, most) > allowed:
            high = middle
        else:
            low = middle
    return low


def _highest_chance(count: int, surplus: int, difference: float, least: float, most: float) -> float:
    """The highest chance of a surplus of better pairs of at least ``surplus``, over the shares of discordant pairs."""
    start = max(least, abs(difference))
    if start > most:
        return 0.0
    step = (most - start) / _SHARES
    shares = [start + step * n for n in range(_SHARES + 1)]
    return max(_chance(count, surplus, difference, min(share, 1.0)) for share in shares)


def _chance(count: int, surplus: int, difference: float, share: float) -> float:
    """The chance of at least ``surplus`` more better pairs than worse ones, where ``share`` of all are discordant."""
    if share == 0.0:
        return 1.0 if surplus <= 0 else 0.0
    is_better = min(max((1 + difference / share) / 2, 0.0), 1.0)
    total = 0.0
    for discordant in range(count + 1):
        weight = _binomial(count, discordant, share)
        if weight > 1e-12:
            needed = max(-(-(discordant + surplus) // 2), 0)
            total += weight * _at_least(discordant, needed, is_better)
    return total


def clopper_pearson(hits: int, count: int, miss: float) -> tuple[float, float]:
    """The exact bounds of a share of which ``hits`` of ``count`` were seen; both together miss it with ``miss``."""
    low = 0.0
    high = 1.0
    if hits > 0:
        low = _root(lambda share: _at_least(count, hits, share) > miss / 2)
    if hits < count:
        high = _root(lambda share: 1 - _at_least(count, hits + 1, share) <= miss / 2)
    return low, high


def _root(is_above: Callable[[float], bool]) -> float:
    """The share from which on ``is_above`` holds."""
    low = 0.0
    high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if is_above(middle):
            high = middle
        else:
            low = middle
    return high


def _binomial(count: int, hits: int, share: float) -> float:
    return math.comb(count, hits) * share**hits * (1 - share) ** (count - hits)


def _at_least(count: int, needed: int, share: float) -> float:
    """The chance of at least ``needed`` hits."""
    if needed <= 0:
        return 1.0
    return sum(_binomial(count, hits, share) for hits in range(needed, count + 1))


# Solved, for many pairs --------------------------------------------------------------------------------------------


def newcombe_bounds(count: int, both: float, better: float, worse: float) -> tuple[float, float]:
    """The interval of a paired difference of shares by R. G. Newcombe, Statistics in Medicine 17 (1998), method 10.

    The numbers may be fractions, since repeats of a task are means.
    """
    neither = count - both - better - worse
    one = (both + better) / count
    other = (both + worse) / count
    one_low, one_high = wilson_bounds(one, count)
    other_low, other_high = wilson_bounds(other, count)
    phi = _correlation(count, both, better, worse, neither)
    value = one - other
    below = _hypotenuse(one - one_low, other_high - other, phi)
    above = _hypotenuse(one_high - one, other - other_low, phi)
    return max(value - below, -1.0), min(value + above, 1.0)


def _hypotenuse(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0))


def _correlation(count: int, both: float, better: float, worse: float, neither: float) -> float:
    """How much the two arms agree, corrected for continuity as in method 10."""
    margins = (both + better) * (worse + neither) * (both + worse) * (better + neither)
    if margins <= 0:
        return 0.0
    product = both * neither - better * worse
    if product > 0:
        product = max(product - count / 2, 0.0)
    return product / math.sqrt(margins)


def wilson_bounds(share: float, count: int) -> tuple[float, float]:
    """The score interval of one share (E. B. Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max((middle - reach) / scale, 0.0), min((middle + reach) / scale, 1.0)


# Student's t -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_024)
def t_quantile(chance: float, degrees: int) -> float:
    """The value that Student's t with this many degrees of freedom does not pass, with a ``chance`` above one half."""
    low = 0.0
    high = 1.0
    while _t_below(high, degrees) < chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _t_below(middle, degrees) < chance:
            low = middle
        else:
            high = middle
    return high


def _t_below(value: float, degrees: int) -> float:
    """The chance of less than ``value`` >= 0 (Abramowitz & Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(value / math.sqrt(degrees))
    cosine = math.cos(angle)
    is_odd = degrees % 2 == 1
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    first = 2 if is_odd else 1
    for n in range(first, degrees - 2, 2):
        term *= cosine * cosine * n / (n + 1)
        total += term
    central = math.sin(angle) * total
    if is_odd:
        central = (angle + central) * 2 / math.pi
    return 0.5 + central / 2
