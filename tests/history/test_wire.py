"""The views of the three wire formats: what is shown of a body, and what stays the same object when it is sent."""

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from anthropic.types import TextBlock, ToolUseBlock
from hypothesis import given

from ctxfs.agent.llm.chat_completions import to_chat_body
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Edits, Part, plain_content
from ctxfs.context.history.wire import Body, WireMemory, WireView, messages_in, spread
from ctxfs.context.history.wire_chat import CHAT
from ctxfs.context.history.wire_messages import MESSAGES
from ctxfs.context.history.wire_responses import RESPONSES
from ctxfs.errors import ConfigError, TranscriptError
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.messages import UnknownModel
from ctxfs.messages.base import ModelRequest
from ctxfs.messages.messages import Message
from ctxfs.messages.serialize import MessagesSerializer
from ctxfs.testing.chat_server import violations as chat_violations
from ctxfs.testing.invariants import violations
from ctxfs.testing.strategies import bodies, transcripts

MARK = {"type": "ephemeral"}
PLACEHOLDER = "[Content offloaded]"

MESSAGES_BODY: dict[str, Any] = {
    "model": "m",
    "system": "be brief",
    "tools": [{"name": "Read"}],
    "extra": 1,
    "messages": [
        {"role": "user", "content": "go", "name": "ann"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "reading"},
                {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}, "caller": "x"},
                {"type": "tool_use", "id": "c2", "name": "Write", "input": {"text": "b" * 300}, "cache_control": MARK},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one", "cache_control": MARK, "is_error": True},
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "and", "cache_control": MARK},
                {"type": "text", "text": "then"},
            ],
        },
        {"role": "system", "content": "a reminder"},
    ],
}

CHAT_BODY: dict[str, Any] = {
    "model": "m",
    "functions": [{"name": "old"}],
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "Read", "arguments": '{"path": "a"}'},
                    "index": 0,
                },
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** begin"}},
                {"id": "c3", "type": "function", "function": {"name": "Read", "arguments": '{"path": '}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "two", "name": "ignored"},
        {"role": "tool", "tool_call_id": "gone", "content": "three", "name": "named"},
        {"role": "assistant", "content": "text", "function_call": {"name": "old", "arguments": ""}},
        {"role": "function", "name": "old", "content": "four"},
    ],
}

RESPONSES_BODY: dict[str, Any] = {
    "model": "m",
    "instructions": "be brief",
    "input": [
        {"role": "user", "content": "go"},
        {"role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://e.org/a"},
            ],
        },
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "xx"},
        {
            "type": "message",
            "role": "assistant",
            "id": "m1",
            "content": [
                {"type": "output_text", "text": "reading", "annotations": [{"start_index": 0}]},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": '{"path":"a"}', "id": "f1"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** begin"},
        {"type": "function_call_output", "call_id": "c1", "output": "one", "id": "o1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "computer_call_output", "call_id": "c9", "output": {"type": "computer_screenshot"}},
    ],
}

EVERY = [(MESSAGES, MESSAGES_BODY), (CHAT, CHAT_BODY), (RESPONSES, RESPONSES_BODY)]


def shown(view: WireView, body: Body) -> list[tuple[Any, ...]]:
    """What the core sees: kind, plain content, call and tool, and whether it stays."""
    return [(p.kind, plain_content(p), p.id, p.tool, p.stays) for p in view.parts_of(body)]


def replaced(view: WireView, body: Body, old: object, new: Any) -> Body:
    """The body with ``new`` for the one part that has the content ``old``."""
    (place,) = [p.place for p in view.parts_of(body) if plain_content(p) == old]
    return view.applied(body, Edits({place: new}))


