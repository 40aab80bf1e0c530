"""How much fits and how much there is: the model's window, and an estimate corrected by real usage. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate, combinations
from math import ceil, inf
from statistics import median
from types import MappingProxyType

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import require_number
from ctxfs.messages.models.known import ASSUMED_WINDOW_TOKENS, model_or_relative, warn_unknown, warn_unknown_model

_REPLY_TOKENS = 16_384
HIGH_WATER = 0.85
LOW_WATER = 0.6
"""Far below the high one: a compaction every few calls would rewrite the prompt each time."""

_PRIORS: Mapping[str, float] = MappingProxyType({"claude-": 1.35, "gpt-": 1.0, "o1": 1.0, "o3": 1.0, "o4": 1.0})
_DEFAULT_PRIOR = 1.35
_SAMPLES = 15
_MIN_SAMPLE_TOKENS = 200
_ROUNDING = 1 / _MIN_SAMPLE_TOKENS
_PLAUSIBLE = (0.5, 3.0)
_LEAST_APART_TOKENS = 50
"""Changes that differ by less say nothing about the rate: whole numbers make it wrong by up to 4 %."""


def check_marks(low_water: float, high_water: float) -> None:
    """Raise ``ConfigError`` unless 0 < low < high <= 1."""
    require_number("low_water", low_water, at_least=0)
    require_number("high_water", high_water, at_least=0)
    if not 0 < low_water < high_water <= 1:
        raise ConfigError(f"water marks {low_water} and {high_water}: use 0 < low < high <= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A ``Window`` of one model, as numbers.

    ``input_tokens``: the largest prompt that the model takes, if that is less than its window; None: only the window
    counts. Raises ``ConfigError`` if there is no room for a prompt.
    """

    window_tokens: int
    reply_tokens: int = _REPLY_TOKENS
    high_water: float = HIGH_WATER
    low_water: float = LOW_WATER
    input_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.limit_tokens <= 0:
            raise ConfigError(
                f"a window of {self.window_tokens:,} tokens with {self.reply_tokens:,} kept for the reply has no room: "
                "give a smaller reply_tokens, or leave it out"
            )

    @classmethod
    def of_model(cls, model: str, *, warns: bool = True) -> "Budget":
        """The budget of ``model`` by the table of models; the reply gets 16,384 tokens, at most a quarter of it.

        For an unknown model, that of the longest known name that its name starts with, or else a window of 128,000
        tokens. A warning (``UnknownModel``) says so once; there is none for an empty name, or unless ``warns``.
        """
        info, is_known = model_or_relative(model)
        window_tokens = info.window_tokens if info is not None else None
        if warns and model and not is_known:
            warn_unknown_model(model)
        elif warns and model and window_tokens is None:
            assumed = f"{ASSUMED_WINDOW_TOKENS:,} tokens are assumed; give its own, as window=..."
            warn_unknown(f"the window of the model {model!r}", assumed)
        budget = cls.of_window(window_tokens or ASSUMED_WINDOW_TOKENS)
        return replace(budget, input_tokens=info.input_tokens) if info is not None else budget

    @classmethod
    def of_window(cls, window_tokens: int) -> "Budget":
        """The budget of a window of ``window_tokens``; see ``of_model`` for the reply."""
        return cls(window_tokens=window_tokens, reply_tokens=min(_REPLY_TOKENS, window_tokens // 4))

    @property
    def limit_tokens(self) -> int:
        """The largest prompt that can be sent."""
        room = self.window_tokens - self.reply_tokens
        return room if self.input_tokens is None else min(room, self.input_tokens)

    @property
    def high_tokens(self) -> int:
        """Compaction starts above this."""
        return int(self.limit_tokens * self.high_water)

    @property
    def low_tokens(self) -> int:
        """Compaction stops at this."""
        return int(self.limit_tokens * self.low_water)


@cache
def _prior(model: str) -> float:
    return next((prior for start, prior in _PRIORS.items() if model.startswith(start)), _DEFAULT_PRIOR)


@lru_cache(maxsize=128)  # an estimate is asked for many times between two calls
def _median(values: tuple[float, ...]) -> float:
    return median(values)


def _weighted_median(values: Iterable[tuple[float, int]]) -> float:
    """The value up to which half of the weight is; each value has its weight beside it."""
    ordered = sorted(values)
    weights = list(accumulate([weight for _, weight in ordered]))
    return ordered[bisect_left(weights, weights[-1] / 2)][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledChange:
    """What a change of the prompt is billed: ``rate`` for each counted token, and ``besides`` tokens.

    A call adds messages, and with each of them what the wire puts around it, which is billed and not counted. Evictions
    in the same call free counted tokens, and nothing of that. If calls add about as many messages as those before, it
    is the same for each call.

    It holds from ``least`` to ``most`` counted tokens: the changes that were seen.
    """

    rate: float
    besides: float
    least: int
    most: int

    @classmethod
    @lru_cache(maxsize=128)
    def learned(cls, changes: tuple[tuple[int, int], ...], most_rate: float) -> "BilledChange":
        """From changes, at least one, each given as counted and billed.

        The rate is the median of those between each two changes, weighted by how far these are apart, so that a call
        with much or little around its messages does not move it (Theil and Sen's estimator). It is at most
        ``most_rate``, since what is billed besides the tokens is never below 0, and exactly that where all changes have
        the same size.
        """
        rates: list[tuple[float, int]] = []
        for (counted, billed), (other_counted, other_billed) in combinations(changes, 2):
            apart = abs(other_counted - counted)
            if apart >= _LEAST_APART_TOKENS:
                rates.append(((other_billed - billed) / (other_counted - counted), apart))
        rate = min(_weighted_median(rates), most_rate) if rates else most_rate
        rate = max(_PLAUSIBLE[0], rate)
        sizes = [counted for counted, _ in changes]
        return cls(
            rate=rate,
            besides=max(0.0, median([billed - rate * counted for counted, billed in changes])),
            least=min(0, *sizes),
            most=max(0, *sizes),
        )

    def tokens(self, change: int) -> float:
        """What a change from ``least`` to ``most`` is billed. Bills are whole numbers, so the rate may be a bit off."""
        return self.besides + self.rate * change + _ROUNDING * abs(change) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Our count compared with what the provider billed, for one model.

    ``base_real`` is the last billed prompt, ``base_counted`` our count of the same prompt; both 0 before the first
    call. ``ratios``: billed tokens per counted token, for what was added between calls, newest last. ``changes``: by
    how many counted tokens prompts differed from those before, whatever was evicted in between, and by how many billed
    ones, newest last. ``least_ratio``: billed tokens per counted one, in the prompt that had the fewest of them;
    infinite before the first plausible bill. ``is_billed``: False if the last prompt was refused, so that
    ``base_real`` is what the refusal says of it, or an estimate.
    """

    model: str = ""
    base_real: int = 0
    base_counted: int = 0
    ratios: tuple[float, ...] = ()
    changes: tuple[tuple[int, int], ...] = ()
    least_ratio: float = inf
    is_billed: bool = True

    @property
    def factor(self) -> float:
        """Billed tokens per counted one: the median of the observations, or a cautious prior before the first."""
        if self.ratios:
            return _median(self.ratios)
        return _prior(self.model)

    @property
    def learned(self) -> BilledChange | None:
        """What a change is billed, as far as it was seen; None before the first change behind a plausible bill."""
        # A token is never billed more than a prompt or an addition as a whole, which has more in it.
        most_rate = min(self.least_ratio, self.factor + _ROUNDING) if self.ratios else self.least_ratio
        if not self.changes or most_rate == inf:
            return None
        return BilledChange.learned(self.changes, most_rate)

    def observed(self, *, model: str, counted: int, real: int) -> "Calibration":
        """Learn from one call: a prompt of ``counted`` tokens was billed as ``real``. Another model starts over."""
        before = self if model == self.model else Calibration(model=model)
        ratio = real / counted if counted else inf
        least_ratio = min(before.least_ratio, ratio) if ratio >= _PLAUSIBLE[0] else before.least_ratio
        based = replace(before, base_real=real, base_counted=counted, least_ratio=least_ratio, is_billed=True)
        change = counted - self.base_counted
        billed = real - self.base_real
        if before is not self or not self.is_billed or not self._is_plausible(change, billed):
            return based
        if change >= _MIN_SAMPLE_TOKENS:
            based = replace(based, ratios=(*self.ratios, billed / change)[-_SAMPLES:])
        if not self.base_real:  # the first prompt is no change: all that every call has besides is in its bill
            return based
        return replace(based, changes=(*self.changes, (change, billed))[-_SAMPLES:])

    def refused(self, counted: int, *, real: int) -> "Calibration":
        """A prompt of ``counted`` tokens was refused as too long: it is taken to have ``real`` tokens."""
        return replace(self, base_real=real, base_counted=counted, is_billed=False)

    def _is_plausible(self, change: int, billed: int) -> bool:
        """Whether the bill is the tokenizer's: a provider that injected or dropped something says nothing about it."""
        if abs(change) < _MIN_SAMPLE_TOKENS:
            return abs(billed - self.factor * change) < _MIN_SAMPLE_TOKENS
        return _PLAUSIBLE[0] <= billed / change <= _PLAUSIBLE[1]

    def estimate(self, counted: int) -> int:
        """The provider's tokens for a prompt of ``counted``: those of the last bill, plus an estimate of the changes.

        Cautious both ways: what was added may be expensive, what was removed may have been cheap. Bills are whole
        numbers, so each ratio may be off by one token of the smallest sample.
        """
        change = counted - self.base_counted
        learned = self.learned
        if learned is None or not change:  # the same prompt is billed the same
            return max(0, self.base_real + ceil(self._more(change)))
        near = min(max(change, learned.least), learned.most)
        return max(0, self.base_real + ceil(learned.tokens(near) + self._more(change - near)))

    def _more(self, change: int) -> float:
        """The most that a change is billed, by the rates alone."""
        if change < 0:
            return change * self._removed_factor
        return change * (self.factor + _ROUNDING if self.ratios else self.factor)

    def at_least(self, counted: int) -> int:
        """Like ``estimate``, but a lower bound: a prompt of ``counted`` tokens has at least this many."""
        change = counted - self.base_counted
        factor = self.factor if self.ratios else min(1.0, self.factor)
        sure = self.base_real + ceil(change * (factor if change >= 0 else max(factor, self._base_factor)))
        return min(max(0, sure), self.estimate(counted))

    def counted_for(self, real: int) -> int:
        """The largest count whose ``estimate`` is at most ``real``; 0 if there is none."""
        if real < self.base_real:
            counts = range(self.base_counted)
        else:  # the last prompt fits, and no added token is billed less than the least plausible
            most = self.base_counted + ceil((real - self.base_real) / _PLAUSIBLE[0])
            counts = range(self.base_counted + 1, most + 2)
        return max(0, counts.start + bisect_right(counts, real, key=self.estimate) - 1)

    @property
    def _base_factor(self) -> float:
        """Billed tokens per counted one, for the last billed prompt as a whole."""
        return self.base_real / self.base_counted if self.base_counted else 0.0

    @property
    def _removed_factor(self) -> float:
        """The least that each removed counted token frees: no more than it was billed in any prompt."""
        billed = min(self._base_factor, self.least_ratio)
        return min(self.factor - _ROUNDING, billed) if self.ratios else billed
