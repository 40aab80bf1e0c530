"""Which sessions are shown, and in which order."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.session.listing.summary import Selection, SessionSummary, SortKey

SUMMARIES = st.lists(
    st.builds(
        SessionSummary,
        session_id=st.uuids().map(str),
        changed_at=st.floats(0, 1e6),
        disk_bytes=st.integers(0, 9),
        context_tokens=st.integers(0, 9),
        cost_usd=st.none() | st.floats(0, 9),
        models=st.sampled_from([(), ("claude-x",), ("gpt-y", "claude-x")]),
        damages=st.sampled_from([(), ("a damage",)]),
        error=st.sampled_from([None, "cannot be read"]),
    ),
    max_size=12,
)
KEYS: dict[SortKey, Callable[[SessionSummary], float]] = {
    SortKey.AGE: lambda s: s.changed_at,
    SortKey.SIZE: lambda s: s.disk_bytes,
    SortKey.TOKENS: lambda s: s.context_tokens,
    SortKey.COST: lambda s: s.cost_usd or 0,
}


@given(SUMMARIES, st.sampled_from(SortKey), st.booleans(), st.none() | st.integers(1, 5))
def test_the_greatest_come_first(
    sessions: list[SessionSummary], sort: SortKey, reverse: bool, limit: int | None
) -> None:
    shown = Selection(sort=sort, reverse=reverse, limit=limit).of(sessions, lambda _: False)
    values = [KEYS[sort](session) for session in shown]
    assert values == sorted((KEYS[sort](session) for session in sessions), reverse=not reverse)[:limit]


@given(SUMMARIES, st.sampled_from(SortKey), st.booleans())
def test_of_two_that_are_alike_the_newer_one_comes_first(
    sessions: list[SessionSummary], sort: SortKey, reverse: bool
) -> None:
    shown = Selection(sort=sort, reverse=reverse).of(sessions, lambda _: False)
    for first, second in pairwise(shown):
        if KEYS[sort](first) == KEYS[sort](second):
            assert first.changed_at >= second.changed_at


@given(SUMMARIES, st.none() | st.floats(0, 1e6), st.sampled_from([None, "claude-*", "gpt-y", "none"]), st.booleans())
def test_all_conditions_hold_and_nothing_else_is_left_out(
    sessions: list[SessionSummary], since: float | None, model: str | None, damaged: bool
) -> None:
    shown = Selection(since=since, model=model, damaged=damaged).of(sessions, lambda _: False)
    wanted = [
        s
        for s in sessions
        if (since is None or s.changed_at >= since)
        and (model is None or any(m == model or (model == "claude-*" and m == "claude-x") for m in s.models))
        and (not damaged or s.error is not None or s.damages)
    ]
    assert sorted(s.session_id for s in shown) == sorted(s.session_id for s in wanted)


@given(SUMMARIES)
def test_only_sessions_in_question_are_asked_whether_they_run(sessions: list[SessionSummary]) -> None:
    asked: list[str] = []

    def is_running(session_id: str) -> bool:
        asked.append(session_id)
        return True

    assert len(Selection(running=True, limit=1).of(sessions, is_running)) == len(asked) == min(1, len(sessions))
    assert Selection(running=True).of(sessions, lambda _: False) == []