def test_a_request_to_the_messages_api_is_shown_part_by_part() -> None:
    assert shown(MESSAGES, MESSAGES_BODY) == [
        ("user", "go", "", "", False),
        (
            "reply",
            ({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "reading"}),
            *("", "", False),
        ),
        ("call", {"path": "a"}, "c1", "Read", False),
        ("call", {"text": "b" * 300}, "c2", "Write", False),
        ("result", "one", "c1", "Read", False),
        ("result", "", "c2", "Write", False),
        ("user", ({"type": "text", "text": "and"}, {"type": "text", "text": "then"}), "", "", False),
        ("user", "a reminder", "", "", True),
    ]


def test_a_chat_completions_request_is_shown_part_by_part() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    assert shown(CHAT, CHAT_BODY) == [
        ("user", "be brief", "", "", True),
        ("user", ({"type": "text", "text": "look"}, image, linked), "", "", False),
        ("call", {"path": "a"}, "c1", "Read", False),
        ("call", {"input": "*** begin"}, "c2", "patch", False),
        ("call", {"arguments": '{"path": '}, "c3", "Read", True),
        ("result", ({"type": "text", "text": "one"},), "c1", "Read", False),
        ("result", "two", "c2", "patch", False),
        ("result", "three", "gone", "named", False),
        ("reply", "text", "", "", False),
        ("call", {}, "", "old", False),
        ("result", "four", "", "old", False),
    ]


def test_a_responses_request_is_shown_part_by_part() -> None:
    reasoning, screen = RESPONSES_BODY["input"][3], RESPONSES_BODY["input"][9]
    linked = {"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}
    assert shown(RESPONSES, RESPONSES_BODY) == [
        ("user", "go", "", "", False),
        ("user", ({"type": "text", "text": "rules"},), "", "", True),
        ("user", ({"type": "text", "text": "look"}, linked), "", "", False),
        ("reply", (reasoning,), "", "", True),
        ("reply", ({"type": "text", "text": "reading"}, {"type": "refusal", "refusal": "no"}), "", "", False),
        ("call", {"path": "a"}, "c1", "Read", False),
        ("call", {"input": "*** begin"}, "c2", "patch", False),
        ("result", "one", "c1", "Read", False),
        ("result", ({"type": "text", "text": "two"},), "c2", "patch", False),
        ("user", (screen,), "", "", True),
    ]


def test_a_responses_input_may_be_one_text() -> None:
    body = {"input": "hello"}
    assert shown(RESPONSES, body) == [("user", "hello", "", "", True)]
    assert RESPONSES.applied(body, {}) is body


@pytest.mark.parametrize(("view", "body"), EVERY)
def test_without_edits_the_body_is_the_same_object(view: WireView, body: Body) -> None:
    assert view.applied(body, Edits({})) is body


@pytest.mark.parametrize(("view", "body"), EVERY)
def test_one_edit_leaves_every_other_message_the_same_object_and_the_body_as_it_was(view: WireView, body: Body) -> None:
    before = copy.deepcopy(body)
    key = "input" if view is RESPONSES else "messages"
    sent = replaced(view, body, "two" if view is CHAT else "one", PLACEHOLDER)
    same = [new is old for new, old in zip(sent[key], body[key], strict=True)]
    assert same.count(False) == 1
    assert {name: value for name, value in sent.items() if name != key} == {k: v for k, v in body.items() if k != key}
    assert body == before


def test_what_is_beside_the_history_is_counted_with_it() -> None:
    assert MESSAGES.beside(MESSAGES_BODY) == {"system": "be brief", "tools": [{"name": "Read"}]}
    assert CHAT.beside(CHAT_BODY) == {"functions": [{"name": "old"}]}
    assert RESPONSES.beside(RESPONSES_BODY) == {"instructions": "be brief"}


@pytest.mark.parametrize(
    ("view", "beside"),
    [
        (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (MESSAGES, {"mcp_servers": [{"type": "url", "url": "https://mcp.example", "name": "issues"}]}),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": {"type": "object"}}}),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "answer"}}}),
        (CHAT, {"web_search_options": {"search_context_size": "high"}}),
        (RESPONSES, {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
        (RESPONSES, {"tools": [{"type": "mcp", "server_label": "issues", "server_url": "https://mcp.example"}]}),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "answer", "schema": {}}}}),
    ],
)
def test_hosted_tools_and_the_form_of_the_answer_are_counted_too(view: WireView, beside: dict[str, Any]) -> None:
    assert view.beside({"messages": [], "input": [], "model": "m", "max_tokens": 9, **beside}) == beside


