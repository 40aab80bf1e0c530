"""Eviction by price at times of a test's own."""

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from ctxfs.eviction.economics.economy import EvictionPricing


def pricing_on(clock: Callable[[], float], **settings: Any) -> EvictionPricing:
    """An ``EvictionPricing`` with these settings, whose prompt cache expires by the seconds of ``clock``."""

    class OnClock(EvictionPricing):
        __slots__ = ()

        @override
        def now(self) -> float:
            return clock()

    return OnClock(**settings)
