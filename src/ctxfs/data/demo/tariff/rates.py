"""What a kilowatt-hour costs, by contract and by the zone of the hour. All in local time."""

from tariff.clock import is_weekend
from tariff.holidays import is_holiday

NIGHT, DAY, PEAK, WEEKEND = "night", "day", "peak", "weekend"

PEAK_HOURS = range(17, 20)
DAY_HOURS = range(6, 22)

CENTS_PER_KWH = {
    "home": {NIGHT: 22, DAY: 31, PEAK: 44, WEEKEND: 27},
    "flat": {NIGHT: 30, DAY: 30, PEAK: 30, WEEKEND: 30},
    "business": {NIGHT: 18, DAY: 25, PEAK: 39, WEEKEND: 21},
}

STANDING_CENTS = {"home": 1_190, "flat": 1_290, "business": 2_450}
"""The standing charge of a month."""


def zone(moment):
    """The zone of the hour that begins at the local ``moment``."""
    if moment.hour not in DAY_HOURS:
        return NIGHT
    if is_weekend(moment) or is_holiday(moment.date()):
        return WEEKEND
    if moment.hour in PEAK_HOURS:
        return PEAK
    return DAY


def price(contract, moment):
    """Cents for a kilowatt-hour at the local ``moment``."""
    return CENTS_PER_KWH[contract][zone(moment)]
