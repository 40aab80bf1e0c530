"""What follows from settings: a model's window and economy, and one policy of all that were given. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Literal

from ctxfs.checks import require_int
from ctxfs.economics.economy import CacheTerms, EvictionPricing
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.prices import Rates, planning_prices
from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.models.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.session.records import EvictionSet

__all__ = ["Auto", "agreed_policy", "check_keep_recent", "economy_for", "eviction_rules", "window_for"]

Auto = Literal["auto"]
"""What the model's name says."""


def check_keep_recent(keep_recent: Mapping[str, int] | None) -> None:
    """Raise ``ConfigError`` unless it says for single tools how many results each keeps."""
    if keep_recent is None:
        return
    if not isinstance(keep_recent, Mapping):
        raise ConfigError(f'keep_recent is {keep_recent!r}: give a number for each tool, as in {{"search": 2}}')
    for tool, keep in keep_recent.items():
        require_int(f"keep_recent[{tool!r}]", keep, at_least=1)


def window_for(model: str, window: Window | Budget | int | Auto | None) -> Window:
    """The window that ``window`` means: the model's own, so many tokens, a budget, or a window; None: no limit."""
    match window:
        case Window(budget=None) if window.summarize is not None or (
            window.compaction and not window.compaction.policy
        ):
            raise ConfigError("a Window without a budget is no limit, so compaction and summarize have no effect")
        case Window():
            return replace(window, model=window.model or model)
        case Budget() | None:
            return Window(window, model=model)
        case "auto":
            return Window(Budget.of_model(model), model=model)
        case int() if not isinstance(window, bool):
            require_int("window", window, at_least=1)
            return Window(Budget.of_window(window), model=model)
    ways = 'a number of tokens, Budget(...), Window(...), "auto" for the model\'s own, or None for no limit'
    raise ConfigError(f"window is {window!r}: use {ways}")


def economy_for(
    model: str,
    *,
    parameters: EvictionParameters | None = None,
    prices: Prices | None = None,
    cache_ttl: CacheTtl | None = None,
) -> EvictionPricing:
    """What leaves when it pays, at ``prices``, or those that ``planning_prices`` gives for ``model``.

    Raises ``UnsupportedCacheTtl`` for a time that these prices do not offer.
    """
    prices = prices or planning_prices(model)
    ttl = prices.ttl(cache_ttl, model=model)
    return EvictionPricing(parameters=parameters, terms=CacheTerms(rates=Rates.of(prices, ttl), ttl_s=TTL_SECONDS[ttl]))


def eviction_rules(
    keep_recent: Mapping[str, int],
    budget: Budget | None,
    policy: OffloadPolicy,
    pricing: EvictionPricing | None,
    *,
    digest_tokens: int,
) -> EvictionSet:
    """The rules in force, for whoever reads the journal."""
    rules = EvictionSet(
        keep_recent=keep_recent,
        window_tokens=None if budget is None else budget.limit_tokens,
        policy=None if policy == OffloadPolicy() else policy.to_mapping(),
        digest_tokens=digest_tokens,
    )
    if pricing is None:
        return rules
    terms, parameters = pricing.terms, pricing.parameters.to_mapping()
    return replace(rules, parameters=parameters, rates=asdict(terms.rates), ttl_s=terms.ttl_s)


def agreed_policy(
    policy: OffloadPolicy | None, compaction: SelectiveCompaction | None, *, threshold_tokens: int | None = None
) -> OffloadPolicy:
    """The one policy in force, of all the places where one can be given. Raises ``ConfigError`` if they differ."""
    inner = compaction.policy if compaction is not None else None
    if policy is not None and inner is not None and policy != inner:
        raise ConfigError("offload_policy and the policy in compaction differ: give one of them")
    agreed = policy or inner or OffloadPolicy()
    if threshold_tokens is None or agreed.token_threshold == threshold_tokens:
        return agreed
    if agreed.token_threshold is not None:
        raise ConfigError(
            f"offload_token_threshold is {threshold_tokens}, the policy's token_threshold {agreed.token_threshold}: "
            "give one of them"
        )
    return replace(agreed, token_threshold=threshold_tokens)