# Messages ------------------------------------------------------------------------------------------------------------


def test_a_result_keeps_its_fields_and_its_mark() -> None:
    sent = replaced(MESSAGES, MESSAGES_BODY, "one", PLACEHOLDER)
    before = MESSAGES_BODY["messages"][2]["content"][0]
    assert sent["messages"][2]["content"][0] == {**before, "content": PLACEHOLDER}


def test_a_mark_inside_a_result_moves_to_its_placeholder() -> None:
    text = {"type": "text", "text": "one", "cache_control": MARK}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text]}
    body = {"messages": [{"role": "user", "content": [result]}]}
    marked = [{"type": "text", "text": PLACEHOLDER, "cache_control": MARK}]
    assert MESSAGES.applied(body, {(0, 0): PLACEHOLDER})["messages"][0]["content"][0]["content"] == marked
    del text["cache_control"]
    assert MESSAGES.applied(body, {(0, 0): PLACEHOLDER})["messages"][0]["content"][0]["content"] == PLACEHOLDER
    given = MESSAGES.applied(body, {(0, 0): ({"type": "text", "text": "x"},)})["messages"][0]["content"][0]
    assert given["content"] == [{"type": "text", "text": "x"}]


def test_the_arguments_of_a_call_are_its_input() -> None:
    sent = replaced(MESSAGES, MESSAGES_BODY, {"path": "a"}, {"path": PLACEHOLDER})
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": PLACEHOLDER}, "caller": "x"}
    assert sent["messages"][1]["content"][2] == call
    assert sent["messages"][1]["content"][0] is MESSAGES_BODY["messages"][1]["content"][0]


def test_a_text_takes_the_place_of_all_that_a_user_said_beside_the_results() -> None:
    sent = MESSAGES.applied(MESSAGES_BODY, {(2, None): PLACEHOLDER})
    marked = {"type": "text", "text": PLACEHOLDER, "cache_control": MARK}
    assert sent["messages"][2]["content"] == [*MESSAGES_BODY["messages"][2]["content"][:2], marked]
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    assert MESSAGES.applied(body, {(0, None): "b"})["messages"][0]["content"] == [{"type": "text", "text": "b"}]


