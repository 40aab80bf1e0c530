"""Keep a context inside its window: when room has to be made, and how much. ``reduction`` says how.

A reduction that did not help is not tried again before the context has grown by a tenth.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

from ctxfs.errors import ConfigError, ContextOverflow, PromptTooLong
from ctxfs.errors.checks import names_settings, require_int, require_kind
from ctxfs.eviction.budget import HIGH_WATER, LOW_WATER, Budget, Calibration, check_marks
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.reduction import Done, Goal, Reduction, overflow
from ctxfs.messages.base import Reply, Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.tokens import TokenCounter

Summarize = Callable[[str], Awaitable[Reply]]
"""Give the model a prompt, without tools, and return its reply. Raises ``ModelError``."""

Auto = Literal["auto"]
"""What the model's name says."""

_GROWTH = 1.1
_KEPT_PER_REFUSAL = 0.75
"""The share of a prompt that is kept if the provider refused it without saying by how much it was too long."""


@names_settings(
    {
        "model": "it counts the tokens of the context's model",
        "budget": "give window_tokens and reply_tokens",
        "input_tokens": "give reply_tokens: by so much the largest prompt is smaller than the window",
    }
)
@dataclass(frozen=True, slots=True)
class Window:
    """How large a context may be, in the provider's tokens, and what to do when it is larger.

    Args:
        window_tokens: "auto" for the model's own window, or a number of tokens; None means no limit.
        reply_tokens: what is kept free for the reply; None means 16,384, at most a quarter of the window. What is left
            is the largest prompt, unless the model takes less.
        high_water: above this share of the largest prompt the context is compacted.
        low_water: down to this share.
        compaction: what is evicted then; None means the default rules.
        summarize: asks a model for a summary; None moves old exchanges into an archive without one, but an ``Agent``
            asks its own model.

    Raises:
        ConfigError: one of them is something else, there is no room for a prompt, the marks are not
            0 < low < high <= 1, or there is no limit, so that the others have no effect.
    """

    window_tokens: int | Auto | None = "auto"
    reply_tokens: int | None = field(default=None, kw_only=True)
    high_water: float = field(default=HIGH_WATER, kw_only=True)
    low_water: float = field(default=LOW_WATER, kw_only=True)
    compaction: SelectiveCompaction | None = field(default=None, kw_only=True)
    summarize: Summarize | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.window_tokens, str | float) and self.window_tokens != "auto":
            raise ConfigError(f'window_tokens is {self.window_tokens!r}: use a number of tokens, "auto" or None')
        if self.window_tokens not in ("auto", None):
            require_int("window_tokens", self.window_tokens, at_least=1)
        if self.reply_tokens is not None:
            require_int("reply_tokens", self.reply_tokens, at_least=0)
        check_marks(self.low_water, self.high_water)
        require_kind("compaction", self.compaction, SelectiveCompaction, "SelectiveCompaction(...)")
        require_kind("summarize", self.summarize, Callable, "a coroutine function from a prompt to a Reply")
        if isinstance(self.window_tokens, int):
            _budget_of(self, "")  # refuses a window without room for a prompt
        if self.window_tokens is None and self._has_more():
            raise ConfigError("a Window of None tokens sets no limit, so its other settings have no effect")

    def _has_more(self) -> bool:
        given = (self.reply_tokens, self.compaction, self.summarize)
        marks = (self.high_water, self.low_water)
        return marks != (HIGH_WATER, LOW_WATER) or any(value is not None for value in given)


def _budget_of(window: Window, model: str) -> Budget | None:
    """What ``window`` means for ``model``; None: no limit. Raises ``ConfigError`` if a prompt would have no room."""
    if window.window_tokens is None:
        return None
    if window.window_tokens == "auto":
        budget = Budget.of_model(model)
    else:
        budget = Budget.of_window(window.window_tokens)
    reply_tokens = budget.reply_tokens if window.reply_tokens is None else window.reply_tokens
    return replace(budget, reply_tokens=reply_tokens, high_water=window.high_water, low_water=window.low_water)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowGuard:
    """A ``Window`` of one model.

    ``model``: whose tokens the budget counts before the first reply names one. ``policy``: what may be evicted at all.
    """

    budget: Budget | None = None
    compaction: SelectiveCompaction = field(default_factory=SelectiveCompaction)
    policy: OffloadPolicy = field(default_factory=OffloadPolicy)
    summarize: Summarize | None = None
    model: str = ""

    @classmethod
    def of(cls, window: Window, model: str, policy: OffloadPolicy) -> "WindowGuard":
        """``window`` for ``model``. Raises ``ConfigError`` for rules that evict what ``policy`` keeps."""
        compaction = window.compaction or SelectiveCompaction()
        compaction.check_policy(policy)
        budget = _budget_of(window, model)
        return cls(budget=budget, compaction=compaction, policy=policy, summarize=window.summarize, model=model)


