"""What the calls of a session cost in US dollars."""

from collections.abc import Sequence
from datetime import date

from ctxfs.messages.models.known import day_of, known_model
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.messages.rates import bill_usd
from ctxfs.session.records import CallMade


class Paid:
    """What calls cost: at the prices that were given, or at each model's list prices."""

    def __init__(self, given: Prices | None, *, ttl_s: float) -> None:
        self._given = given
        self._ttl_s = ttl_s
        self._listed: dict[tuple[str, date | None], Prices | None] = {}

    def prices(self, model: str, made_at: float = 0.0) -> Prices | None:
        """The prices of ``model`` on the day of ``made_at`` (0: today); None when they are not known."""
        if self._given is not None:
            return self._given
        day = day_of(made_at)
        if (model, day) not in self._listed:
            info = known_model(model, day=day)
            self._listed[model, day] = None if info is None else info.prices
        return self._listed[model, day]

    def usd(self, calls: Sequence[CallMade]) -> float | None:
        """What ``calls`` cost; None when the prices of a model are not known."""
        bills = []
        for call in calls:
            prices = self.prices(call.model, call.made_at)
            if prices is None:
                return None
            bills.append(bill_usd(call.usage, prices, self.ttl(prices)))
        return sum(bills)

    def ttl(self, prices: Prices) -> CacheTtl | None:
        """How long the session's cache is kept, where the provider offers that time."""
        return next((ttl for ttl in prices.cache_ttls if TTL_SECONDS[ttl] == self._ttl_s), None)
