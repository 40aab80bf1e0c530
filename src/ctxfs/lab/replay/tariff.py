"""What a replay counts with: what the tokens of a model cost, and what each recorded call was billed. Pure."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings
from ctxfs.lab.recordings.recording import ModelCall, Recording
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import day_of, known_model
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates, bill_usd

_MILLION: Final = 1_000_000
_WINDOW_SHARE: Final = 0.85
"""How full a window is when agents compact: Claude Code does at about 155,000 to 174,000 of 200,000 tokens."""


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """What the user said of prices; each None means what the recording says.

    Args:
        model: all calls cost what this model's calls cost.
        rates: all calls cost this, in units of an uncached input token.
        usd_per_million: what a million uncached input tokens cost at ``rates``; None: dollars are not known.
        ttl: how long the provider keeps a prefix, where it offers that time.

    Raises:
        ConfigError: both a model and rates, an unknown model, or a time that the model's provider does not offer.
    """

    model: str | None = None
    rates: Rates | None = None
    usd_per_million: float | None = None
    ttl: CacheTtl | None = None

    @property
    def is_own(self) -> bool:
        """Whether calls cost something else than what they were billed."""
        return self.model is not None or self.rates is not None

    def __post_init__(self) -> None:
        if self.model is None:
            return
        if self.rates is not None:
            raise ConfigError("give a model or rates, not both")
        info = known_model(self.model)
        if info is None or info.prices is None:
            raise ConfigError(f"the prices of {self.model!r} are not known: give rates (--rates) instead")
        info.prices.ttl(self.ttl, model=self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What the tokens of one model cost in a replay.

    ``usd_per_token``: of an uncached input token; None: not known. ``ttl_s``: how long the cache keeps what nobody
    reads. ``compacts_at``: the tokens at which an agent compacts.
    """

    model: str
    rates: Rates
    usd_per_token: float | None
    ttl_s: float
    compacts_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledCall:
    """One call as it was billed.

    ``day``: the local date, empty: not recorded. ``usd`` None: no price is known. ``is_aside``: no thread has it.
    ``is_reply_counted``: the recording has less output than the reply holds, which counts instead.
    """

    id: str
    model: str
    day: str
    usage: Usage
    usd: float | None
    is_aside: bool = False
    is_reply_counted: bool = False


def parse_rates(text: str) -> tuple[Rates, float | None]:
    """READ,WRITE,OUTPUT in units of an uncached input token, and perhaps what a million of those cost in dollars.

    Raises:
        ConfigError: it is not three or four numbers, or they are no prices.
    """
    wrong = f"rates are {text!r}: use READ,WRITE,OUTPUT or READ,WRITE,OUTPUT,USD, such as 0.1,1.25,5,3"
    try:
        read, write, output, *rest = map(float, text.split(","))
    except ValueError as error:
        raise ConfigError(wrong) from error
    if len(rest) > 1 or not all(0 < usd < math.inf for usd in rest):
        raise ConfigError(wrong)
    return Rates(read=read, write=write, output=output), rest[0] if rest else None


def tariff_of(thread: Recording, options: PriceOptions) -> Tariff:
    """What the calls of one thread cost: as asked, or else by list prices of the model that the recording names.

    The cache is kept as long as most of what was written to it was. Without known prices, Anthropic's rates count.
    """
    model = options.model or thread.model
    day = day_of(next((call.at for call in thread.calls if call.at is not None), None))
    info = known_model(model, day=None if options.model else day) if options.rates is None else None
    prices = info.prices if info is not None else None
    usages = [call.usage for call in thread.calls if call.usage is not None]
    longest = max((u.total_input_tokens for u in usages), default=0)
    window = (info.input_tokens or info.window_tokens if info is not None else None) or 200_000
    compacts_at = max(round(window * _WINDOW_SHARE), longest)
    if info is None or prices is None:
        usd = options.usd_per_million
        return Tariff(
            model=model,
            rates=options.rates or ANTHROPIC_RATES,
            usd_per_token=usd / _MILLION if usd is not None else None,
            ttl_s=TTL_SECONDS[options.ttl or "5m"],
            compacts_at=compacts_at,
        )
    ttl = _ttl(prices, thread, options.ttl)
    return Tariff(
        model=model,
        rates=Rates.of(prices, ttl, least_cached_tokens=info.cached_prefix_tokens or 0),
        usd_per_token=prices.input / _MILLION,
        ttl_s=TTL_SECONDS[prices.ttl(ttl)],
        compacts_at=compacts_at,
    )


def _ttl(prices: Prices, thread: Recording, asked: CacheTtl | None) -> CacheTtl | None:
    if asked is not None:
        return asked if asked in prices.cache_write else None
    written = sum(c.usage.cache_creation_input_tokens for c in thread.calls if c.usage is not None)
    for_an_hour = sum(call.hour_tokens for call in thread.calls)
    return "1h" if "1h" in prices.cache_write and for_an_hour * 2 > written else None


def billed_calls(recording: Recording, replies: Iterable[tuple[ModelCall, int]] = ()) -> tuple[BilledCall, ...]:
    """What each call of a recording was billed, those that stand in no thread too.

    ``replies``: what the replies to calls hold, in tokens. Some agents record the usage at a reply's beginning, when
    hardly anything of it was written: it cannot have cost less than what it holds.
    """
    asides = {id(call) for call in recording.asides}
    held = {id(call): tokens for call, tokens in replies}
    return tuple(
        _billed(
            call, call.usage, call.model or recording.model, is_aside=id(call) in asides, held=held.get(id(call), 0)
        )
        for call in recording.calls
        if call.usage is not None
    )


def _billed(call: ModelCall, usage: Usage, model: str, *, is_aside: bool, held: int) -> BilledCall:
    is_short = held > usage.output_tokens and call.usd is None
    if is_short:
        usage = replace(usage, output_tokens=held)
    day = datetime.fromtimestamp(call.at).astimezone().date().isoformat() if call.at is not None else ""
    return BilledCall(
        id=call.id,
        model=model,
        day=day,
        usage=usage,
        usd=_usd(call, usage, model),
        is_aside=is_aside,
        is_reply_counted=is_short,
    )


def _usd(call: ModelCall, usage: Usage, model: str) -> float | None:
    """What the recording says that a call cost, or else its list price."""
    if call.usd is not None:
        return call.usd
    info = known_model(model, day=day_of(call.at))
    if info is None or info.prices is None:
        return None
    paid = info.prices.at(usage.total_input_tokens)
    extra = (
        call.hour_tokens * (paid.cache_write["1h"] - paid.cache_write[paid.cache_ttls[0]])
        if "1h" in paid.cache_write
        else 0
    )
    return bill_usd(usage, info.prices) + extra / _MILLION


def unpriced(calls: Iterable[BilledCall]) -> tuple[str, ...]:
    """The models whose prices are not known, those with most calls first."""
    return tuple(name for name, _ in Counter(c.model for c in calls if c.usd is None).most_common())
