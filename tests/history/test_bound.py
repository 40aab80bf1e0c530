"""What left a history costs no more than the stated share, wherever its session is resumed."""

import random
from math import floor, sqrt

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context.history.decisions import Decisions
from ctxfs.context.history.parts import Part
from ctxfs.context.history.view import HistoryView
from ctxfs.eviction.economics.ledger import ASKING_TOKENS, PAGE_TOKENS, Ledger
from ctxfs.messages import CharsCounter
from ctxfs.session.state import SessionState, fold
from history.test_history import settings_of

SETTINGS = settings_of(keep_recent=None, pricing="auto", materialize=None, preview_above_tokens=None)


def view_on(decisions: Decisions, state: SessionState) -> HistoryView:
    """As a process that opens the session has it."""
    return HistoryView(SETTINGS, SETTINGS.entry_rules(CharsCounter(), "/s"), state, {}, decisions)


def ledger_of(view: HistoryView) -> Ledger:
    assert view.transcript.economy is not None
    return view.transcript.economy.ledger


def opened_at_the_worst_moment(known: Ledger, left: list[str], draw: random.Random) -> float:
    """By how much more than without eviction a session costs, as a share, if what it promises to cover is read now."""
    worst = known.copy()
    expected = worst.open_read_backs.expected(worst.calls - 1, 2)
    for _ in range(floor(expected + worst.parameters.cover * sqrt(expected))):
        worst.replied([ASKING_TOKENS]).read_back(draw.choice(left), [PAGE_TOKENS])
    worst.replied([])
    return -worst.saved / worst.spent


@given(
    st.lists(st.tuples(st.sampled_from(["Read", "Bash"]), st.integers(100, 12_000)), min_size=5, max_size=40),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_what_left_is_opened_at_the_worst_moment_after_any_resume(
    drawn: list[tuple[str, int]], resumes: float, seed: int
) -> None:
    draw = random.Random(seed)
    decisions = Decisions()
    state = SessionState()
    going_on = view_on(decisions, state)  # it plans nothing, and knows all that happened
    view = view_on(decisions, state)
    parts = [Part("user", "go", "u")]
    left: list[str] = []
    for number, (tool, tokens) in enumerate(drawn):
        parts.append(Part("call", {"n": number}, f"c{number}", f"c{number}", tool))
        text = f"{number} {draw.random()} ".ljust(4 * tokens, "x")
        parts.append(Part("result", text, f"o{number}", f"c{number}", tool))
        if draw.random() < resumes:
            view = view_on(decisions, state)
        view.update(parts)
        going_on.update(parts)
        plan = view.transcript.plan()
        decided = view.decision(plan).decided
        decisions.take(decided)
        state = fold(state, decided)
        view.follow()
        going_on.follow()
        left += [step.item_id for step in plan.offloads]
        if plan.offloads:
            known = ledger_of(going_on)
            assert opened_at_the_worst_moment(known, left, draw) <= known.parameters.max_loss + 1e-9
