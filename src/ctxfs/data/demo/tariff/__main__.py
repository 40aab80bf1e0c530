"""The command line: ``python -m tariff invoice 1042 2024-03``."""

import sys
from datetime import date, timedelta

from tariff.bill import bill_of_month, hours_of_days, quarters
from tariff.customers import CUSTOMERS, customer
from tariff.invoice import render_day, render_hours, render_month, render_totals

USAGE = """usage: python -m tariff invoice CUSTOMER MONTH [--hours]
       python -m tariff week CUSTOMER DATE
       python -m tariff day CUSTOMER DATE
       python -m tariff check MONTH"""


def month_of(text):
    """``2024-03`` as a year and a month."""
    year, month = text.split("-")
    return int(year), int(month)


def main(arguments):
    match arguments:
        case ["invoice", number, month]:
            print(render_month(bill_of_month(customer(number), *month_of(month))))
        case ["invoice", number, month, "--hours"]:
            print(render_hours(bill_of_month(customer(number), *month_of(month))))
        case ["week", number, day]:
            days = [date.fromisoformat(day) + timedelta(days=n) for n in range(7)]
            print(render_day(customer(number), list(hours_of_days(customer(number), days))))
        case ["day", number, day]:
            hours = hours_of_days(customer(number), [date.fromisoformat(day)])
            print(render_day(customer(number), [part for hour in hours for part in quarters(hour)]))
        case ["check", month]:
            print(render_totals([bill_of_month(one, *month_of(month)) for one in CUSTOMERS]))
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
