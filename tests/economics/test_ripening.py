"""A plan that passes over what cannot be ripe is the plan that looks at every item."""

import math
import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.economics.features import ToolClass
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Candidate
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import next_plan, plan
from ctxfs.economics.prices import ANTHROPIC_RATES
from ctxfs.economics.ripening import Ripening

TOOLS = ("Read", "Grep", "Bash")
CLASSES = (ToolClass.FILE, ToolClass.SEARCH, ToolClass.OTHER)


class Play:
    """A session at random, whose plans are made in both ways at each step."""

    def __init__(self, seed: int, caution: float, *, rewrites_all: bool = False) -> None:
        self.rng = random.Random(seed)
        parameters = EvictionParameters(caution=caution)
        self.ledger = Ledger(parameters=parameters, rates=replace(ANTHROPIC_RATES, rewrites_all=rewrites_all))
        self.ripening = Ripening()
        self.number = 0
        self.looked_at = self.planned = 0

    def candidate(self) -> Candidate:
        self.number += 1
        kind = self.rng.randrange(len(TOOLS))
        return Candidate(
            id=f"c{self.number}",
            tool=TOOLS[kind],
            tool_class=CLASSES[kind],
            tokens=self.rng.choice((60, 300, 2_000, 9_000)),
            placeholder_tokens=self.rng.choice((10, 40)),
            paths=(f"f{self.rng.randrange(20)}",) if not kind else (),
            pinned=self.rng.random() < 0.05,
            is_placeholder=self.rng.random() < 0.05,
        )

    def step(self, choice: int) -> None:
        rng, held = self.rng, list(self.ledger.held)
        some = rng.sample(held, min(len(held), rng.randrange(1, 6)))
        if choice < 4:
            self.ledger = self.ledger.added([self.candidate() for _ in range(rng.randrange(1, 40))])
            self.ledger = self.ledger.replied([rng.randrange(50)], paths=[f"f{rng.randrange(20)}"])
        elif choice < 7:
            for _ in range(rng.randrange(1, 10)):
                self.ledger = self.ledger.added([rng.randrange(2_000)]).replied([20])
        elif choice == 7:
            self.ledger = self.ledger.evicted(some)
        elif choice == 8:
            self.ledger = self.ledger.resized({one: rng.randrange(1, 80) for one in some})
        elif choice == 9:
            self.ledger = self.ledger.with_pinned(some, rng.random() < 0.5)
        elif choice == 10:
            gone = list(self.ledger.left)
            self.ledger = self.ledger.read_back(rng.choice(gone) if gone else "none", [rng.randrange(900)])
        else:
            leaving = plan(self.ledger).item_ids
            self.ledger = self.ledger.evicted(leaving)

    def check(self) -> None:
        cached = replace(self.ledger, cache_expires_at=10.0)
        for now in (0.0, 20.0):
            expected = plan(cached, now=now)
            assert next_plan(cached, self.ripening, now=now) == expected
            self.planned += len(expected.evictions)


@pytest.mark.parametrize("caution", [0.0, 0.01, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("rewrites_all", [False, True])
def test_the_plan_is_the_same_in_a_long_session(caution: float, rewrites_all: bool) -> None:
    play = Play(1, caution, rewrites_all=rewrites_all)
    for _ in range(80):
        play.step(play.rng.randrange(12))
        play.check()
    assert len(play.ledger.held) > 64 or caution < 1
    assert play.planned or caution > 1


@given(st.integers(0, 2**32), st.floats(0.001, 100.0), st.lists(st.integers(0, 11), max_size=40))
@settings(deadline=None)
def test_the_plan_is_the_same_at_every_step(seed: int, caution: float, steps: list[int]) -> None:
    play = Play(seed, caution)
    for step in steps:
        play.step(step)
        play.check()


def test_what_cannot_be_ripe_is_not_looked_at_and_changes_are() -> None:
    play = Play(2, 1e6)
    candidates = [replace(play.candidate(), pinned=False, paths=(), is_placeholder=False) for _ in range(640)]
    ledger = play.ledger.added(candidates).replied([10]).replied([10])  # all were sent twice
    factors = dict.fromkeys({h.lesson for h in ledger.held.values()}, 1e6)
    ripening = Ripening()
    whole = list(ripening.newest_first(ledger, factors, early=1.0))
    assert len(whole) == 10
    assert all(h.patience == math.inf for h in whole)
    assert sum(h.tokens for h in whole) == sum(h.tokens + h.tokens_after for h in ledger.held.values())
    ripe = dict.fromkeys(factors, 1e-9)
    assert list(ripening.newest_first(ledger, ripe, early=1.0)) == list(ledger.newest_first())
    one = list(ledger.held.values())[300]
    old = replace(one, born=-1e12)
    held = {item_id: old if h is one else h for item_id, h in ledger.held.items()}
    changed = replace(ledger, held=MappingProxyType(held))
    looked_at = list(ripening.newest_first(changed, factors, early=1.0))
    assert old in looked_at
    assert len(looked_at) <= 64 + 9
    assert sum(h.tokens + h.tokens_after for h in looked_at) == sum(h.tokens for h in whole)


def test_a_pinned_item_stays_where_read_backs_do_not_count() -> None:
    play = Play(3, 0.0)
    first, pinned, last = (
        replace(play.candidate(), pinned=number == 1, tokens=9_000, is_placeholder=False) for number in range(3)
    )
    ledger = play.ledger.added([first, pinned, last])
    for _ in range(60):
        ledger = ledger.replied([10])
    for ripening in (None, Ripening()):
        assert next_plan(ledger, ripening, now=None).item_ids == (first.id, last.id)
