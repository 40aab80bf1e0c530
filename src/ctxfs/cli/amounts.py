"""Spans of time, sizes and shares as users type them."""

import re

from ctxfs.errors import ConfigError

__all__ = ["share_of", "size_bytes", "span_s"]

_SPAN = re.compile(r"(\d{1,6})\s*([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def span_s(given: str) -> float:
    """The seconds of a span: ``90m``, ``36h``, ``7d``, ``2w``, ``1y``; 0 is none. Raises ``ConfigError``."""
    if given.strip() == "0":
        return 0.0
    if (found := _SPAN.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is no span of time: write it as 90m, 36h, 7d, 2w or 1y")
    return float(int(found[1]) * _SECONDS[found[2]])


def size_bytes(given: str) -> int:
    """The bytes of a size: ``500``, ``20M``, ``1.5G``; a K is 1,024 bytes. Raises ``ConfigError``."""
    if (found := _SIZE.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is no size: write it as 500, 20M or 1.5G")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def share_of(given: str) -> float:
    """The part that a percentage or a fraction means, above 0 up to 1: ``5%``, ``0.05``. Raises ``ConfigError``."""
    text = given.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{given!r} is no share: write it as 5% or 0.05, above 0 and up to 100%")
    return share