def test_the_blocks_of_a_reply_are_replaced_one_by_one() -> None:
    thinking = MESSAGES_BODY["messages"][1]["content"][0]
    sent = MESSAGES.applied(MESSAGES_BODY, {(1, None): (thinking, {"type": "text", "text": PLACEHOLDER})})
    blocks = sent["messages"][1]["content"]
    assert blocks[0] is thinking
    assert blocks[1] == {"type": "text", "text": PLACEHOLDER}
    assert blocks[2:] == MESSAGES_BODY["messages"][1]["content"][2:]
    marked = {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a", "cache_control": MARK}]}]}
    assert MESSAGES.applied(marked, {(0, None): ({"type": "text", "text": "b"},)})["messages"][0]["content"] == [
        {"type": "text", "text": "b", "cache_control": MARK}
    ]


def test_a_message_of_text_only_is_replaced_as_text() -> None:
    assert replaced(MESSAGES, MESSAGES_BODY, "go", "x")["messages"][0] == {
        "role": "user",
        "content": "x",
        "name": "ann",
    }
    body = {"messages": [{"role": "assistant", "content": "said"}]}
    blocks = ({"type": "text", "text": "b"},)
    assert MESSAGES.applied(body, {(0, None): blocks})["messages"][0]["content"] == [*blocks]


def test_blocks_of_the_sdk_are_read_as_they_would_be_sent() -> None:
    said = [TextBlock(type="text", text="hi"), ToolUseBlock(type="tool_use", id="c1", name="Read", input={"a": 1})]
    body = {"messages": [{"role": "assistant", "content": said}]}
    assert shown(MESSAGES, body) == [
        ("reply", ({"type": "text", "text": "hi"},), "", "", False),
        ("call", {"a": 1}, "c1", "Read", False),
    ]
    sent = MESSAGES.applied(body, {(0, 1): {"a": 2}})["messages"][0]["content"]
    assert sent == [said[0], {"type": "tool_use", "id": "c1", "name": "Read", "input": {"a": 2}}]
    sent = MESSAGES.applied(body, {(0, None): ({"type": "text", "text": "ho"},)})["messages"][0]["content"]
    assert sent == [{"type": "text", "text": "ho"}, said[1]]


# Chat Completions ----------------------------------------------------------------------------------------------------


def test_calls_of_every_form_are_written_as_they_were() -> None:
    sent = replaced(CHAT, CHAT_BODY, {"path": "a"}, {"path": "ä"})
    calls, before = sent["messages"][2]["tool_calls"], CHAT_BODY["messages"][2]["tool_calls"]
    assert calls[0] == {**before[0], "function": {"name": "Read", "arguments": '{"path":"ä"}'}}
    assert all(new is old for new, old in zip(calls[1:], before[1:], strict=True))
    sent = replaced(CHAT, CHAT_BODY, {"input": "*** begin"}, {"input": PLACEHOLDER})
    assert sent["messages"][2]["tool_calls"][1]["custom"] == {"name": "patch", "input": PLACEHOLDER}
    sent = replaced(CHAT, CHAT_BODY, {}, {"a": PLACEHOLDER})
    assert sent["messages"][6]["function_call"] == {"name": "old", "arguments": '{"a":"[Content offloaded]"}'}


def test_contents_of_chat_messages_are_replaced() -> None:
    blocks = ({"type": "text", "text": "x"},)
    assert CHAT.applied(CHAT_BODY, {(3, None): PLACEHOLDER})["messages"][3]["content"] == PLACEHOLDER
    assert CHAT.applied(CHAT_BODY, {(6, None): blocks})["messages"][6]["content"] == [*blocks]


# Responses -----------------------------------------------------------------------------------------------------------


def test_items_of_a_response_are_replaced_with_their_fields() -> None:
    call = replaced(RESPONSES, RESPONSES_BODY, {"path": "a"}, {"path": "b"})["input"][5]
    assert call == {**RESPONSES_BODY["input"][5], "arguments": '{"path":"b"}'}
    custom = replaced(RESPONSES, RESPONSES_BODY, {"input": "*** begin"}, {"input": "x"})["input"][6]
    assert custom == {**RESPONSES_BODY["input"][6], "input": "x"}
    result = replaced(RESPONSES, RESPONSES_BODY, "one", PLACEHOLDER)["input"][7]
    assert result == {**RESPONSES_BODY["input"][7], "output": PLACEHOLDER}


def test_messages_of_a_response_are_written_as_their_role_writes_them() -> None:
    places: dict[Any, Any] = {(0, None): "x", (2, None): "y"}
    sent = RESPONSES.applied(RESPONSES_BODY, places)["input"]
    assert sent[0]["content"] == "x"
    assert sent[2]["content"] == [{"type": "input_text", "text": "y"}]
    new = ({"type": "text", "text": "z"}, RESPONSES_BODY["input"][4]["content"][1])
    assert RESPONSES.applied(RESPONSES_BODY, {(4, None): new})["input"][4]["content"] == [
        {"type": "output_text", "text": "z", "annotations": []},
        RESPONSES_BODY["input"][4]["content"][1],
    ]
    plain = {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}
    same = RESPONSES.applied(plain, {(0, None): ({"type": "text", "text": "a"},)})["input"][0]["content"]
    assert same == [{"type": "output_text", "text": "a"}]
    assert RESPONSES.applied(plain, {(0, None): ({"type": "text", "text": "b"},)})["input"][0]["content"] == [
        {"type": "output_text", "text": "b"}
    ]
    assert RESPONSES.applied(plain, {(0, None): "c"})["input"][0]["content"] == [{"type": "output_text", "text": "c"}]


@pytest.mark.parametrize(
    ("view", "key"), [(RESPONSES, "previous_response_id"), (RESPONSES, "conversation"), (MESSAGES, "thread")]
)
def test_a_history_that_the_server_holds_is_refused(view: WireView, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is set.*arrive"):
        view.parts_of({"input": "go", "messages": [], key: "r1"})


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "body"),
    [
        (MESSAGES, {}),
        (MESSAGES, []),
        (MESSAGES, {"messages": "go"}),
        (MESSAGES, {"messages": ["go"]}),
        (MESSAGES, {"messages": [{"role": "user"}]}),
        (MESSAGES, {"messages": [{"role": "user", "content": 5}]}),
        (CHAT, {"messages": [{"content": "go"}]}),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}),
        (RESPONSES, {"input": 5}),
        (RESPONSES, {"input": [{"type": "function_call", "name": "x"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": 5}]}),
    ],
)
def test_what_is_no_request_is_refused(view: WireView, body: Any) -> None:
    with pytest.raises(TranscriptError):
        view.parts_of(body)


@pytest.mark.parametrize(
    ("view", "body"),
    [
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 5}]}]}),
        (CHAT, {"messages": [{"role": "tool", "tool_call_id": 5, "content": "x"}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": 5, "output": "x"}]}),
    ],
)
def test_a_results_id_that_is_no_text_is_refused_before_anything_is_decided(view: WireView, body: Any) -> None:
    with pytest.raises(TranscriptError, match=r"the id of a result in (messages|input)\[0\] is of type int"):
        view.parts_of(body)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Part("tool", "x", 0), "kind 'tool'"),  # type: ignore[arg-type]
        (Part("user", 5, 7), "at 7: content is a text"),  # type: ignore[arg-type]
        (Part("result", [{"text": "x"}], 0), "not a content block"),
        (Part("call", "x", 0), "a mapping, not str"),
        (Part("call", {"a": {1}}, 0), "of type set"),
    ],
)
def test_what_is_no_part_is_refused(part: Part, said: str) -> None:
    with pytest.raises(TranscriptError, match=said):
        plain_content(part)


