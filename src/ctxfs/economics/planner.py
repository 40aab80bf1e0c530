"""Eviction that pays: what to evict now, given the prices of the prompt cache. Pure.

An item that stays costs its cache reads, call after call: its *rent*. Evicting it costs the rewrite of everything
after it once, and a read-back whenever the model needs something of it that is visible nowhere else. The chance of
that grows with the item's size and falls with its age, as ``needs * age ** -age_exponent``. So

- an item is *ripe* once its rent is above its risk, the chance that the next call needs it times a read-back's price;
- ripe items are evicted in batches, when the rent that a batch could have saved has reached the price of its rewrite
  (ski rental), and the calls still to come are expected to save more than it costs;
- what no request has carried yet stays: the model sees each result before it may leave;
- no batch costs more than ``max_loss`` of what the session would have cost so far, on top of what was saved so far, or
  than twice that if it is earned back soon;
- a result that the model saw once leaves before anything but a reply stands behind it, if it is expected to cost more
  later: nothing has to be rewritten for it;
- where every token of a request above a length costs more, the context is held under that length if it pays;
- nothing leaves that would make the context shorter than the shortest prefix that the provider caches;
- when the cache has expired, or there is none, a rewrite costs nothing extra, and ripe items are evicted at once.

All figures are in units of one uncached input token. Everything is decided from the ledger, so the same history gives
the same plan.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from ctxfs.economics.held import NO_OUTCOME, Held
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.price_steps import under_step
from ctxfs.economics.prices import at_price
from ctxfs.economics.ripening import Ripening
from ctxfs.economics.seen_once import SeenOnce, rent_until_it_leaves

__all__ = [
    "AgeFactors",
    "EconomicPlan",
    "Eviction",
    "EvictionDecision",
    "Why",
    "best_batch",
    "decisions",
    "needs_no_rewrite",
    "next_plan",
    "plan",
]

_ANY_LOSS: Final = 1e9
_SOON: Final = 8
_TWICE: Final = 2.0
"""A batch may cost the share as many times as an eighth of the calls still expected earns it back, up to twice."""


class Why(StrEnum):
    """Why an item is evicted, or why it stays. A session's journal holds these texts."""

    BATCH = "evicted: reading it back is expected to cost less than keeping it, and that pays for rewriting the cache"
    STEP = "evicted: every token of a longer request costs more, and that pays for rewriting the cache"
    EXPIRED = "evicted: the prompt cache has expired, so nothing has to be rewritten for it"
    NEW = "stays: the model has not seen it yet"
    PINNED = "stays: another rule decides when it is evicted"
    YOUNG = "stays: reading it back is still expected to cost more than keeping it"
    WAITING = "stays: worth evicting, but what could be evicted with it does not pay for rewriting the cache yet"


_EXPIRED_BEFORE = "leaves: the cache has expired, so nothing is rewritten for it"
"""What the journals of earlier versions say for ``Why.EXPIRED``."""


def needs_no_rewrite(reason: str) -> bool:
    """Whether an eviction with this reason in a journal cost no rewrite, since the cache had expired."""
    return reason in {Why.EXPIRED, _EXPIRED_BEFORE}


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
    return next_plan(ledger, None, now=now)


def next_plan(ledger: Ledger, ripening: Ripening | None, *, now: float | None) -> EconomicPlan:
    """``plan``; ``ripening``, kept from plan to plan of a session, passes over items that cannot be ripe."""
    cold = ledger.is_cold(now)
    batch, cost, gain = best_batch(ledger, cold=cold, ripening=ripening)
    evictions = _evictions(batch, Why.EXPIRED if cold else Why.BATCH)
    if ledger.rates.steps:
        more = under_step(ledger, batch, _Losses(ledger), cold=cold)
        evictions = _in_order(ledger, [*evictions, *_evictions(more.leaving, Why.EXPIRED if cold else Why.STEP)])
        cost, gain = cost + more.rewrite_cost, gain + more.gain
    return EconomicPlan(evictions=tuple(evictions), rewrite_cost=cost, expected_gain=gain)


def decisions(ledger: Ledger, *, now: float | None = None) -> tuple[EvictionDecision, ...]:
    """Say of every held item whether it leaves now, and if not, why and when it could."""
    leaving = {e.item_id: e.why for e in plan(ledger, now=now).evictions}
    age_factors, found = AgeFactors(ledger), []
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


