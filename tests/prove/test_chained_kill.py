"""Writers are killed at random moments, one after the other in one directory; nothing acknowledged is lost."""

from prove.part_kill import chain

ROUNDS = 300


def test_three_hundred_kills_in_one_directory_lose_nothing() -> None:
    tally = chain(ROUNDS, 1, 0.002)
    assert tally.lost == []
    assert tally.rounds == ROUNDS
    assert tally.opened > ROUNDS // 2
    assert tally.acknowledged > ROUNDS


def test_a_writer_that_acknowledges_before_it_writes_is_noticed() -> None:
    assert chain(30, 1, 0.02, "broken").lost
