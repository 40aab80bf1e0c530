"""Prices of tokens."""

import pytest

from ctxfs.economics.prices import Prices
from ctxfs.errors import ConfigError


def test_a_price_of_input_is_above_zero() -> None:
    with pytest.raises(ConfigError, match="input is 0: use a price above 0"):
        Prices(input=0, cache_read=0, cache_write_5m=0, cache_write_1h=0, output=0)
