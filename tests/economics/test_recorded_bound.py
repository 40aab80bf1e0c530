"""The bound holds on recorded sessions, whole and in parts, also if all that left is opened at the worst moment."""

import random
from functools import partial
from pathlib import Path

import pytest

from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.replay.economic import Economic, EconomicRun
from ctxfs.lab.replay.lab import counter_named
from ctxfs.lab.replay.session import prepare
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES
from history.test_bound import opened_at_the_worst_moment

SESSIONS = 6
PARTS = 3
LARGEST_BYTES = 800_000


@pytest.mark.slow
def test_what_left_a_part_of_a_recorded_session_is_opened_at_the_worst_moment(traces: list[Path]) -> None:
    count = counter_named("chars4")
    small = [path for path in traces if path.stat().st_size < LARGEST_BYTES]
    if not small:
        pytest.skip(f"NOT TESTED on real sessions: none of {len(traces)} has less than {LARGEST_BYTES:,} bytes")
    draw = random.Random(29)
    policy = Economic(name="whole", rates=ANTHROPIC_RATES, count=count, preview_above_tokens=None)
    evictions = 0
    for path in draw.sample(small, min(SESSIONS, len(small))):
        (recording, *_) = load(path)
        session = prepare(recording, count)
        for _ in range(PARTS):
            first = draw.randrange(len(session.turns))
            last = draw.randint(first, len(session.turns))
            run = EconomicRun(policy, session)
            said = partial("{}, calls {} to {}".format, path.stem, first)
            for number, turn in enumerate(session.turns[first:last], first):
                left = run.plan(turn.added, turn.at)
                if left:
                    known = run.ledger
                    evictions += len(left)
                    worst = opened_at_the_worst_moment(known, list(known.left), draw)
                    assert worst <= known.parameters.max_loss + 1e-9, said(number)
                run.replied(turn.reply, Usage())
    assert evictions, "nothing was evicted: this shows nothing"
