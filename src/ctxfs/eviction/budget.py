"""How much fits, and how much there is: the model's window, and an estimate that real usage keeps honest. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor
from statistics import median
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from ctxfs.checks import require_int, require_number
from ctxfs.errors import ConfigError

__all__ = ["Budget", "Calibration", "window_of"]

_T = TypeVar("_T")


class _Limits(NamedTuple):
    """What a model takes: prompt and reply together, and the prompt alone where that has a limit of its own."""

    window_tokens: int
    input_tokens: int | None = None


_LIMITS: Mapping[str, _Limits] = MappingProxyType(
    {
        "claude-": _Limits(200_000),
        "gpt-3.5": _Limits(16_385),
        "gpt-4": _Limits(8_192),
        "gpt-4-turbo": _Limits(128_000),
        "gpt-4o": _Limits(128_000),
        "gpt-4.1": _Limits(1_047_576),
        "gpt-5": _Limits(400_000, 272_000),
        "gpt-5-chat": _Limits(128_000),
        "o1": _Limits(200_000),
        "o3": _Limits(200_000),
        "o4": _Limits(200_000),
        "gemini-": _Limits(1_048_576),
        "deepseek-": _Limits(128_000),
    }
)
_DEFAULT_LIMITS = _Limits(128_000)
_REPLY_TOKENS = 16_384

_PRIORS: Mapping[str, float] = MappingProxyType({"claude-": 1.35, "gpt-": 1.0, "o1": 1.0, "o3": 1.0, "o4": 1.0})
_DEFAULT_PRIOR = 1.35
_SAMPLES = 15
_MIN_SAMPLE_TOKENS = 200
_ROUNDING = 1 / _MIN_SAMPLE_TOKENS
_PLAUSIBLE = (0.5, 3.0)


def window_of(model: str) -> int:
    """The context window of ``model`` in tokens, by the longest known prefix of its name; 128,000 when unknown."""
    return _longest_prefix(_LIMITS, model, _DEFAULT_LIMITS).window_tokens


def _longest_prefix(table: Mapping[str, _T], model: str, default: _T) -> _T:
    found = [prefix for prefix in table if model.startswith(prefix)]
    return table[max(found, key=len)] if found else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the context may take, in the provider's tokens.

    ``window_tokens``: the model's window. ``reply_tokens``: kept free for the reply. ``input_tokens``: the largest
    prompt that the model takes, where that is less than its window; None: only the window counts. ``high_water``: above
    this share of the largest prompt the context is compacted, down to the share ``low_water``.

    Raises:
        ConfigError: no room for a prompt, or marks that are not 0 < low < high <= 1.

    """

    window_tokens: int
    reply_tokens: int = _REPLY_TOKENS
    high_water: float = 0.85
    low_water: float = 0.6
    input_tokens: int | None = None

    def __post_init__(self) -> None:
        require_int("window_tokens", self.window_tokens, at_least=1)
        require_int("reply_tokens", self.reply_tokens, at_least=0)
        require_number("low_water", self.low_water, at_least=0)
        require_number("high_water", self.high_water, at_least=0)
        if self.input_tokens is not None:
            require_int("input_tokens", self.input_tokens, at_least=1)
        if self.limit_tokens <= 0:
            raise ConfigError(
                f"a window of {self.window_tokens} tokens with {self.reply_tokens} kept for the reply: no room is left"
            )
        if not 0 < self.low_water < self.high_water <= 1:
            raise ConfigError(f"water marks {self.low_water} and {self.high_water}: use 0 < low < high <= 1")

    @classmethod
    def of_model(cls, model: str) -> "Budget":
        """The budget of ``model`` by the longest known prefix of its name; a window of 128,000 tokens when unknown.

        The reply gets 16,384 tokens, at most a quarter of the window.
        """
        window_tokens, input_tokens = _longest_prefix(_LIMITS, model, _DEFAULT_LIMITS)
        return replace(cls.of_window(window_tokens), input_tokens=input_tokens)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Our count against what the provider billed, for one model.

    ``base_real`` is the last billed prompt, ``base_counted`` our count of the same prompt; both 0 before the first
    call. ``ratios``: billed tokens for each counted token, of what was added between calls, newest last.
    """

    model: str = ""
    base_real: int = 0
    base_counted: int = 0
    ratios: tuple[float, ...] = ()

    @property
    def factor(self) -> float:
        """Billed tokens for each counted one: the median of what was observed, or a cautious prior before that."""
        return median(self.ratios) if self.ratios else _longest_prefix(_PRIORS, self.model, _DEFAULT_PRIOR)

    def observed(self, *, model: str, counted: int, real: int) -> "Calibration":
        """Learn from one call: a prompt of ``counted`` tokens was billed as ``real``. Another model starts over."""
        if model != self.model:
            return Calibration(model=model, base_real=real, base_counted=counted)
        grown = counted - self.base_counted
        ratios = self.ratios
        if grown >= _MIN_SAMPLE_TOKENS:
            ratio = (real - self.base_real) / grown
            # A provider that injected or dropped something says nothing about the tokenizer.
            if _PLAUSIBLE[0] <= ratio <= _PLAUSIBLE[1]:
                ratios = (*ratios, ratio)[-_SAMPLES:]
        return replace(self, base_real=real, base_counted=counted, ratios=ratios)

    def estimate(self, counted: int) -> int:
        """The provider's tokens for a prompt of ``counted``: the last billed one, and only what changed estimated.

        Cautious both ways: what was added may be expensive, what was removed may have been cheap. Bills are whole
        numbers, so each ratio may be off by one token of the smallest sample.
        """
        change = counted - self.base_counted
        return max(0, self.base_real + ceil(change * (self._added_factor if change >= 0 else self._removed_factor)))

    def at_least(self, counted: int) -> int:
        """Like ``estimate``, but not cautious, and never more: a prompt of ``counted`` tokens has at least these."""
        change = counted - self.base_counted
        factor = self.factor if self.ratios else min(1.0, self.factor)
        return max(0, self.base_real + ceil(change * (factor if change >= 0 else max(factor, self._base_factor))))

    def counted_for(self, real: int) -> int:
        """The largest count whose ``estimate`` is at most ``real``; 0 when there is none."""
        change = real - self.base_real
        factor = self._added_factor if change >= 0 else self._removed_factor
        counted = max(0, self.base_counted + floor(change / factor)) if factor > 0 else 0
        while counted and self.estimate(counted) > real:  # at most once: the division was rounded
            counted -= 1
        return counted

    @property
    def _base_factor(self) -> float:
        """Billed tokens for each counted one of the last billed prompt as a whole."""
        return self.base_real / self.base_counted if self.base_counted else 0.0

    @property
    def _added_factor(self) -> float:
        """What each counted token that is added costs at most."""
        return self.factor + _ROUNDING if self.ratios else self.factor

    @property
    def _removed_factor(self) -> float:
        """What each counted token that is removed frees at least; without observations, what it was billed at."""
        return min(self.factor - _ROUNDING, self._base_factor) if self.ratios else self._base_factor
