"""Bounds that no policy can know: each item vanishes, free of charge, after its last use."""

from itertools import accumulate

from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.session import Item, Session, tokens_of
from ctxfs.messages.rates import Rates


def oracle_cost(session: Session, rates: Rates, *, tool_inputs: bool) -> float:
    """What ``session`` would cost if results (and, with ``tool_inputs``, calls' arguments) vanished after last use.

    A use of a distinctive string counts for the item that had it last, and for none if something that never leaves has
    it. A new result is sent once in any case. It is never above what never evicting costs.
    """
    leaves = {Kind.TOOL_RESULT, Kind.TOOL_INPUT} if tool_inputs else {Kind.TOOL_RESULT}
    last_use, end = _last_uses(session, leaves), len(session.turns)
    written, grown = [0] * (end + 1), [0] * (end + 1)  # by request: what it is the first to carry, how much it grew by
    for number, turn in enumerate(session.turns):
        for items, first in ((turn.added, number), (turn.reply, number + 1)):
            for item in items:
                behind = last_use.get(item.index, number) + 1 if item.kind in leaves else end
                if behind > first:
                    written[first] += item.tokens
                    grown[first] += item.tokens
                    grown[behind] -= item.tokens
    if session.turns:
        # The cache had these before the first call, which therefore reads them.
        written[0] -= tokens_of(session.turns[0].added[: session.warm_items])
    cost = 0.0
    for new, total in zip(written[:end], accumulate(grown[:end]), strict=True):
        paid = rates.at(total)
        cost += paid.read * (total - new) + paid.write * new
    return cost


def _last_uses(session: Session, leaves: set[Kind]) -> dict[int, int]:
    """The number of the last turn that uses an item, by its index; items that are never used are not in it."""
    holder: dict[int, Item | None] = {}  # a string: the item that had it last; None for something that never leaves
    found: dict[int, int] = {}

    def take_in(items: tuple[Item, ...]) -> None:
        for item in items:
            for string in item.quotable:
                if holder.get(string, item) is not None:
                    holder[string] = item if item.kind in leaves else None

    for number, turn in enumerate(session.turns):
        take_in(turn.added)
        for item in turn.reply:
            for string in item.quotable:
                used = holder.get(string)
                if used is not None:
                    found[used.index] = number
        take_in(turn.reply)
    return found
