"""The proof of histories that a framework owns, in small: plays, kills and controls."""

import time

import pytest

from prove.part_history import controls, kills, plays

pytestmark = pytest.mark.slow


def test_random_histories_break_no_rule() -> None:
    seed, played = plays(1_000, 200, time.monotonic() + 3_600)
    assert seed > 1_000
    assert played.replaced
    assert not played.violations


def test_nothing_is_taken_back_or_lost_when_processes_are_killed() -> None:
    rewrites, wrong = kills(3, seed=5)
    assert rewrites
    assert not wrong


def test_broken_adapters_are_seen() -> None:
    assert all(controls().values())
