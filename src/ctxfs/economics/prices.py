"""What the planner expects a token to cost, and what a call was billed. Pure."""

from dataclasses import dataclass

from ctxfs.checks import require_number
from ctxfs.errors import ConfigError
from ctxfs.llm.base import Usage
from ctxfs.models.known import model_or_relative, warn_unknown
from ctxfs.models.prices import CacheTtl, Prices

__all__ = ["ANTHROPIC_RATES", "Rates", "bill_usd", "planning_prices"]

_MILLION = 1_000_000


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

    @classmethod
    def of(cls, prices: Prices, cache_ttl: CacheTtl | None = None) -> "Rates":
        """The rates of prompts below the first step of ``prices``, with a cache that is kept for ``cache_ttl``.

        None: as long as the provider keeps it unasked. Raises ``UnsupportedCacheTtl`` for a time that is not offered.
        """
        written = prices.cache_write[prices.ttl(cache_ttl)]
        return cls(
            read=prices.cache_read / prices.input, write=written / prices.input, output=prices.output / prices.input
        )


ANTHROPIC_RATES = Rates(read=0.1, write=1.25, output=5.0)
"""Cache reads a tenth, writes that last five minutes a quarter more, output five times an input token."""

_ASSUMED = Prices(
    input=1.0,
    output=5.0,
    cache_read=0.1,
    cache_write={"5m": 1.25, "30m": 1.25, "1h": 2.0, "12h": 2.5, "auto": 1.0},
)
"""The prices of a model of which nothing is known; only their ratios count: Anthropic's, and OpenAI's for its times."""


def bill_usd(usage: Usage, prices: Prices, cache_ttl: CacheTtl | None = None) -> float:
    """What one call costs in US dollars: each token at the price of the step that the whole prompt reaches.

    ``cache_ttl``: how long what was written to the cache is kept; None: as long as the provider keeps it unasked.
    Raises ``UnsupportedCacheTtl`` for a time that is not in ``prices``.
    """
    ttl, paid = prices.ttl(cache_ttl), prices.at(usage.total_input_tokens)
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
    prices = info.prices if info is not None else None
    if model and not is_known:
        assumed = f"the prices of {info.name!r}" if info is not None else "Anthropic's ratios of prices"
        warn_unknown(
            f"the model {model!r}",
            f"plans assume {assumed}; give its own, as AgentConfig(prices=...) or Context(pricing=...)",
        )
    return prices or _ASSUMED
