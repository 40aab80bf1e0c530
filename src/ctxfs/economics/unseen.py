"""Which results leave before they are ever sent. Pure.

Nothing has to be rewritten for them, and their writing is saved too. But a model that has not seen a result may well
open it: of files every second page, of what a search or a command printed one in six.
"""

from itertools import takewhile
from typing import Final

from ctxfs.economics.held import NO_OUTCOME, Held, at_arrival, is_of_arrival
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.prices import ANTHROPIC_RATES

__all__ = ["expected_cost", "most_read_backs", "room_of", "unseen"]

_USUAL_READ_BACKS: Final = 0.3
"""Of each result that was evicted unseen, counted in recorded sessions."""

_LEAST_FACTOR: Final = 0.5
"""A session without read-backs makes them no rarer than this, compared with the usual."""

_SURPRISE: Final = 5
"""How many times as many read-backs as expected must be covered, if all of a result takes as many."""

_STILL_TO_COME: Final = 0.5
"""The share of the expected calls that what a session costs is counted with: half of the sessions end before."""


def unseen(ledger: Ledger, *, freed: int) -> list[Held]:
    """New results that cost less as a placeholder than sent in full; a batch that leaves with them ``freed`` tokens.

    What reading it back would cost must be covered by what was saved so far, and by the share that the session may lose
    of what it is expected to cost in all.
    """
    p = ledger.parameters
    if not p.arrival_tokens or not ledger.new_tokens:
        return []
    known = p.arrival_needs_by_class
    could = [h for h in takewhile(ledger.is_new, ledger.newest_first()) if h.tokens > p.arrival_tokens]
    could = [h for h in could if not h.candidate.pinned and h.candidate.tool_class in known]
    if not could:
        return []
    while len(found := _covered(ledger, could, freed=freed)) < len(could):
        could = found
    return found[::-1]


def _covered(ledger: Ledger, could: list[Held], *, freed: int) -> list[Held]:
    """Those of the results that pay and are covered, if all of them leave: a read-back is over what is left then."""
    p, rates, factor = ledger.parameters, ledger.rates, _session_factor(ledger)
    covered = ledger.saved_then + p.max_loss * expected_cost(ledger)
    room, found = room_of(ledger) - freed, list[Held]()
    shorter = rates.read * sum([h.saved_tokens for h in could])
    for h in could:
        if h.saved_tokens > room:
            continue
        gain, price = rates.write * h.saved_tokens, ledger.read_back_price(h.tokens) - shorter
        expected = factor * _chance_of_read_back(ledger, h)
        risk = max(0.0, price * most_read_backs(ledger, h, expected) - gain)
        if gain > price * expected and risk <= covered:
            covered -= risk
            room -= h.saved_tokens
            found.append(h)
    return found


def expected_cost(ledger: Ledger) -> float:
    """What the session is expected to cost in the end, without eviction."""
    p = ledger.parameters
    least = p.least_cost * ledger.rates.write / ANTHROPIC_RATES.write
    to_come = _STILL_TO_COME * p.horizon(ledger.calls)
    return max(least, ledger.spent_then * (1 + to_come / max(1, ledger.calls)))


def most_read_backs(ledger: Ledger, held: Held, expected: float) -> float:
    """How many read-backs of a result must be covered where ``expected`` ones are likely: no more than it has pages."""
    return min(ledger.parameters.pages(held.tokens), _SURPRISE * expected)


def room_of(ledger: Ledger) -> int:
    """How many tokens may leave: a context shorter than the shortest cached prefix is paid in full by each call."""
    return ledger.total_tokens - ledger.rates.least_cached_tokens


def _session_factor(ledger: Ledger) -> float:
    """How many times as often as usual this session's model has read back what it had not seen; half at least."""
    if not ledger.parameters.arrival_memory_weight:
        return 1.0
    seen = [outcome for lesson, outcome in ledger.memory.items() if is_of_arrival(lesson)]
    left, read_back = sum(o.left for o in seen), sum(o.read_back for o in seen)
    return max(_LEAST_FACTOR, (1 + read_back) / (1 + _USUAL_READ_BACKS * left))


def _chance_of_read_back(ledger: Ledger, held: Held) -> float:
    """How many read-backs to expect of a result that is evicted before it was sent.

    The expectation of its class is the prior, which the tool's results that were evicted so before correct.
    """
    p = ledger.parameters
    expected = p.arrival_needs(held.candidate.tool_class, held.tokens)
    seen = ledger.memory.get(at_arrival(held.lesson), NO_OUTCOME)
    return seen.corrects(expected, p.arrival_memory_weight)