def test_edits_are_a_mapping() -> None:
    edits = Edits({"a": "x"}, tokens=3, breakpoints=["a"])
    assert (edits["a"], list(edits), len(edits), edits.breakpoints, edits.overflow) == ("x", ["a"], 1, ("a",), None)
    assert repr(edits) == "Edits({'a': 'x'}, tokens=3)"


# Any body ------------------------------------------------------------------------------------------------------------


def everything_replaced(view: WireView, body: Body) -> Body:
    """With a text in the place of every result and of all that the user said, and other arguments in every call."""
    new: dict[Any, Any] = {}
    for part in view.parts_of(body):
        if part.kind == "call":
            new[part.place] = {"new": "arguments"}
        elif part.kind != "reply" and not part.stays:
            new[part.place] = PLACEHOLDER
    return view.applied(body, new)


def contents(view: WireView, body: Body) -> list[Any]:
    return [plain_content(p) for p in view.parts_of(body) if p.kind != "reply" and not p.stays]


def one_text(content: Any) -> Any:
    if isinstance(content, tuple) and len(content) == 1 and isinstance(content[0], Mapping):
        return content[0].get("text")
    return content


@given(bodies())
def test_any_messages_body_stays_valid_and_shows_what_was_replaced(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    sent = everything_replaced(MESSAGES, body)
    assert body == before
    assert not violations(sent)
    assert {str(one_text(c)) for c in contents(MESSAGES, sent)} <= {PLACEHOLDER, "{'new': 'arguments'}"}


@given(transcripts())
def test_any_chat_body_stays_valid_and_shows_what_was_replaced(messages: tuple[Message, ...]) -> None:
    body = MessagesSerializer().body(ModelRequest(messages=messages), model="m", max_tokens=1, cache=False)
    chat = to_chat_body(body, max_tokens_field="max_tokens")
    before = copy.deepcopy(chat)
    sent = everything_replaced(CHAT, chat)
    assert chat == before
    assert not chat_violations(sent)
    assert {str(one_text(c)) for c in contents(CHAT, sent)} <= {PLACEHOLDER, "{'new': 'arguments'}"}


def test_a_reply_of_calls_alone_has_no_part_but_its_calls() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}}
    body = {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]}
    assert [(part.kind, part.id) for part in MESSAGES.parts_of(body)] == [("user", ""), ("call", "c1")]


