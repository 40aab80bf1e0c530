"""Prices: by length of prompt, and by how long a cache keeps what is written to it."""

from typing import Any

import pytest

from ctxfs.errors import ConfigError, UnsupportedCacheTtl
from ctxfs.messages.models.prices import TTL_SECONDS, Prices
from ctxfs.messages.rates import Rates, planning_prices

LONG = Prices(input=4, output=15, cache_read=0.2, cache_write={"30m": 5, "12h": 10})
LONGER = Prices(input=8, output=30, cache_read=0.4, cache_write={"30m": 10, "12h": 20})
STEPPED = Prices(
    input=2,
    output=10,
    cache_read=0.1,
    cache_write={"30m": 2.5, "12h": 5},
    steps={500_000: LONGER, 272_000: LONG},
)


@pytest.mark.parametrize(
    ("prompt_tokens", "paid"), [(0, 2), (272_000, 2), (272_001, 4), (500_000, 4), (500_001, 8), (10**6, 8)]
)
def test_the_highest_step_that_a_prompt_passes_counts(prompt_tokens: int, paid: float) -> None:
    assert STEPPED.at(prompt_tokens).input == paid


def test_prices_without_steps_are_the_same_for_every_prompt() -> None:
    assert LONG.at(10**9) is LONG


def test_a_provider_that_caches_by_itself_charges_no_more_for_it() -> None:
    prices = Prices(input=2, output=8, cache_read=0.5)
    assert dict(prices.cache_write) == {"auto": 2}
    assert prices.cache_ttls == ("auto",)


def test_the_first_time_is_what_the_provider_does_unasked() -> None:
    assert STEPPED.ttl(None) == "30m"
    assert STEPPED.ttl("12h") == "12h"


def test_a_time_that_the_provider_does_not_offer_is_refused_with_those_that_it_does() -> None:
    with pytest.raises(UnsupportedCacheTtl, match="cache_ttl is '5m': the provider of gpt-7 offers '30m', '12h'") as no:
        STEPPED.ttl("5m", model="gpt-7")
    assert (no.value.cache_ttl, no.value.offered, no.value.model) == ("5m", ("30m", "12h"), "gpt-7")
    with pytest.raises(UnsupportedCacheTtl, match="the provider offers"):
        LONG.ttl("auto")


def test_times_in_seconds() -> None:
    assert dict(TTL_SECONDS) == {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200, "auto": 300}


def test_a_price_of_input_is_above_zero() -> None:
    with pytest.raises(ConfigError, match="input is 0: use a price above 0"):
        Prices(input=0, cache_read=0, output=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": 0},
        {"input": -1},
        {"output": "8"},
        {"cache_read": None},
        {"cache_write": 2.5},
        {"cache_write": {"2h": 2.5}},
        {"cache_write": {"5m": -2.5}},
        {"steps": [272_000]},
        {"steps": {0: LONG}},
        {"steps": {272_000: 4}},
        {"steps": {272_000: STEPPED}},
        {"steps": {272_000: LONG}, "cache_write": {"30m": 2.5}},
    ],
    ids=repr,
)
def test_prices_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Prices(**{"input": 2, "output": 10, "cache_read": 0.1, "cache_write": {"30m": 2, "12h": 5}, **wrong})


def test_rates_are_prices_in_units_of_the_cheapest_input() -> None:
    rates = Rates.of(STEPPED, least_cached_tokens=1_024)
    assert rates == Rates(
        read=0.05,
        write=1.25,
        output=5,
        steps=((272_000, Rates(read=0.1, write=2.5, output=7.5)), (500_000, Rates(read=0.2, write=5, output=15))),
        least_cached_tokens=1_024,
    )
    assert Rates.from_mapping(rates.to_mapping()) == rates
    assert Rates.from_mapping(Rates.of(LONG).to_mapping()) == Rates.of(LONG)
    rewriting = Rates(read=0.1, write=1.25, output=5, rewrites_all=True)
    assert rewriting.to_mapping() == {"read": 0.1, "write": 1.25, "output": 5, "rewrites_all": True}


def test_a_plan_without_a_model_has_prices_too() -> None:
    assert planning_prices("").output == 5.0
    assert planning_prices("claude-sonnet-4-5").input == 3.0
