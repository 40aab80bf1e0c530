"""How much fits and how much there is: the model's window, and an estimate corrected by real usage. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, floor
from statistics import median
from types import MappingProxyType

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_int, require_number
from ctxfs.messages.models.known import ASSUMED_WINDOW_TOKENS, model_or_relative, warn_unknown, warn_unknown_model

_REPLY_TOKENS = 16_384

_PRIORS: Mapping[str, float] = MappingProxyType({"claude-": 1.35, "gpt-": 1.0, "o1": 1.0, "o3": 1.0, "o4": 1.0})
_DEFAULT_PRIOR = 1.35
_SAMPLES = 15
_MIN_SAMPLE_TOKENS = 200
_ROUNDING = 1 / _MIN_SAMPLE_TOKENS
_PLAUSIBLE = (0.5, 3.0)


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How large the context may be, in the provider's tokens.

    ``window_tokens``: the model's window. ``reply_tokens``: kept free for the reply. ``input_tokens``: the largest
    prompt that the model takes, if that is less than its window; None: only the window counts. ``high_water``: above
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
                f"a window of {self.window_tokens:,} tokens with {self.reply_tokens:,} kept for the reply has no room: "
                "give a smaller reply_tokens, or use Budget.of_window"
            )
        if not 0 < self.low_water < self.high_water <= 1:
            raise ConfigError(f"water marks {self.low_water} and {self.high_water}: use 0 < low < high <= 1")

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
            assumed = f"{ASSUMED_WINDOW_TOKENS:,} tokens are assumed"
            warn_unknown(
                f"the window of the model {model!r}",
                f"{assumed}; give its own, as window=...",
            )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Our count compared with what the provider billed, for one model.

    ``base_real`` is the last billed prompt, ``base_counted`` our count of the same prompt; both 0 before the first
    call. ``ratios``: billed tokens per counted token, for what was added between calls, newest last.
    """

    model: str = ""
    base_real: int = 0
    base_counted: int = 0
    ratios: tuple[float, ...] = ()

    @property
    def factor(self) -> float:
        """Billed tokens per counted one: the median of the observations, or a cautious prior before the first."""
        if self.ratios:
            return median(self.ratios)
        return _prior(self.model)

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
        """The provider's tokens for a prompt of ``counted``: those of the last bill, plus an estimate of the changes.

        Cautious both ways: what was added may be expensive, what was removed may have been cheap. Bills are whole
        numbers, so each ratio may be off by one token of the smallest sample.
        """
        change = counted - self.base_counted
        return max(0, self.base_real + ceil(change * (self._added_factor if change >= 0 else self._removed_factor)))

    def at_least(self, counted: int) -> int:
        """Like ``estimate``, but a lower bound: a prompt of ``counted`` tokens has at least this many."""
        change = counted - self.base_counted
        factor = self.factor if self.ratios else min(1.0, self.factor)
        return max(0, self.base_real + ceil(change * (factor if change >= 0 else max(factor, self._base_factor))))

    def counted_for(self, real: int) -> int:
        """The largest count whose ``estimate`` is at most ``real``; 0 if there is none."""
        change = real - self.base_real
        factor = self._added_factor if change >= 0 else self._removed_factor
        counted = max(0, self.base_counted + floor(change / factor)) if factor > 0 else 0
        while counted and self.estimate(counted) > real:  # at most once: the division was rounded
            counted -= 1
        return counted

    @property
    def _base_factor(self) -> float:
        """Billed tokens per counted one, for the last billed prompt as a whole."""
        return self.base_real / self.base_counted if self.base_counted else 0.0

    @property
    def _added_factor(self) -> float:
        """The most that each added counted token can cost."""
        return self.factor + _ROUNDING if self.ratios else self.factor

    @property
    def _removed_factor(self) -> float:
        """The least that each removed counted token frees; without observations, what it was billed at."""
        return min(self.factor - _ROUNDING, self._base_factor) if self.ratios else self._base_factor
