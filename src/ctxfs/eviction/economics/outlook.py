"""What the planner thinks of items: why each stays, when it could leave, and where the next batch begins. Pure."""

from typing import Final

from ctxfs.eviction.economics.held import Held
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.planner import best_batch, plan
from ctxfs.eviction.economics.plans import EvictionDecision, Why
from ctxfs.eviction.economics.terms import Terms

_AHEAD_CALLS: Final = 20
"""So far ahead the start of the next batch is sought: a breakpoint of the cache before it must be alive by then."""


def decisions(ledger: Ledger, *, now: float | None = None) -> tuple[EvictionDecision, ...]:
    """Say of every held item whether it leaves now, and if not, why and when it could."""
    leaving = plan(ledger, now=now)
    terms = Terms(ledger, cold=ledger.is_cold(now))
    found = []
    for item_id, held in ledger.held.items():
        age = terms.at(held.used).calls
        waits = max(0.0, held.patience * terms.ripe_age - age)
        why = leaving.get(item_id) or _why_it_stays(ledger, held, is_ripe=not waits)
        decided = EvictionDecision(
            item_id=item_id,
            tokens=held.candidate.tokens,
            age_calls=age,
            rent=terms.read * held.saved_tokens,
            risk=held.hazard * terms.weight / age,
            ripe_in_calls=waits,
            why=why,
        )
        found.append(decided)
    return tuple(found)


def _why_it_stays(ledger: Ledger, held: Held, *, is_ripe: bool) -> Why:
    if ledger.is_new(held):
        return Why.NEW
    if held.candidate.pinned:
        return Why.PINNED
    return Why.WAITING if is_ripe else Why.YOUNG


def next_start(ledger: Ledger) -> str | None:
    """The item at which the next eviction will begin, so that a breakpoint of the cache can stand before it.

    That is the first item that would leave before the request after this one, once the model has seen what is new, or
    else the first item of the batch that would pay best in 20 calls if it need not wait; None if none would.
    """
    batch = best_batch(ledger, Terms(ledger, cold=False, ahead=1))
    if not batch:
        batch = best_batch(ledger, Terms(ledger, cold=False, ahead=_AHEAD_CALLS), is_hasty=True)
    return batch[-1].id if batch else None
