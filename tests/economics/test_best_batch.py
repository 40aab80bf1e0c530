"""The batch that is found in one walk is the best of all batches, each counted from the beginning."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from ctxfs.economics.features import ToolClass
from ctxfs.economics.held import Held
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Candidate
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import AgeFactors, best_batch
from ctxfs.economics.prices import ANTHROPIC_RATES

SEEDS = range(200)


class Batch(NamedTuple):
    """The items that leave, oldest first, what their rewrite costs and what they gain."""

    items: list[Held]
    cost: float
    gain: float


def a_session(seed: int) -> Ledger:
    """A session of results of one tool, which saved something before, or lost it."""
    rng = random.Random(seed)
    rates = replace(ANTHROPIC_RATES, rewrites_all=rng.random() < 0.3)
    ledger = Ledger(parameters=EvictionParameters(seen_tokens=0), rates=rates)
    for number in range(rng.randrange(10, 60)):
        candidate = Candidate(
            id=f"c{number}",
            tool="Bash",
            tool_class=ToolClass.OTHER,
            tokens=rng.choice((300, 2_000, 9_000)),
            placeholder_tokens=rng.choice((10, 40)),
        )
        if rng.random() < 0.7:
            ledger = ledger.added([candidate])
        ledger = ledger.added([rng.randrange(2_000)]).replied([20])
    if rng.random() < 0.5:
        ledger = ledger.added([rng.randrange(30_000)]).lost(rng.randrange(60_000))
    spent = rng.choice((ledger.spent, ledger.spent / 20, 0.0))
    saved, lost = rng.choice((0.0, 4_000.0, 90_000.0, -4_000.0)), rng.choice((0.0, 3_000.0, 8_000.0))
    gone = rng.choice((0, 9_000, 90_000))
    return replace(
        ledger, spent=spent, saved=saved, read_back_cost=lost, gone_tokens=gone, is_detour=rng.random() < 0.2
    )


def counted(ledger: Ledger, *, cold: bool) -> Iterator[tuple[Batch, float]]:
    """The batches of what is ripe, or nearly, from the newest item that may begin one; and the rent due to each."""
    p, read, write = ledger.parameters, ledger.rates.read, ledger.rates.write
    horizon, slope, ripe_ages = p.horizon(ledger.calls), p.age_exponent - 1, AgeFactors(ledger)
    context = list(ledger.held.values())
    batch, gain, due = list[Held](), 0.0, 0.0
    for first in reversed(range(len(context))):
        h = context[first]
        age, ripe_age = ledger.calls - h.born, h.patience * ripe_ages[h.lesson]
        kept_for = sum(other.tokens + other.tokens_after for other in context[first:])
        freed = sum(other.saved_tokens for other in batch)
        if h.arrived >= ledger.calls or age < ripe_age * p.company_factor ** (-1 / p.age_exponent):
            continue
        is_sent = kept_for - ledger.new_tokens > freed
        stays = read * horizon + (0.0 if is_sent and not cold else write)
        risk = read * ripe_age**p.age_exponent * (age**-slope - (age + horizon) ** -slope) / slope
        gains = h.saved_tokens * (stays - risk)
        if age <= ripe_age and gains <= 0:
            continue
        batch, gain = [h, *batch], gain + gains
        due += read * h.saved_tokens * max(0.0, age - ripe_age)
        yield Batch(batch, rewrite(ledger, context[first:], batch, cold=cold), gain), due


def rewrite(ledger: Ledger, behind: list[Held], batch: list[Held], *, cold: bool) -> float:
    """What it costs to write again what is left of ``behind``, or of all, where it was sent before."""
    sent = sum(h.tokens + h.tokens_after for h in behind) - ledger.new_tokens
    freed = sum(h.saved_tokens for h in batch)
    if cold or sent <= freed:
        return 0.0
    if ledger.rates.rewrites_all:
        sent, freed = ledger.total_tokens - ledger.new_tokens, sum(h.saved_tokens for h in sent_of(ledger, batch))
    return (ledger.rates.write - ledger.rates.read) * (sent - freed)


def sent_of(ledger: Ledger, batch: list[Held]) -> list[Held]:
    """What of a batch the provider has: what stands before the end that no request carried yet."""
    context, found, freed = list(ledger.held.values()), list[Held](), 0
    for first in reversed(range(len(context))):
        if context[first] in batch:
            behind = sum(h.tokens + h.tokens_after for h in context[first:])
            if behind - ledger.new_tokens > freed:
                found.append(context[first])
            freed += context[first].saved_tokens
    return found


def best(ledger: Ledger, *, cold: bool) -> Batch:
    """The batch that gains most of those that have earned their rewrite."""
    p = ledger.parameters
    saved, share = min(ledger.saved, ledger.saved_then), p.max_loss * ledger.spent
    funds = saved if saved > 0 else min(0.0, saved + ledger.read_back_cost)
    found = Batch([], 0.0, 0.0)
    for batch, due in counted(ledger, cold=cold):
        if batch.cost > max(0.0, funds + 2 * share) and not ledger.rates.rewrites_all:
            break
        earns = ledger.rates.read * p.horizon(ledger.calls) / 8 * sum(h.saved_tokens for h in batch.items)
        times = 1.0 if not batch.cost else max(1.0, min(2.0, earns / batch.cost))
        is_earned = not batch.cost or batch.cost <= max(0.0, funds + share) or batch.cost <= funds + times * share
        if due >= p.rent_share * batch.cost and is_earned and batch.gain - batch.cost > found.gain:
            found = Batch(batch.items, batch.cost, batch.gain - batch.cost)
    return found


@pytest.mark.parametrize("cold", [False, True])
def test_the_batch_is_the_best_of_all(cold: bool) -> None:
    for ledger in map(a_session, SEEDS):
        items, cost, gain = best_batch(ledger, cold=cold, ripening=None)
        expected = best(ledger, cold=cold)
        assert [h.candidate.id for h in items] == [h.candidate.id for h in expected.items]
        assert (cost, gain) == pytest.approx((expected.cost, expected.gain))


def test_the_sessions_have_batches_of_each_kind() -> None:
    """None, one that pays for a rewrite and one that needs none, whatever was saved or lost before."""
    found = {
        (bool(batch.items), batch.cost > 0, ledger.rates.rewrites_all, ledger.saved < 0)
        for ledger in map(a_session, SEEDS)
        for batch in (best(ledger, cold=False),)
    }
    assert len(found) >= 10, found
