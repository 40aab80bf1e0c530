"""Checking one request after another finds what checking each of them as a whole finds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.errors import TranscriptError
from ctxfs.testing.invariants import violations
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.testing.scripted import Checker
from ctxfs.testing.strategies import bodies
from prove.corruptions import corrupted_bodies, valid_body

Message = dict[str, Any]


def said(*blocks: Message) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Message) -> Message:
    return {"role": "user", "content": list(blocks)}


def text(value: str, **fields: Any) -> Message:
    return {"type": "text", "text": value, **fields}


def call(call_id: str) -> Message:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}


def answer(call_id: str) -> Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text("found")]}


MARKS = [{"cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in ("5m", "1h")]
FAULTS = [
    said(text("ends in space ")),
    user(),
    {"role": "user", "content": "as a text"},
    {"role": "nobody", "content": ""},
    said(text("x"), {"type": "thinking", "thinking": "t", "signature": "s"}),
    user(text("\ud800")),
    said(call("call_0")),
    user(answer("call_0")),
    said(call("of no result")),
]


def exchange(*call_ids: str) -> list[Message]:
    return [said(*map(call, call_ids)), *(user(answer(call_id)) for call_id in call_ids)]


def body_of(messages: list[Message], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 2048, "messages": messages, **fields}


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Message]]:
    """The messages of requests, each with some messages of a valid one before it, as the same objects."""
    messages = [user(text("begin"))]
    requests = [messages]
    kinds = st.sampled_from(["more", "more", "more", "again", "again", "cut", "mark", "mark", "copy", "fault"])
    for number, what in enumerate(draw(st.lists(kinds, min_size=8, max_size=24))):
        place = draw(st.integers(0, len(messages) - 1))
        before, old, after = messages[:place], messages[place], messages[place + 1 :]
        match what:
            case "more":
                ids = [f"call_{number}", f"call_{number}_b"][: draw(st.integers(1, 2))]
                changed = [*messages, *exchange(*ids), *draw(st.sampled_from([[], [user(text("go on"))]]))]
            case "again":
                used = [b["id"] for m in messages for b in m["content"] if "id" in b]
                changed = [*messages, *exchange(draw(st.sampled_from([*used, f"call_{number}"])))]
            case "cut":
                changed = [*before, old]
            case "mark" if isinstance(old["content"], list):
                block = {**old["content"][-1], **draw(st.sampled_from(MARKS))}
                changed = [*before, {**old, "content": [*old["content"][:-1], block]}, *after]
            case "copy":
                changed = [*before, {**old}, *after]
            case _:
                changed = [*before, draw(st.sampled_from(FAULTS)), *draw(st.sampled_from([[], [old]])), *after]
        requests.append(changed)
        if not violations(body_of(changed)):
            messages = changed
    return requests


@given(conversations())
def test_a_conversation_that_changes_gets_the_violations_of_each_request(requests: list[list[Message]]) -> None:
    checker = Checker()
    for number, messages in enumerate(requests):
        thinking = {} if number % 5 else {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        body = body_of(messages, **thinking)
        assert checker.violations(body) == violations(body)


def test_what_was_valid_long_ago_still_counts_until_it_is_left_out() -> None:
    marked = user(text("go on", **MARKS[0]))
    first = [user(text("begin")), *exchange("a"), *(m for _ in range(4) for m in (said(text("done")), marked))]
    longer = [*first, *exchange("b"), *exchange("c")]
    checker = Checker()
    for messages in (first, longer):
        checker.check(body_of(messages))
    for wrong in ([*longer, *exchange("a")], [*longer, said(text("done")), marked]):
        (found,) = checker.violations(body_of(wrong))
        assert "'a' repeats" in found or "found 5" in found
    checker.check(body_of([*first[:1], *exchange("b"), *exchange("a"), said(text("done")), marked]))


@settings(max_examples=settings().max_examples // 3 + 1)
@given(st.lists(bodies(max_rounds=1) | corrupted_bodies().map(lambda bad: bad.body), min_size=1, max_size=2))
def test_bodies_that_go_on_from_each_other_get_the_violations_of_each(found: list[dict[str, Any]]) -> None:
    checker = Checker()
    messages: list[Any] = []
    for body in found:
        new = body.get("messages")
        messages = [*messages, *new] if isinstance(new, list) else messages
        for going_on in (body, {**body, "messages": messages}, {**body, "messages": messages[:-1]}):
            assert checker.violations(going_on) == violations(going_on)


def test_an_invalid_request_leaves_the_checker_as_good_as_new() -> None:
    checker, body = Checker(), valid_body()
    bad = {**body, "messages": [*body["messages"], said(call("last_1"))]}
    for _ in range(2):
        checker.check(body)
        with pytest.raises(TranscriptError, match="'last_1' repeats"):
            checker.check(bad)


def test_messages_that_were_valid_are_not_read_again() -> None:
    marked = [message for _ in range(4) for message in (said(text("done")), user(text("go on", **MARKS[0])))]
    messages = [user(text("begin")), *exchange("a"), *exchange("b"), *marked]
    checker = Checker()
    checker.check(body_of(messages))
    messages[0]["content"].clear()  # which is forbidden, and not seen for that reason
    checker.check(body_of([*messages, *exchange("c")]))
    checker.check(body_of([*messages[:3], *exchange("c"), *exchange("b"), *marked]))


def test_a_reply_whose_results_are_in_many_messages_is_read_from_the_reply_on() -> None:
    messages = [user(text("begin")), said(call("a"), call("b")), user(answer("a")), user(answer("b"))]
    checker = Checker()
    checker.check(body_of(messages))
    messages[0]["content"].clear()  # what is before the reply is not read again
    checker.check(body_of([*messages, said(text("done"))]))


def test_a_reply_in_many_messages_is_read_from_the_first_of_them_on() -> None:
    reply = [said(call("a")), said(call("b"))]
    checker = Checker()
    messages = [user(text("begin")), *reply, user(answer("a"), answer("b"))]
    checker.check(body_of(messages))
    wrong = body_of([*messages[:3], user(answer("b"))])
    assert checker.violations(wrong) == violations(wrong) != []


@given(conversations(), st.booleans(), st.booleans())
def test_a_cache_accounts_a_conversation_as_if_it_read_each_request_whole(
    requests: list[list[Message]], explicit: bool, other_system: bool
) -> None:
    def sent(messages: list[Message], number: int) -> dict[str, Any]:
        return {"model": "m", "system": f"system {number if other_system else 0}", "messages": messages}

    def encodable(messages: list[Message]) -> list[Message]:
        return [m for m in messages if m != user(text("\ud800"))]

    shared, separate = (PromptCache(explicit=explicit, clock=lambda: 0.0) for _ in range(2))
    for number, messages in enumerate(map(encodable, requests)):
        copied = [dict(m) for m in messages]  # other objects, so that nothing of them is known
        assert shared.account(sent(messages, number // 2)) == separate.account(sent(copied, number // 2))
