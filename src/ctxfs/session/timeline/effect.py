"""What the evictions of a session saved and cost in all, against never evicting. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.placeholder.attach import DEFAULT_DIGEST_TOKENS
from ctxfs.messages.models.known import day_of, known_model
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates, bill_usd
from ctxfs.session.records import CallMade, EvictionSet
from ctxfs.session.timeline.costs import Account


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


DEFAULT_RULES = EvictionSet(
    parameters=EvictionParameters().to_mapping(),
    rates=ANTHROPIC_RATES.to_mapping(),
    ttl_s=TTL_SECONDS["5m"],
    digest_tokens=DEFAULT_DIGEST_TOKENS,
)
"""What is taken for the rules of a session that recorded none: the defaults."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What eviction did: how often it happened, and what it saved and cost, in uncached input tokens as billed.

    ``tokens_freed`` is in tokens as ctxfs counts them; ``billed_per_counted``: how many are billed for one of these, as
    the session's bills show (see the function of that name): the least and the most, as each model has its own.
    ``saved``: what the calls since did not have to read. ``rewriting``: what writing the cache again cost.
    ``reading_back``: what the lines cost that were read back; it and ``read_backs`` are None where they are not
    recorded, since somebody else owns the messages. ``net`` is what is left of ``saved``. ``net_usd`` None: the prices
    of the model are not known; ``usd_per_token``: what an uncached input token costs by them. ``too_long_from``: the
    first call whose context would not have fitted the window without eviction; ``saved``, ``rewriting``,
    ``reading_back`` and ``net`` then count the calls before it only, since the session could not have gone on. None:
    all calls would have fitted.
    """

    evictions: int
    tokens_freed: int
    saved: float
    rewriting: float
    read_backs: int | None
    reading_back: float | None
    net: float
    net_usd: float | None
    too_long_from: int | None = None
    billed_per_counted: tuple[float, float] = (1.0, 1.0)
    usd_per_token: float | None = None


def effect(costs: Account, rules: EvictionSet | None, *, prices: Prices | None = None) -> Effect:
    """What evictions did by the account ``costs`` of a session with these ``rules``; None: with the defaults.

    Dollars are at ``prices``; None means the list prices of the model of the last call on the context.

    Raises:
        ConfigError: another version recorded the rules, and they cannot be read.
    """
    model = costs.model
    rules = rules or DEFAULT_RULES
    listed = Paid(prices, ttl_s=rules.ttl_s).prices(model)
    rates = recorded_rates(rules)
    if rates is None:
        rates = ANTHROPIC_RATES if listed is None else Rates.of(listed)
    window_tokens = compared_window(rules, model)
    saved = costs.saved(rates, window_tokens=window_tokens)
    rewriting = costs.rewriting(rates, window_tokens=window_tokens)
    reading_back = costs.reading_back(rates, window_tokens=window_tokens)
    net = saved - rewriting - reading_back
    usd_per_token = None if listed is None else listed.input / _MILLION
    return Effect(
        evictions=len(costs.departures),
        tokens_freed=sum(departure.tokens_freed for departure in costs.departures),
        saved=saved,
        rewriting=rewriting,
        read_backs=None if costs.is_elsewhere else len(costs.read_backs),
        reading_back=None if costs.is_elsewhere else reading_back,
        net=net,
        net_usd=None if usd_per_token is None else net * usd_per_token,
        too_long_from=costs.too_long_from(window_tokens),
        billed_per_counted=(min(costs.units, default=1.0), max(costs.units, default=1.0)),
        usd_per_token=usd_per_token,
    )


def compared_window(rules: EvictionSet | None, model: str) -> int:
    """The largest prompt of a session without eviction: as recorded, or as known, or assumed, of the model."""
    return known_window(rules, model) or Budget.of_model(model, warns=False).limit_tokens


def known_window(rules: EvictionSet | None, model: str) -> int | None:
    """The largest prompt that a session could send: as recorded, or as known of the model; None: neither is."""
    if rules is not None and rules.window_tokens is not None:
        return rules.window_tokens
    if not model or known_model(model) is None:
        return None
    return Budget.of_model(model, warns=False).limit_tokens


def recorded_parameters(rules: EvictionSet) -> EvictionParameters | None:
    """The numbers that the planner had; None if it had none. Raises ``ConfigError`` for those of another version."""
    if rules.parameters is None:
        return None
    try:
        return EvictionParameters.from_mapping(rules.parameters)
    except ConfigError as error:
        raise ConfigError(
            f"another version of ctxfs recorded this session, and its numbers cannot be read ({error}). "
            "`ctxfs ls`, `show` and `cat` need none; opening it to go on with it records today's"
        ) from error


def recorded_rates(rules: EvictionSet) -> Rates | None:
    """The rates that the planner had; None if it had none. Raises ``ConfigError`` for rates of another version."""
    if not rules.rates:
        return None
    try:
        return Rates.from_mapping(rules.rates)
    except ConfigError as error:
        raise ConfigError(f"the session's prices cannot be read: {error}") from error
