"""An item that a ledger holds, and what is remembered of those that left. Pure."""

from dataclasses import dataclass, replace
from math import inf

from ctxfs.economics.ledger_steps import Candidate
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.prices import Rates

__all__ = ["NO_OUTCOME", "Held", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many items left, and how often something of them was read back."""

    left: int = 0
    read_back: int = 0

    def corrects(self, expected: float, weight: float) -> float:
        """The read-backs of an item to expect after these, which count as much as ``expected`` once ``weight`` left."""
        return (weight * expected + self.read_back) / (weight + self.left) if weight else expected


NO_OUTCOME = Outcome()
"""Nothing of the kind has left yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An item that is in the context in full.

    ``patience``: the read-backs to expect of it against its rent, as an age in calls: an item is ripe at ``patience``
    times what is the same for all items of one ``lesson``. ``arrived``: the calls made before it came. ``born``: the
    call it counts as having come before, moved forward when its files are worked on. ``changed``: one of its files was
    changed since. ``tokens_after``: what stands between it and the next held item, and stays.
    """

    candidate: Candidate
    tokens: int
    saved_tokens: int
    patience: float
    lesson: str
    arrived: int
    born: float
    changed: bool = False
    tokens_after: int = 0

    @classmethod
    def of(
        cls, candidate: Candidate, parameters: EvictionParameters, rates: Rates, *, arrived: int, born: float
    ) -> "Held":
        """``candidate`` as it enters."""
        return cls(
            candidate=candidate,
            tokens=candidate.tokens,
            saved_tokens=candidate.tokens - candidate.placeholder_tokens,
            patience=_patience(candidate, parameters, rates),
            lesson=f"{'placeholder:' if candidate.is_placeholder else ''}{candidate.tool_class}:{candidate.tool}",
            arrived=arrived,
            born=born,
        )

    @property
    def placeholder_tokens(self) -> int:
        """The size of what would replace it."""
        return self.tokens - self.saved_tokens

    def followed_by(self, tokens: int) -> "Held":
        """The same with so many more tokens behind it that stay."""
        return Held(  # `replace` takes three times as long, and it is asked for with each reply
            candidate=self.candidate,
            tokens=self.tokens,
            saved_tokens=self.saved_tokens,
            patience=self.patience,
            lesson=self.lesson,
            arrived=self.arrived,
            born=self.born,
            changed=self.changed,
            tokens_after=self.tokens_after + tokens,
        )

    def resized(self, placeholder_tokens: int, parameters: EvictionParameters, rates: Rates) -> "Held":
        """The same with the exact size of its placeholder."""
        candidate = replace(self.candidate, placeholder_tokens=placeholder_tokens)
        patience = _patience(candidate, parameters, rates)
        return replace(
            self,
            candidate=candidate,
            saved_tokens=self.tokens - placeholder_tokens,
            patience=patience * parameters.age_of(parameters.changed_factor) if self.changed else patience,
        )

    def with_pinned(self, pinned: bool, parameters: EvictionParameters, rates: Rates) -> "Held":
        """The same, pinned or free again."""
        candidate = replace(self.candidate, pinned=pinned)
        return replace(self, candidate=candidate, patience=_patience(candidate, parameters, rates))


def _patience(candidate: Candidate, parameters: EvictionParameters, rates: Rates) -> float:
    if candidate.pinned:
        return inf
    needs = parameters.needs(candidate.tool_class, candidate.tokens)
    saved = candidate.tokens - candidate.placeholder_tokens
    return parameters.age_of(needs / (rates.read * saved))
