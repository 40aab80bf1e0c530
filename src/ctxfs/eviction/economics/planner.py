"""Eviction that pays: what to evict now, given the prices of the prompt cache. Pure, from a ledger.

All figures are in units of one uncached input token.

- **Rent**: what an item costs that stays, call after call: the cache read of what its placeholder would save.
- **Risk**: what it costs if it is gone: the read-backs that a call asks of it, counted on recordings, times the price
  of one. It falls as 1 / age, so that every item is *ripe* at some age: its rent is above its risk from then on.

An item that the model has seen leaves in one of two ways:

1. **Seen once.** Only the last reply stands behind it, which is written to the cache in any case: so hardly anything
   is rewritten for it. It leaves if staying is expected to cost more than its read-backs.
2. **In a batch**: all ripe items from one position on. A batch leaves when the rents that its items have cost since
   they were ripe have reached the price of its rewrite (ski rental). An item that is not ripe joins if that gains.

**The bound**: a rewrite, and the read-backs to expect of everything that ever left, are paid from what was saved so
far, and from the share ``max_loss`` of what the session would have cost so far. It holds for the next call, and, with
what is saved by then, for some calls from now.

Besides, the context is held under a step in price where that pays and the bound allows it (``price_steps``), no batch
makes it shorter than the shortest prefix that the provider caches, and a rewrite costs nothing when the cache has
expired.
"""

from collections.abc import Iterator

from ctxfs.eviction.economics.held import Held, ItemBlock
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.economics.price_steps import passed_step, under_step
from ctxfs.eviction.economics.terms import Age, Bound, Terms


def plan(ledger: Ledger, *, now: float | None = None) -> dict[str, Why]:
    """Decide what is evicted before the next request: the items, oldest first, each with why.

    ``now`` is on the clock of ``ledger.cache_expires_at``; None means that the cache is as warm as it was.
    """
    cold = ledger.is_cold(now)
    terms = Terms(ledger, cold=cold)
    batch = best_batch(ledger, terms)
    found: dict[str, Why] = {}
    rewrites = bool(batch) and _rewrites(ledger, terms, batch[-1])
    for held in reversed(batch):
        if cold:
            found[held.id] = Why.EXPIRED
        elif held.used == terms.seen_once:
            found[held.id] = Why.SEEN
        else:
            found[held.id] = Why.BATCH if rewrites else Why.EXPIRED
    step = passed_step(ledger, batch)
    if step is None:
        return found
    for held in under_step(ledger, batch, step, Terms(ledger, cold=cold, prompt_tokens=step)):
        found[held.id] = Why.EXPIRED if cold else Why.STEP
    return {item_id: found[item_id] for item_id in ledger.held if item_id in found}


def _rewrites(ledger: Ledger, terms: Terms, oldest: Held) -> bool:
    """Whether the cache holds what follows a batch, and has to take it in again."""
    _, tokens = next(ledger.chain.with_tokens({oldest.id}))
    return terms.dearer > 0 and (terms.rewrites_all or tokens > ledger.new_tokens)


def best_batch(ledger: Ledger, terms: Terms, *, is_hasty: bool = False) -> list[Held]:
    """The best batch that may leave: the items from one position on that gain by it, the newest first; [] if all lose.

    ``is_hasty``: the batch need not have earned its rewrite.
    """
    bound = Bound(ledger, terms)
    walk = Walk(ledger, terms)
    best_gain = 0.0
    size = 0
    for _ in walk.portions():
        if walk.cost > bound.funds and not terms.rewrites_all:
            break  # further to the start it would cost even more
        gain = walk.gained - walk.cost
        if gain <= best_gain or not (is_hasty or walk.due >= walk.cost):
            continue
        if bound.holds(walk.cost, walk.freed, (walk.soon, walk.later, walk.latest)):
            best_gain = gain
            size = len(walk.chosen)
    return walk.chosen[:size]


