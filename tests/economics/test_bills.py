"""What a call was billed, against bills made by hand; and what the planner expects, from the same list."""

import warnings

import pytest

from ctxfs.context.settings import as_window
from ctxfs.errors import UnsupportedCacheTtl
from ctxfs.eviction import Window
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.economics.economy import EvictionPricing, ModelPricing
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import WindowGuard
from ctxfs.messages import UnknownModel
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.models.prices import CacheTtl, Prices
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates, bill_usd, planning_prices


def listed(model: str) -> Prices:
    info = known_model(model)
    assert info is not None
    assert info.prices is not None
    return info.prices


def prefix_of(model: str) -> int:
    info = known_model(model)
    assert info is not None
    assert info.cached_prefix_tokens
    return info.cached_prefix_tokens


def call(new: int, written: int, read: int, output: int) -> Usage:
    return Usage(
        input_tokens=new,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        output_tokens=output,
    )


# Dollars a million: Opus 5.5 $4, write $5 (5m) $8 (1h), read $0.20, output $20. Haiku 5.5 $0.10, $0.125, $0.01, $0.50,
# five times that above 100,000. GPT-6.1 Sol $2, write $2.50 (30m) $5 (12h), read $0.10, output $10; above 272,000 the
# input is twice that and the output one and a half times. Gemini 2.5 Pro $1.25, read $0.125, output $10; above 200,000
# $2.50, $0.25, $15.
@pytest.mark.parametrize(
    ("model", "usage", "ttl", "dollars"),
    [
        ("claude-opus-5-5", call(1_000, 10_000, 200_000, 500), None, 0.004 + 0.05 + 0.04 + 0.01),
        ("claude-opus-5-5", call(1_000, 10_000, 200_000, 500), "1h", 0.004 + 0.08 + 0.04 + 0.01),
        ("claude-haiku-5-5", call(0, 10_000, 90_000, 1_000), None, 0.00125 + 0.0009 + 0.0005),
        ("claude-haiku-5-5", call(1, 10_000, 90_000, 1_000), None, 5 * (0.0000001 + 0.00125 + 0.0009 + 0.0005)),
        ("gpt-6.1-sol", call(2_000, 20_000, 250_000, 1_000), None, 0.004 + 0.05 + 0.025 + 0.01),
        ("gpt-6.1-sol", call(2_000, 20_000, 250_000, 1_000), "12h", 0.004 + 0.1 + 0.025 + 0.01),
        ("gpt-6.1-sol", call(2_000, 20_000, 300_000, 1_000), None, 0.008 + 0.1 + 0.06 + 0.015),
        ("gpt-4.1", call(10_000, 0, 40_000, 100), None, 0.02 + 0.02 + 0.0008),
        ("gemini-2.5-pro", call(10_000, 0, 190_000, 2_000), None, 0.0125 + 0.02375 + 0.02),
        ("gemini-2.5-pro", call(10_000, 0, 200_000, 2_000), "auto", 0.025 + 0.05 + 0.03),
    ],
)
def test_bills_made_by_hand(model: str, usage: Usage, ttl: CacheTtl | None, dollars: float) -> None:
    assert bill_usd(usage, listed(model), ttl) == pytest.approx(dollars, rel=1e-9)


def test_a_bill_for_a_time_that_is_not_offered_is_refused() -> None:
    with pytest.raises(UnsupportedCacheTtl):
        bill_usd(Usage(), listed("gpt-6.1-sol"), "5m")


def test_nothing_used_costs_nothing() -> None:
    assert bill_usd(Usage(), listed("claude-opus-5-5")) == 0


# Rates ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "ttl", "rates"),
    [
        ("claude-sonnet-4-5", None, (0.1, 1.25, 5.0)),
        ("claude-sonnet-4-5", "1h", (0.1, 2.0, 5.0)),
        ("claude-sonnet-4-5-20250929", "5m", (0.1, 1.25, 5.0)),
        ("claude-3-5-haiku", "1h", (0.1, 2.0, 5.0)),
        ("claude-opus-5-5", None, (0.05, 1.25, 5.0)),
        ("gpt-4o", None, (0.5, 1.0, 4.0)),
        ("gpt-5", "auto", (0.1, 1.0, 8.0)),
        ("gpt-6.1-sol", None, (0.05, 1.25, 5.0)),
        ("gpt-6.1-sol", "12h", (0.05, 2.5, 5.0)),
        ("", None, (0.1, 1.25, 5.0)),
        ("scripted", None, (0.1, 1.25, 5.0)),
        ("", "1h", (0.1, 2.0, 5.0)),
        ("", "30m", (0.1, 1.25, 5.0)),
        ("", "12h", (0.1, 2.5, 5.0)),
        ("", "auto", (0.1, 1.0, 5.0)),
    ],
)
def test_the_planner_expects_what_the_list_says(
    model: str, ttl: CacheTtl | None, rates: tuple[float, float, float]
) -> None:
    of = Rates.of(planning_prices(model), ttl)
    assert (of.read, of.write, of.output) == pytest.approx(rates)


