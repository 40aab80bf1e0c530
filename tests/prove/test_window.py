"""No request is larger than the window; ten thousand sessions: ``make prove``."""

from prove.part_window import controls, run_sessions


def test_no_request_is_larger_than_the_window() -> None:
    counted, wrong = run_sessions(range(300))
    assert wrong == []
    assert counted["full"] > 100


def test_a_refusal_that_tells_no_figures_is_made_room_for_at_once() -> None:
    # Three tokens billed for each counted one: the second try has to fit.
    assert run_sessions([2513, 3376, 8266])[1] == []


def test_a_window_that_is_never_looked_at_is_noticed() -> None:
    assert all(controls().values())
