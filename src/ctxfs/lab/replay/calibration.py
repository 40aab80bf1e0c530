"""A recording by the sizes that were billed.

What a recording holds is counted by us; the bill says how large each prompt was. Where much was added from one call to
the next, the two give the provider's tokens for each of ours. What is still missing in a prompt is not recorded: the
system prompt and tools, reminders, thinking that was not shown. It enters with the call that first has it, and never
leaves. The share of the prompt before it that a call read from the cache is what the cache had kept.
"""

from collections.abc import Sequence
from dataclasses import replace
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
