"""The power fails on a file system that forgets what was not synced. (tests/prove/part_crash.py simulates one.)"""

import pytest

from prove.part_power import fail_power, why_not


@pytest.fixture(autouse=True)
def fuse() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"NOT TESTED on a file system that forgets what was not synced: {reason}")


@pytest.mark.service
def test_power_failures_lose_nothing_that_was_acknowledged() -> None:
    tally = fail_power(12, 1)
    assert tally.lost == []
    assert tally.acknowledged > 0


def test_without_syncs_they_do() -> None:
    assert fail_power(30, 1, "unsynced").lost
