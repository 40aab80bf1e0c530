"""The transcript without a context: what a damaged journal lost of it, and what moving items does to its sums."""

import tracemalloc
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import pytest

from ctxfs.context.entry import Entry, EntryRules, Known, new_entry
from ctxfs.context.repair import Gap, Losses, losses_in
from ctxfs.context.transcript import Transcript
from ctxfs.errors import TranscriptError
from ctxfs.eviction.economics.economy import ModelPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.reduction import summary_text
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from session_items import make_item

DEEP = reduce(lambda inner, _: [inner], range(10_000), cast("Any", []))

PROMPT = make_item("msg_1", SystemMessage("be brief"))
QUESTION = make_item("msg_2", UserMessage("find it"))
REPLY = make_item("msg_3", AssistantMessage(({"type": "tool_use", "id": "call_1", "name": "grep", "input": {}},)))
RESULT = make_item("call_1", ToolMessage("call_1", "grep", "found"), 100)
ANSWER = make_item("msg_4", AssistantMessage("there"))
SESSION = [PROMPT, QUESTION, REPLY, RESULT, ANSWER]


@pytest.mark.parametrize(
    ("missing", "losses"),
    [
        ([], Losses(orphans=(), gaps=(), headless=None)),
        ([REPLY], Losses(orphans=("call_1",), gaps=(), headless=None)),
        (
            [RESULT],
            Losses(orphans=(), gaps=(Gap(before="msg_4", calls=(ToolCall("grep", {}, "call_1"),)),), headless=None),
        ),
        ([QUESTION], Losses(orphans=(), gaps=(), headless="msg_3")),
        ([RESULT, ANSWER], Losses(orphans=(), gaps=(), headless=None)),
        ([QUESTION, REPLY], Losses(orphans=("call_1",), gaps=(), headless="msg_4")),
    ],
    ids=["nothing", "a call", "a result", "the beginning", "calls that are still open", "beginning and call"],
)
def test_what_was_lost_is_found(missing: list[ContextItem], losses: Losses) -> None:
    found = losses_in([i for i in SESSION if i not in missing])
    assert found == losses
    assert bool(found) == (losses != Losses(orphans=(), gaps=(), headless=None))


def made() -> Transcript:
    transcript = Transcript({"grep": 1}, "/s")
    for one in SESSION:
        transcript.enter(Entry(item=one))
    return transcript


@pytest.mark.parametrize("content", [[], ""])
def test_a_message_without_content_is_not_dropped_but_refused(content: Any) -> None:
    messages = made().parse([{"role": "user", "content": content}])
    with pytest.raises(TranscriptError, match="blank"):
        made().check_order(messages)


def test_what_is_moved_out_is_in_no_sum() -> None:
    transcript = made()
    assert transcript.tokens == 140
    transcript.move(["msg_3", "call_1"])
    assert (list(transcript.items), transcript.tokens) == (["msg_1", "msg_2", "msg_4"], 30)


@pytest.mark.parametrize(("before", "place"), [("msg_4", 3), (None, 4)])
def test_an_archive_stands_where_it_is_put(before: str | None, place: int) -> None:
    transcript = made()
    transcript.move(["call_1"], item=make_item("msg_9", UserMessage("moved"), 7), before=before)
    assert list(transcript.items).index("msg_9") == place
    assert transcript.tokens == 47


def test_an_archive_may_stand_before_another_one() -> None:
    transcript = made()
    transcript.move(["call_1"], item=make_item("msg_8", UserMessage("moved"), 7), before="msg_4")
    transcript.move(["msg_3"], item=make_item("msg_9", UserMessage("moved too"), 7), before="msg_8")
    assert list(transcript.items) == ["msg_1", "msg_2", "msg_9", "msg_8", "msg_4"]


def test_what_is_in_an_archive_is_not_planned_again() -> None:
    transcript = Transcript({"grep": 1}, "/s")
    for one in (QUESTION, REPLY, replace(RESULT, placeholder="gone", placeholder_tokens=5)):
        transcript.enter(Entry(item=one))
    call = {"type": "tool_use", "id": "call_2", "name": "grep", "input": {}}
    for one in (
        make_item("msg_5", AssistantMessage((call,))),
        make_item("call_2", ToolMessage("call_2", "grep", "more"), 100),
        ANSWER,
    ):
        transcript.enter(Entry(item=one))
    assert [step.item_id for step in transcript.plan().offloads] == ["call_1"]
    transcript.move(["msg_3", "call_1"], item=make_item("msg_9", UserMessage("moved"), 7), before="msg_5")
    assert not transcript.plan()


def test_a_rewritten_item_stays_in_its_place() -> None:
    transcript = made()
    transcript.rewrite([replace(RESULT, token_count=5)], ["call_1"])
    assert list(transcript.items) == [i.id for i in SESSION]
    assert transcript.tokens == 45
    assert not transcript.plan()


