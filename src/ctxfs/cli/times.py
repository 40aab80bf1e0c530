"""Moments as users type them: a date, or how long ago."""

import re
import time
from datetime import datetime

from ctxfs.errors import ConfigError

__all__ = ["moment"]

_AGE = re.compile(r"(\d{1,6})\s*([mhdw])")
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment(given: str) -> float:
    """The moment in seconds since the epoch: an age (``90m``, ``36h``, ``7d``, ``2w``), or a date, perhaps with a time.

    Without a time zone, a date is this machine's. Raises ``ConfigError`` for anything else.
    """
    if (age := _AGE.fullmatch(given.strip())) is not None:
        return time.time() - int(age[1]) * _SECONDS[age[2]]
    try:
        return datetime.fromisoformat(given.strip()).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{given!r} is not a time: write an age such as 90m, 36h, 7d or 2w, or a date such as 2026-11-23"
        ) from None
