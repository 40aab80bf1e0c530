"""What a journal tells of a session, call by call."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.messages.models.prices import Prices
from ctxfs.session.records import (
    CallMade,
    Decided,
    EvictionSet,
    ItemAdded,
    Record,
    Removed,
    Replaced,
    Restored,
    Shadowed,
)
from ctxfs.view.activity import Activity, EventKind, Part
from ctxfs.view.activity_builder import ActivityBuilder
from session_items import make_item, stored_record

PRICES = Prices(input=10.0, output=50.0, cache_read=1.0, cache_write={"5m": 12.5, "1h": 20.0})


def added(item_id: str, tokens: int, message: Message, **fields: Any) -> ItemAdded:
    return ItemAdded(item=make_item(item_id, message, tokens, **fields))


def asked(number: int, path: str = "a.py") -> ItemAdded:
    block = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {"path": path}}
    return added(f"msg_{number}", 10, AssistantMessage((block,)))


def result(number: int, tokens: int, **fields: Any) -> ItemAdded:
    return added(f"call_{number}", tokens, ToolMessage(f"call_{number}", "read", "text"), **fields)


def replaced(item_id: str, tokens: int, reason: str = "due") -> Replaced:
    return Replaced(
        item_id=item_id, content="…", token_count=tokens, path=f"{item_id}.json", destroyed=True, reason=reason
    )


def bill(read: int, written: int, *, model: str = "m", summary: bool = False) -> CallMade:
    usage = Usage(cache_read_input_tokens=read, cache_creation_input_tokens=written, output_tokens=10)
    return CallMade(number=1, usage=usage, model=model, made_at=5.0, summary=summary)


def told(*records: Record, prices: Prices | None = None) -> Activity:
    builder = ActivityBuilder(prices)
    builder.feed(records)
    return builder.activity


BEGINNING = (
    added("msg_s", 30, SystemMessage("be careful")),
    added("msg_u", 20, UserMessage("  find\n it ")),
    asked(1),
    result(1, 1_000),
    asked(2, "b.py"),
    result(2, 500),
)


def test_a_call_is_what_its_request_carried_by_part() -> None:
    first, second = told(*BEGINNING).calls
    assert (first.number, first.tokens, dict(first.parts)) == (1, 50, {Part.SYSTEM: 30, Part.USER: 20})
    assert (second.tokens, second.parts[Part.RESULTS], second.parts[Part.REPLIES]) == (1_060, 1_000, 10)
    assert (second.usage, second.usd, second.made_at, second.model) == (None, None, 0.0, "")
    assert told(*BEGINNING).usd is None
    assert told(*BEGINNING).model == ""
    assert told() == Activity()


def test_what_was_evicted_counts_as_a_placeholder_and_has_its_event() -> None:
    found = told(*BEGINNING, replaced("call_1", 40, "read keeps its last 1"), asked(3))
    (event,) = found.events
    assert (event.call, event.kind, event.item_ids) == (3, EventKind.EVICTED, ("call_1",))
    assert (event.tokens_before, event.tokens_after, event.reason) == (1_000, 40, "read keeps its last 1")
    assert found.calls[2].parts[Part.PLACEHOLDERS] == 40
    assert found.calls[2].rewritten == 50
    life = found.items["call_1"]
    assert (life.call, life.tool, life.tokens, life.left) == (2, "read", 1_000, event)
    assert found.items["call_2"].left is None


def test_titles_are_the_call_of_a_result_and_the_first_words_of_a_text() -> None:
    items = told(*BEGINNING).items
    titles = [items[item_id].title for item_id in ("msg_s", "msg_u", "msg_1", "call_1")]
    assert titles == ["be careful", "find it", "calls read(a.py)", "read(a.py)"]
    block = {"type": "tool_use", "id": "c", "name": "grep", "input": {"pattern": "x" * 200, "n": 3}}
    (long,) = told(added("msg_9", 1, AssistantMessage((block,)))).items.values()
    assert (long.title[:22], len(long.title), long.title[-1]) == ("calls grep(pattern=xxx", 120, "…")
    unknown = added("call_9", 1, ToolMessage("call_9", "read", "text"))
    assert told(unknown).items["call_9"].title == "text"
    assert told(added("call_9", 1, ToolMessage("call_9", "read", ""))).items["call_9"].title == "read"
    said = added("msg_9", 1, AssistantMessage(({"type": "text", "text": "I look."}, block)))
    assert told(said).items["msg_9"].title == "I look."
    assert told(added("msg_9", 1, UserMessage(""))).items["msg_9"].title == "user message"
    skill = added("msg_k", 5, UserMessage("long text"), kind=ItemType.SKILL_PROMPT, label="deploy")
    assert told(skill).items["msg_k"].title == "deploy"


def test_read_backs_and_restored_contents_are_part_of_a_life() -> None:
    source = ContentRange(item_id="call_1", path="call_1.json", first_line=3, last_line=9)
    back = added("call_3", 60, ToolMessage("call_3", "Read", "lines"), source=source)
    restored = Restored(item_id="call_1", reason="asked for")
    stored = stored_record("call_1")
    found = told(*BEGINNING, stored, replaced("call_1", 40), asked(3), back, asked(4), restored)
    kinds = [(event.kind, event.call) for event in found.items["call_1"].events]
    assert kinds == [(EventKind.EVICTED, 3), (EventKind.READ_BACK, 4), (EventKind.RESTORED, 5)]
    life = found.items["call_1"]
    assert (life.read_backs, life.left, life.events[1].lines) == (1, None, (3, 9))
    assert told(Restored(item_id="nobody")).events == ()
    lost = added("call_3", 60, ToolMessage("call_3", "Read", "lines"), source=source)
    assert [event.kind for event in told(lost).events] == [EventKind.READ_BACK]


def test_the_same_call_again_counts_once_its_result_had_left() -> None:
    again = told(*BEGINNING, asked(3), result(3, 900), replaced("call_1", 40), asked(4), result(4, 900))
    assert again.items["call_1"].repeated == (5,)
    assert again.items["call_3"].repeated == ()


def test_bills_belong_to_the_replies_before_them() -> None:
    found = told(*BEGINNING[:3], bill(0, 2_000), BEGINNING[3], asked(2), bill(2_000, 500), prices=PRICES)
    assert [call.usd for call in found.calls] == pytest.approx([0.0255, 0.00875])
    assert found.usd == pytest.approx(0.03425)
    assert (found.model, found.calls[1].made_at) == ("m", 5.0)


def test_bills_that_are_recorded_together_keep_their_order() -> None:
    found = told(asked(1), asked(2), asked(3), bill(1, 0), bill(2, 0))
    read = [call.usage.cache_read_input_tokens if call.usage else None for call in found.calls]
    assert read == [None, 1, 2]


def test_a_summary_is_paid_for_and_is_no_call() -> None:
    found = told(asked(1), bill(0, 100), bill(0, 100, summary=True), prices=PRICES)
    assert len(found.calls) == 1
    assert found.usd == pytest.approx(2 * (100 * 12.5 + 10 * 50) / 1e6)


def test_the_price_of_writing_is_that_of_the_time_that_the_session_keeps_its_cache() -> None:
    found = told(EvictionSet(ttl_s=3_600.0), asked(1), bill(0, 100), prices=PRICES)
    assert found.usd == pytest.approx((100 * 20 + 10 * 50) / 1e6)


def test_a_cache_that_lost_what_it_held_is_an_event() -> None:
    missed = told(asked(1), bill(0, 5_000), asked(2), bill(0, 5_100))
    (event,) = missed.events
    assert (event.call, event.kind, event.tokens_before, event.tokens_after) == (2, EventKind.CACHE_MISSED, 5_000, 0)
    assert told(asked(1), bill(0, 5_000), asked(2), bill(5_000, 100)).events == ()
    assert told(asked(1), bill(0, 900), asked(2), bill(0, 950)).events == ()  # too short to be cached
    ours = told(*BEGINNING, bill(0, 5_000), replaced("call_1", 40), asked(3), bill(0, 5_000))
    assert [event.kind for event in ours.events] == [EventKind.EVICTED]  # what we changed, it cannot hold


@pytest.mark.parametrize(("held", "read", "lost"), [(6_130, 0, [(3, 2_200, 0)]), (6_130, 1, []), (4_400, 0, [])])
def test_a_cache_that_lost_what_stands_before_a_change_is_one_as_well(
    held: int, read: int, lost: list[tuple[int, int, int]]
) -> None:
    """Of the 1,560 tokens of the second request, 560 stand before the change: as much of what the cache held."""
    before = (*BEGINNING[:2], added("msg_v", 500, UserMessage("more")), *BEGINNING[2:])
    found = told(*before, bill(0, held), replaced("call_1", 40), asked(3), bill(read, held))
    missed = [event for event in found.events if event.kind is EventKind.CACHE_MISSED]
    assert [(event.call, event.tokens_before, event.tokens_after) for event in missed] == lost


def test_a_compaction_takes_items_with_it() -> None:
    summary = added("msg_9", 100, UserMessage("so far"), kind=ItemType.COMPACTION_SUMMARY)
    removed = Removed(item_ids=("msg_1", "call_1"), reason="the window is full", archive="msg_9")
    found = told(*BEGINNING, summary, removed, asked(3))
    (event,) = found.events
    assert (event.kind, event.item_ids) == (EventKind.COMPACTED, ("msg_1", "call_1"))
    assert (event.tokens_before, event.tokens_after) == (1_010, 100)
    assert found.calls[2].parts[Part.SUMMARY] == 100


def test_what_is_stored_by_itself_is_an_item_too() -> None:
    decided = Decided(
        kind="result",
        call_id="x",
        sha256="0",
        item_id="part_1",
        content="…",
        tokens_before=700,
        tokens=30,
        reason="due",
    )
    made = CallMade(number=1, usage=Usage(), model="m", counted_tokens=4_000)
    found = told(stored_record("part_1"), decided, made)
    life = found.items["part_1"]
    assert (life.title, life.tokens, life.left and life.left.tokens_after) == ("part_1", 700, 30)
    assert (found.calls[0].tokens, dict(found.calls[0].parts)) == (4_000, {Part.OTHER: 4_000})
    assert told(decided).items == {}  # its content's line in the journal is lost
    arguments = told(asked(1, "x" * 300), stored_record("call_1.input"))
    assert arguments.items["call_1.input"].title.startswith("read(xxx")
    assert arguments.items["call_1.input"].tokens is None


def test_it_is_the_same_record_by_record() -> None:
    records: Iterable[Record] = (*BEGINNING, replaced("call_1", 40), asked(3), bill(10, 20))
    builder = ActivityBuilder()
    for record in records:
        builder.feed([record])
        assert builder.activity.account is not None  # what is shown meanwhile changes nothing
    assert builder.activity == told(*records)
    assert list(builder.state.items) == ["msg_s", "msg_u", "msg_1", "call_1", "msg_2", "call_2", "msg_3"]


def test_what_entered_as_a_placeholder_left_at_once() -> None:
    life = told(asked(1), result(1, 40, content_tokens=900, destroyed=True)).items["call_1"]
    assert life.left is not None
    assert (life.left.kind, life.left.call, life.tokens) == (EventKind.EVICTED, 2, 900)


def test_a_placeholder_that_is_shortened_or_archived_left_once() -> None:
    short = told(*BEGINNING, replaced("call_1", 40), replaced("call_1", 10)).items["call_1"]
    assert short.left is not None
    assert (short.left.kind, short.left.tokens_after, len(short.events)) == (EventKind.EVICTED, 10, 2)
    removed = Removed(item_ids=("msg_1", "call_1"), reason="the window is full", archive="msg_9")
    archived = told(*BEGINNING, replaced("call_1", 40), removed).items["call_1"]
    assert archived.left is not None
    assert archived.left.kind is EventKind.COMPACTED


def trims(*trimmed: int) -> Replaced:
    """The reply ``msg_1`` with two calls, without the arguments of those at ``trimmed``."""
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": "write", "input": {} if n in trimmed else {"a": n}} for n in (0, 1)
    ]
    return Replaced(
        item_id="msg_1",
        content=tuple(blocks),
        token_count=900 - 400 * len(trimmed),
        path=None,
        destroyed=False,
        reason="due",
        trimmed=trimmed,
    )


def test_arguments_leave_and_come_back_one_by_one_or_with_their_reply() -> None:
    content = tuple({"type": "tool_use", "id": f"c{n}", "name": "write", "input": {"a": n}} for n in (0, 1))
    start = (added("msg_1", 900, AssistantMessage(content)), stored_record("c0.input"), stored_record("c1.input"))

    def out(*records: Record) -> list[bool]:
        items = told(*start, *records).items
        return [items[item_id].left is not None for item_id in ("c0.input", "c1.input")]

    assert out(trims(0)) == [True, False]
    assert out(trims(0), trims(0, 1)) == [True, True]
    assert out(trims(0, 1), replace(trims(0), change=-1)) == [True, False]
    assert out(trims(0, 1), replace(trims(), change=-1)) == [False, False]


def test_what_is_back_is_no_item_if_the_record_of_its_content_is_damaged() -> None:
    assert told(asked(1), replace(result(1, 900), returned=True)).items.keys() == {"msg_1"}


def test_a_shadow_run_stands_after_the_call_that_was_recorded_before_it() -> None:
    run = Shadowed(
        original="a {}",
        again="a {}",
        rewritten="b {}",
        is_noise=False,
        differs=True,
        reads_back=False,
        tools=("a",),
        age=2,
    )
    (told_run,) = told(*BEGINNING, bill(10, 20), run).shadow_runs
    assert (told_run.after_call, told_run.found) == (2, run)
