"""What leaves so that a request stays under a length above which every token of it costs more. Pure."""

from collections.abc import Sequence

from ctxfs.eviction.economics.held import Held
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.terms import LOOKS, Bound, Terms


def passed_step(ledger: Ledger, taken: Sequence[Held]) -> int | None:
    """The highest length above which all costs more that the next request passes without ``taken``; None: none."""
    total = ledger.total_tokens - sum(h.saved_tokens for h in taken)
    return max((above for above, _ in ledger.rates.steps if total > above), default=None)


def under_step(ledger: Ledger, taken: Sequence[Held], step: int, terms: Terms) -> list[Held]:
    """What to evict besides ``taken`` so that the next request is not above the ``step`` in price that it passes.

    ``terms``: at the prices below the step. The items that lose least for their size leave, as many as gain most within
    the bound: each call below the step costs less, and the more there is below it, the more calls are.
    """
    bound = Bound(ledger, terms)
    growth = max(1.0, (ledger.total_tokens + ledger.gone_tokens) / max(1, ledger.calls))  # a call's, without eviction
    places = {h.id: tokens for h, tokens in ledger.chain.with_tokens(ledger.held.keys())}
    oldest = max((places[h.id] for h in taken), default=0)
    freed = sum(h.saved_tokens for h in taken)
    read_backs = [0.0] * len(LOOKS)
    for h in taken:
        read_backs = terms.with_read_backs(read_backs, h)
    total = ledger.total_tokens - freed
    saved_a_call = (ledger.rates.at(total).read - terms.read) * total
    cost_of_taken = terms.dearer * _rewritten(ledger, oldest, freed)
    gone = {h.id for h in taken}
    could = [
        h for h in ledger.held.values() if h.id not in gone and not h.is_in_use(ledger.calls) and not h.candidate.pinned
    ]
    could.sort(key=lambda h: terms.loss(h) / h.saved_tokens)
    best = 0
    best_gain = 0.0
    losses = 0.0
    for number, h in enumerate(could, 1):
        losses += terms.loss(h)
        freed += h.saved_tokens
        oldest = max(oldest, places[h.id])
        read_backs = terms.with_read_backs(read_backs, h)
        length = ledger.total_tokens - freed
        if length > step:
            continue
        calls = min(terms.horizon, max(1.0, (step - length) / growth))
        cost = terms.dearer * _rewritten(ledger, oldest, freed)
        gain = saved_a_call * calls - losses - (cost - cost_of_taken)
        # The request that is planned is the first of these calls: what it saves pays for the rewrite at once.
        if gain > best_gain and bound.holds(cost - saved_a_call, freed, read_backs):
            best = number
            best_gain = gain
    chosen = {h.id for h in could[:best]}
    return [h for item_id, h in ledger.held.items() if item_id in chosen]


def _rewritten(ledger: Ledger, oldest: int, freed: int) -> int:
    """What is written again once items have freed so many tokens, less what of those need not be written at all.

    ``oldest``: the tokens from the first of them on.
    """
    if oldest <= ledger.new_tokens:
        return 0
    behind = ledger.total_tokens if ledger.rates.rewrites_all else oldest
    return max(0, behind - freed - ledger.new_tokens)
