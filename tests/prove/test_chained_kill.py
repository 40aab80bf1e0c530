"""Writers are killed at random moments, one after the other in one directory; nothing acknowledged is lost."""

import pytest

from prove.part_kill import chain, removals

pytestmark = pytest.mark.slow

ROUNDS = 60


@pytest.mark.parametrize(("seed", "writes"), [(1, 3), (2, 20)])
def test_kills_in_one_directory_lose_nothing(seed: int, writes: int) -> None:
    tally = chain(ROUNDS, seed, writes=writes)
    assert tally.lost == []
    assert tally.rounds == ROUNDS
    assert tally.opened > ROUNDS // 2
    assert tally.acknowledged >= tally.opened


def test_a_writer_that_acknowledges_before_it_writes_is_noticed() -> None:
    assert chain(ROUNDS, 1, 3, "broken").lost


def test_items_that_are_said_to_be_back_and_are_not_are_noticed() -> None:
    assert chain(20, 1, 40, "unreturned").lost


def test_a_removal_that_is_killed_leaves_the_session_whole_or_gone() -> None:
    tally = removals()
    assert tally.broken == []
    assert 1 < tally.gone < tally.kills


def test_a_removal_in_place_is_noticed() -> None:
    assert removals("in-place").broken
