"""A short form of the proof about programs that end while they use a session. All of it: ``make prove``."""

import pytest

from prove.endings import WAYS
from prove.part_endings import end, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=f"NOT TESTED: {why_not()}"),
]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_acknowledged_is_lost_and_no_journal_is_damaged(way: str) -> None:
    ended = end(way, 0, 6)
    assert ended.wrong == [], "\n".join(ended.wrong)  # whole, also where a run does not rewrite assertions
    assert (ended.runs, ended.acknowledged > 0) == (6, True)


def test_what_the_loop_lists_is_seen_losing() -> None:
    assert end("asyncio.run ends", 0, 12, broken=True).wrong
