"""Our messages and the Messages API's bodies: round trip, stable bytes, breakpoints, what cannot be sent as it is."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import TranscriptError
from ctxfs.messages.base import ModelRequest, Reply, ToolSchema, Usage
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.messages.serialize import EMPTY_ERROR, MessagesSerializer, from_dict, to_messages_body
from ctxfs.messages.wire_names import with_own_names
from ctxfs.testing.invariants import violations
from ctxfs.testing.strategies import bodies, thinking, transcripts
from ctxfs.text.jsontext import codec as json_codec

TOOLS = (ToolSchema(name="Read", description="Reads.", input_schema={"type": "object"}),)


def body_of(*messages: Message, **settings: Any) -> dict[str, Any]:
    tools = settings.pop("tools", ())
    return to_messages_body(ModelRequest(messages=messages, tools=tools), model="m", max_tokens=9, **settings)


def as_blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def normal_result(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] != "tool_result":
        return block
    normal = {k: v for k, v in block.items() if k != "is_error" or v}
    return {**normal, "content": block.get("content", "")}


def normal_form(body: dict[str, Any]) -> tuple[list[Any], list[tuple[str, list[Any]]]]:
    """The system blocks and the messages, adjacent ones of one role merged."""
    merged: list[tuple[str, list[Any]]] = []
    for message in body["messages"]:
        blocks = [normal_result(b) for b in as_blocks(message["content"])]
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(blocks)
        else:
            merged.append((message["role"], blocks))
    return as_blocks(body.get("system", [])), merged


def messages_of(body: dict[str, Any]) -> list[Message]:
    """Our messages for a whole body, its system prompt first."""
    messages: list[Message] = [SystemMessage(body["system"])] if body.get("system") else []
    names: dict[str, str] = {}
    for message in body["messages"]:
        messages += from_dict(message, names)
        names.update((call.id, call.name) for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls)
    return messages


@given(bodies())
def test_a_body_survives_the_way_through_our_messages(body: dict[str, Any]) -> None:
    assert violations(body) == []

    again = body_of(*messages_of(body), cache=False)

    assert normal_form(again) == normal_form(body)


@given(transcripts(), st.booleans(), st.sampled_from(["5m", "1h"]))
def test_what_is_sent_is_always_valid(messages: tuple[Message, ...], with_tools: bool, ttl: Any) -> None:
    body = body_of(*messages, tools=TOOLS if with_tools else (), cache_ttl=ttl)
    assert violations(body) == []


@given(transcripts(hostile_ids=True))
def test_what_is_sent_is_valid_whatever_the_call_ids_and_always_the_same(messages: tuple[Message, ...]) -> None:
    body = body_of(*messages)
    assert violations(body) == []
    assert json_codec.dumps(body) == json_codec.dumps(body_of(*copy.deepcopy(messages)))


def flat(messages: tuple[Message, ...]) -> list[tuple[str, bytes]]:
    """Every block that is sent, with its role, as bytes."""
    body = body_of(*messages, cache=False)
    blocks = [("system", b) for b in body.get("system", [])]
    blocks += [(turn["role"], b) for turn in body["messages"] for b in turn["content"]]
    return [(role, json_codec.dumps(block)) for role, block in blocks]


@given(transcripts(hostile_ids=True), st.data())
def test_a_prefix_of_the_messages_is_sent_as_a_prefix_of_the_bytes(
    messages: tuple[Message, ...], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(messages)))
    whole, part = flat(messages), flat(messages[:cut])
    assert whole[: len(part)] == part


@given(st.lists(thinking(), min_size=1, max_size=3))
def test_thinking_is_sent_back_untouched_while_its_loop_is_open(thoughts: list[dict[str, Any]]) -> None:
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {}}
    body = body_of(UserMessage("go"), AssistantMessage((*thoughts, call)), ToolMessage("c", "Read", "x"))
    sent = body["messages"][1]["content"]
    assert json_codec.dumps(sent) == json_codec.dumps([*thoughts, call])


def test_results_of_a_turn_stand_together_and_first() -> None:
    calls = tuple({"type": "tool_use", "id": i, "name": "Read", "input": {}} for i in "ab")
    body = body_of(
        UserMessage("go"),
        AssistantMessage(calls),
        ToolMessage("a", "Read", "1"),
        UserMessage("by the way"),
        ToolMessage("b", "Read", "2"),
    )
    assert [b["type"] for b in body["messages"][-1]["content"]] == ["tool_result", "tool_result", "text"]
    assert [b.get("tool_use_id") for b in body["messages"][-1]["content"]] == ["a", "b", None]


def marked(body: dict[str, Any]) -> list[str]:
    places = [("tools", body.get("tools", [])), ("system", body.get("system", []))]
    places += [(f"{i}", m["content"]) for i, m in enumerate(body["messages"])]
    return [f"{name}.{j}" for name, blocks in places for j, block in enumerate(blocks) if "cache_control" in block]


def test_breakpoints_stand_at_the_system_prompt_and_at_the_last_user_turns() -> None:
    turns = [m for i in range(5) for m in (UserMessage(f"q{i}"), AssistantMessage(f"a{i}"))]
    body = body_of(SystemMessage("s"), *turns, UserMessage("last"), tools=TOOLS)
    assert marked(body) == ["system.0", "6.0", "8.0", "10.0"]
    assert marked(body_of(*turns, UserMessage("last"))) == ["6.0", "8.0", "10.0"]


def test_without_a_system_prompt_the_tools_end_carries_the_breakpoint() -> None:
    assert marked(body_of(UserMessage("q"), tools=TOOLS)) == ["tools.0", "0.0"]


def test_breakpoints_say_how_long_they_live_only_when_it_is_not_the_default() -> None:
    assert body_of(UserMessage("q"))["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    long_lived = body_of(UserMessage("q"), cache_ttl="1h")["messages"][0]["content"][0]["cache_control"]
    assert long_lived == {"type": "ephemeral", "ttl": "1h"}


def test_breakpoints_that_came_with_the_messages_are_not_sent_on() -> None:
    block = {"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}
    assert marked(body_of(UserMessage((block, {**block, "text": "r"})))) == ["0.1"]
    assert marked(body_of(UserMessage((block,)), cache=False)) == []
    assert "cache_control" in block


def test_lone_surrogates_are_sent_as_replacement_characters_and_pairs_joined() -> None:
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {"\udc00": ["\ud800", "ok"]}}
    messages = (UserMessage("a\ud800b"), AssistantMessage((call,)), ToolMessage("c", "Read", "\ud83d\ude00"))
    body = body_of(*messages, cache=False)
    assert body["messages"][0]["content"][0]["text"] == "a\ufffdb"
    assert body["messages"][1]["content"][0]["input"] == {"\ufffd": ["\ufffd", "ok"]}
    assert body["messages"][2]["content"][0]["content"] == "😀"
    assert call["input"] == {"\udc00": ["\ud800", "ok"]}


def test_an_empty_result_is_sent_empty_and_an_empty_error_with_a_word() -> None:
    calls = tuple({"type": "tool_use", "id": i, "name": "Read", "input": {}} for i in "abc")
    body = body_of(
        UserMessage("go"),
        AssistantMessage(calls),
        ToolMessage("a", "Read", ""),
        ToolMessage("b", "Read", " \n", is_error=True),
        ToolMessage("c", "Read", ({"type": "text", "text": ""},)),
    )
    assert [b["content"] for b in body["messages"][-1]["content"]] == ["", EMPTY_ERROR, []]


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def test_an_error_with_an_image_keeps_the_image_and_says_that_it_is_one() -> None:
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    texts = ({"type": "text", "text": "Half of it:"}, {"type": "text", "text": "no more"})
    for content in ((*texts, IMAGE), texts):
        result = ToolMessage("a", "Read", content, is_error=True)
        body = body_of(UserMessage("q"), AssistantMessage((call,)), result, cache=False)
        assert violations(body) == []
        (sent,) = body["messages"][-1]["content"]
        if IMAGE in content:
            assert "is_error" not in sent
            assert sent["content"] == [{"type": "text", "text": "Error:"}, *content]
        else:
            assert (sent["is_error"], sent["content"]) == (True, list(content))


def test_names_that_are_too_long_are_sent_as_others_and_come_back_as_themselves() -> None:
    long, odd = "n" * 129, "server.tool"
    tools = tuple(ToolSchema(name=n, description="", input_schema={"type": "object"}) for n in (long, odd, "Read"))
    body = body_of(UserMessage("q"), tools=tools)
    assert violations(body) == []
    sent = [t["name"] for t in body["tools"]]
    assert sent[1].startswith("server_tool_")
    calls = tuple({"type": "tool_use", "id": f"c{n}", "name": name, "input": {}} for n, name in enumerate(sent))
    reply = Reply(message=AssistantMessage(calls), usage=Usage(), stop_reason="tool_use", model="m")
    own = with_own_names(reply, tools)
    assert [c.name for c in own.message.tool_calls] == [long, odd, "Read"]
    assert body_of(UserMessage("q"), own.message, cache=False)["messages"][1]["content"] == list(calls)
    assert with_own_names(reply, ()) == reply


def test_a_message_that_says_nothing_is_not_sent() -> None:
    body = body_of(UserMessage("a"), AssistantMessage(()), UserMessage(" "), UserMessage("b"), cache=False)
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_thinking_that_was_cut_is_sent_only_once_something_follows_it() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    cut = (UserMessage("a"), AssistantMessage((thought,)))
    assert [m["role"] for m in body_of(*cut, UserMessage("b"))["messages"]] == ["user"]
    assert [m["role"] for m in body_of(*cut)["messages"]] == ["user"]
    followed = body_of(*cut, AssistantMessage("So:"), UserMessage("b"))
    assert followed["messages"][1]["content"][0] == thought


def test_thinking_that_nobody_signed_is_not_sent() -> None:
    said = AssistantMessage(({"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "So."}))
    body = body_of(UserMessage("a"), said, UserMessage("b"))
    assert [b["type"] for b in body["messages"][1]["content"]] == ["text"]


def test_call_ids_that_repeat_or_that_providers_refuse_are_paired_anew() -> None:
    def step(*ids: str) -> list[Message]:
        calls = tuple({"type": "tool_use", "id": i, "name": "../x", "input": {}} for i in ids)
        return [AssistantMessage(calls), *(ToolMessage(i, "../x", f"of {i}") for i in ids)]

    body = body_of(UserMessage("go"), *step("a", "a", "../b"), *step("a"), cache=False)
    assert violations(body) == []
    calls = [b["id"] for m in body["messages"] if m["role"] == "assistant" for b in m["content"]]
    answers = [b["tool_use_id"] for m in body["messages"][1:] if m["role"] == "user" for b in m["content"]]
    assert calls == answers
    assert calls[0] == "a"
    assert len(set(calls)) == 4


def test_an_orphan_result_stays_visible_as_one() -> None:
    body = body_of(UserMessage("go"), ToolMessage("a", "Read", "x"))
    assert any("unexpected tool_use_id 'a'" in v for v in violations(body))


def test_the_requests_own_limit_counts() -> None:
    request = ModelRequest(messages=(UserMessage("q"),), max_tokens=5)
    assert to_messages_body(request, model="m", max_tokens=9)["max_tokens"] == 5


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "system", "content": "x"}, r"only user and assistant are messages; .* set_system_prompt\(\)$"),
        ({"role": "tool", "content": "x"}, "only user and assistant are messages; .* tool_result block"),
        ({"role": "usr", "content": "x"}, "only user and assistant are messages$"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, "no tool_use of that id"),
    ],
)
def test_what_cannot_become_a_message_says_why(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(TranscriptError, match=reason):
        from_dict(message, {})


def test_the_results_of_a_message_come_before_the_rest_of_it() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    text = {"type": "text", "text": "go on"}
    one = ToolMessage("a", "ls", "1")
    assert from_dict({"role": "user", "content": [text, result]}, {"a": "ls"}) == [one, UserMessage((text,))]
    assert from_dict({"role": "user", "content": [result]}, {"a": "ls"}) == [one]
    assert from_dict({"role": "user", "content": []}, {}) == [UserMessage(())]
    assert from_dict({"role": "user", "content": "hi"}, {}) == [UserMessage("hi")]
    assert from_dict({"role": "assistant", "content": [text]}, {}) == [AssistantMessage((text,))]
    with pytest.raises(TranscriptError, match="tool_calls beside the content"):
        from_dict({"role": "assistant", "content": "", "tool_calls": [{}]}, {})


def test_a_change_far_back_makes_the_same_body_as_a_new_conversation() -> None:
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    messages: list[Message] = [UserMessage("1"), AssistantMessage("2"), UserMessage("3"), AssistantMessage((call,))]
    messages.append(ToolMessage("a", "Read", "large"))
    serializer = MessagesSerializer()
    serializer.body(ModelRequest(messages=tuple(messages)), model="m", max_tokens=9)
    messages[-1] = ToolMessage("a", "Read", "small")
    body = serializer.body(ModelRequest(messages=tuple(messages)), model="m", max_tokens=9)
    assert body == body_of(*messages)


def test_a_place_that_is_named_twice_or_before_all_messages_is_no_further_breakpoint() -> None:
    messages = (UserMessage("1"), AssistantMessage("2"), UserMessage("3"))
    body = to_messages_body(ModelRequest(messages=messages, breakpoints=(0, 1, 1)), model="m", max_tokens=9)
    marked = [n for n, message in enumerate(body["messages"]) if "cache_control" in message["content"][-1]]
    assert marked == [0]


# One conversation, request after request ------------------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def called(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple({"type": "tool_use", "id": i, "name": "t", "input": {}} for i in ids))


def any_message() -> st.SearchStrategy[Message]:
    """Also what no valid transcript has: results without a call, turns that are empty once they are serialised."""
    ids = st.sampled_from(["a", "b", "no wire id", "no wire id"])
    return st.one_of(
        st.sampled_from(
            [
                UserMessage("hello"),
                UserMessage(" "),
                AssistantMessage("yes"),
                AssistantMessage((THOUGHT,)),
                AssistantMessage((THOUGHT, {"type": "text", "text": "so"})),
                SystemMessage("be kind"),
            ]
        ),
        st.lists(ids, min_size=1, max_size=3).map(lambda found: called(*found)),
        ids.map(lambda found: ToolMessage(found, "t", "result")),
    )


@given(st.data())
def test_what_was_serialised_before_changes_no_body(data: st.DataObject) -> None:
    """Appended to, cut short, changed in the middle: a body is the one that is made from nothing."""
    serializer, messages, given_out = MessagesSerializer(), list[Message](), []
    for _ in range(data.draw(st.integers(1, 6))):
        kept = data.draw(st.integers(0, len(messages)))
        tail = messages[kept + 1 :] if data.draw(st.booleans()) else []
        messages = [*messages[:kept], *data.draw(st.lists(any_message(), max_size=6)), *tail]
        marks = data.draw(
            st.none() | st.lists(st.integers(0, len(messages)), max_size=3).map(lambda found: tuple(sorted(found)))
        )
        request = ModelRequest(messages=tuple(messages), breakpoints=marks)
        body = serializer.body(request, model="m", max_tokens=9)
        assert body == to_messages_body(request, model="m", max_tokens=9)
        given_out.append((body, copy.deepcopy(body)))
    for body, before in given_out:
        assert body == before, "a later request must not change what an earlier one got"


def test_a_call_id_that_repeated_is_paired_as_before_once_the_repetition_is_gone() -> None:
    step: list[Message] = [called("a"), ToolMessage("a", "t", "x")]
    serializer = MessagesSerializer()
    for messages in ([*step, *step], [*step, called("b")], [*step, *step]):
        request = ModelRequest(messages=(UserMessage("go"), *messages))
        body = serializer.body(request, model="m", max_tokens=9)
        assert body == to_messages_body(request, model="m", max_tokens=9)
    calls = [block["id"] for message in body["messages"] for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(calls)) == 2


def test_messages_that_did_not_change_are_not_serialised_again() -> None:
    serializer = MessagesSerializer()
    messages: list[Message] = [UserMessage("go"), called("a"), ToolMessage("a", "t", "x")]
    first = serializer.body(ModelRequest(messages=tuple(messages)), model="m", max_tokens=9, cache=False)
    messages += [AssistantMessage("next"), UserMessage("on")]
    second = serializer.body(ModelRequest(messages=tuple(messages)), model="m", max_tokens=9, cache=False)
    assert [a is b for a, b in zip(first["messages"], second["messages"], strict=False)] == [True, True, False]


def test_a_status_is_the_last_text_and_no_message_is_changed_for_it() -> None:
    serializer, question = MessagesSerializer(), UserMessage("go on")
    shown = {"type": "text", "text": "80 % full"}
    request = ModelRequest(messages=(question,), status="80 % full")
    body = serializer.body(request, model="m", max_tokens=9)
    assert body["messages"][-1]["content"][-1] == shown
    without = serializer.body(ModelRequest(messages=(question,)), model="m", max_tokens=9)
    assert shown not in without["messages"][-1]["content"]
    answered = ModelRequest(messages=(question, AssistantMessage("done")), status="80 % full")
    assert to_messages_body(answered, model="m", max_tokens=9)["messages"][-1] == {"role": "user", "content": [shown]}


def test_a_breakpoint_can_stand_behind_a_reply() -> None:
    """A result that is about to leave follows it: all up to the reply can still be read from the cache then."""
    messages = (UserMessage("go"), called("a"), ToolMessage("a", "t", "x"))
    body = to_messages_body(ModelRequest(messages=messages, breakpoints=(2,)), model="m", max_tokens=9)
    marked = [n for n, message in enumerate(body["messages"]) if "cache_control" in message["content"][-1]]
    assert marked == [1]


@pytest.mark.parametrize(("count", "mark"), [(2, (1, 2)), (3, (2, 0)), (4, (2, 1)), (5, (2, 2)), (6, (2, 3))])
def test_a_breakpoint_can_stand_between_the_results_of_a_turn(count: int, mark: tuple[int, int]) -> None:
    """One of them is about to leave: those before it can still be read from the cache then."""
    results = [ToolMessage(name, "t", "x") for name in "abc"]
    messages: tuple[Message, ...] = (UserMessage("go"), called(*"abc"), *results, UserMessage("and"))
    body = to_messages_body(ModelRequest(messages=messages, breakpoints=(count,)), model="m", max_tokens=9)
    marked = [
        (n, k)
        for n, message in enumerate(body["messages"])
        for k, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marked == [mark]
