"""What the planner expects a token to cost, and what a call was billed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_bool, require_int, require_number
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import model_or_relative, warn_unknown_model
from ctxfs.messages.models.prices import CacheTtl, Prices

_MILLION = 1_000_000


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The prices that the planner uses, in units of one uncached input token.

    ``read``: a token that the cache already holds. ``write``: a token that it does not hold yet. ``output``: a token
    that the model writes. A provider without a prompt cache has ``read == write``. ``steps``: the rates of requests
    with more tokens than a number, in the order of the numbers, in the same unit; steps within a step are ignored.
    ``least_cached_tokens``: the provider caches no shorter prefix than this; 0 means that it caches any.
    ``rewrites_all``: a change anywhere makes the provider write the whole prompt again, as where the only cache
    breakpoints stand at the end of the requests; False: it writes what comes after the change.

    Raises:
        ConfigError: a price that is not positive, reading that costs more than writing, a step in another form, a
            shortest prefix that is not a number of tokens, or a switch that is not True or False.
    """

    read: float
    write: float
    output: float
    steps: tuple[tuple[int, "Rates"], ...] = ()
    least_cached_tokens: int = 0
    rewrites_all: bool = False

    def __post_init__(self) -> None:
        for name in ("read", "write", "output"):
            require_number(name, getattr(self, name), at_least=0)
        if not 0 < self.read <= self.write or self.output <= 0:
            raise ConfigError(f"{self}: prices are positive, and a cached token costs no more than a written one")
        require_int("least_cached_tokens", self.least_cached_tokens, at_least=0)
        require_bool("rewrites_all", self.rewrites_all)
        steps: object = self.steps
        for step in steps if isinstance(steps, tuple) else [steps]:
            if not isinstance(step, tuple) or len(step) != 2 or not isinstance(step[1], Rates):
                raise ConfigError(f"steps has {step!r}: use pairs of a number of tokens and the Rates above it")
            require_int("a step", step[0], at_least=1)
        object.__setattr__(self, "steps", tuple(sorted(self.steps, key=itemgetter(0))))

    @classmethod
    def of(cls, prices: Prices, cache_ttl: CacheTtl | None = None, *, least_cached_tokens: int = 0) -> "Rates":
        """The rates of ``prices``, with a cache that keeps prefixes of ``least_cached_tokens`` for ``cache_ttl``.

        None: the provider's default. Raises ``UnsupportedCacheTtl`` for a time that is not offered.
        """
        ttl = prices.ttl(cache_ttl)
        unit = prices.input
        steps: list[tuple[int, Rates]] = []
        for above_tokens, step in prices.steps.items():
            rates = cls(read=step.cache_read / unit, write=step.cache_write[ttl] / unit, output=step.output / unit)
            steps.append((above_tokens, rates))
        return cls(
            read=prices.cache_read / unit,
            write=prices.cache_write[ttl] / unit,
            output=prices.output / unit,
            steps=tuple(steps),
            least_cached_tokens=least_cached_tokens,
        )

    def at(self, prompt_tokens: int) -> "Rates":
        """The rates of a request with this many tokens: those of the highest step that it passes."""
        passed = self
        for above_tokens, rates in self.steps:
            if prompt_tokens > above_tokens:
                passed = rates
        return passed

    def to_mapping(self) -> dict[str, Any]:
        """The rates as ``from_mapping`` reads them, as JSON values; what is empty or 0 is not named."""
        plain: dict[str, Any] = {"read": self.read, "write": self.write, "output": self.output}
        if self.steps:
            plain["steps"] = {str(above_tokens): rates.to_mapping() for above_tokens, rates in self.steps}
        if self.least_cached_tokens:
            plain["least_cached_tokens"] = self.least_cached_tokens
        if self.rewrites_all:
            plain["rewrites_all"] = True
        return plain

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Rates":
        """Read rates.

        Raises:
            ConfigError: a name that is not known or missing, or a value that cannot work.
        """
        try:
            steps = tuple((int(n), cls.from_mapping(rates)) for n, rates in values.get("steps", {}).items())
            return cls(**{**values, "steps": steps})
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"rates: {error}") from error


ANTHROPIC_RATES = Rates(read=0.1, write=1.25, output=5.0)
"""Cache reads a tenth, writes that last five minutes a quarter more, output five times an input token."""

_ASSUMED = Prices(
    input=1.0,
    output=5.0,
    cache_read=0.1,
    cache_write={"5m": 1.25, "30m": 1.25, "1h": 2.0, "12h": 2.5, "auto": 1.0},
)
"""The prices of a model of which nothing is known; only their ratios count: Anthropic's, and OpenAI's for its times."""


@names_settings()
def bill_usd(usage: Usage, prices: Prices, cache_ttl: CacheTtl | None = None) -> float:
    """What one call costs in US dollars: each token at the price of the step that the whole prompt reaches.

    ``cache_ttl``: how long what was written to the cache is kept; None: the provider's default.
    Raises ``UnsupportedCacheTtl`` for a time that is not in ``prices``.
    """
    ttl = prices.ttl(cache_ttl)
    paid = prices.at(usage.total_input_tokens)
    dollars = (
        usage.input_tokens * paid.input
        + usage.cache_read_input_tokens * paid.cache_read
        + usage.cache_creation_input_tokens * paid.cache_write[ttl]
        + usage.output_tokens * paid.output
    )
    return dollars / _MILLION


def planning_prices(model: str) -> Prices:
    """The list prices of ``model``, for a plan, in which only their ratios count.

    Of an unknown model, those of the longest known name that it starts with, or else Anthropic's ratios: a warning
    (``UnknownModel``) says so once. Without a warning, Anthropic's ratios count for a model that has no name ("") or
    costs nothing.
    """
    info, is_known = model_or_relative(model)
    if model and not is_known:
        warn_unknown_model(model)
    if info is None or info.prices is None:
        return _ASSUMED
    return info.prices
