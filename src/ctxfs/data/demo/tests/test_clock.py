import unittest
from datetime import date, datetime

from tariff.clock import hours_of_month, last_sunday, local


class LastSunday(unittest.TestCase):
    def test_march(self):
        self.assertEqual(last_sunday(2022, 3), date(2022, 3, 27))
        self.assertEqual(last_sunday(2023, 3), date(2023, 3, 26))
        self.assertEqual(last_sunday(2025, 3), date(2025, 3, 30))

    def test_october(self):
        self.assertEqual(last_sunday(2022, 10), date(2022, 10, 30))
        self.assertEqual(last_sunday(2023, 10), date(2023, 10, 29))
        self.assertEqual(last_sunday(2024, 10), date(2024, 10, 27))


class LocalTime(unittest.TestCase):
    def test_winter(self):
        self.assertEqual(local(datetime(2024, 1, 15, 11)), datetime(2024, 1, 15, 12))

    def test_summer(self):
        self.assertEqual(local(datetime(2024, 7, 15, 11)), datetime(2024, 7, 15, 13))

    def test_the_hour_that_is_skipped(self):
        self.assertEqual(local(datetime(2023, 3, 26, 0)), datetime(2023, 3, 26, 1))
        self.assertEqual(local(datetime(2023, 3, 26, 1)), datetime(2023, 3, 26, 3))

    def test_the_hour_that_comes_twice(self):
        self.assertEqual(local(datetime(2023, 10, 29, 0)), datetime(2023, 10, 29, 2))
        self.assertEqual(local(datetime(2023, 10, 29, 1)), datetime(2023, 10, 29, 2))


class Months(unittest.TestCase):
    def test_hours(self):
        self.assertEqual(len(list(hours_of_month(2024, 1))), 744)
        self.assertEqual(len(list(hours_of_month(2024, 2))), 696)
        self.assertEqual(len(list(hours_of_month(2024, 3))), 743)
        self.assertEqual(len(list(hours_of_month(2024, 10))), 745)
        self.assertEqual(len(list(hours_of_month(2024, 12))), 744)
