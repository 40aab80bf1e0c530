"""What the page shows of one call."""

from ctxfs.messages.base import Usage
from ctxfs.session.records import CallMade, Decided, Record
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.view.activity_builder import ActivityBuilder
from ctxfs.view.call_panel import CallPanel, call_panel
from session_items import stored_record
from view.test_activity import BEGINNING, asked, bill, replaced, result


def panel(number: int, *records: Record, shows_all: bool = False) -> CallPanel | None:
    builder = ActivityBuilder()
    builder.feed(records)
    return call_panel(builder.activity, Timeline(records), number, shows_all=shows_all)


def test_no_call_has_no_panel() -> None:
    assert panel(1) is None
    assert panel(1, BEGINNING[0]) is None


def test_a_panel_lists_the_request_and_marks_what_is_new() -> None:
    found = panel(2, *BEGINNING)
    assert found is not None
    assert [(row.item_id, row.tokens, row.is_new) for row in found.rows] == [
        ("msg_s", 30, False),
        ("msg_u", 20, False),
        ("msg_1", 10, True),
        ("call_1", 1_000, True),
    ]
    assert (found.previous, found.following, found.hidden, found.missed) == (1, None, 0, None)
    assert [row.title for row in found.rows][2:] == ["calls read(a.py)", "read(a.py)"]
    first = panel(-3, *BEGINNING)
    assert first is not None
    assert (first.call.number, first.previous, first.following) == (1, None, 2)
    last = panel(99, *BEGINNING)
    assert last is not None
    assert last.call.number == 2


def test_it_says_what_changed_to_the_next_call() -> None:
    found = panel(2, *BEGINNING, replaced("call_1", 40, "read keeps its last 1"), asked(3))
    assert found is not None
    changed = [
        ("added", "msg_2", "calls read(b.py)"),
        ("added", "call_2", "read(b.py)"),
        ("evicted", "call_1", "read(a.py)"),
    ]
    assert [(row.change.what, row.change.item_id, row.title) for row in found.until.rows] == changed
    assert (found.until.rewritten_tokens, found.until.tokens_after) == (40, found.until.changes.tokens_after)
    after = panel(3, *BEGINNING, replaced("call_1", 40, "read keeps its last 1"), asked(3))
    assert after is not None
    assert [(row.tokens, row.content_tokens, row.is_placeholder) for row in after.rows][3] == (40, 1_000, True)
    assert (after.has_placeholders, found.has_placeholders) == (True, False)
    assert after.since == found.until
    assert [row.is_evicted_now for row in after.rows] == [False, False, False, True, False, False]
    assert (after.has_evicted_now, found.has_evicted_now) == (True, False)
    later = panel(4, *BEGINNING, replaced("call_1", 40), asked(3), result(3, 5), asked(4))
    assert later is not None
    assert (later.has_placeholders, later.has_evicted_now) == (True, False)


def test_a_long_request_shows_its_end_unless_all_is_asked_for() -> None:
    records = [record for number in range(1, 100) for record in (asked(number), result(number, 5))]
    found = panel(99, *records)
    assert found is not None
    assert (len(found.rows), found.hidden, found.rows[-1].item_id) == (120, 76, "call_98")
    everything = panel(99, *records, shows_all=True)
    assert everything is not None
    assert (len(everything.rows), everything.hidden) == (196, 0)


def test_many_changes_are_cut_short() -> None:
    results = [result(number, 5) for number in range(1, 100)]
    found = panel(1, asked(1), *results, asked(2))
    assert found is not None
    assert (len(found.until.rows), found.until.more, found.since) == (60, 40, None)


def test_a_cache_miss_is_told_at_its_call() -> None:
    found = panel(2, asked(1), bill(0, 5_000), asked(2), bill(0, 5_100))
    assert found is not None
    assert found.missed is not None
    assert found.missed.tokens_before == 5_000


def test_of_a_history_that_a_framework_owns_it_lists_what_was_replaced() -> None:
    def decided(item_id: str) -> Record:
        return Decided(
            kind="result",
            call_id=item_id,
            sha256="0",
            item_id=item_id,
            content="…",
            tokens_before=700,
            tokens=30,
            reason="due",
            tokens_rewritten=400,
        )

    def made(number: int, tokens: int) -> Record:
        return CallMade(number=number, usage=Usage(), model="m", counted_tokens=tokens)

    first = [made(1, 4_000), stored_record("part_1"), decided("part_1"), made(2, 3_500)]
    records = [*first, stored_record("part_2"), decided("part_2"), made(3, 3_000)]
    found = panel(2, *records)
    assert found is not None
    assert found.is_partial
    assert [(row.item_id, row.content_tokens, row.tokens, row.is_new) for row in found.rows] == [
        ("part_1", 700, 30, True)
    ]
    assert (found.until.tokens_before, found.until.tokens_after, found.until.rewritten_tokens) == (3_500, 3_000, 400)
    assert found.since is not None
    assert (found.since.tokens_before, found.since.tokens_after) == (4_000, 3_500)
    last = panel(3, *records)
    assert last is not None
    assert [(row.item_id, row.is_new) for row in last.rows] == [("part_1", False), ("part_2", True)]
    assert (last.until.tokens_after, last.until.rewritten_tokens) == (None, 0)
    assert last.since == found.until
