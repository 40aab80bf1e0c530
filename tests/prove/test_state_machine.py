"""2,000 steps of a session against a model; a million: ``make prove``."""

import pytest

from prove.part_state_machine import controls, run_machine

pytestmark = [pytest.mark.usefixtures("loop_may_block"), pytest.mark.slow]

STEPS = 1_000


@pytest.mark.parametrize("start", [0, 100])
def test_a_session_does_what_its_model_does(start: int) -> None:
    steps, number = 0, start
    while steps < STEPS:
        number += 1
        steps += run_machine(25, number)


def test_a_disk_that_forgets_is_noticed() -> None:
    assert all(controls().values())
