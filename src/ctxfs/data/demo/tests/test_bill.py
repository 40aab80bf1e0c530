import unittest
from datetime import date

from tariff.bill import bill_of_month, check, hours_of_days
from tariff.customers import customer
from tariff.money import cents, euros


class Money(unittest.TestCase):
    def test_half_up(self):
        self.assertEqual(cents(499), 0)
        self.assertEqual(cents(500), 1)
        self.assertEqual(euros(123_456_789), "1,234.57")


class Bills(unittest.TestCase):
    def test_no_hour_is_lost(self):
        for month in (2, 3, 10):
            check(bill_of_month(customer("1042"), 2024, month))

    def test_a_total_is_the_sum_of_its_zones(self):
        bill = bill_of_month(customer("1042"), 2024, 2)
        self.assertEqual(bill.total, bill.standing + sum(amount for _, amount in bill.by_zone().values()))

    def test_a_day(self):
        self.assertEqual(len(list(hours_of_days(customer("1042"), [date(2024, 2, 29)]))), 24)
        self.assertEqual(len(list(hours_of_days(customer("1042"), [date(2023, 3, 26)]))), 23)
        self.assertEqual(len(list(hours_of_days(customer("1042"), [date(2023, 10, 29)]))), 25)