def test_the_first_step_is_what_is_planned_for() -> None:
    assert ModelPricing.of(EvictionPricing(), "gpt-6.1-sol").rates == Rates.of(
        listed("gpt-6.1-sol"), least_cached_tokens=prefix_of("gpt-6.1-sol")
    )


@pytest.mark.parametrize(
    ("model", "ttl", "seconds"),
    [
        *(("claude-opus-5", None, 300), ("claude-opus-5", "1h", 3_600), ("gpt-6.1-sol", None, 1_800)),
        *(("gpt-6.1-sol", "12h", 43_200), ("gpt-5", None, 300), ("gemini-2.5-pro", "auto", 300)),
    ],
)
def test_a_cache_is_taken_for_warm_as_long_as_the_provider_keeps_it(
    model: str, ttl: CacheTtl | None, seconds: float
) -> None:
    assert ModelPricing.of(EvictionPricing(cache_ttl=ttl), model).ttl_s == seconds


@pytest.mark.parametrize(
    ("model", "ttl", "offered"),
    [("gpt-5", "1h", ("auto",)), ("gpt-6.1-sol", "5m", ("30m", "12h")), ("claude-opus-5", "30m", ("5m", "1h"))],
)
def test_a_time_that_the_models_provider_does_not_offer_is_refused(
    model: str, ttl: CacheTtl, offered: tuple[str, ...]
) -> None:
    with pytest.raises(UnsupportedCacheTtl, match=f"cache_ttl is '{ttl}': the provider of {model} offers") as refused:
        ModelPricing.of(EvictionPricing(cache_ttl=ttl), model)
    assert refused.value.offered == offered


def test_prices_of_ones_own_say_what_is_offered() -> None:
    mine = Prices(input=1, output=2, cache_read=0.5, cache_write={"12h": 3})
    terms = ModelPricing.of(EvictionPricing(prices=mine), "gpt-5")
    assert (terms.rates, terms.ttl_s) == (
        Rates(read=0.5, write=3, output=2, least_cached_tokens=prefix_of("gpt-5")),
        43_200,
    )
    with pytest.raises(UnsupportedCacheTtl):
        ModelPricing.of(EvictionPricing(prices=mine, cache_ttl="auto"), "gpt-5")


# Unknown models ------------------------------------------------------------------------------------------------------


def test_an_unknown_model_is_planned_for_at_anthropics_ratios_with_a_warning() -> None:
    with pytest.warns(UnknownModel, match=r"the model 'bills-1' is unknown\. .*Anthropic's ratios.*prices="):
        assert Rates.of(planning_prices("bills-1")) == ANTHROPIC_RATES


def test_the_warning_names_the_line_that_gave_the_model() -> None:
    with pytest.warns(UnknownModel, match="'bills-3'") as warned:
        planning_prices("bills-3")
    assert warned[0].filename == __file__


def test_an_unknown_version_of_a_known_model_is_planned_for_at_its_prices_with_a_warning() -> None:
    with pytest.warns(UnknownModel, match="tokens and the prices of 'gpt-6.1-sol'"):
        assert planning_prices("gpt-6.1-sol-bills") == listed("gpt-6.1-sol")


def test_an_unknown_model_gets_a_window_of_128_000_with_a_warning() -> None:
    with pytest.warns(
        UnknownModel, match=r"the model 'bills-2' is unknown\. Assumed of it are a window of 128,000 tokens.*window="
    ):
        assert Budget.of_model("bills-2").window_tokens == 128_000


def test_an_unknown_version_of_a_known_model_gets_its_window_with_a_warning() -> None:
    with pytest.warns(UnknownModel, match="the model 'gpt-5-bills' is unknown.* a window of 400,000 tokens"):
        assert Budget.of_model("gpt-5-bills").limit_tokens == 272_000


def test_a_known_model_whose_window_is_not_known_gets_128_000_with_a_warning() -> None:
    with pytest.warns(UnknownModel, match="the window of the model 'gpt-6-cyber' is unknown: 128,000 tokens"):
        assert Budget.of_model("gpt-6-cyber").window_tokens == 128_000


def test_nothing_is_said_where_everything_is_known_or_given() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in ("claude-opus-5-5", "gpt-5", "scripted", ""):
            ModelPricing.of(EvictionPricing(), model)
            WindowGuard.of(as_window("auto"), model, OffloadPolicy())
        ModelPricing.of(EvictionPricing(prices=Prices(input=1, output=2, cache_read=0.1)), "bills-3")
        WindowGuard.of(as_window(50_000), "bills-3", OffloadPolicy())
        WindowGuard.of(as_window(Window(window_tokens=50_000)), "bills-3", OffloadPolicy())
        WindowGuard.of(as_window(None), "bills-3", OffloadPolicy())
