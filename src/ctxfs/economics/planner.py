"""Eviction that pays: what to evict now, given the prices of the prompt cache. Pure.

An item that stays costs its cache reads, call after call: its *rent*. Evicting it costs the rewrite of everything
after it once, and a read-back whenever the model needs something of it that is visible nowhere else. The chance of
that grows with the item's size and falls with its age, as ``needs * age ** -age_exponent``. So

- an item is *ripe* once its rent is above its risk, the chance that the next call needs it times a read-back's price;
- ripe items are evicted in batches, when the rent that a batch could have saved has reached the price of its rewrite
  (ski rental), and the calls still to come are expected to save more than it costs;
- a large new result may be evicted before it is ever sent: nothing is rewritten then, and its writing is saved too;
- no batch costs more than ``max_loss`` of what the session would have cost so far, on top of what was saved so far;
- nothing leaves that would make the context shorter than the shortest prefix that the provider caches;
- when the cache has expired, or there is none, a rewrite costs nothing extra, and ripe items are evicted at once.

All figures are in units of one uncached input token. Everything is decided from the ledger, so the same history gives
the same plan.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ctxfs.economics.ledger import Held, Ledger, Outcome, at_arrival

__all__ = ["EconomicPlan", "Eviction", "EvictionDecision", "Why", "arrivals", "decisions", "plan"]


class Why(StrEnum):
    """Why an item is evicted, or why it stays."""

    ARRIVAL = "leaves before it is sent: a read-back would cost less than sending it"
    BATCH = "leaves: its rent is above its risk, and the batch has earned its rewrite"
    EXPIRED = "leaves: the cache has expired, so nothing is rewritten for it"
    NEW = "stays: the model has not seen it yet"
    PINNED = "stays: another rule decides when it leaves"
    YOUNG = "stays: the chance that it is needed again is above its rent"
    WAITING = "stays: ripe, but the batch has not earned its rewrite yet"


class Eviction(NamedTuple):
    """One item to evict. ``tokens_after`` is its placeholder's size."""

    item_id: str
    tokens_before: int
    tokens_after: int
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicPlan:
    """The evictions to make now, oldest first; falsy if there are none.

    ``rewrite_cost`` is paid with the next call, ``expected_gain`` is what is expected over the calls to come, net of
    the rewrite and of read-backs.
    """

    evictions: tuple[Eviction, ...] = ()
    rewrite_cost: float = 0.0
    expected_gain: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.evictions)

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The items to evict, oldest first."""
        return tuple(e.item_id for e in self.evictions)

    @property
    def first_changed(self) -> str | None:
        """The oldest item that changes, None if none."""
        return self.evictions[0].item_id if self.evictions else None

    @property
    def tokens_freed(self) -> int:
        """How much smaller the context gets."""
        return sum(e.tokens_before - e.tokens_after for e in self.evictions)

    def explain(self) -> str:
        """Explain why each item is evicted, then what the plan costs and what it is expected to gain."""
        if not self.evictions:
            return "nothing leaves"
        lines = [f"{e.item_id}: {e.tokens_before:,} -> {e.tokens_after:,} tokens, {e.why}" for e in self.evictions]
        total = (
            f"in all {self.tokens_freed:,} tokens leave, from {self.first_changed} on: the rewrite costs "
            f"{self.rewrite_cost:,.0f}, the gain expected is {self.expected_gain:,.0f} (in input tokens)"
        )
        return "\n".join([*lines, total])


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionDecision:
    """What the planner decides about one item now.

    ``rent``: the cost per call of keeping it. ``risk``: the chance that the next call needs it, times the weight of a
    read-back. ``ripe_in_calls``: in how many calls its rent will be above its risk if nothing else happens; 0 if it is.
    """

    item_id: str
    tokens: int
    age_calls: float
    rent: float
    risk: float
    ripe_in_calls: float
    why: Why


def plan(ledger: Ledger, *, now: float | None = None) -> EconomicPlan:
    """Decide what is evicted before the next request.

    ``now`` is on the clock of ``ledger.cache_expires_at``; None means that the cache is as warm as it was.
    """
    cold = now is not None and ledger.cache_expires_at is not None and now >= ledger.cache_expires_at
    batch, cost, gain = _batch(ledger, cold=cold)
    arrivals = _arrivals(ledger, freed=sum(h.saved_tokens for h in batch))
    why = Why.EXPIRED if cold else Why.BATCH
    return EconomicPlan(
        evictions=(*_evictions(batch, why), *_evictions(arrivals, Why.ARRIVAL)),
        rewrite_cost=cost,
        expected_gain=gain + sum(ledger.rates.write * h.saved_tokens for h in arrivals),
    )


def arrivals(ledger: Ledger) -> tuple[Eviction, ...]:
    """The part of ``plan`` that leaves before it is ever sent; the cache has no say in it."""
    return tuple(_evictions(_arrivals(ledger, freed=0), Why.ARRIVAL))


def decisions(ledger: Ledger, *, now: float | None = None) -> tuple[EvictionDecision, ...]:
    """Say of every held item whether it leaves now, and if not, why and when it could."""
    leaving = {e.item_id: e.why for e in plan(ledger, now=now).evictions}
    age_factors, found = _AgeFactors(ledger), []
    for item_id, h in ledger.held.items():
        age, ripe_age = ledger.calls - h.born, h.patience * age_factors[h.lesson]
        rent, ripe_in_calls = ledger.rates.read * h.saved_tokens, max(0.0, ripe_age - age)
        found.append(
            EvictionDecision(
                item_id=item_id,
                tokens=h.tokens,
                age_calls=age,
                rent=rent,
                risk=rent * (ripe_age / age) ** ledger.parameters.age_exponent,
                ripe_in_calls=ripe_in_calls,
                why=leaving.get(item_id) or _why_it_stays(ledger, h, ripe=not ripe_in_calls),
            )
        )
    return tuple(found)


class _AgeFactors(dict[str, float]):
    """By lesson: what an item's patience is multiplied by to get the age at which it is ripe."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger, self._weight = ledger, ledger.parameters.caution * ledger.read_back_price()

    def __missing__(self, lesson: str) -> float:
        p = self._ledger.parameters
        factor = self[lesson] = p.age_of(_taught(self._ledger, lesson, p.memory_weight) * self._weight)
        return factor


