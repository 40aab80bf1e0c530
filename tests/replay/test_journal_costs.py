"""What the journal says about what left: why, when, and what that saved and cost by the planner's own reckoning."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from ctxfs.eviction.economics.plans import Why
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade, Decided, ItemAdded, Record, Removed, Replaced, Restored
from ctxfs.session.timeline.costs import Account, ReadBack, account
from session_items import make_item, stored_record

RATES = Rates(read=0.1, write=1.1, output=5.0)


class Rewrite(NamedTuple):
    """What the call after ``after_call`` wrote again, and what stood before the change."""

    after_call: int
    tokens: int
    kept: int | None


def rewrites(told: Account) -> tuple[Rewrite, ...]:
    return tuple(Rewrite(call.number - 1, call.rewritten, call.kept) for call in told.requests if call.rewritten)


def contexts(told: Account) -> list[int]:
    return [call.tokens for call in told.requests]


def added(
    item_id: str, tokens: int, message: Message, *, source: ContentRange | None = None, before: str | None = None
) -> ItemAdded:
    return ItemAdded(item=make_item(item_id, message, tokens, source=source), before=before)


def result(number: int, tokens: int, source: ContentRange | None = None) -> ItemAdded:
    return added(f"call_{number}", tokens, ToolMessage(f"call_{number}", "grep", "found"), source=source)


def reply(number: int) -> ItemAdded:
    return added(f"msg_{number}", 10, AssistantMessage("go on"))


def replaced(item_id: str, tokens: int, reason: str = "due") -> Replaced:
    return Replaced(
        item_id=item_id,
        content="…",
        token_count=tokens,
        path=f"{item_id}.json",
        destroyed=True,
        reason=reason,
    )


def session() -> Iterator[Record]:
    """A prompt, two results of 1,000 tokens, each seen by a reply."""
    yield added("msg_0", 100, UserMessage("find it"))
    yield reply(1)
    yield result(1, 1_000)
    yield reply(2)
    yield result(2, 1_000)
    yield reply(3)


def decided(tokens_rewritten: int, reason: str = "due", *, sent: bool = True) -> Decided:
    return Decided(
        kind="result",
        call_id="c",
        sha256="0",
        item_id="c",
        content="…",
        tokens_before=900,
        tokens=50,
        reason=reason,
        tokens_rewritten=tokens_rewritten,
        sent=sent,
    )


def called(counted_tokens: int) -> CallMade:
    return CallMade(number=0, usage=Usage(), model="m", counted_tokens=counted_tokens, made_at=0.0)


def test_in_a_history_that_a_framework_owns_a_call_writes_again_what_stands_behind_its_first_change() -> None:
    records: list[Record] = [
        called(100),
        decided(80),
        decided(0),
        decided(300),
        called(200),
        called(300),
        decided(70, Why.EXPIRED),
    ]
    costs = account([*records, called(400), decided(40)])
    assert rewrites(costs) == (Rewrite(after_call=1, tokens=300, kept=0),), (
        "not a cold cache, and not what was never sent"
    )
    assert costs.rewriting(RATES) == pytest.approx(300.0)
    assert len(costs.departures) == 5


def billed(*, cached: int) -> CallMade:
    usage = Usage(input_tokens=2_000, cache_read_input_tokens=cached)
    return CallMade(number=0, usage=usage, model="m", counted_tokens=2_000, made_at=0.0)


def test_where_bills_say_that_nothing_was_cached_what_left_saves_the_full_price_and_no_rewrite_costs() -> None:
    cached: list[Record] = [billed(cached=1), decided(300), billed(cached=1), billed(cached=1)]
    without: list[Record] = [billed(cached=0), decided(300), billed(cached=0), billed(cached=0)]
    assert account(cached).saved(RATES) == pytest.approx(0.1 * 850 * 2)
    assert account(cached).rewriting(RATES) == pytest.approx(300.0)
    assert account(without).saved(RATES) == pytest.approx(850.0 * 2)
    assert account(without).rewriting(RATES) == 0.0


def test_a_bill_without_cached_tokens_after_a_rewrite_may_come_from_the_rewrite() -> None:
    costs = account([billed(cached=1), decided(300), billed(cached=0), billed(cached=0), billed(cached=1)])
    assert costs.has_cache() == [True, True, False, True]
    assert costs.rewriting(RATES) == pytest.approx(300.0)
    again = account(
        [billed(cached=0), decided(300), billed(cached=0), decided(300), billed(cached=0), billed(cached=1)]
    )
    assert again.has_cache() == [False, True, True, True], "each of two rewrites may be why"


def test_what_leaves_such_a_history_unsent_takes_nothing_from_the_cache() -> None:
    records: list[Record] = [called(1_000), decided(100)]
    alone = account([*records, called(300)])
    beside = account([*records, decided(0, sent=False), called(300)])
    assert rewrites(alone) == rewrites(beside) == (Rewrite(after_call=1, tokens=100, kept=50),)


def test_a_session_without_evictions() -> None:
    told = account(session())
    assert (told.departures, rewrites(told), told.read_backs, told.calls) == ((), (), (), ())
    assert contexts(told) == [100, 1_110, 2_120]
    assert account(session()).replies == 3
    assert account(()).saved() == 0.0


def test_what_was_sent_saves_its_reads_and_costs_a_rewrite_of_what_stands_behind_it() -> None:
    told = account([*session(), replaced("call_1", 50, "grep keeps its last 1"), reply(4), reply(5)])
    (left,) = told.departures
    assert (left.item_ids, left.reason, left.after_call, left.sent) == (("call_1",), "grep keeps its last 1", 3, True)
    assert (left.tokens_freed, told.calls_since(left)) == (950, 2)
    assert told.saved(RATES) == pytest.approx(950 * 0.1 * 2)
    assert rewrites(told) == (Rewrite(after_call=3, tokens=50 + 10 + 1_000 + 10, kept=110),)
    assert told.rewriting(RATES) == pytest.approx(1_070)


def test_nothing_is_saved_from_the_call_on_that_would_not_have_fitted_the_window() -> None:
    told = account([*session(), replaced("call_1", 50), replaced("call_2", 50), reply(4), reply(5)])
    assert contexts(told)[3:] == [230, 240]
    assert told.saved(RATES) == pytest.approx(1_900 * 0.1 * 2)
    assert told.saved(RATES, window_tokens=2_140) == told.saved(RATES), "the last request would have had 2,140 tokens"
    assert (told.too_long_from(2_140), told.too_long_from(2_139), told.too_long_from(1_000)) == (None, 5, 2)
    assert told.saved(RATES, window_tokens=2_139) == pytest.approx(1_900 * 0.1)
    assert told.saved(RATES, window_tokens=2_000) == 0.0
    assert told.rewriting(RATES) == told.rewriting(RATES, window_tokens=2_139) > 0.0
    assert told.rewriting(RATES, window_tokens=2_000) == 0.0, "no more is it charged for what could not have been"


def test_what_was_saved_before_it_came_back_stays_saved() -> None:
    records: list[Record] = [*session(), stored_record(), replaced("call_1", 50), reply(4), Restored(item_id="call_1")]
    told = account([*records, reply(5)])
    assert told.saved(RATES) == pytest.approx(950 * 0.1)
    assert [call.evicted for call in told.requests] == [0, 0, 0, 950, 0]


def test_the_context_is_counted_as_items_are_archived_and_restored() -> None:
    archive = added("arch", 30, UserMessage("archived"))
    told = account(
        [
            *session(),
            archive,
            Removed(item_ids=("msg_1", "call_1"), reason="full", archive="arch"),
            reply(4),
            stored_record("call_2"),
            replaced("call_2", 50),
            Restored(item_id="call_2"),
            reply(5),
        ]
    )
    assert contexts(told)[3] == 2_130 + 30 - 1_010
    assert contexts(told)[4] == contexts(told)[3] + 10


def test_a_batch_is_written_anew_once() -> None:
    told = account([*session(), replaced("call_2", 50), replaced("call_1", 50), reply(4)])
    assert rewrites(told) == (Rewrite(after_call=3, tokens=50 + 10 + 50 + 10, kept=110),)


def test_what_leaves_before_it_is_sent_is_never_written_and_rewrites_nothing() -> None:
    told = account([*session(), result(3, 1_000), replaced("call_3", 60), reply(4), reply(5)])
    (left,) = told.departures
    assert not left.sent
    assert told.saved(RATES) == pytest.approx(940 * 1.1 + 940 * 0.1)
    assert rewrites(told) == ()


def test_what_no_call_followed_saved_and_cost_nothing_yet() -> None:
    told = account([*session(), replaced("call_1", 50), result(3, 1_000), replaced("call_3", 60)])
    assert len(told.departures) == 2
    assert (told.saved(RATES), told.rewriting(RATES)) == (0.0, 0.0)


def test_with_a_cold_cache_nothing_is_rewritten_for_it() -> None:
    told = account([*session(), replaced("call_1", 50, str(Why.EXPIRED)), reply(4)])
    assert told.departures[0].sent
    assert rewrites(told) == ()


def test_what_is_read_back_has_its_price() -> None:
    source = ContentRange(item_id="call_1", path="/s/call_1.json", first_line=3, last_line=9)
    told = account([*session(), replaced("call_1", 50), reply(4), result(3, 200, source), reply(5)])
    assert told.read_backs == (ReadBack(source, 200, after_call=4),)
    assert told.reading_back(RATES) == pytest.approx(220)


def test_items_that_left_in_an_archive_are_one_departure() -> None:
    archived: list[Record] = [
        added("msg_9", 80, UserMessage("they are in /s/msg_9.json"), before="msg_2"),
        Removed(item_ids=("msg_1", "call_1"), reason="summarised by the model", archive="msg_9"),
        reply(4),
    ]
    told = account([*session(), *archived])
    (left,) = told.departures
    assert (left.item_ids, left.archive) == (("msg_1", "call_1"), "msg_9")
    assert (left.tokens_before, left.tokens_after) == (1_010, 80)
    assert rewrites(told) == (Rewrite(after_call=3, tokens=10 + 1_000 + 10, kept=100),)


def test_the_end_of_a_context_that_is_removed_makes_nothing_be_written_anew() -> None:
    told = account([*session(), Removed(item_ids=("call_2", "msg_3"), reason="dropped"), reply(4)])
    assert told.departures == (), "nothing was evicted: they are gone"
    assert [call.evicted for call in told.requests] == [0] * 4
    assert rewrites(told) == ()


def test_what_was_restored_has_not_left() -> None:
    told = account(
        [*session(), stored_record(), replaced("call_1", 50), reply(4), Restored(item_id="call_1"), reply(5)]
    )
    assert told.departures == ()
    assert [rewrite.after_call for rewrite in rewrites(told)] == [3, 4]


@pytest.mark.parametrize("arguments_stored", [True, False])
def test_arguments_that_left_are_named_by_their_file(arguments_stored: bool) -> None:
    call = {"type": "tool_use", "id": "call_7", "name": "write", "input": {"text": "x" * 900}}
    reply_with_call = added("msg_7", 300, AssistantMessage(({"type": "text", "text": "I write"}, call)))
    stored = stored_record("call_7.input", item_type=ItemType.TOOL_INPUT)
    records: list[Record] = [
        *session(),
        reply_with_call,
        *([stored] if arguments_stored else []),
        Replaced(
            item_id="msg_7",
            content=({"type": "text", "text": "I write"}, {**call, "input": {}}),
            token_count=90,
            path=None,
            destroyed=False,
            reason="",
            trimmed=(1,),
        ),
    ]
    (left,) = account(records).departures
    assert left.item_ids == (("call_7.input",) if arguments_stored else ("msg_7",))
    assert left.tokens_freed == 210


def test_records_about_items_that_are_not_there_change_nothing() -> None:
    strange: list[Record] = [
        replaced("call_8", 5),
        Removed(item_ids=("call_9",), reason="dropped"),
        Restored(item_id="call_9"),
    ]
    assert account([*session(), *strange]) == account(session())


def test_a_shorter_placeholder_is_no_second_eviction() -> None:
    told = account([*session(), replaced("call_1", 50), reply(4), replaced("call_1", 10), reply(5)])
    (left,) = told.departures
    assert (left.after_call, left.tokens_before, left.tokens_after) == (3, 1_000, 10)
    assert [call.evicted for call in told.requests] == [0, 0, 0, 950, 990]
    archived: list[Record] = [
        added("arch", 30, UserMessage("archived")),
        Removed(item_ids=("msg_1", "call_1"), reason="full", archive="arch"),
    ]
    both = account([*session(), replaced("call_1", 50), *archived, reply(4)])
    assert [left.tokens_freed for left in both.departures] == [950, 10 + 50 - 30]
    assert both.requests[-1].evicted == 950 + 10 + 50 - 30


def test_the_billed_calls_are_told_as_they_were() -> None:
    call = CallMade(number=1, usage=Usage(input_tokens=7, cache_read_input_tokens=3), model="claude-sonnet-4-5")
    summary = replace(call, number=2, summary=True)
    told = account([*session(), call, summary])
    assert (told.calls, told.turns) == ((call, summary), (call,))
