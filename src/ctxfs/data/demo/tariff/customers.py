"""Who is supplied, and by which contract."""

from collections import namedtuple


class Customer(namedtuple("Customer", "number name contract base_wh evening_wh heating_wh")):
    """One meter.

    base_wh: what it counts in each hour. evening_wh: what is added from 17:00 to 22:00 local time.
    heating_wh: what a cold night adds.
    """


CUSTOMERS = (
    Customer("1007", "Bakery Albers", "business", 2_400, 300, 900),
    Customer("1019", "C. Dahl", "home", 210, 640, 0),
    Customer("1023", "Hotel Elbblick", "business", 5_100, 3_900, 2_700),
    Customer("1042", "F. Grote", "home", 260, 1_850, 1_100),
    Customer("1058", "H. Iversen", "flat", 190, 420, 300),
    Customer("1066", "Joinery Kruse", "business", 1_200, 150, 250),
)


def customer(number):
    """The customer of that number."""
    for one in CUSTOMERS:
        if one.number == number:
            return one
    raise SystemExit(f"no customer {number}: there are {', '.join(one.number for one in CUSTOMERS)}")
