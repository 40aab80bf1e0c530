"""Hours to amounts."""

from collections import Counter, namedtuple
from datetime import timedelta

from tariff.clock import hours_of_month, local, offset
from tariff.money import THOUSANDTHS
from tariff.rates import STANDING_CENTS, price, zone
from tariff.readings import watt_hours


class Hour(namedtuple("Hour", "utc local watt_hours zone cents_per_kwh")):
    """One hour: when it began, in UTC and in local time, what the meter counted, and what that costs."""

    @property
    def amount(self):
        """In thousandths of a cent: a watt-hour is a thousandth of a kilowatt-hour."""
        return self.watt_hours * self.cents_per_kwh


class Bill(namedtuple("Bill", "customer year month hours")):
    """A month of one customer."""

    @property
    def standing(self):
        """The standing charge, in thousandths of a cent."""
        return STANDING_CENTS[self.customer.contract] * THOUSANDTHS

    @property
    def total(self):
        """Everything, in thousandths of a cent."""
        return self.standing + sum(hour.amount for hour in self.hours)

    def by_zone(self):
        """Watt-hours and amounts of each zone."""
        counted, amounts = Counter(), Counter()
        for hour in self.hours:
            counted[hour.zone] += hour.watt_hours
            amounts[hour.zone] += hour.amount
        return {name: (counted[name], amounts[name]) for name in sorted(counted)}

    def by_day(self):
        """The hours of each local day."""
        days = {}
        for hour in self.hours:
            days.setdefault(hour.local.date(), []).append(hour)
        return days


def hour_of(customer, moment):
    """The hour of ``customer`` that begins at ``moment``, in UTC."""
    here = local(moment)
    return Hour(moment, here, watt_hours(customer, moment), zone(here), price(customer.contract, here))


def bill_of_month(customer, year, month):
    """The bill of ``customer`` for a local month."""
    return Bill(customer, year, month, [hour_of(customer, moment) for moment in hours_of_month(year, month)])


def hours_of_days(customer, days):
    """The hours of local days, in order."""
    months = {}
    for day in days:
        month = day.year, day.month
        if month not in months:
            months[month] = bill_of_month(customer, *month).by_day()
        yield from months[month][day]


def quarters(hour):
    """The quarters of an hour, as meters send them: what does not divide is counted in the first ones."""
    found = []
    for n in range(4):
        start = timedelta(minutes=15 * n)
        counted = (hour.watt_hours + 3 - n) // 4
        found.append(hour._replace(utc=hour.utc + start, local=hour.local + start, watt_hours=counted))
    return found


def check(bill):
    """Raise if an hour is missing or counted twice."""
    moments = [hour.utc for hour in bill.hours]
    assert len(set(moments)) == len(moments), "an hour is counted twice"
    assert all(offset(hour.utc) + hour.utc == hour.local for hour in bill.hours), "an hour has another offset"