@pytest.mark.parametrize("whole", [False, True], ids=["still there", "evicted with their reply"])
def test_arguments_are_planned_once(whole: bool) -> None:
    pricing = ModelPricing(clock=lambda: 0.0, parameters=EvictionParameters(max_loss=1000.0))
    transcript, known = Transcript({}, "/s", economy=pricing), Known(NameAllocator())
    rules = EntryRules(counter=CharsCounter(), base="/s", policy=OffloadPolicy(digest_tokens=0), by_price=True)
    call = {"type": "tool_use", "id": "call_1", "name": "Write", "input": {"text": "a line\n" * 2_000}}
    reply = make_item("msg_3", AssistantMessage((call,)), 5_000)
    answers = [make_item(f"answer_{number}", AssistantMessage("on")) for number in range(200)]
    for item in (QUESTION, reply, make_item("call_1", ToolMessage("call_1", "Write", "ok")), *answers):
        transcript.enter(new_entry(item, known, rules))
    if whole:
        shorter = {**call, "input": {"text": "[Content offloaded]"}}
        transcript.rewrite([reply.offloaded_to("/s/msg_3", (shorter,), 10, trimmed=(0,))], ["msg_3"])
    assert [step.item_id for step in transcript.plan().offloads] == ([] if whole else ["msg_3"])
    assert transcript.economy is not None
    assert transcript.economy.ledger.total_tokens == transcript.tokens


@pytest.mark.not_measured
@pytest.mark.parametrize("economy", [None, ModelPricing()], ids=["keep-recent", "and what pays"])
def test_what_is_held_is_not_copied_for_each_that_comes(economy: ModelPricing | None) -> None:
    transcript = Transcript({"grep": 1}, "/s", economy=economy)

    def exchange(number: int) -> int:
        call = {"type": "tool_use", "id": f"c{number}", "name": "grep", "input": {}}
        message = make_item(f"m{number}", AssistantMessage((call,)))
        result = make_item(f"c{number}", ToolMessage(f"c{number}", "grep", "found"), 1_000)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        transcript.enter(Entry(item=message))
        transcript.enter(Entry(item=replace(result, placeholder="gone", placeholder_tokens=5)))
        transcript.rewrite((), ())
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        transcript.enter(Entry(item=QUESTION))
        allocated = [exchange(number) for number in range(2_000)]
    finally:
        tracemalloc.stop()
    assert min(allocated[-20:]) < 6_000  # a table grows now and then; a copy of what is held is 16,000 bytes or more


def test_an_open_call_has_to_be_answered_first() -> None:
    transcript = Transcript({}, "/s")
    for one in (QUESTION, REPLY):
        transcript.enter(Entry(item=one))
    with pytest.raises(TranscriptError, match="call_1"):
        transcript.check_answered()
    with pytest.raises(TranscriptError, match="call_1"):
        transcript.check_order([UserMessage("and?")])
    transcript.enter(Entry(item=RESULT))
    transcript.check_answered()


def test_a_summary_of_what_nothing_is_stored_of_lists_nothing() -> None:
    text = summary_text("It was found. ", [REPLY, RESULT], "/s/msg_9.txt")
    assert text.startswith(
        "[Summary of 2 earlier messages]\nIt was found.\n\n[Content offloaded]\nPath: /s/msg_9.txt\n"
    )
    assert "stored on their own" not in text


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "user", "content": [{"text": "no type"}]}, "a dict with a type"),
        ({"role": "user", "content": [{"type": "text"}]}, "type text needs text"),
        ({"role": "user", "content": ["not a block"]}, "a dict with a type"),
        ({"role": "user", "content": 7}, "a text or a list of content blocks"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}, "tool_use needs name"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": "x"}]}, "needs input"),
        ({"role": "user"}, "content"),
        (UserMessage(({"x": 1},)), "a dict with a type"),
        (cast("Any", "just a text"), "not a message"),
        (UserMessage(({"type": "text", "text": "x", "by_year": {2024: 1}},)), "has the key 2024"),
        ({"role": "user", "content": [{"type": "x", "loss": float("nan")}]}, "is nan: use a finite number"),
        ({"role": "user", "content": [{"type": "x", "deep": DEEP}]}, "too deep"),
        ({"role": "user", "content": [{"type": "x", "n": 10**5000}]}, "more than 4,300 digits"),
    ],
)
def test_what_is_no_message_is_refused_and_says_why(message: Any, told: str) -> None:
    with pytest.raises(TranscriptError, match=told):
        Transcript({}, "/s").parse([message])


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "content is a text or"), ([1], "not a content block"), ([{"type": "text"}], "type text needs text")],
)
def test_a_result_is_content_too(content: Any, told: str) -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": content}
    with pytest.raises(TranscriptError, match=told):
        Transcript({}, "/s").parse([call, {"role": "user", "content": [result]}])
