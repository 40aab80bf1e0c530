"""Of what a recording's bill is made: which part of it could leave the context at all."""

from collections import Counter
from enum import StrEnum

from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.session import Item, Session
from ctxfs.messages.rates import Rates


class Share(StrEnum):
    """A part of the bill, as reports call it."""

    FIRST_PROMPT = "first prompts"
    RESULTS = "tool results"
    INPUTS = "arguments of calls"
    THINKING = "thinking"
    TEXT = "text"
    UNRECORDED = "not recorded"
    OUTPUT = "output"


CAN_LEAVE = (Share.RESULTS, Share.INPUTS)
"""What ctxfs evicts by price. A first prompt holds the system prompt, the tools and the instructions."""

_KINDS = {
    Kind.TOOL_RESULT: Share.RESULTS,
    Kind.TOOL_INPUT: Share.INPUTS,
    Kind.THINKING: Share.THINKING,
    Kind.TEXT: Share.TEXT,
}


def composition(session: Session, rates: Rates, output_tokens: int) -> dict[Share, float]:
    """What a thread costs if nothing is ever evicted, by part, in uncached input tokens.

    Each request writes what is new in it, and reads the rest as far as the cache still held it; what was lost is
    written again, spread evenly over all parts. ``output_tokens``: what the model wrote.
    """
    held: Counter[Share] = Counter()
    cost = dict.fromkeys(Share, 0.0)
    cost[Share.OUTPUT] = rates.output * output_tokens
    for number, turn in enumerate(session.turns):
        added = Counter[Share]()
        for place, item in enumerate(turn.added):
            share = Share.FIRST_PROMPT if number == 0 else _share(item)
            if number == 0 and place < session.warm_items:
                held[share] += item.tokens
            else:
                added[share] += item.tokens
        if number:
            for item in session.turns[number - 1].reply:
                added[_share(item)] += item.tokens
        paid = rates.at(held.total() + added.total())
        for share, tokens in held.items():
            cost[share] += tokens * (paid.read * turn.kept + paid.write * (1 - turn.kept))
        for share, tokens in added.items():
            cost[share] += tokens * paid.write
        held += added
    return cost


def _share(item: Item) -> Share:
    """What calibration adds for a bill that the recording does not explain has an index below 0."""
    return Share.UNRECORDED if item.index < 0 else _KINDS[item.kind]
