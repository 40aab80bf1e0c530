"""What a provider charges for tokens, and for how long its prompt cache keeps them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from ctxfs.errors import ConfigError, UnsupportedCacheTtl
from ctxfs.errors.checks import names_settings, require_int, require_number

CacheTtl = Literal["5m", "30m", "1h", "12h", "auto"]
"""For how long a provider keeps what it was asked to cache; "auto": it caches automatically, and promises nothing."""

TTL_SECONDS: Mapping[CacheTtl, float] = MappingProxyType(
    {"5m": 300.0, "30m": 1_800.0, "1h": 3_600.0, "12h": 43_200.0, "auto": 300.0}
)
"""How long each lasts since it was last read. Automatic caches are said to keep a prefix for 5 to 10 minutes."""


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model's tokens cost, in US dollars per million.

    Args:
        input: a token of the prompt that is neither read from the prompt cache nor written to it.
        output: a token of the reply.
        cache_read: a token of the prompt that the cache held. ``input`` where there is no cache.
        cache_write: a token that is written to the cache, by how long it is kept; the first is the provider's
            default. Empty: the provider caches automatically and charges ``input``.
        steps: by a number of tokens, the prices of requests whose whole prompt has more; every token of such a
            request costs them. The highest number passed counts. Empty: all prompts cost the same.

    Raises:
        ConfigError: a price that is not a number of 0 or more, an input that is free, an unknown time, or steps that
            have steps or other times than the rest.
    """

    input: float
    output: float
    cache_read: float
    cache_write: Mapping[CacheTtl, float] = field(default_factory=dict)
    steps: Mapping[int, "Prices"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read"):
            require_number(name, getattr(self, name), at_least=0)
        if not self.input:
            raise ConfigError(f"input is {self.input}: use a price above 0")
        for name in ("cache_write", "steps"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: use a mapping")
        for ttl, price in self.cache_write.items():
            if ttl not in TTL_SECONDS:
                raise ConfigError(f"cache_write has {ttl!r}: use some of {', '.join(TTL_SECONDS)}")
            require_number(f"cache_write[{ttl!r}]", price, at_least=0)
        writes: Mapping[CacheTtl, float] = {"auto": self.input}
        object.__setattr__(self, "cache_write", MappingProxyType(dict(self.cache_write or writes)))
        for above_tokens, prices in self.steps.items():
            require_int("a step", above_tokens, at_least=1)
            if not self._is_step(prices):
                raise ConfigError(f"steps[{above_tokens}] is {prices!r}: use Prices(...) without steps, of equal times")
        object.__setattr__(self, "steps", MappingProxyType(dict(sorted(self.steps.items()))))

    def _is_step(self, prices: object) -> bool:
        return isinstance(prices, Prices) and not prices.steps and prices.cache_ttls == self.cache_ttls

    @property
    def cache_ttls(self) -> tuple[CacheTtl, ...]:
        """How long the provider can keep a prefix: the times to choose from, the default first."""
        return tuple(self.cache_write)

    def at(self, prompt_tokens: int) -> "Prices":
        """The prices of a request with a prompt of ``prompt_tokens``: those of the highest step that it passes."""
        passed = [above_tokens for above_tokens in self.steps if prompt_tokens > above_tokens]
        return self.steps[max(passed)] if passed else self

    def ttl(self, chosen: CacheTtl | None, *, model: str = "") -> CacheTtl:
        """``chosen``, or the provider's default when that is None.

        ``model`` is for the error. Raises ``UnsupportedCacheTtl`` for a time that the provider does not offer.
        """
        if chosen is not None and chosen not in self.cache_write:
            raise UnsupportedCacheTtl(chosen, self.cache_ttls, model=model)
        return chosen or self.cache_ttls[0]
