"""What one plan counts with: prices, ages, and what may be lost. Pure, from a ledger."""

from collections.abc import Sequence
from functools import cached_property
from math import inf, log, sqrt
from typing import Final, NamedTuple

from ctxfs.eviction.economics.held import Held
from ctxfs.eviction.economics.ledger import Ledger, read_backs_in

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
                soon=log((age + soon) / age),
                later=log((age + later) / age),
                latest=log((age + latest) / age),
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

    @cached_property
    def _open(self) -> list[float]:
        """The read-backs to expect of all that left before, in so many calls as are looked ahead."""
        return [self._ledger.open_read_backs.expected(self._ledger.calls, calls) for calls in LOOKS]

    def holds(self, cost: float, freed: int, hazards: Sequence[float]) -> bool:
        """Whether a batch is within it that costs so much, saves so many tokens, and asks for so many read-backs."""
        if cost > self.funds:
            return False
        rent = self._terms.read * (self._ledger.gone_tokens + self._ledger.gone_new_tokens + freed)
        for calls, before, hazard in zip(LOOKS, self._open, hazards, strict=True):
            expected = before + hazard
            covered = expected + self._cover * sqrt(max(0.0, expected))
            if self._terms.price * covered + cost > self.funds + calls * rent:
                return False
        return True
