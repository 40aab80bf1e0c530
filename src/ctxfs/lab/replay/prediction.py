"""How large each prompt was, predicted from the calls before it, and compared with what was billed.

Nothing of a call's own bill enters its prediction: the prompt before it as it was billed, and what was added since, in
the provider's tokens for each of ours, as the calls before it gave them. So this check can fail: a recording that lacks
what was sent, or a counter that is wrong, shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ctxfs.lab.replay.calibration import billed_per_counted
from ctxfs.lab.replay.session import Session, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prompts that were predicted, in tokens.

    Args:
        calls: how many prompts were predicted.
        predicted_tokens: what they were predicted to hold, together.
        billed_tokens: what they were billed, together.
        off_tokens: how far each was off, whichever way, together.
        unbilled_calls: calls that were recorded without usage, so that nothing can be compared.
    """

    calls: int = 0
    predicted_tokens: int = 0
    billed_tokens: int = 0
    off_tokens: int = 0
    unbilled_calls: int = 0

    def __add__(self, other: "Prediction") -> "Prediction":
        return Prediction(
            calls=self.calls + other.calls,
            predicted_tokens=self.predicted_tokens + other.predicted_tokens,
            billed_tokens=self.billed_tokens + other.billed_tokens,
            off_tokens=self.off_tokens + other.off_tokens,
            unbilled_calls=self.unbilled_calls + other.unbilled_calls,
        )

    @property
    def error(self) -> float:
        """By how much the prediction is above the bill in all, as a share of it; below 0: it is below."""
        return self.predicted_tokens / self.billed_tokens - 1 if self.billed_tokens else 0.0

    @property
    def mean_error(self) -> float:
        """How far a prompt is off whichever way, as a share of what was billed."""
        return self.off_tokens / self.billed_tokens if self.billed_tokens else 0.0


def predicted(thread: Session) -> Prediction:
    """Predict the prompts of a thread that is counted in our tokens, not yet calibrated.

    A prompt that the agent had changed before it was sent is not predicted: its bill says by how much.
    """
    found = Prediction()
    factors: list[float] = []
    for before, turn in pairwise(thread.turns):
        added_tokens = tokens_of(before.reply) + tokens_of(turn.added)
        last, usage = before.usage, turn.usage
        if last is None or usage is None or turn.cleared:
            continue
        factor = median(factors) if factors else 1.0
        prompt_tokens = last.total_input_tokens + round(factor * added_tokens)
        billed_tokens = usage.total_input_tokens
        found += Prediction(
            calls=1,
            predicted_tokens=prompt_tokens,
            billed_tokens=billed_tokens,
            off_tokens=abs(prompt_tokens - billed_tokens),
        )
        factors += billed_per_counted(before, turn)
    unbilled = sum(turn.usage is None for turn in thread.turns)
    return found + Prediction(unbilled_calls=unbilled)


def predicted_together(threads: Sequence[Session]) -> Prediction:
    """The prompts of all threads of a recording."""
    return sum((predicted(thread) for thread in threads), Prediction())
