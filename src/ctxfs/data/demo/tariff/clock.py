"""Local time in Central Europe, computed by hand: the supplier's old machines had no table of time zones.

Standard time is one hour ahead of UTC. Summer time is two hours ahead; it begins on the last Sunday of March and ends
on the last Sunday of October, each at 01:00 UTC.
"""

from datetime import date, datetime, timedelta
from functools import cache

STANDARD = timedelta(hours=1)
SUMMER = timedelta(hours=2)
SWITCH_HOUR_UTC = 1

SATURDAY = 5
SUNDAY = 6


def sunday_from(day):
    """The first Sunday on or after ``day``."""
    return day + timedelta(days=(SUNDAY - day.weekday()) % 7)


def last_sunday(year, month):
    """The last Sunday of March or October; both have 31 days, so it is the one from the 24th on."""
    return sunday_from(date(year, month, 24))


@cache
def summer_begins(year):
    """The moment in UTC at which clocks go from 02:00 to 03:00."""
    day = last_sunday(year, 3)
    return datetime(day.year, day.month, day.day, SWITCH_HOUR_UTC)


@cache
def summer_ends(year):
    """The moment in UTC at which clocks go from 03:00 back to 02:00."""
    day = last_sunday(year, 10)
    return datetime(day.year, day.month, day.day, SWITCH_HOUR_UTC)


def is_summer(moment):
    """Whether ``moment``, in UTC, is in summer time."""
    return summer_begins(moment.year) <= moment < summer_ends(moment.year)


def offset(moment):
    """What local time is ahead of UTC at ``moment``."""
    return SUMMER if is_summer(moment) else STANDARD


def local(moment):
    """Local time at ``moment``, which is in UTC."""
    return moment + offset(moment)


def is_weekend(moment):
    """Whether a local ``moment`` is on a Saturday or a Sunday."""
    return moment.weekday() in (SATURDAY, SUNDAY)


def hours_of_month(year, month):
    """The hours of a local month, as moments in UTC.

    March has an hour less than its days have, and October one more.
    """
    first = datetime(year, month, 1) - timedelta(hours=3)
    moment = first
    while local(moment) < datetime(year, month, 1):
        moment += timedelta(hours=1)
    following = datetime(year + month // 12, month % 12 + 1, 1)
    while local(moment) < following:
        yield moment
        moment += timedelta(hours=1)
