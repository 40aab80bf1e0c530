import unittest
from datetime import date, datetime

from tariff.holidays import easter, is_holiday
from tariff.rates import price, zone


class Zones(unittest.TestCase):
    def test_a_working_day(self):
        self.assertEqual(zone(datetime(2024, 3, 20, 5)), "night")
        self.assertEqual(zone(datetime(2024, 3, 20, 6)), "day")
        self.assertEqual(zone(datetime(2024, 3, 20, 16)), "day")
        self.assertEqual(zone(datetime(2024, 3, 20, 17)), "peak")
        self.assertEqual(zone(datetime(2024, 3, 20, 19)), "peak")
        self.assertEqual(zone(datetime(2024, 3, 20, 20)), "day")
        self.assertEqual(zone(datetime(2024, 3, 20, 22)), "night")

    def test_a_weekend(self):
        self.assertEqual(zone(datetime(2024, 3, 23, 17)), "weekend")
        self.assertEqual(zone(datetime(2024, 3, 24, 3)), "night")

    def test_a_holiday(self):
        self.assertEqual(zone(datetime(2024, 3, 29, 17)), "weekend")


class Holidays(unittest.TestCase):
    def test_easter(self):
        self.assertEqual(easter(2023), date(2023, 4, 9))
        self.assertEqual(easter(2024), date(2024, 3, 31))
        self.assertEqual(easter(2025), date(2025, 4, 20))

    def test_good_friday(self):
        self.assertTrue(is_holiday(date(2024, 3, 29)))
        self.assertFalse(is_holiday(date(2024, 3, 28)))


class Prices(unittest.TestCase):
    def test_contracts(self):
        peak = datetime(2024, 3, 20, 17)
        self.assertEqual(price("home", peak), 44)
        self.assertEqual(price("flat", peak), 30)
        self.assertEqual(price("business", peak), 39)