def _taught(ledger: Ledger, lesson: str, weight: float) -> float:
    """How much more (above 1) or less a tool's items are read back than expected; 1 without memory."""
    if not weight:
        return 1.0
    seen = ledger.memory.get(lesson, Outcome())
    return (weight + seen.read_back) / (weight + seen.left)


def _arrivals(ledger: Ledger, *, freed: int) -> list[Held]:
    """New results that cost less as a placeholder than sent in full; a batch that leaves with them ``freed`` tokens."""
    p = ledger.parameters
    if not p.arrival_tokens or not ledger.new_tokens:
        return []
    price, budget = ledger.read_back_price(), ledger.saved + p.max_loss * ledger.spent_then
    room, known, found = _room(ledger) - freed, p.arrival_needs_by_class, list[Held]()
    for h in ledger.newest_first():
        if not ledger.is_new(h):
            break
        if h.tokens <= p.arrival_tokens or h.candidate.pinned or h.saved_tokens > room:
            continue
        if h.candidate.tool_class not in known:
            continue
        gain, loss = ledger.rates.write * h.saved_tokens, price * _chance_of_read_back(ledger, h)
        if gain > loss and (risk := max(0.0, p.arrival_margin * loss - gain)) <= budget:
            budget -= risk
            room -= h.saved_tokens
            found.append(h)
    return found[::-1]


def _room(ledger: Ledger) -> int:
    """How many tokens may leave: a context shorter than the shortest cached prefix is paid in full by each call."""
    return ledger.total_tokens - ledger.rates.least_cached_tokens


