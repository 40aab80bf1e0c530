"""Which results leave once the model has seen them: only the last reply stands behind them. Pure.

The last reply has to be written to the cache in any case, so nothing is rewritten for them now, and much for them
later. So they need not be ripe: it is enough that they are expected to cost more if they stay. A file that was read
stays: it is needed again too often.
"""

from typing import Final

from ctxfs.economics.held import NO_OUTCOME, Held
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.prices import ANTHROPIC_RATES, at_price

__all__ = ["SeenOnce", "rent_until_it_leaves"]

_RENT_UNTIL_IT_LEAVES: Final = 1.3
"""The rent of a result that stays until a batch takes it, in prices of a rewrite of it."""

_LEAST_COVERED: Final = 0.5
"""The share of a read-back that must be covered at least: of 10 such results, one is read back."""

_SURPRISE: Final = 5
"""How many times as many read-backs as expected must be covered, if all of a result takes as many."""

_STILL_TO_COME: Final = 0.5
"""The share of the expected calls that what a session costs is counted with: half of the sessions end before."""


def rent_until_it_leaves(ledger: Ledger) -> float:
    """What a token costs that stays until a batch takes it, once it is written."""
    rates = ledger.rates
    return min(rates.read * ledger.parameters.horizon(ledger.calls), _RENT_UNTIL_IT_LEAVES * (rates.write - rates.read))


class SeenOnce:
    """What the results that were sent once gain by leaving now; what their read-backs may lose is covered."""

    def __init__(self, ledger: Ledger) -> None:
        p, rates = ledger.parameters, ledger.rates
        self._ledger, self._price = ledger, ledger.read_back_price()
        self._covered = ledger.saved_then + p.max_loss * _expected_cost(ledger)
        self._rent = 0.0 if rates.rewrites_all else rent_until_it_leaves(ledger)
        self._caution = at_price(p.seen_caution, rates)

    def gain(self, held: Held) -> float:
        """What it gains, without the rewrite; 0 or less: it stays. What it may lose is covered from now on."""
        p, tool_class = self._ledger.parameters, held.candidate.tool_class
        if held.arrived != self._ledger.calls - 1 or tool_class not in p.seen_needs_by_class:
            return 0.0
        if not 0 < p.seen_tokens <= held.tokens or held.candidate.pinned:
            return 0.0
        seen = self._ledger.memory.get(held.lesson, NO_OUTCOME)
        expected = seen.corrects(p.seen_needs(tool_class, held.tokens), p.memory_weight)
        gain = held.saved_tokens * self._rent - self._caution * expected * self._price
        most = min(p.pages(held.tokens), _SURPRISE * expected)
        risk = self._price * max(_LEAST_COVERED, most)
        if gain <= 0 or risk > self._covered:
            return 0.0
        self._covered -= risk
        return gain


def _expected_cost(ledger: Ledger) -> float:
    """What the session is expected to cost in the end, without eviction."""
    p = ledger.parameters
    least = p.least_cost * ledger.rates.write / ANTHROPIC_RATES.write
    to_come = _STILL_TO_COME * p.horizon(ledger.calls)
    return max(least, ledger.spent_then * (1 + to_come / max(1, ledger.calls)))
