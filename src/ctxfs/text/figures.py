"""Figures as people read them, in commands, on pages and in reports. Pure.

The one home of how money, sizes, ages and moments are written.
"""

from datetime import UTC, datetime

__all__ = ["ago", "clock", "count", "share", "short_count", "size", "usd"]

_STEPS = ((60, "s"), (60, "min"), (24, "h"), (365, "d"))


def count(number: float | None) -> str:
    """A whole number with separators; None is "not known"."""
    return "?" if number is None else f"{number:,.0f}"


def short_count(number: float) -> str:
    """A number in three digits: 950, 15.4k, 1.2M."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        scaled = number / limit
        if scaled >= 0.9995:  # which the smaller unit would round to 1000
            digits = 0 if scaled >= 99.95 or scaled.is_integer() else 1
            return f"{scaled:.{digits}f}{unit}"
    return f"{number:.0f}"


def usd(amount: float | None) -> str:
    """An amount of money; None is "not known", and small amounts have four decimal places."""
    if amount is None:
        return "?"
    shown = round(amount, 4)
    digits = 2 if abs(shown) >= 0.1 or not shown else 4
    sign = "-" if shown < 0 else ""
    return f"{sign}${abs(shown):,.{digits}f}"


def size(number: int) -> str:
    """Bytes in a suitable unit: 1 kB is 1,000 bytes."""
    scaled = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if scaled < 999.5:  # more is rounded to 1000
            digits = 0 if unit == "B" or scaled >= 99.95 else 1
            return f"{scaled:.{digits}f} {unit}"
        scaled /= 1_000
    return f"{scaled:,.1f} TB"


def share(part: float, whole: float) -> str:
    """A part in percent; "under 1%" if there is one, and it is smaller; 0 if the whole is 0."""
    if not whole:
        return "0%"
    return "under 1%" if 0 < part / whole < 0.01 else f"{part / whole:.0%}"


def ago(then: float, now: float) -> str:
    """How long ago, in the largest unit; both in seconds since the epoch."""
    amount = max(0.0, now - then)
    for most, unit in _STEPS:
        if amount < most:
            return f"{amount:.0f} {unit} ago"
        amount /= most
    return f"{amount:.0f} y ago"


def clock(at: float) -> str:
    """A moment in the reader's time zone; 0.0 is "not recorded"."""
    if not at:
        return ""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
