"""How large each prompt was, predicted from the calls before it, and compared with what was billed.

Nothing of a call's own bill enters its prediction: the prompt before it as it was billed, and what was added since, in
the provider's tokens for each of ours, as the calls before it gave them. So this check can fail: a recording that lacks
what was sent, or a counter that is wrong, shows.

A recording by the sizes that were billed.

What a recording holds is counted by us; the bill says how large each prompt was. Where much was added from one call to
the next, the two give the provider's tokens for each of ours. What is still missing in a prompt is not recorded: the
system prompt and tools, reminders, thinking that was not shown. It enters with the call that first has it, and never
leaves. The share of the prompt before it that a call read from the cache is what the cache had kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.session import Item, Session, Turn, tokens_of
from ctxfs.messages.base import Usage

_FACTORS = (0.5, 4.0)
"""Outside of these, a recording lacks something else than a factor: today's tokenizers bill 0.7 to 2.6 of ours."""
_MUCH_TOKENS = 500
_FEWEST_PAIRS = 3


def calibrated(threads: Sequence[Session]) -> tuple[Session, ...]:
    """The threads of one recording, in the tokens that were billed; unchanged where nothing was recorded."""
    factor = _factor(threads)
    return tuple(_calibrated(thread, factor) for thread in threads)


def _factor(threads: Sequence[Session]) -> float:
    """The tokens that are billed for one of ours, in the calls that added much."""
    found = [
        factor
        for thread in threads
        for before, turn in pairwise(thread.turns)
        for factor in billed_per_counted(before, turn)
    ]
    if len(found) < _FEWEST_PAIRS:
        return 1.0
    least, most = _FACTORS
    return min(most, max(least, median(found)))


def billed_per_counted(before: Turn, turn: Turn) -> list[float]:
    """The tokens that were billed for one of ours from a call to the next one; empty where that says nothing.

    It says nothing if little was added, if one of the two has no bill, or if the prompt shrank.
    """
    ours = tokens_of(before.reply) + tokens_of(turn.added)
    if ours < _MUCH_TOKENS or before.usage is None or turn.usage is None:
        return []
    grown = turn.usage.total_input_tokens - before.usage.total_input_tokens
    return [grown / ours] if grown > 0 else []


def _calibrated(thread: Session, factor: float) -> Session:
    turns: list[Turn] = []
    total, unrecorded, is_warm = 0, 0, False
    for turn in thread.turns:
        usage = turn.usage
        last = turns[-1].usage if turns else None
        added, reply = _scaled(turn.added, factor), _scaled(turn.reply, factor)
        missing = usage.total_input_tokens - total - tokens_of(added) if usage is not None else 0
        if missing > 0:
            warm = min(missing, usage.cache_read_input_tokens) if usage is not None and not turns else 0
            sizes = [size for size in (warm, missing - warm) if size]
            is_warm = is_warm or bool(warm)
            added = (*(Item(index=-1 - unrecorded - n, kind=Kind.TEXT, tokens=s) for n, s in enumerate(sizes)), *added)
            unrecorded += len(sizes)
        total += tokens_of(added) + tokens_of(reply)
        turns.append(replace(turn, added=added, reply=reply, kept=_kept(turn, last, usage)))
    return replace(thread, turns=tuple(turns), warm_items=int(is_warm), scale=factor)


def _kept(turn: Turn, last: Usage | None, usage: Usage | None) -> float:
    """How much of the prompt before it a call read from the cache; 1 where the agent had changed that prompt."""
    if last is None or usage is None or turn.cleared or not last.total_input_tokens:
        return 1.0
    return min(1.0, usage.cache_read_input_tokens / last.total_input_tokens)


def _scaled(items: Sequence[Item], factor: float) -> tuple[Item, ...]:
    return tuple(replace(item, tokens=round(item.tokens * factor)) for item in items)


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