def _chance_of_read_back(ledger: Ledger, held: Held) -> float:
    """How many read-backs to expect of a result that is evicted before it was sent.

    The expectation of its class is the prior, which the tool's results that were evicted so before correct.
    """
    p = ledger.parameters
    expected = p.arrival_needs(held.candidate.tool_class, held.tokens)
    if not p.arrival_memory_weight:
        return expected
    seen = ledger.memory.get(at_arrival(held.lesson), Outcome())
    return (p.arrival_memory_weight * expected + seen.read_back) / (p.arrival_memory_weight + seen.left)


_Batch = tuple[list[Held], float, float]


def _batch(ledger: Ledger, *, cold: bool) -> _Batch:
    """The best batch: the ripe items from one item on; what its rewrite costs and what it gains.

    Walks from the end to the start, and counts the cached tokens behind each item once the batch is evicted. Of the
    batches that have earned their rewrite, the one that gains most is taken; none if all lose.
    """
    # Each item is one of four cases:
    # - new: no request has carried it yet, so it stays;
    # - ripe: it joins, and the rent since it got ripe is due;
    # - nearly ripe: it joins if its eviction gains anything, but no rent of it is due yet;
    # - young: it stays.
    # A batch can start at each item that joined, once the rent due has earned the share of its rewrite. The walk ends
    # where a rewrite exceeds the budget: further to the start it would cost even more.
    p, calls, read, age_factors = ledger.parameters, ledger.calls, ledger.rates.read, _AgeFactors(ledger)
    early, rent_share, exponent = p.company_factor ** (-1 / p.age_exponent), p.rent_share, p.age_exponent
    write, risks = ledger.rates.write, _Risks(ledger)
    dearer = 0.0 if cold else write - read
    budget = max(0.0, ledger.saved + p.max_loss * ledger.spent)
    ripe: list[Held] = []
    best, best_gain, best_cost, room = 0, 0.0, 0.0, _room(ledger)
    behind, due, gained = -ledger.new_tokens, 0.0, 0.0  # what is new is written in any case; due: tokens times calls
    for h in ledger.newest_first():
        behind += h.tokens_after + h.tokens
        if h.arrived >= calls - h.candidate.is_placeholder:  # a placeholder that described it is read twice
            continue
        age, ripe_age, saved = calls - h.born, h.patience * age_factors[h.lesson], h.saved_tokens
        if age < ripe_age * early or saved > room:
            continue
        # What leaving saves over the horizon, net of read-backs and before the rewrite.
        stays = risks.stays + write if cold or behind <= 0 else risks.stays
        gain = saved * (stays - risks[age] * ripe_age**exponent)
        if age > ripe_age:
            due += saved * (age - ripe_age)
        elif gain <= 0:
            continue
        ripe.append(h)
        behind, room = behind - saved, room - saved
        gained += gain
        cost = dearer * behind if behind > 0 else 0.0
        if cost > budget:
            break
        if (cold or read * due >= rent_share * cost) and gained - cost > best_gain:
            best, best_gain, best_cost = len(ripe), gained - cost, cost
    return ripe[:best][::-1], best_cost, best_gain


class _Risks(dict[float, float]):
    """By age: the risk per saved token over the horizon, for a ripe age of one call. ``stays``: the rent meanwhile."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.horizon = ledger.parameters.horizon(ledger.calls)
        self.stays = ledger.rates.read * self.horizon
        self._read, self._slope = ledger.rates.read, ledger.parameters.age_exponent - 1

    def __missing__(self, age: float) -> float:
        # The integral of risk, rent times (ripe_age / age) ** age_exponent, over the horizon.
        end, slope = age + self.horizon, self._slope
        self[age] = float(self._read * (age**-slope - end**-slope) / slope)
        return self[age]


def _why_it_stays(ledger: Ledger, held: Held, *, ripe: bool) -> Why:
    if ledger.is_new(held):
        return Why.NEW
    if held.candidate.pinned:
        return Why.PINNED
    return Why.WAITING if ripe else Why.YOUNG


def _evictions(leaving: Iterable[Held], why: Why) -> list[Eviction]:
    return [Eviction(h.candidate.id, h.tokens, h.tokens - h.saved_tokens, why) for h in leaving]
