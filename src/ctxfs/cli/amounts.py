"""Spans of time, moments, sizes and shares as users type them."""

import re
import time
from datetime import datetime, timedelta

from ctxfs.errors import ConfigError

_SPAN = re.compile(r"(\d{1,6})\s*([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*((?:[kmgt]i?)?)b?", re.IGNORECASE)
_DAYS_AGO = {"today": 0, "yesterday": 1}
_PREFIXES = ("", "k", "m", "g", "t")


def span_s(given: str) -> float:
    """The seconds of a span: ``90m``, ``36h``, ``7d``, ``2w``, ``1y``, or ``0``. Raises ``ConfigError``."""
    if given.strip() == "0":
        return 0.0
    if (found := _SPAN.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is not a span of time: write it as 90m, 36h, 7d, 2w or 1y")
    return float(int(found[1]) * _SECONDS[found[2]])


def moment(given: str) -> float:
    """The moment in seconds since the epoch: an age (``90m``, ``7d``), or a date, which may have a time.

    "today" and "yesterday" are dates. A date without a time zone is in this machine's.
    Raises ``ConfigError`` for anything else.
    """
    if _SPAN.fullmatch(given.strip()) is not None:
        return time.time() - span_s(given)
    if (days_ago := _DAYS_AGO.get(given.strip().lower())) is not None:
        day = datetime.now().astimezone() - timedelta(days=days_ago)
        return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    try:
        return datetime.fromisoformat(given.strip()).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{given!r} is not a time: write an age such as 90m, 36h, 7d or 2w, or a date, 2026-11-23 or yesterday"
        ) from None


def size_bytes(given: str) -> int:
    """The bytes of a size: ``500``, ``20M``, ``1.5G``; 1 M is 1,000,000 bytes, and 1 Mi is 1,048,576.

    Raises ``ConfigError``.
    """
    if (found := _SIZE.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is not a size: write it as 500, 20M or 1.5G")
    unit = found[2].lower()
    return int(float(found[1]) * (1_024 if unit.endswith("i") else 1_000) ** _PREFIXES.index(unit[:1]))


def share_of(given: str) -> float:
    """The part that a percentage or a fraction means, above 0 up to 1: ``5%``, ``0.05``. Raises ``ConfigError``."""
    text = given.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{given!r} is not a share: write it as 5% or 0.05, above 0 and up to 100%")
    return share
