"""What a meter counted in an hour, in watt-hours.

Real readings are somebody's life, so these are made up: a base, a cooking evening, heating on cold nights, and some
noise that is the same each time.
"""

from datetime import datetime, timedelta
from math import cos, pi

COLDEST_DAY = 20
EVENING = range(16, 21)
"""In UTC: the meter does not know of summer time, and nor do hungry people."""

NIGHT = frozenset((22, 23, 0, 1, 2, 3, 4))


def noise(number, moment):
    """A factor from 0.90 to 1.10 that depends on the meter and the hour."""
    seed = int(number) * 2_654_435_761 + moment.toordinal() * 40_503 + moment.hour * 9_973
    return 0.90 + (seed % 2_001) / 10_000


def coldness(moment):
    """From 0 in July to 1 in January."""
    day = (moment - datetime(moment.year, 1, 1)) // timedelta(days=1)
    return (1 + cos(2 * pi * (day - COLDEST_DAY) / 365)) / 2


def watt_hours(customer, moment):
    """What the meter of ``customer`` counted in the hour from ``moment`` on, in UTC."""
    counted = customer.base_wh
    if moment.hour in EVENING:
        counted += customer.evening_wh
    if moment.hour in NIGHT:
        counted += customer.heating_wh * coldness(moment)
    return round(counted * noise(customer.number, moment))
