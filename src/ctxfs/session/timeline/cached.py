"""What a prompt cache would have done for what evictions kept out of each call, as the bills say. Pure.

This is the one rule by which a session is compared with itself without evictions: ``explain``, the page, and the
figures of a transport use it.

The bills also show how many tokens a provider bills for one that ctxfs counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from math import sqrt
from statistics import fmean, median_low
from typing import Final, NamedTuple

from ctxfs.messages.base import Usage
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


_SURE_BILLS: Final = 3
"""Of fewer bills, the same number of cached tokens may be chance: caches count in steps of 128 tokens or more."""

_SURE_GROWTH_TOKENS: Final = 1_024
"""Nor do prompts that differ by less show it: a few short turns end within one step of a cache that holds them all."""


class Billed(NamedTuple):
    """A call: its bill, None if it is not recorded; and whether something that was sent before it was changed."""

    usage: Usage | None
    is_changed: bool


class Cached(Enum):
    """How a call would have been billed for what the call before had sent, too."""

    READ = "read from the cache"
    WRITTEN = "written to the cache, which had expired"
    NEVER = "at the full price: no cache held the conversation"


def cached(calls: Sequence[Billed]) -> list[Cached]:
    """Say it of each call; of one without a bill, that it would have been read.

    No cache held the conversation where a bill has no cached tokens. Nor where all bills that have some have the same
    number of them, while prompts clearly differ: these are a system prompt and tools, at whose end the only breakpoint
    stands. If something was changed before the call, that may be why, unless no bill of the session shows more.

    If nothing was changed, and a call writes and reads far less than was sent before, the conversation had expired.
    What it reads is a system prompt that other conversations keep warm.
    """
    bills = [call.usage for call in calls if call.usage is not None]
    fixed = _fixed_tokens(bills)
    is_never = all(_cached_tokens(usage) <= fixed for usage in bills)
    found = []
    before: Usage | None = None
    for usage, is_changed in calls:
        if usage is None or (is_changed and not is_never):
            found.append(Cached.READ)
        elif _has_no_more(usage, fixed):
            found.append(Cached.NEVER)
        elif _is_written(usage, before):
            found.append(Cached.WRITTEN)
        else:
            found.append(Cached.READ)
        before = usage or before
    return found


def _fixed_tokens(bills: Sequence[Usage]) -> int:
    """What a cache holds beside the conversation, in all calls; 0: nothing, or it holds the conversation, too."""
    some = [_cached_tokens(usage) for usage in bills if _cached_tokens(usage)]
    if len(some) < _SURE_BILLS or len(set(some)) > 1:
        return 0
    prompts = [usage.total_input_tokens for usage in bills]
    if max(prompts) - min(prompts) < _SURE_GROWTH_TOKENS:
        return 0
    return some[0]


def _cached_tokens(usage: Usage) -> int:
    return usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def _has_no_more(usage: Usage, fixed: int) -> bool:
    """Whether a bill has no cached tokens but the ``fixed`` ones, and has others."""
    return _cached_tokens(usage) <= fixed < usage.total_input_tokens


def _is_written(usage: Usage, before: Usage | None) -> bool:
    """Whether a call wrote, and read less than half of what it could: the prompt before it, or its own if shorter."""
    read = usage.cache_read_input_tokens
    if not usage.cache_creation_input_tokens:
        return False
    if not read or before is None:
        return not read
    return 2 * read < min(before.total_input_tokens, usage.total_input_tokens)