class AgeFactors(dict[str, float]):
    """By lesson: what an item's patience is multiplied by to get the age at which it is ripe."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        weight = at_price(ledger.parameters.caution, ledger.rates)
        # The page stays in the context as well, until a batch takes it.
        price = ledger.read_back_price() + ledger.parameters.page_tokens * rent_until_it_leaves(ledger)
        self._ledger, self._weight = ledger, weight * price

    def __missing__(self, lesson: str) -> float:
        p = self._ledger.parameters
        seen = self._ledger.memory.get(lesson, NO_OUTCOME)
        factor = self[lesson] = p.age_of(seen.corrects(1.0, p.memory_weight) * self._weight)
        return factor


_Batch = tuple[list[Held], float, float]


def best_batch(ledger: Ledger, *, cold: bool, ripening: Ripening | None, hasty: bool = False) -> _Batch:
    """The best batch: the ripe items from one item on; what its rewrite costs and what it gains.

    Walks from the end to the start, and counts the cached tokens behind each item once the batch is evicted. Of the
    batches that have earned their rewrite, the one that gains most is taken; none if all lose. ``hasty``: they need
    not have earned it, and may cost anything.
    """
    # Each item is one of five cases:
    # - new: no request has carried it yet, so it stays;
    # - ripe: it joins, and the rent since it got ripe is due;
    # - seen once, and expected to cost more if it stays: it joins, and need not wait for rent;
    # - nearly ripe: it joins if its eviction gains anything, but no rent of it is due yet;
    # - young: it stays.
    # A batch can start at each item that joined, once the rent due has earned the share of its rewrite. The walk ends
    # where a rewrite exceeds the budget: further to the start it would cost even more, unless all is written anyway.
    p, calls, read, age_factors = ledger.parameters, ledger.calls, ledger.rates.read, AgeFactors(ledger)
    early, exponent = p.company_factor ** (-1 / p.age_exponent), p.age_exponent
    rent_share, max_loss = (0.0, _ANY_LOSS) if hasty else (p.rent_share, p.max_loss)
    write, risks, seen_once = ledger.rates.write, _Risks(ledger), SeenOnce(ledger)
    dearer, whole = 0.0 if cold else write - read, ledger.rates.rewrites_all
    funds, share = _batch_funds(ledger), max_loss * ledger.spent
    # A batch may cost what is left of the share at once, and more if it is earned back soon.
    at_once, budget, soon = max(0.0, funds + share), max(0.0, funds + _TWICE * share), risks.stays / _SOON
    # What a token that stays costs over the horizon: where it was not sent yet, and elsewhere.
    unsent = risks.stays + write
    stays = unsent if cold else risks.stays
    ripe: list[Held] = []
    # A context shorter than the shortest cached prefix is paid in full by each call.
    room = ledger.total_tokens - ledger.rates.least_cached_tokens
    best, best_gain, best_cost, known_age, risk = 0, 0.0, 0.0, inf, inf
    passed, freed, sent = -ledger.new_tokens, 0, ledger.total_tokens - ledger.new_tokens
    due, gained = 0.0, 0.0  # passed: tokens behind, without what is new and written anyway; due: tokens times calls
    for h in ledger.newest_first() if ripening is None else ripening.newest_first(ledger, age_factors, early=early):
        passed += h.tokens + h.tokens_after
        saved, is_sent, is_recent = h.saved_tokens, passed > freed, h.arrived >= calls - 1
        if saved > room - freed:
            continue
        if is_recent and h.arrived >= calls - h.candidate.is_placeholder:  # what described a placeholder is read twice
            continue
        waits = not is_recent or not is_sent or (gain := seen_once.gain(h)) <= 0
        if waits:
            age, ripe_age = calls - h.born, h.patience * age_factors[h.lesson]
            if not age >= ripe_age * early:  # not a number if it is pinned and read-backs do not count
                continue
            if age != known_age:  # many came with the same call
                known_age, risk = age, risks.at(age)
            # What leaving saves over the horizon, net of read-backs and before the rewrite.
            gain = saved * ((stays if is_sent else unsent) - risk * ripe_age**exponent)
            if age > ripe_age:
                due += saved * (age - ripe_age)
            elif gain <= 0:
                continue
        ripe.append(h)
        sent += 0 if is_sent else saved
        freed += saved
        gained += gain
        cost = dearer * ((sent if whole else passed) - freed) if passed > freed else 0.0
        if cost > budget and not whole:
            break
        if gained - cost <= best_gain or (waits and read * due < rent_share * cost):
            continue
        if cost <= at_once or cost <= funds + share * min(_TWICE, freed * soon / cost):
            best, best_gain, best_cost = len(ripe), gained - cost, cost
    return ripe[:best][::-1], best_cost, best_gain


def _batch_funds(ledger: Ledger) -> float:
    """What was saved so far. What read-backs have lost is not held against a batch: it would make it good."""
    saved = min(ledger.saved, ledger.saved_then)
    return saved if saved >= 0 else min(0.0, saved + ledger.read_back_cost)


class _Risks:
    """What staying costs over the horizon, for each token saved: its rent (``stays``), or its risk at an age."""

    def __init__(self, ledger: Ledger) -> None:
        self._horizon, self._read = ledger.parameters.horizon(ledger.calls), ledger.rates.read
        self._slope = ledger.parameters.age_exponent - 1
        self.stays = self._read * self._horizon

    def at(self, age: float) -> float:
        """The risk for a ripe age of one call: the integral of rent times (ripe_age / age) ** age_exponent."""
        slope = self._slope
        return float(self._read * (age**-slope - (age + self._horizon) ** -slope) / slope)


class _Losses:
    """What an item's eviction is expected to lose over the horizon, without the rewrite; below 0 it gains."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._age_factors, self._risks = ledger, AgeFactors(ledger), _Risks(ledger)
        self._exponent = ledger.parameters.age_exponent

    def __call__(self, held: Held) -> float:
        ripe_age = held.patience * self._age_factors[held.lesson]
        risk = self._risks.at(self._ledger.calls - held.born) * ripe_age**self._exponent
        return float(held.saved_tokens * (risk - self._risks.stays))


def _in_order(ledger: Ledger, evictions: Iterable[Eviction]) -> list[Eviction]:
    """The evictions in the order of the context."""
    by_id = {eviction.item_id: eviction for eviction in evictions}
    return [by_id[item_id] for item_id in ledger.held if item_id in by_id]


def _why_it_stays(ledger: Ledger, held: Held, *, ripe: bool) -> Why:
    if ledger.is_new(held):
        return Why.NEW
    if held.candidate.pinned:
        return Why.PINNED
    return Why.WAITING if ripe else Why.YOUNG


def _evictions(leaving: Iterable[Held], why: Why) -> list[Eviction]:
    new = tuple.__new__  # that of a named tuple takes half as long again, and thousands may leave at once
    return [new(Eviction, (h.candidate.id, h.tokens, h.tokens - h.saved_tokens, why)) for h in leaving]
