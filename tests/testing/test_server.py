"""The Messages API on loopback as any client sees it: what it refuses, its events, its cache."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ctxfs.messages import AssistantMessage, ToolCall
from ctxfs.testing import Broken, Failure, MessagesServer
from prove.corruptions import CORRUPTIONS, corrupt, valid_body

pytestmark = pytest.mark.not_measured

HEADERS = {"x-api-key": "test", "anthropic-version": "2023-06-01", "content-type": "application/json"}


def post(
    server: MessagesServer, body: Any, path: str = "/v1/messages", headers: dict[str, str] = HEADERS
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    try:
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def events(data: bytes) -> list[dict[str, Any]]:
    parsed = []
    for event in data.decode().split("\n\n")[:-1]:
        name, payload = event.split("\n")
        parsed.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {parsed[-1]['type']}"
    return parsed


@pytest.fixture(scope="module")
def refusing() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_fault_is_refused_with_its_reason(name: str, refusing: MessagesServer) -> None:
    bad = corrupt(name, valid_body())
    status, _, data = post(refusing, bad.body)
    assert status == 400
    error = json.loads(data)["error"]
    assert error["type"] == "invalid_request_error"
    assert bad.reason in error["message"]
    assert refusing.refusals[-1] == error["message"]
    assert refusing.requests == []


@pytest.mark.parametrize(
    ("path", "headers", "body", "expected"),
    [
        ("/v1/nothing", HEADERS, b"{}", (404, "Not found")),
        ("/v1/messages", {}, b"{}", (401, "x-api-key header is required")),
        ("/v1/messages", HEADERS, b"{", (400, "not valid JSON")),
        ("/v1/messages", HEADERS, b"[]", (400, "should be an object")),
        ("/v1/messages", {**HEADERS, "content-length": str(40 << 20)}, b"", (413, "exceeds the maximum size")),
    ],
)
def test_what_is_no_request_is_refused(
    refusing: MessagesServer, path: str, headers: dict[str, str], body: bytes, expected: tuple[int, str]
) -> None:
    status, _, data = post(refusing, body, path, headers)
    assert status == expected[0]
    assert expected[1] in data.decode()


def test_a_bearer_token_is_a_key_too() -> None:
    with MessagesServer(["a"], api_key="right") as server:
        assert post(server, valid_body(), headers={"authorization": "Bearer right"})[0] == 200
        assert post(server, valid_body(), headers={"authorization": "Bearer wrong"})[0] == 401


def test_an_answer_without_streaming() -> None:
    with MessagesServer([["Reading.", ToolCall("Read", {"path": "a"})]]) as server:
        status, headers, data = post(server, valid_body())
    reply = json.loads(data)
    assert status == 200
    assert headers["request-id"]
    assert reply["content"] == [
        {"type": "text", "text": "Reading."},
        {"type": "tool_use", "id": "call_001", "name": "Read", "input": {"path": "a"}},
    ]
    assert reply["stop_reason"] == "tool_use"
    assert server.requests == [valid_body()]


def test_a_stream_has_the_events_in_the_providers_order() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {"n": 1}}
    with MessagesServer([AssistantMessage((thought, call))]) as server:
        stream = events(post(server, {**valid_body(), "stream": True})[2])
    assert [e["type"] for e in stream] == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [e["delta"]["type"] for e in stream if e["type"] == "content_block_delta"] == [
        "thinking_delta",
        "signature_delta",
        "input_json_delta",
        "input_json_delta",
    ]
    assert stream[0]["message"]["content"] == []
    assert stream[-2]["delta"]["stop_reason"] == "tool_use"


def test_failures_come_with_their_status_and_headers() -> None:
    with MessagesServer([Failure.rate_limited(1.5), Failure.overloaded(), Failure.prompt_too_long(9, 8)]) as server:
        answers = [post(server, valid_body()) for _ in range(3)]
    assert [status for status, _, _ in answers] == [429, 529, 400]
    assert answers[0][1]["retry-after"] == "1.5"
    assert "retry-after" not in answers[1][1]
    assert "prompt is too long: 9 tokens > 8 maximum" in answers[2][2].decode()


def test_a_stream_can_break_off_or_end_in_an_error() -> None:
    turns: list[Any] = [
        Broken(turn="never whole", after_events=3),
        Broken(turn="x", after_events=3, error=Failure.overloaded()),
    ]
    with MessagesServer(turns) as server:
        with pytest.raises(http.client.IncompleteRead):
            post(server, {**valid_body(), "stream": True})
        stream = events(post(server, {**valid_body(), "stream": True})[2])
    assert stream[-1]["error"]["type"] == "overloaded_error"


def test_a_script_may_answer_by_the_request() -> None:
    with MessagesServer([lambda body: f"{len(body['messages'])} messages"]) as server:
        assert json.loads(post(server, valid_body())[2])["content"][0]["text"] == "3 messages"


def test_after_the_script_the_server_says_so() -> None:
    with MessagesServer(["a"]) as server:
        post(server, valid_body())
        status, _, data = post(server, valid_body())
    assert status == 400
    assert "add a turn" in data.decode()


def test_tokens_are_counted_without_a_turn_and_without_a_limit() -> None:
    with MessagesServer([]) as server:
        body = {k: v for k, v in valid_body().items() if k != "max_tokens"}
        status, _, data = post(server, body, "/v1/messages/count_tokens")
    assert status == 200
    assert json.loads(data)["input_tokens"] > 0
    assert server.requests == []


def test_it_has_no_address_before_it_runs() -> None:
    with pytest.raises(RuntimeError, match="enter it"):
        _ = MessagesServer([]).url


def test_other_methods_are_refused(refusing: MessagesServer) -> None:
    connection = http.client.HTTPConnection(refusing.url.removeprefix("http://"))
    connection.request("GET", "/v1/messages")
    assert connection.getresponse().status == 405
    connection.close()