def test_another_number_of_blocks_takes_the_place_of_the_first() -> None:
    new = ({"type": "text", "text": "one"},)
    assert spread([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], new) == [[*new], []]


@pytest.mark.parametrize(
    ("view", "body", "key"), [(MESSAGES, MESSAGES_BODY, "messages"), (CHAT, CHAT_BODY, "messages")]
)
def test_what_is_remembered_of_a_request_is_what_would_be_read_of_it(view: WireView, body: Body, key: str) -> None:
    """Grown, cut, changed in place, broken, and with marks of a cache that move."""
    messages, memory = copy.deepcopy(body[key]), WireMemory()

    def shown(*messages: Any) -> list[Part]:
        parts = view.parts_of({**body, key: list(messages)}, memory)
        assert parts == view.parts_of({**body, key: list(messages)})
        return parts

    for _ in range(3):
        assert shown(*messages) == view.parts_of(body)
    shown(*messages, *messages)
    shown(*messages[:2])
    messages[0]["content"] = "changed"
    assert shown(*messages)[0].content == "changed"
    with pytest.raises(TranscriptError):
        view.parts_of({**body, key: [*messages[:1], {"role": "user"}, {}]}, memory)
    for marked in range(len(messages)):
        shown(*[{**message, "cache_control": MARK} if n == marked else message for n, message in enumerate(messages)])
    shown(*reversed(messages))


def test_a_remembered_message_is_not_read_again() -> None:
    body, memory = copy.deepcopy(MESSAGES_BODY), WireMemory()
    seen = [MESSAGES.parts_of(body, memory) for _ in range(3)]
    assert all(first is second for first, second in zip(seen[1], seen[2], strict=True))


def test_only_the_copies_are_looked_at_again(tmp_path: Path) -> None:
    """A body that was sent is changed in place later, and a new body with another end shows what it was."""
    sent = []
    with History("s", root_path=tmp_path) as history:
        for number in range(5):
            body = copy.deepcopy(MESSAGES_BODY)
            body["messages"][-1]["content"] = f"reminder {number}"
            edits = history.rewritten("messages", body)[1]
            sent.append((edits.tokens, edits.freed_tokens, dict(edits)))
            for message in body["messages"]:
                for block in message["content"] if isinstance(message["content"], list) else ():
                    block.clear()
                message["content"] = f"changed {number}"
    assert sent == [sent[0]] * 5


@pytest.mark.not_measured
def test_a_request_that_grows_and_shrinks_is_rewritten_as_by_a_new_history(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(3):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Read", "input": {"path": "a"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "reading"}, call]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n}\n" * 200}
        messages.append({"role": "user", "content": [result, {"type": "text", "text": "and"}]})
    edited = [*messages[:2], {"role": "user", "content": "edited"}, *messages[3:]]
    settings: dict[str, Any] = {"root_path": tmp_path, "keep_recent": {"Read": 1}}
    with History("s", **settings) as history:
        for shown in [messages, messages, messages[:2], messages, edited, messages, messages[:-2], messages]:
            now, edits = history.rewritten("messages", {"messages": shown})
            with History("s", **settings) as other:
                again, same = other.rewritten("messages", {"messages": shown})
            assert now == again
            assert (edits.tokens, edits.freed_tokens, dict(edits)) == (same.tokens, same.freed_tokens, dict(same))
    assert len(edits) == 2


