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

Besides, the context is held under a step in price where that pays and the bound allows it (``under_step``), no batch
makes it shorter than the shortest prefix that the provider caches, and a rewrite costs nothing when the cache has
expired.
"""

from collections.abc import Iterator, Sequence
from math import inf, sqrt
from typing import Final, NamedTuple

from ctxfs.eviction.economics.held import Held, ItemBlock
from ctxfs.eviction.economics.ledger import Ledger, read_backs_in
from ctxfs.eviction.economics.plans import EvictionDecision, Why

LOOKS: Final = (2, 8, 32)
"""In so many calls from now the bound must hold: soon, since a session may end, and later, when more was read back."""


class Age(NamedTuple):
    """What counts of an age: 2 calls once an item was seen.

    ``read_backs``: to expect over the horizon of an item with a hazard of 1. ``joins``: an item with less patience
    gains by leaving, since its rents over the horizon are above its risks. Then the read-backs in each of ``LOOKS``.
    """

    calls: int
    read_backs: float
    joins: float
    soon: float
    later: float
    latest: float


class Terms:
    """What one plan counts with, and what an item costs by it.

    ``ahead``: in so many calls, as things stand. ``prompt_tokens``: at the prices of a request of this length; None: of
    the next one.
    """

    def __init__(self, ledger: Ledger, *, cold: bool, ahead: int = 0, prompt_tokens: int | None = None) -> None:
        rates = ledger.rates.at(ledger.total_tokens if prompt_tokens is None else prompt_tokens)
        self.calls = ledger.calls + ahead
        self.read = rates.read
        self.write = rates.write
        self.dearer = 0.0 if cold else rates.write - rates.read  # what a token costs more that is written again
        self.rewrites_all = ledger.rates.rewrites_all
        self.horizon = ledger.horizon() + ahead
        self.stay_cost = ledger.stay_cost(rates)
        self.price = ledger.read_back_price(rates)
        self.weight = ledger.parameters.read_back_weight * self.price  # what a read-back counts
        self.ripe_age = self.weight / rates.read  # of an item whose patience is 1
        # When those were used that only a reply follows.
        self.seen_once = None if self.rewrites_all else self.calls - 1
        self._ages: dict[int, Age] = {}

    def at(self, used: int) -> Age:
        """What counts of the age of an item that was last used after so many calls."""
        found = self._ages.get(used)
        if found is None:
            age = max(1, self.calls - used + 1)
            read_backs = read_backs_in(age, self.horizon)
            soon, later, latest = LOOKS
            found = Age(
                calls=age,
                read_backs=read_backs,
                joins=self.horizon / read_backs / self.ripe_age if self.ripe_age else inf,
                soon=read_backs_in(age, soon),
                later=read_backs_in(age, later),
                latest=read_backs_in(age, latest),
            )
            self._ages[used] = found
        return found

    def loss(self, held: Held) -> float:
        """What an item's eviction is expected to lose over the horizon, without the rewrite; below 0 it gains."""
        risk = held.hazard * self.weight * self.at(held.used).read_backs
        return risk - held.saved_tokens * self.read * self.horizon

    def with_read_backs(self, expected: Sequence[float], held: Held) -> list[float]:
        """The read-backs to expect in each of ``LOOKS``, with those of an item."""
        age = self.at(held.used)
        more = (age.soon, age.later, age.latest)
        return [before + held.hazard * one for before, one in zip(expected, more, strict=True)]

    def gain_at_once(self, held: Held, *, is_sent: bool) -> float:
        """What such an item gains before its rewrite: it need not be written, or not again when a batch takes it."""
        staying = self.stay_cost if is_sent else self.stay_cost + self.write
        return held.saved_tokens * staying - held.hazard * self.weight * self.at(held.used).read_backs


class Bound:
    """What may be lost: what was saved so far, and the share ``max_loss`` of what the session has cost so far."""

    def __init__(self, ledger: Ledger, terms: Terms) -> None:
        self._ledger = ledger
        self._terms = terms
        self._cover = ledger.parameters.cover
        self.funds = min(ledger.saved, ledger.saved_then) + ledger.parameters.max_loss * ledger.spent

    def holds(self, cost: float, freed: int, hazards: Sequence[float]) -> bool:
        """Whether a batch is within it that costs so much, saves so many tokens, and asks for so many read-backs."""
        if cost > self.funds:
            return False
        rent = self._terms.read * (self._ledger.gone_tokens + self._ledger.gone_new_tokens + freed)
        for calls, hazard in zip(LOOKS, hazards, strict=True):
            expected = self._ledger.open_read_backs.expected(self._ledger.calls, calls) + hazard
            covered = expected + self._cover * sqrt(max(0.0, expected))
            if self._terms.price * covered + cost > self.funds + calls * rent:
                return False
        return True


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
    if held.is_new(ledger.calls):
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
