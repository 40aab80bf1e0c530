"""How many tokens a provider bills for one that ctxfs counts, as a session's bills show. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, median_low

from ctxfs.session.records import CallMade

_SURE_POINTS = 4
"""Through fewer points, a line says little: through two it has no error at all."""

_SURE_SPREAD_TOKENS = 1_024
"""Changes that are closer together show what a call adds beside its tokens, and not what a token is billed."""

_PLAUSIBLE = (0.5, 3.0)
"""Outside of these, prompts change by something that is not counted: bills were seen of 0.58 (logs) to 2.6 of ours."""

_SURE_ERROR = 0.1
"""The largest standard error of a slope that is believed, as a part of it."""


def units_by_model(calls: Iterable[CallMade]) -> Mapping[str, float]:
    """How many tokens each model bills for a counted one, by its calls on the context of one session, in order."""
    prompts: dict[str, list[tuple[int, int]]] = {}
    for call in calls:
        prompts.setdefault(call.model, []).append((call.counted_tokens, call.usage.total_input_tokens))
    return {model: billed_per_counted(of_model) for model, of_model in prompts.items()}


def billed_per_counted(prompts: Sequence[tuple[int, int]]) -> float:
    """By the prompts of one model in order, each as counted and as billed; prompts of 0 tokens say nothing.

    It is the slope of the line through the changes from prompt to prompt. What every prompt has and is not counted,
    such as a system prompt, does not change; what each call adds beside its tokens moves the line, not its slope.

    Where the changes do not show the slope, it is 1.0, or what half of the whole prompts were billed for a counted
    token at most, if that is less: they have more in them than what is counted. No single bill decides.
    """
    least, most = _PLAUSIBLE
    known = [(counted, billed) for counted, billed in prompts if counted > 0 and is_whole(counted, billed)]
    if not known:
        return 1.0
    changes = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(known)]
    slope = _slope(changes)
    if slope is not None and least <= slope <= most:
        return slope
    return min(1.0, median_low([billed / counted for counted, billed in known]))


def is_whole(counted: int, billed: int) -> bool:
    """Whether a bill has all of a prompt: one of less than any tokenizer bills lacks something, as what was cached."""
    return billed >= _PLAUSIBLE[0] * counted


def _slope(points: Sequence[tuple[int, int]]) -> float | None:
    """The slope of the line through points, by least squares; None: they do not show it."""
    if len(points) < _SURE_POINTS:
        return None
    middle_x = fmean([x for x, _ in points])
    middle_y = fmean([y for _, y in points])
    spread = sum([(x - middle_x) ** 2 for x, _ in points])
    if spread < _SURE_SPREAD_TOKENS**2:
        return None
    slope = sum([(x - middle_x) * (y - middle_y) for x, y in points]) / spread
    missed = sum([(y - middle_y - slope * (x - middle_x)) ** 2 for x, y in points])
    error = sqrt(missed / (len(points) - 2) / spread)
    return slope if error <= _SURE_ERROR * slope else None
