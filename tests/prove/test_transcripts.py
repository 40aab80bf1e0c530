"""What is sent is a transcript that a provider accepts, whatever leaves; the long version is ``make prove``."""

import pytest

from prove.corruptions import CORRUPTIONS
from prove.part_transcripts import POLICIES, controls, run_sessions
from prove.play import Policy

pytestmark = [pytest.mark.usefixtures("loop_may_block"), pytest.mark.slow]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_random_sessions_are_accepted_and_lossless(policy: Policy) -> None:
    for backend, numbers in (("asyncio", range(25)), ("trio", range(25, 50))):
        counted, wrong = run_sessions(numbers, [policy], backend=backend)
        assert wrong == []
        assert counted["left"] > 0
        assert counted["overflows"] == 0


def test_bad_transcripts_are_refused_each_with_its_reason() -> None:
    seen = controls()
    assert len(CORRUPTIONS) >= 25
    assert [name for name, refused in seen.items() if not refused] == []


def test_an_archive_of_what_the_user_said_leaves_no_reply_in_front() -> None:
    dropping = next(policy for policy in POLICIES if policy.name == "dropping compaction")
    _, wrong = run_sessions([20, 200], [dropping])
    assert wrong == []


@pytest.mark.parametrize("number", [99_398_292, 594_186_885, 594_188_117])
def test_sessions_that_were_played_wrongly_once(number: int) -> None:
    _, wrong = run_sessions([number])
    assert wrong == []
