"""What leaves so that a request stays under a length above which every token of it costs more. Pure."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from ctxfs.eviction.economics.held import Held
from ctxfs.eviction.economics.ledger import Ledger


def passed_step(ledger: Ledger, taken: Sequence[Held]) -> int | None:
    """The highest length above which all costs more that the next request passes without ``taken``; None: none."""
    total = ledger.total_tokens - sum(h.saved_tokens for h in taken)
    return max((above for above, _ in ledger.rates.steps if total > above), default=None)


def under_step(
    ledger: Ledger, taken: Sequence[Held], step: int, loss: Callable[[Held], float], *, cold: bool
) -> list[Held]:
    """What to evict besides ``taken`` so that the next request is not above the ``step`` in price that it passes.

    ``loss``: what an item's eviction is expected to lose until the session ends, without the rewrite. The items that
    lose least for their size leave, as many as gain most: each call below the step costs less, and the more there is
    below it, the more calls are.
    """
    freed = sum(h.saved_tokens for h in taken)
    total = ledger.total_tokens - freed
    here = ledger.rates.at(total)
    below = ledger.rates.at(step)
    places = {h.id: tokens for h, tokens in ledger.chain.with_tokens(ledger.held.keys())}
    gone = {h.id for h in taken}
    could = [
        (loss(h), h)
        for h in ledger.held.values()
        if h.id not in gone and not h.is_in_use(ledger.calls) and not h.candidate.pinned
    ]
    could.sort(key=lambda found: found[0] / found[1].saved_tokens)
    horizon = ledger.horizon()
    growth = max(1.0, (ledger.total_tokens + ledger.gone_tokens) / max(1, ledger.calls))  # a call's, without eviction
    dearer = 0.0 if cold else below.write - below.read
    cost_of_taken = dearer * _rewritten(ledger, [places[h.id] for h in taken], freed)
    best = 0
    best_gain = 0.0
    oldest = max((places[h.id] for h in taken), default=0)
    lost = accumulate(one for one, _ in could)
    for number, ((_, h), losses) in enumerate(zip(could, lost, strict=True), 1):
        freed += h.saved_tokens
        oldest = max(oldest, places[h.id])
        length = ledger.total_tokens - freed
        if length > step:
            continue
        calls = min(horizon, max(1.0, (step - length) / growth))
        cost = dearer * _rewritten(ledger, [oldest], freed) - cost_of_taken
        gain = (here.read - below.read) * total * calls - losses - cost
        if gain > best_gain:
            best = number
            best_gain = gain
    chosen = {h.id for _, h in could[:best]}
    return [h for item_id, h in ledger.held.items() if item_id in chosen]


def _rewritten(ledger: Ledger, places: Sequence[int], freed: int) -> int:
    """What is written again once the items at ``places`` have freed so many tokens."""
    behind = max(places, default=0)
    if behind <= ledger.new_tokens:
        return 0
    return max(0, (ledger.total_tokens if ledger.rates.rewrites_all else behind) - freed - ledger.new_tokens)
