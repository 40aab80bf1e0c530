"""What a model is shown of its context with each request, and with no later one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.agent.llm.chat_completions import to_chat_body
from ctxfs.errors import ConfigError, ContextOverflow
from ctxfs.eviction import Window
from ctxfs.messages import AssistantMessage, ModelRequest, ToolCall, UserMessage
from ctxfs.messages.serialize import MessagesSerializer, to_messages_body
from ctxfs.session import past_request
from ctxfs.testing import ScriptedModel
from ctxfs.testing.invariants import check

STATUS = "[The state of your context"


@tool("Get a log", ephemeral=1)
def log(day: int) -> str:
    return f"what happened on day {day}\n" * 400


def texts(message: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in message["content"] if block["type"] == "text"]


def with_status(body: Mapping[str, Any]) -> list[int]:
    """The positions of the messages that carry a status."""
    return [n for n, m in enumerate(body["messages"]) if any(text.startswith(STATUS) for text in texts(m))]


@pytest.mark.anyio
async def test_each_request_carries_the_status_of_its_moment_alone(tmp_path: Path) -> None:
    model = ScriptedModel([[ToolCall("log", {"day": day})] for day in (1, 2, 3)] + ["done"])
    config = AgentConfig(tools=[log], offload_root_path=tmp_path, session_id="s", status_tokens=300)
    async with Agent(model, config) as agent:
        await agent.query("Go")
        assert not any(STATUS in str(item.message.content) for item in agent.context.items)
    for body in model.requests:
        assert with_status(body) == [len(body["messages"]) - 1]
    assert "Left the context" in texts(model.requests[-1]["messages"][-1])[-1]
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        for number, body in enumerate(model.requests, start=1):
            request = await past_request(fs, number)
            assert request.status.startswith(STATUS)
            assert request.body(cache=False)["messages"] == body["messages"], "as it was sent"


@pytest.mark.anyio
async def test_the_window_keeps_room_for_it_and_it_is_counted(tmp_path: Path) -> None:
    async def counted(status_tokens: int) -> tuple[int, int]:
        model = ScriptedModel([[ToolCall("log", {"day": 1})], "done"])
        config = AgentConfig(tools=[log], offload_root_path=tmp_path, status_tokens=status_tokens)
        async with Agent(model, config) as agent:
            await agent.query("Go")
            calls = agent.context.fs.state.calls
            counter = agent.context.counter
        shown = texts(model.requests[-1]["messages"][-1])[-1] if status_tokens else ""
        return calls[-1].counted_tokens, counter.count(shown)

    (without, _), (whole, status) = await counted(0), await counted(300)
    assert whole == without + status
    assert status > 20
    room = Window(window_tokens=1_000, reply_tokens=100)
    for status_tokens, fits in ((0, True), (800, False)):
        model = ScriptedModel(["done"])
        config = AgentConfig(
            offload_root_path=tmp_path, status_tokens=status_tokens, offload_enabled=False, window=room
        )
        async with Agent(model, config) as agent:
            if fits:
                await agent.query("Go " * 300)
            else:
                with pytest.raises(ContextOverflow):
                    await agent.query("Go " * 300)


@pytest.mark.anyio
async def test_nothing_is_shown_unless_it_is_asked_for(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    async with Agent(model, AgentConfig(offload_root_path=tmp_path)) as agent:
        await agent.query("Go")
    assert with_status(model.requests[0]) == []
    with pytest.raises(ConfigError, match="status_tokens"):
        AgentConfig(status_tokens=-1)


def test_a_status_changes_nothing_before_it() -> None:
    serializer = MessagesSerializer()
    messages = (UserMessage("one"), AssistantMessage("two"), UserMessage("three"))
    for status in ("", "first", "second \ud800", ""):
        request = ModelRequest(messages=messages, breakpoints=(3,), status=status)
        body = serializer.body(request, model="m", max_tokens=9)
        plain = to_messages_body(ModelRequest(messages=messages, breakpoints=(3,)), model="m", max_tokens=9)
        *_, last = body["messages"]
        shown = last["content"][len(plain["messages"][-1]["content"]) :]
        assert [block["text"] for block in shown] == ([status.replace("\ud800", "\ufffd")] if status else [])
        assert not any("cache_control" in block for block in shown), "it is behind all that is cached"
        assert body["messages"][:-1] == plain["messages"][:-1]
        assert last["content"][: -1 if status else None] == plain["messages"][-1]["content"]
        check(body)


def test_a_status_after_a_reply_is_a_message_of_its_own() -> None:
    request = ModelRequest(messages=(UserMessage("one"), AssistantMessage("two")), status="so it is")
    body = to_messages_body(request, model="m", max_tokens=9, cache=False)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert to_chat_body(body, max_tokens_field="max_tokens")["messages"][-1] == {"role": "user", "content": "so it is"}
