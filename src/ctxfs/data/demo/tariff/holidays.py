"""Public holidays. A contract counts them as a Sunday."""

from datetime import date, timedelta
from functools import cache

FIXED = {
    (1, 1): "New Year",
    (5, 1): "Labour Day",
    (10, 3): "Unity Day",
    (12, 25): "Christmas Day",
    (12, 26): "Boxing Day",
}

FROM_EASTER = {
    -2: "Good Friday",
    1: "Easter Monday",
    39: "Ascension Day",
    50: "Whit Monday",
}


@cache
def easter(year):
    """Easter Sunday in the Gregorian calendar (Meeus, Jones and Butcher)."""
    a = year % 19
    b, c = divmod(year, 100)
    d, e = divmod(b, 4)
    f = (b + 8) // 25
    g = (b - f + 1) // 3
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    l = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * l) // 451
    month, day = divmod(h + l - 7 * m + 114, 31)
    return date(year, month, day + 1)


@cache
def holidays(year):
    """All public holidays of a year, with their names."""
    found = {date(year, month, day): name for (month, day), name in FIXED.items()}
    for days, name in FROM_EASTER.items():
        found[easter(year) + timedelta(days=days)] = name
    return found


def is_holiday(day):
    """Whether ``day`` is a public holiday."""
    return day in holidays(day.year)
