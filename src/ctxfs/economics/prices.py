"""What a token costs, by model and by what the prompt cache does with it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal

from ctxfs.checks import require_number
from ctxfs.errors import ConfigError

__all__ = ["ANTHROPIC_RATES", "TTL_SECONDS", "CacheTtl", "Prices", "Rates", "prices_for"]

CacheTtl = Literal["5m", "1h"]

TTL_SECONDS: Mapping[CacheTtl, float] = MappingProxyType({"5m": 300.0, "1h": 3600.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What the planner reckons with: prices in units of one uncached input token.

    ``read``: a token that the cache already holds. ``write``: a token that it does not hold yet. ``output``: a token
    that the model writes. A provider without a prompt cache has ``read == write``.

    Raises:
        ConfigError: a price that is not positive, or reading dearer than writing.
    """

    read: float
    write: float
    output: float

    def __post_init__(self) -> None:
        for name in ("read", "write", "output"):
            require_number(name, getattr(self, name), at_least=0)
        if not 0 < self.read <= self.write or self.output <= 0:
            raise ConfigError(f"{self}: prices are positive, and a cached token costs no more than a written one")


ANTHROPIC_RATES = Rates(read=0.1, write=1.25, output=5.0)
"""Cache reads a tenth, writes that last five minutes a quarter more, output five times an input token."""

ANTHROPIC_HOUR_RATES = Rates(read=0.1, write=2.0, output=5.0)
"""The same for writes that last an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars per million tokens. ``cache_write_*`` equals ``input`` where writing to the cache costs no more."""

    input: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    output: float

    def __post_init__(self) -> None:
        for field in fields(self):
            require_number(field.name, getattr(self, field.name), at_least=0)
        if not self.input:
            raise ConfigError(f"input is {self.input}: use a price above 0")

    def rates(self, ttl: CacheTtl = "5m") -> Rates:
        """The same in units of one uncached input token, for a cache whose entries live for ``ttl``."""
        write = self.cache_write_5m if ttl == "5m" else self.cache_write_1h
        return Rates(read=self.cache_read / self.input, write=write / self.input, output=self.output / self.input)


def _anthropic(price: float, output: float) -> Prices:
    return Prices(
        input=price, cache_read=price * 0.1, cache_write_5m=price * 1.25, cache_write_1h=price * 2, output=output
    )


def _automatic(price: float, cached: float, output: float) -> Prices:
    """A provider that caches by itself and charges nothing for the writing."""
    return Prices(input=price, cache_read=cached, cache_write_5m=price, cache_write_1h=price, output=output)


_FAMILIES: Mapping[str, Prices] = MappingProxyType(
    {
        "claude-opus-4": _anthropic(15.0, 75.0),
        "claude-opus-4-5": _anthropic(5.0, 25.0),
        "claude-opus-4-6": _anthropic(5.0, 25.0),
        "claude-opus-4-7": _anthropic(5.0, 25.0),
        "claude-": _anthropic(3.0, 15.0),
        "claude-haiku": _anthropic(1.0, 5.0),
        "claude-3-5-haiku": _anthropic(0.8, 4.0),
        "gpt-3.5": _automatic(0.5, 0.5, 1.5),
        "gpt-4-turbo": _automatic(10.0, 10.0, 30.0),
        "gpt-4o": _automatic(2.5, 1.25, 10.0),
        "gpt-4o-mini": _automatic(0.15, 0.075, 0.6),
        "gpt-4.1": _automatic(2.0, 0.5, 8.0),
        "gpt-5": _automatic(1.25, 0.125, 10.0),
        "gpt-5-mini": _automatic(0.25, 0.025, 2.0),
        "o3": _automatic(2.0, 0.5, 8.0),
        "o4-mini": _automatic(1.1, 0.275, 4.4),
        "deepseek-": _automatic(0.28, 0.028, 0.42),
        "gemini-2.5-pro": _automatic(1.25, 0.31, 10.0),
        "gemini-2.5-flash": _automatic(0.3, 0.075, 2.5),
    }
)


def prices_for(model: str) -> Prices | None:
    """The list prices of the longest known prefix of ``model``; None for an unknown one, which the caller must price.

    Lists change: pass ``Prices`` of your own where the difference matters. Only ratios enter a plan.
    """
    known = [prefix for prefix in _FAMILIES if model.startswith(prefix)]
    return _FAMILIES[max(known, key=len)] if known else None
