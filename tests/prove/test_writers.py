"""One writer, whoever else tries; forty rounds: ``make prove``."""

import sys

import pytest

from prove.part_writers import contend, controls

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="NOT TESTED: processes are stopped and forked, which needs POSIX")
def test_one_writes_at_a_time_and_nothing_is_lost() -> None:
    counted, wrong = contend()
    assert wrong == []
    assert counted["stopped"] == counted["killed"] == 1
    assert counted["forks"] > 0
    assert counted["acknowledged"] > 100


def test_two_writers_are_noticed() -> None:
    assert all(controls().values())
