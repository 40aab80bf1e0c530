"""One reading of a journal: whatever the journal holds, every fold of it runs, and they agree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import CtxfsError
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.cleanup.eraser import held, related
from ctxfs.session.cleanup.live import plan_prune
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import (
    CallMade,
    ContentRemoved,
    Decided,
    ItemAdded,
    Pinned,
    Record,
    Removed,
    Replaced,
    RequestSent,
    Restored,
    Undone,
)
from ctxfs.session.recovery import Recovery
from ctxfs.session.timeline.back import pinned, restored, undone
from ctxfs.session.timeline.costs import account
from ctxfs.session.timeline.effect import effect
from ctxfs.session.timeline.lives import Lives, input_ids
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.tools.recall.past import Past
from ctxfs.view.activity import Activity
from ctxfs.view.activity_builder import ActivityBuilder
from ctxfs.view.call_panel import call_panel
from ctxfs.view.chart import chart_data
from ctxfs.view.findings import findings
from ctxfs.view.worth import unevicted, worth
from session_items import make_item, stored_record

NAMES = ("a", "b", "c", "d", "e")
CALL: dict[str, Any] = {"type": "tool_use", "id": "b", "name": "log", "input": {"n": "z" * 9}}
TRIMMED: dict[str, Any] = {**CALL, "input": {}}
MESSAGES: Mapping[str, Message] = {
    "a": UserMessage("go"),
    "b": AssistantMessage(({"type": "text", "text": "I look"}, CALL)),
    "c": ToolMessage("b", "log", "a line"),
    "d": AssistantMessage("done"),
    "e": SystemMessage("be careful"),
}
ids = st.sampled_from(NAMES)
sizes = st.integers(1, 2_000)


@st.composite
def items_added(draw: st.DrawFn) -> Record:
    name = draw(ids)
    message, is_stored = MESSAGES[name], draw(st.booleans())
    source = ContentRange(item_id="c", path="c", first_line=1, last_line=2) if draw(st.integers(0, 9)) == 0 else None
    item = make_item(name, message, draw(sizes), source=source)
    return ItemAdded(
        item=item.with_content("") if is_stored else item,
        content_stored=is_stored,
        before=draw(st.none() | ids),
        returned=draw(st.integers(0, 3)) == 0,
    )


@st.composite
def replacements(draw: st.DrawFn) -> Record:
    name = draw(ids)
    is_reply = name in "bd"
    content: Content = draw(st.sampled_from(["[gone]", ({"type": "text", "text": "I"}, TRIMMED)])) if is_reply else "…"
    return Replaced(
        item_id=name,
        content=content,
        token_count=draw(sizes),
        path=draw(st.none() | st.just("x")),
        destroyed=draw(st.booleans()),
        reason="due",
        trimmed=draw(st.sampled_from([(), (1,), (0, 1, 7)])) if is_reply else (),
        change=draw(st.sampled_from([0, 1, 2, -1])),
    )


def removals() -> st.SearchStrategy[Record]:
    return st.builds(
        Removed,
        item_ids=st.lists(ids, max_size=3, unique=True).map(tuple),
        reason=st.just("full"),
        archive=st.none() | ids,
        change=st.sampled_from([0, 1, 2]),
    )


def tombstone(item_id: str, *, erased: bool) -> ContentRemoved:
    return ContentRemoved(
        item_id=item_id,
        item_type=ItemType.TOOL_RESULT,
        name=f"{item_id}.json",
        tool_name="log",
        size_bytes=3,
        lines=1,
        removed_at=1.0,
        by="a test",
        reason="r",
        erased=erased,
    )


def decisions() -> st.SearchStrategy[Record]:
    return st.builds(
        Decided,
        kind=st.just("result"),
        call_id=ids,
        sha256=st.just("0"),
        item_id=ids,
        content=st.just("…"),
        tokens_before=sizes,
        tokens=st.integers(1, 50),
        reason=st.just("due"),
        sent=st.booleans(),
        tokens_rewritten=st.integers(0, 500),
        replies_since=st.integers(0, 3),
    )


def bills() -> st.SearchStrategy[Record]:
    usage = Usage(input_tokens=7, cache_read_input_tokens=3)
    return st.builds(
        CallMade,
        number=st.just(1),
        usage=st.just(usage),
        model=st.just("claude-sonnet-4-5"),
        counted_tokens=sizes,
        summary=st.booleans(),
    )


RECORDS: st.SearchStrategy[Record] = st.one_of(
    items_added(),
    items_added(),
    replacements(),
    replacements(),
    removals(),
    st.builds(Restored, item_id=ids, token_count=st.none() | sizes),
    ids.map(stored_record),
    st.just(stored_record("b.input", item_type=ItemType.TOOL_INPUT)),
    st.builds(tombstone, ids, erased=st.booleans()),
    decisions(),
    bills(),
    st.builds(RequestSent, sent_at=st.just(1.0)),
    st.builds(Pinned, item_ids=ids.map(lambda one: (one,)), pinned=st.booleans()),
    st.builds(Undone, change=st.integers(1, 3)),
)
JOURNALS = st.lists(RECORDS, max_size=40)


def written(records: Sequence[Record]) -> Sequence[Record]:
    """The records as a journal gives them back."""
    found = scan(b"".join(encode_line(number, [record]) for number, record in enumerate(records, 1)))
    assert not found.damages
    return found.records


@given(JOURNALS)
def test_every_fold_of_a_journal_runs_whatever_it_holds(records: list[Record]) -> None:
    """Restored and evicted again, archived and back, erased, with lines lost: no command about a root may end."""
    journal = written(records)
    timeline = Timeline(journal)
    for call in range(1, len(timeline.calls) + 2):
        timeline.request(call)
        timeline.changes(call) if call <= len(timeline.calls) else None
    effect(account(journal), None)
    Past().take(journal)
    plan_prune("s", journal, now=9.0, undo_s=1.0, grace_s=0.0, archived_s=0.0)
    related(held(journal), NAMES)
    builder = ActivityBuilder()
    builder.feed(journal)
    activity = builder.activity
    findings(activity, window_tokens=1_000, recovery=Recovery())
    chart_data(activity, window_tokens=1_000, steps=(), without=unevicted(activity, window_tokens=1_000).usd)
    call_panel(activity, timeline, 1)
    for life in activity.items.values():
        for event in life.events:
            if event.is_eviction:
                worth(activity, life, event)
    for decide in (pinned, restored):
        for item_id in NAMES:
            try:
                decide(journal, item_id)
            except CtxfsError:
                continue
    try:
        undone(journal)
    except CtxfsError:
        return


def again_at(records: Sequence[Record]) -> Activity:
    builder = ActivityBuilder()
    builder.feed(records)
    return builder.activity


@given(JOURNALS, st.integers(0, 40))
def test_a_reading_that_follows_is_one_from_the_beginning(records: list[Record], cut: int) -> None:
    whole = Lives().take_all(records)
    followed = Lives().take_all(records[:cut])
    calls_then = list(followed.calls)
    followed.take_all(records[cut:])
    for one in ("lives", "calls", "changes", "state"):
        assert getattr(followed, one) == getattr(whole, one), one
    assert [call.number for call in calls_then] == [call.number for call in whole.calls[: len(calls_then)]]
    builder = ActivityBuilder()
    builder.feed(records[:cut])
    assert builder.activity.calls == again_at(records[:cut]).calls
    builder.feed(records[cut:])
    assert builder.activity == again_at(records)


@given(JOURNALS)
def test_what_a_life_says_is_what_the_context_holds(records: list[Record]) -> None:
    reading = Lives().take_all(records)
    state = reading.state
    decided = {one.item_id for one in state.decisions}
    for item_id, life in reading.lives.items():
        if item_id in decided:
            continue  # such a history has no items; here the two are mixed
        item = state.items.get(item_id)
        is_out = item is None or item.destroyed or bool(item.trimmed)
        assert (life.left is not None) == is_out, item_id
        assert (life.removed is None) == (item is not None), item_id
    assert state.items.keys() <= reading.lives.keys()
    assert [call.number for call in reading.calls] == list(range(1, len(reading.calls) + 1))


def test_a_restored_reply_that_is_evicted_again_is_an_item_like_any_other() -> None:
    """Its content is in its file, so the journal has none in which a call could be looked up."""
    reply = make_item("b", AssistantMessage((CALL,)), 900)
    gone = Replaced(
        item_id="b", content=(TRIMMED,), token_count=20, path="b.json", destroyed=True, reason="full", trimmed=(0,)
    )
    records: list[Record] = [ItemAdded(item=reply), stored_record("b"), gone, Restored(item_id="b"), gone]
    told = account(records)
    assert [left.item_ids for left in told.departures] == [("b",)]
    assert [one.what for one in Timeline(records).history()] == ["added", "evicted", "restored", "evicted"]


@pytest.mark.parametrize("content", ["", "text", (), ({"type": "text", "text": "I"},), (TRIMMED,)])
def test_arguments_are_named_only_where_there_is_a_call(content: Content) -> None:
    has_call = bool(content) and content[0] == TRIMMED
    assert list(input_ids(content, (0, 7))) == (["b.input"] if has_call else [])


@pytest.mark.parametrize("holds", [("a", "b"), ("a", "a")])
def test_archives_that_hold_each_other_end(holds: tuple[str, str]) -> None:
    """A journal that ctxfs did not write may say so; looking for the archive of an archive must end all the same."""
    first, second = holds
    records: list[Record] = [
        ItemAdded(item=make_item("c", UserMessage("go"))),
        Removed(item_ids=("c", first), reason="full", archive=second),
        Removed(item_ids=(second,), reason="full", archive=first),
    ]
    with pytest.raises(CtxfsError):
        undone([*records, Removed(item_ids=("c",), reason="gone")], "change_9")
    assert restored(records, "c").item_ids == ("c",)


REPLY = ItemAdded(item=make_item("d", AssistantMessage("done")))


def test_what_entered_as_a_placeholder_was_never_in_a_request() -> None:
    preview = make_item("c", ToolMessage("b", "log", "…"), 40, content_tokens=900, destroyed=True)
    lives = Lives().take_all([ItemAdded(item=preview), REPLY])
    (call,) = lives.calls
    assert (call.tokens, call.evicted) == (40, 860)


def test_items_that_left_for_an_archive_that_is_not_there_are_evicted_as_a_whole() -> None:
    lives = Lives().take_all(
        [
            ItemAdded(item=make_item("a", UserMessage("go"), 700)),
            Removed(item_ids=("a",), reason="full", archive="lost"),
            REPLY,
        ]
    )
    assert [(call.tokens, call.evicted) for call in lives.calls] == [(0, 700)]
    assert lives.lives["a"].archive == "lost"


def decided(reason: str, *, sent: bool) -> Decided:
    return Decided(
        kind="result",
        call_id="x",
        sha256="0",
        item_id="part_1",
        content="…",
        tokens_before=700,
        tokens=30,
        reason=reason,
        sent=sent,
        tokens_rewritten=400,
    )


@pytest.mark.parametrize(
    ("decision", "rewritten", "unsent"),
    [
        (decided("due", sent=True), 400, 0),
        (decided(Why.EXPIRED, sent=True), 0, 0),
        (decided(Why.EXPIRED, sent=False), 0, 670),
    ],
)
def test_a_decision_rewrites_what_was_cached_and_frees_what_was_sent(
    decision: Decided, rewritten: int, unsent: int
) -> None:
    made = CallMade(number=1, usage=Usage(), model="m", counted_tokens=4_000)
    lives = Lives().take_all([made, decision, made])
    call = lives.calls[1]
    assert (call.evicted, call.rewritten, call.unsent) == (670, rewritten, unsent)
    entered = lives.lives["part_1"].entered
    lives.take(replace(decision, call_id="y"))  # another part of the same content
    assert lives.lives["part_1"].entered == entered
    assert lives.take(made).call == lives.calls[2]
    assert lives.calls[2].evicted == 2 * 670
