"""No request is larger than the window; ten thousand sessions: ``make prove``."""

import pytest

from prove.part_window import controls, run_sessions

pytestmark = [pytest.mark.usefixtures("loop_may_block"), pytest.mark.slow]


def test_no_request_is_larger_than_the_window() -> None:
    counted, wrong = run_sessions(range(150))
    assert wrong == []
    assert counted["full"] > 50
    assert counted["larger than the window"] == 50
    assert counted["disk full"] > 2


def test_a_window_that_is_never_looked_at_is_noticed() -> None:
    assert all(controls().values())