def test_a_message_may_be_any_mapping_and_nothing_else() -> None:
    messages = [MappingProxyType({"role": "user", "content": "go"}), {"role": "assistant", "content": "gone"}]
    assert messages_in({"messages": messages}, "messages") == messages
    with pytest.raises(TranscriptError, match=r"messages\[1\] is not a message: 5"):
        messages_in({"messages": [messages[0], 5]}, "messages")


def test_a_history_says_once_what_it_assumes_of_a_model_that_only_requests_name(tmp_path: Path) -> None:
    body = {"model": "named-by-a-request", "messages": [{"role": "user", "content": "go"}]}
    with History(root_path=tmp_path) as history:
        with pytest.warns(UnknownModel, match=r"128,000 tokens and Anthropic's.*History\(model='named-by-a-request'\)"):
            history.messages(body)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            history.messages(body)


def test_it_says_nothing_where_nothing_is_assumed(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for settings in ({"model": "claude-sonnet-4-5"}, {"window": 9_000, "pricing": None}):
            with History(root_path=tmp_path, **settings) as history:
                history.messages({"model": "named-by-another", "messages": [{"role": "user", "content": "go"}]})
                history.messages({"messages": [{"role": "user", "content": "go"}]})
    with (
        History(root_path=tmp_path, window=9_000) as history,
        pytest.warns(UnknownModel, match="it assumes Anthropic's ratios of prices;"),
    ):
        history.messages({"model": "of-known-window", "messages": [{"role": "user", "content": "go"}]})
    with (
        History(root_path=tmp_path, pricing=EvictionPricing()) as history,
        pytest.warns(UnknownModel, match="it assumes a window of 128,000 tokens;"),
    ):
        history.messages({"model": "of-known-prices", "messages": [{"role": "user", "content": "go"}]})


# A body of another API ------------------------------------------------------------------------------------------------

ASKED = {"role": "user", "content": "go"}
CHAT_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT_BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": "b"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
        {"role": "assistant", "content": "text", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "b"},
        {"role": "function", "name": "f", "content": "b"},
        {"role": "developer", "content": "be brief"},
    ],
    ids=["call", "text and call", "result", "function", "developer"],
)
def test_messages_refuses_a_body_of_chat_completions_and_names_chat(message: dict[str, Any], tmp_path: Path) -> None:
    with History(root_path=tmp_path, model="gpt-5") as history:
        body = {"model": "gpt-5", "messages": [ASKED, message]}
        with pytest.raises(TranscriptError, match=r"messages\[1\] is not a message .*so call chat\(\)"):
            history.messages(body)
        if message["role"] != "developer":
            assert history.chat(body) == body


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ASKED, {"role": "user", "content": [RESULT_BLOCK]}]},
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            ]
        },
        {"messages": [ASKED], "system": "be brief"},
    ],
    ids=["result", "call", "system"],
)
def test_chat_refuses_a_body_of_the_messages_api_and_names_messages(body: dict[str, Any], tmp_path: Path) -> None:
    with History(root_path=tmp_path, model="gpt-5") as history:
        with pytest.raises(TranscriptError, match=r"so call messages\(\)"):
            history.chat(body)
        assert history.messages(body) == body


def test_a_body_with_the_list_of_another_api_is_told_whose_it_is(tmp_path: Path) -> None:
    with History(root_path=tmp_path, model="gpt-5") as history:
        for method in (history.messages, history.chat):
            with pytest.raises(
                TranscriptError, match=r"needs a list under 'messages'; this one has 'input', so call resp"
            ):
                method({"input": [ASKED]})
        with pytest.raises(
            TranscriptError, match=r"a list under 'input'; .* 'messages', so call messages\(\) or chat\(\)"
        ):
            history.responses({"messages": [ASKED]})
        with pytest.raises(TranscriptError, match=r"needs a list under 'messages'$"):
            history.messages({"messages": "x", "input": []})
