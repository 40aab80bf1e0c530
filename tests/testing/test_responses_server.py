"""The Responses API on loopback: what the real SDK makes of it, what the server keeps, and what it refuses."""

import json
from typing import Any

import httpx2
import openai
import pytest

from ctxfs.messages import AssistantMessage, ToolCall
from ctxfs.testing import Broken, Cut, Failure, ResponsesServer
from ctxfs.testing.server import ServerTurn
from patience import HANGS_S

pytestmark = pytest.mark.not_measured

CALLS: Any = ["Reading.", ToolCall("Read", {"path": "p" * 60}), ToolCall("Read", {})]
TOOLS: Any = [{"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}]
USER: Any = {"role": "user", "content": "q"}


def client(server: ResponsesServer) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)


def output_of(call_id: str, output: str = "found") -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_a_reply_is_items_in_one_piece_or_as_events() -> None:
    with ResponsesServer([CALLS, CALLS]) as server, client(server) as sdk:
        whole = sdk.responses.create(model="m", input="q", tools=TOOLS)
        with sdk.responses.stream(model="m", input="q", tools=TOOLS) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
    assert [item.type for item in whole.output] == ["message", "function_call", "function_call"]
    assert whole.output_text == streamed.output_text == "Reading."
    calls = [item for item in streamed.output if item.type == "function_call"]
    assert [(call.call_id, json.loads(call.arguments)) for call in calls] == [
        ("call_003", {"path": "p" * 60}),
        ("call_004", {}),
    ]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert whole.usage is not None
    assert streamed.usage is not None
    assert streamed.usage.input_tokens_details.cached_tokens == whole.usage.input_tokens > 0


def test_thinking_is_a_reasoning_item() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turns = [AssistantMessage((thought, {"type": "text", "text": "x"})), AssistantMessage("plain")]
    with ResponsesServer(turns) as server, client(server) as sdk:
        reply = sdk.responses.create(model="m", input="q")
        with sdk.responses.stream(model="m", input="q") as stream:
            assert stream.get_final_response().output_text == "plain"
    assert reply.output[0].type == "reasoning"
    assert reply.output[0].summary[0].text == "hm"


def test_a_cut_reply_is_incomplete() -> None:
    with ResponsesServer([Cut("half")]) as server, client(server) as sdk:
        reply = sdk.responses.create(model="m", input=[USER])
    assert (reply.status, reply.incomplete_details and reply.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )


def test_the_server_keeps_the_history_unless_it_is_told_not_to() -> None:
    with ResponsesServer([CALLS, "done", "unstored"]) as server, client(server) as sdk:
        first = sdk.responses.create(model="m", input="q", tools=TOOLS)
        outputs = [output_of("call_001"), output_of("call_002")]
        second = sdk.responses.create(model="m", input=outputs, previous_response_id=first.id, store=False)
        assert second.usage is not None
        assert first.usage is not None
        assert second.usage.input_tokens > first.usage.input_tokens
        for going_on in (
            {"previous_response_id": second.id},
            {"previous_response_id": "resp_9"},
            {"conversation": "conv_1"},
        ):
            with pytest.raises((openai.BadRequestError, openai.NotFoundError), match="not found"):
                sdk.responses.create(model="m", input=[USER], **going_on)  # type: ignore[call-overload]


def test_a_request_refers_to_items_that_the_server_keeps() -> None:
    with ResponsesServer([CALLS, "done", "unstored"]) as server, client(server) as sdk:
        first = sdk.responses.create(model="m", input=[USER], tools=TOOLS)
        calls: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
        answered: list[Any] = [USER, *calls, output_of("call_001"), output_of("call_002")]
        second = sdk.responses.create(model="m", input=answered, store=False)
        assert second.output_text == "done"
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            sdk.responses.create(model="m", input=[USER, output_of("call_001")])
        unstored: list[Any] = [USER, {"type": "item_reference", "id": second.output[0].id}]
        with pytest.raises(openai.NotFoundError, match="not found"):
            sdk.responses.create(model="m", input=unstored)
    assert server.requests[1]["input"] == answered, "as it came"


def test_failures_and_broken_streams() -> None:
    error = Failure(status=500, kind="server_error", message="no more")
    turns: list[ServerTurn] = [
        Failure.rate_limited(retry_after_s=1),
        Broken(turn="an answer", error=error),
        Broken(turn="an answer", after_events=2),
    ]
    with ResponsesServer(turns) as server, client(server) as sdk:
        with pytest.raises(openai.RateLimitError, match="rate limit"):
            sdk.responses.create(model="m", input="q")
        assert [event.type for event in sdk.responses.create(model="m", input="q", stream=True)][-1] == "error"
        with pytest.raises((httpx2.RemoteProtocolError, openai.APIConnectionError)):
            list(sdk.responses.create(model="m", input="q", stream=True))
        with pytest.raises(openai.BadRequestError, match="the script ends at turn 3"):
            sdk.responses.create(model="m", input="q")


def test_a_prompt_over_the_window_is_refused_with_its_code() -> None:
    with (
        ResponsesServer(["never"], context_window_tokens=50) as server,
        client(server) as sdk,
        pytest.raises(openai.BadRequestError, match="maximum context length is 50 tokens") as caught,
    ):
        sdk.responses.create(model="m", input="word " * 99)
    assert caught.value.code == "context_length_exceeded"


CALL = {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (5, "the request body should be an object"),
        ({"input": "q"}, "you must provide a model parameter"),
        ({"model": "m"}, "input: should be a text"),
        ({"model": "m", "input": []}, "input: should be a text"),
        ({"model": "m", "input": [5]}, "input[0]: should be an item"),
        ({"model": "m", "input": [{"role": "user"}]}, "input[0]: should be an item"),
        ({"model": "m", "input": [{"role": "tool", "content": "x"}]}, "input[0]: should be an item"),
        (
            {"model": "m", "input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
            "input[0].content: 'text' parts cannot stand in user messages",
        ),
        ({"model": "m", "input": [{"role": "assistant", "content": ["x"]}]}, "'x' parts cannot stand in assistant"),
        ({"model": "m", "input": [USER, CALL]}, "No tool output found for function call c1."),
        ({"model": "m", "input": [output_of("c1")]}, "No tool call found for function call output with call_id c1."),
        (
            {"model": "m", "input": [CALL, {**output_of("c1"), "type": "custom_tool_call_output"}]},
            "No tool call found for custom tool call output with call_id c1.",
        ),
        ({"model": "m", "input": [{**CALL, "arguments": {}}]}, "input[0].arguments: should be a text"),
        ({"model": "m", "input": [{**output_of("c1"), "call_id": None}]}, "input[0].call_id: should be a text"),
        ({"model": "m", "input": [{**output_of("c1"), "output": 1}]}, "input[0].output: should be a text"),
        ({"model": "m", "input": "q", "tools": "x"}, "tools: should be a list"),
        ({"model": "m", "input": "q", "tools": [{"type": "function"}]}, "missing required parameter: 'name'"),
        ({"model": "m", "input": "q", "tools": [{"type": "function", "name": "a b"}]}, "should match"),
        ({"model": "m", "input": "q", "tools": [{"name": "x"}]}, "should be an object with a type"),
    ],
)
def test_what_the_api_would_refuse_is_refused(body: Any, reason: str) -> None:
    with ResponsesServer(["never"]) as server:
        reply = httpx2.post(f"{server.url}/responses", json=body, timeout=HANGS_S)
    assert reply.status_code == 400
    assert reason in reply.json()["error"]["message"]
    assert len(server.refusals) == 1
    assert server.requests == []


def test_what_is_not_json_and_other_paths_are_refused() -> None:
    with ResponsesServer(["never"]) as server:
        assert httpx2.post(f"{server.url}/responses", content=b"{", timeout=HANGS_S).status_code == 400
        assert httpx2.post(f"{server.url}/chat/completions", json={}, timeout=HANGS_S).status_code == 404


def test_items_that_are_not_known_here_are_taken() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    search: Any = [{"type": "web_search"}]
    items: Any = [USER, reasoning, CALL, output_of("c1"), {"role": "assistant", "content": "x"}, USER]
    with ResponsesServer(["fine"]) as server, client(server) as sdk:
        assert sdk.responses.create(model="m", input=items, tools=search).output_text == "fine"
