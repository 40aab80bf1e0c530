"""Where the next batch will begin, so that a breakpoint of the prompt cache can stand before it. Pure."""

from dataclasses import replace
from itertools import takewhile
from typing import Final

from ctxfs.economics.ledger import Ledger
from ctxfs.economics.planner import best_batch
from ctxfs.economics.ripening import Ripening
from ctxfs.economics.seen_once import SeenOnce

__all__ = ["next_start"]

_AHEAD_CALLS: Final = 20


def next_start(ledger: Ledger, ripening: Ripening | None = None) -> str | None:
    """The first item that would leave next; None if none would.

    That is a new result that would leave once the model has seen it, or else the first item of the batch that would pay
    best in 20 calls if it need not wait.
    ``ripening`` is kept from call to call of a session, as in ``next_plan``.
    """
    once = SeenOnce(replace(ledger, calls=ledger.calls + 1))
    if seen := [h for h in takewhile(ledger.is_new, ledger.newest_first()) if once.gain(h) > 0]:
        return seen[-1].candidate.id
    then = replace(ledger, calls=ledger.calls + _AHEAD_CALLS)
    batch, _, _ = best_batch(then, cold=False, ripening=ripening, hasty=True)
    return batch[0].candidate.id if batch else None