class Walk:
    """A walk from the end of the context to its start, which chooses the items that gain by leaving.

    A block of which no item would gain is passed over, and one whose items are all ripe, or all join, is taken as a
    whole: so a plan costs what may change, not what is there.
    """

    def __init__(self, ledger: Ledger, terms: Terms) -> None:
        self._ledger = ledger
        self._terms = terms
        self._room = ledger.total_tokens - ledger.rates.least_cached_tokens
        self._sent = ledger.total_tokens - ledger.new_tokens
        self._behind = -ledger.new_tokens  # tokens from here on that were sent; below 0: here nothing was
        self._freed_sent = 0
        self.chosen: list[Held] = []
        self.cost = 0.0  # of the rewrite, were the batch to begin here
        self.freed = 0
        self.due = 0.0  # the rents of ripe items since they were
        self.gained = 0.0
        self.soon = 0.0  # the read-backs to expect of what was chosen, in each of LOOKS
        self.later = 0.0
        self.latest = 0.0

    def portions(self) -> Iterator[None]:
        """Go on to the next item, or whole block, that was chosen."""
        terms = self._terms
        for block in self._ledger.chain.blocks():
            is_recent = block.newest >= terms.calls - 1
            nobody_joins = block.least >= terms.at(block.oldest).joins
            if not block.free or (nobody_joins and not is_recent):
                self._behind += block.tokens
            elif not is_recent and self._is_one(block):
                self._take_whole(block)
                yield
            else:
                for held in reversed(block.items):
                    self._behind += held.candidate.tokens + held.tokens_after
                    is_young = held.used < terms.calls - 1 and held.patience >= terms.at(held.used).joins
                    if not is_young and self._takes(held):
                        yield

    def _is_one(self, block: ItemBlock) -> bool:
        """Whether all items of a block leave alike: all were sent, and all are ripe, or all join."""
        terms = self._terms
        if self._behind < 0 or self.freed + block.saved > self._room:
            return False
        youngest = terms.at(block.newest)
        if block.most * terms.ripe_age <= youngest.calls:
            return True
        nobody_is_ripe = block.least * terms.ripe_age >= terms.at(block.oldest).calls
        return nobody_is_ripe and block.most < youngest.joins

    def _take_whole(self, block: ItemBlock) -> None:
        terms = self._terms
        age = terms.at(block.newest)  # that of the youngest: no fewer read-backs are expected than of each
        self._behind += block.tokens - block.lead
        self.gained += block.saved * terms.read * terms.horizon - block.hazard * terms.weight * age.read_backs
        if block.most * terms.ripe_age <= age.calls:
            rents = terms.read * (block.saved * (terms.calls + 1) - block.saved_calls)
            self.due += rents - terms.weight * block.hazard
        self.chosen += block.free
        self._leaves(block.saved, block.hazard, age, is_sent=True)
        self._behind += block.lead

    def _takes(self, held: Held) -> bool:
        """Whether an item leaves, if all that was chosen does."""
        # It is one of five cases:
        # - not seen yet, just used, pinned, or no room for it above the shortest prefix that is cached: it stays;
        # - seen once, and hardly anything is rewritten for it: it leaves if staying costs more, and pays for itself;
        # - ripe: it leaves, and its rents since then are due;
        # - nearly ripe: it joins if that gains, and nothing of it is due;
        # - young: it stays.
        terms = self._terms
        saved = held.saved_tokens
        if held.is_in_use(terms.calls) or held.candidate.pinned or self.freed + saved > self._room:
            return False
        is_sent = self._behind > 0
        age = terms.at(held.used)
        more = self._cost_with(saved) - self.cost if is_sent else 0.0
        if held.used == terms.seen_once and more <= terms.dearer * saved:
            gain = terms.gain_at_once(held, is_sent=is_sent)
            least_gain = more
            due = more
        else:
            gain = -terms.loss(held)
            least_gain = 0.0
            due = max(0.0, terms.read * saved * age.calls - held.hazard * terms.weight)
        if gain <= least_gain:
            return False
        self.gained += gain
        self.due += due
        self.chosen.append(held)
        self._leaves(saved, held.hazard, age, is_sent=is_sent)
        return True

    def _leaves(self, saved: int, hazard: float, age: Age, *, is_sent: bool) -> None:
        if is_sent:
            self.cost = self._cost_with(saved)
            self._freed_sent += saved
        self.freed += saved
        self.soon += hazard * age.soon
        self.later += hazard * age.later
        self.latest += hazard * age.latest

    def _cost_with(self, saved: int) -> float:
        """What the rewrite costs if the batch begins here, with an item that was sent and saves so much."""
        rewritten = self._sent if self._terms.rewrites_all else self._behind
        return self._terms.dearer * max(0, rewritten - self._freed_sent - saved)