class CompactionController:
    """Knows how large a context may be and how large it is, and says when it has to become smaller. No I/O.

    ``settings`` are not changed: what a provider says about its limit counts for this session only.
    """

    def __init__(self, settings: WindowGuard) -> None:
        self._settings = settings
        self.budget = settings.budget
        self.calibration = Calibration(model=settings.model)
        self._refused_counted: int | None = None  # a prompt of this size was refused
        self._again_at = 0.0

    @property
    def summarize(self) -> Summarize | None:
        """What writes summaries, of the settings in ``Window``; None: nothing does."""
        return self._settings.summarize

    def observe(self, usage: Usage, model: str, counted_tokens: int) -> None:
        """Learn from what ``model`` billed for a prompt of ``counted_tokens``; 0: it was not counted."""
        if not counted_tokens:
            return
        if model != self.calibration.model or counted_tokens >= (self._refused_counted or 0):
            self._refused_counted = None
        real = usage.total_input_tokens
        self.calibration = self.calibration.observed(model=model, counted=counted_tokens, real=real)

    def resumed(self) -> None:
        """Note that a session was resumed, whose calls come next: what was learned before them does not count."""
        self.calibration = Calibration(model=self.calibration.model)

    def settled(self, done: Done) -> None:
        """Note how a reduction ended."""
        self._again_at = done.counted_tokens * _GROWTH

    def fit(self, counted_tokens: int, counter: TokenCounter) -> Reduction | None:
        """How to make a context of ``counted_tokens`` small enough for the next call; None if it is, or may be."""
        if self.budget is None or self._is_small(self.budget, counted_tokens):
            return None
        goal = self._goal(self.budget)
        if counted_tokens <= goal.enough or goal.limit >= counted_tokens < self._again_at:
            return None
        return self._reduction(goal, self.budget, counter, asks=True)

    def refused(self, error: PromptTooLong, counted_tokens: int, counter: TokenCounter) -> Reduction:
        """How to make room when the provider refused ``counted_tokens`` as too long. Its own figures are believed.

        Without figures it is unknown how much too long it was: a quarter is evicted, and another one after the next
        refusal.

        Raises ``error`` if there is no budget.
        """
        if self.budget is None:
            raise error
        if error.limit_tokens is not None and error.limit_tokens < self.budget.window_tokens:
            reply = min(self.budget.reply_tokens, error.limit_tokens // 4)
            self.budget = replace(self.budget, window_tokens=error.limit_tokens, reply_tokens=reply)
        actual = error.actual_tokens
        if actual is None:
            actual = max(self.calibration.estimate(counted_tokens), self.budget.limit_tokens + 1)
        self.calibration = self.calibration.refused(counted_tokens, real=actual)
        if error.actual_tokens is not None:
            return self._reduction(self._goal(self.budget), self.budget, counter, asks=True)
        self._refused_counted = counted_tokens
        kept = int(counted_tokens * _KEPT_PER_REFUSAL)
        return self._reduction(Goal(low=kept, enough=kept, limit=kept), self.budget, counter, asks=False)

    def overflow(self, items: Sequence[ContextItem], counted_tokens: int) -> ContextOverflow | None:
        """The error of a context that is certain not to fit; None if it fits, or may fit."""
        return None if self.budget is None else overflow(self.budget, self.calibration, items, counted_tokens)

    def _is_small(self, budget: Budget, counted_tokens: int) -> bool:
        """Whether a context is certain to be below the high mark, as two estimates say: a goal takes fifty of them."""
        if self._refused_counted is not None:
            return False
        share = ceil(counted_tokens / budget.high_water) + 1  # as a limit, its high mark would be above the context
        estimate = self.calibration.estimate
        return estimate(counted_tokens) <= budget.high_tokens and estimate(share) <= budget.limit_tokens

    def _goal(self, budget: Budget) -> Goal:
        limit = self.calibration.counted_for(budget.limit_tokens)
        if self._refused_counted is not None:
            limit = min(limit, self._refused_counted - 1)
        return Goal(
            low=min(self.calibration.counted_for(budget.low_tokens), int(limit * budget.low_water)),
            enough=min(self.calibration.counted_for(budget.high_tokens), int(limit * budget.high_water)),
            limit=limit,
        )

    def _reduction(self, goal: Goal, budget: Budget, counter: TokenCounter, *, asks: bool) -> Reduction:
        return Reduction(
            goal=goal,
            budget=budget,
            calibration=self.calibration,
            compaction=self._settings.compaction,
            policy=self._settings.policy,
            counter=counter,
            asks=asks and self._settings.summarize is not None,
        )
