"""Threads that the Messages API keeps, as the real SDK uses them."""

import json
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import BetaFunctionTool

from ctxfs.messages import ToolCall
from ctxfs.testing import Broken, Failure, MessagesServer
from ctxfs.testing.server import THREADS_BETA
from patience import HANGS_S

pytestmark = pytest.mark.not_measured

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "anthropic-beta": THREADS_BETA}
USER = {"role": "user", "content": "q"}


def client(server: MessagesServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)


def look() -> BetaFunctionTool[Any]:
    @anthropic.beta_tool
    def look(place: str) -> str:
        """Look somewhere.

        Args:
            place: where to look
        """
        return f"nothing in {place}"

    return look


def post(server: MessagesServer, headers: dict[str, str] = HEADERS, **fields: Any) -> tuple[int, Any]:
    body = {"model": "m", "max_tokens": 9, "messages": [USER], **fields}
    reply = httpx2.post(f"{server.url}/v1/messages", headers=headers, json=body, timeout=HANGS_S)
    return reply.status_code, reply.json()


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_runner_sends_only_what_is_new(stream: bool) -> None:
    turns: Any = [[ToolCall("look", {"place": "a"})], [ToolCall("look", {"place": "b"})], "nowhere"]
    with MessagesServer(turns) as server, client(server) as sdk:
        question: Any = [{"role": "user", "content": "where?"}]
        runner = sdk.beta.messages.tool_runner(
            model="m", max_tokens=100, messages=question, tools=[look()], system="Look.", stream=stream
        )
        said = [str(message.get_final_message() if stream else message) for message in runner]  # type: ignore[union-attr]
        assert "nowhere" in said[-1]
    assert server.refusals == []
    assert [r["thread"]["type"] for r in server.requests] == ["create", "continue", "continue"]
    assert [len(r["messages"]) for r in server.requests] == [1, 1, 1]
    assert ["tools" in r for r in server.requests] == [True, False, False]


def test_usage_counts_all_that_the_thread_holds() -> None:
    with MessagesServer(["first " * 50, "second"]) as server, client(server) as sdk:
        thread = sdk.beta.messages.thread(model="m", max_tokens=100, system="s" * 400)
        thread.append({"role": "user", "content": "q"})
        first = thread.send()
        thread.append({"role": "user", "content": "and?"})
        second = thread.send()
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert [len(r["messages"]) for r in server.requests] == [1, 1]


def test_what_a_thread_cannot_do_is_refused_with_the_code_that_the_sdk_knows() -> None:
    broken = Broken(turn="half an answer", after_events=3)
    with MessagesServer(["one", "two", Failure.overloaded(), broken, "three"]) as server:
        created = post(server, thread={"type": "create"}, system="s")[1]
        go_on = {"type": "continue", "previous_message_id": created["id"]}
        cases: list[tuple[dict[str, Any], str, str | None]] = [
            ({"thread": {**go_on, "previous_message_id": "msg_9"}}, "there is none that ends with", "thread_not_found"),
            ({"thread": go_on, "system": "s"}, "system cannot be set again", None),
            ({"thread": go_on, "messages": 5}, "messages", None),
            ({"thread": {"type": "go"}}, "thread: use", None),
        ]
        for fields, reason, code in cases:
            status, body = post(server, **fields)
            assert (status, body["error"].get("details", {}).get("error_code")) == (400, code)
            assert reason in body["error"]["message"]
        assert post(server, {**HEADERS, "anthropic-beta": ""}, thread=go_on)[0] == 400
        assert post(server, thread=go_on)[0] == 200
        status, body = post(server, thread=go_on)
        assert (status, body["error"]["details"]["error_code"]) == (400, "thread_already_continued")
        again = {"type": "continue", "previous_message_id": "msg_000002"}
        assert post(server, thread=again)[0] == 529  # nothing was said, so it can be tried again
        with pytest.raises(httpx2.RemoteProtocolError):
            post(server, thread=again, stream=True)
        assert post(server, thread=again)[0] == 200
    assert len(json.loads(json.dumps(server.refusals))) == 6
