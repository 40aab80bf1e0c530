"""The Chat Completions server on loopback: what the real SDK makes of it, and what it refuses."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import Broken, ChatCompletionsServer, Cut, Failure

CALLS: Any = ["Reading.", ToolCall("Read", {"path": "p" * 60}), ToolCall("Read", {})]
QUESTION: Any = [{"role": "user", "content": "q"}]


def client(server: ChatCompletionsServer) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)


def test_an_answer_comes_in_one_piece_unless_a_stream_is_asked_for() -> None:
    with ChatCompletionsServer([CALLS, CALLS, CALLS]) as server, client(server) as sdk:
        whole = sdk.chat.completions.create(model="m", messages=QUESTION)
        again = sdk.chat.completions.create(model="m", messages=QUESTION, stream=False)
        pieces = list(sdk.chat.completions.create(model="m", messages=QUESTION, stream=True))
    assert [r.get("stream", ...) for r in server.requests] == [..., False, True]
    choice = whole.choices[0]
    assert (whole.object, choice.message.content, choice.finish_reason) == ("chat.completion", "Reading.", "tool_calls")
    calls = choice.message.tool_calls or []
    assert [(c.id, json.loads(c.function.arguments)) for c in calls if c.type == "function"] == [
        ("call_001", {"path": "p" * 60}),
        ("call_002", {}),
    ]
    assert whole.usage is not None
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens > 0
    assert {piece.object for piece in pieces} == {"chat.completion.chunk"}
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == "Reading."
    assert pieces[-1].choices[0].finish_reason == "tool_calls"


def test_a_cut_answer_ends_with_length() -> None:
    with ChatCompletionsServer([Cut("half")]) as server, client(server) as sdk:
        assert sdk.chat.completions.create(model="m", messages=QUESTION).choices[0].finish_reason == "length"


def test_a_stream_may_end_in_an_error() -> None:
    error = Failure(status=400, kind="invalid_request_error", message="no more")
    with (
        ChatCompletionsServer([Broken(turn="an answer", after_events=2, error=error)]) as server,
        client(server) as sdk,
    ):
        stream = sdk.chat.completions.create(model="m", messages=QUESTION, stream=True)
        with pytest.raises(openai.APIError, match="no more"):
            list(stream)


def test_a_prompt_over_the_window_is_refused_with_its_code() -> None:
    long: Any = [{"role": "user", "content": "word " * 99}]
    with (
        ChatCompletionsServer(["never"], context_window_tokens=50) as server,
        client(server) as sdk,
        pytest.raises(openai.BadRequestError, match="maximum context length is 50 tokens") as caught,
    ):
        sdk.chat.completions.create(model="m", messages=long)
    assert caught.value.code == "context_length_exceeded"
    assert server.requests == []


def body() -> dict[str, Any]:
    """A request that is accepted, with a call, its result and a tool."""
    function = {"name": "Read", "arguments": "{}"}
    return {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            {"role": "user", "content": "go on"},
        ],
    }


def change(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def spoil(request: dict[str, Any]) -> None:
        place: Any = request
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return spoil


SAID, CALL = ("messages", 2), ("messages", 2, "tool_calls", 0)
LONG = [{"id": f"c{n}", "type": "function", "function": {"name": "Read", "arguments": "{}"}} for n in range(129)]
TOOL = {"type": "function", "function": {"name": "Read"}}
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no model": (change("model", to=""), "model parameter"),
    "no messages": (change("messages", to=[]), "at least one message"),
    "no list of messages": (change("messages", to={}), "at least one message"),
    "no message": (change("messages", 1, to="q"), "messages[1]: should be an object"),
    "unknown role": (change("messages", 1, "role", to="human"), "one of the roles"),
    "role of another type": (change("messages", 1, "role", to=[]), "one of the roles"),
    "no content": (change("messages", 1, "content", to=None), "messages[1].content: null"),
    "a reply of nothing": (
        change("messages", 2, to={"role": "assistant", "content": None}),
        "messages[2].content: null",
    ),
    "content of another type": (change("messages", 1, "content", to=5), "a text or a list of parts"),
    "no parts": (change("messages", 1, "content", to=[]), "array too short"),
    "a part of another type": (change("messages", 1, "content", 0, to=5), "cannot stand in user messages"),
    "an image in a result": (
        change("messages", 3, "content", to=[{"type": "image_url", "image_url": {"url": "https://example.com/a"}}]),
        "'image_url' parts cannot stand in tool messages",
    ),
    "an id over 40 characters": (change(*CALL, "id", to="x" * 41), "string too long: expected at most 40, but got 41"),
    "a name over 64 characters": (change(*CALL, "function", "name", to="x" * 65), "should match"),
    "a name with a dot": (change(*CALL, "function", "name", to="a.b"), "should match"),
    "arguments as an object": (change(*CALL, "function", "arguments", to={}), "all texts"),
    "more than 128 calls": (change(*SAID, "tool_calls", to=LONG), "expected at most 128, but got 129"),
    "no calls": (change(*SAID, "tool_calls", to=[]), "at least one call"),
    "a call by the user": (change("messages", 4, "tool_calls", to=LONG[:1]), "in an assistant message"),
    "a result without an id": (change("messages", 3, "tool_call_id", to=None), "need a tool_call_id"),
    "a call without a result": (change("messages", 3, to={"role": "user", "content": "r"}), "did not have response"),
    "a result without a call": (change("messages", 2, to={"role": "user", "content": "r"}), "must answer a preceding"),
    "a tool's name over 64 characters": (change("tools", 0, "function", "name", to="x" * 65), "tools[0].function.name"),
    "more than 128 tools": (change("tools", to=[TOOL] * 129), "tools: array too long"),
    "no tool": (change("tools", 0, to={}), "a function with a name"),
    "no list of tools": (change("tools", to={"Read": {}}), "tools: should be a list"),
}


@pytest.fixture(scope="module")
def refusing() -> Iterator[ChatCompletionsServer]:
    with ChatCompletionsServer() as server:
        yield server


def answer(server: ChatCompletionsServer, request: Any) -> tuple[int, Any]:
    given = server.answer("/v1/chat/completions", {}, json.dumps(request).encode())
    return given.status, given.body


@pytest.mark.parametrize("name", FAULTS)
def test_what_openai_refuses_is_refused(name: str, refusing: ChatCompletionsServer) -> None:
    spoil, reason = FAULTS[name]
    request = body()
    spoil(request)
    status, said = answer(refusing, request)
    assert (status, said["error"]["type"]) == (400, "invalid_request_error")
    assert reason in said["error"]["message"]
    assert refusing.refusals[-1] == said["error"]["message"]
    assert refusing.requests == []


@pytest.mark.parametrize("request_body", [b"{", b"[]", b"5"])
def test_what_is_no_request_is_refused(request_body: bytes, refusing: ChatCompletionsServer) -> None:
    assert refusing.answer("/v1/chat/completions", {}, request_body).status == 400
    assert refusing.answer("/v1/models", {}, b"{}").status == 404


def test_what_is_spoiled_above_is_accepted() -> None:
    server = ChatCompletionsServer(["fine"])
    assert answer(server, body())[0] == 200
