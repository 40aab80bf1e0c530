"""An agent with the real SDKs against servers that refuse what the providers refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import ChatAnthropic, ChatOpenAI
from ctxfs.eviction import Window
from ctxfs.messages import AssistantMessage, ChatModel, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import Broken, ChatCompletionsServer, Failure, MessagesServer
from ctxfs.testing.strategies import png

pytestmark = [pytest.mark.anyio, pytest.mark.service]

Server = MessagesServer | ChatCompletionsServer
Provider = tuple[Callable[..., Server], Callable[[str], ChatModel]]
PROVIDERS: dict[str, Provider] = {
    "anthropic": (MessagesServer, lambda url: ChatAnthropic(api_key="k", base_url=url)),
    "openai": (ChatCompletionsServer, lambda url: ChatOpenAI("gpt-5", base_url=url)),
}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    return PROVIDERS[request.param]


@tool("Produce text")
def produce(words: int) -> str:
    return "word " * words


def config(root: Path, **settings: Any) -> AgentConfig:
    return AgentConfig(**{"tools": [produce], "offload_root_path": root, "pricing": None, **settings})


def calls_then_done(calls: int) -> Callable[[dict[str, Any]], Any]:
    """A model that calls ``produce`` so often, whatever summaries it is asked for in between."""
    left = iter(range(calls))

    def turn(body: dict[str, Any]) -> Any:
        if not body.get("tools"):
            return "What happened so far: texts were produced."
        return "done" if next(left, None) is None else [ToolCall("produce", {"words": 3_000})]

    return turn


async def test_a_window_that_is_smaller_than_the_budget_says_is_learned_from_the_refusal(
    tmp_path: Path, provider: Provider
) -> None:
    serve, make = provider
    turns = [calls_then_done(8)] * 30
    settings = config(tmp_path, window=Window(window_tokens=400_000, reply_tokens=128_000))
    async with (
        serve(turns, context_window_tokens=12_000, counter=default_counter()) as server,
        Agent(make(server.url), settings) as agent,
    ):
        assert await agent.query("go") == "done"
    assert len(server.refusals) == 1
    assert "12000" in server.refusals[0]


async def test_a_refusal_in_the_middle_of_a_stream_makes_room_too(tmp_path: Path, provider: Provider) -> None:
    serve, make = provider
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    refused = Broken(
        turn="never", after_events=1, error=Failure(status=400, kind="invalid_request_error", message=message)
    )
    turns: list[Any] = [[ToolCall("produce", {"words": 3_000})], "seen", refused, "done"]
    async with serve(turns) as server, Agent(make(server.url), config(tmp_path)) as agent:
        assert await agent.query("go") == "seen"
        assert await agent.query("go on") == "done"
    first, second = (json.dumps(request["messages"]) for request in server.requests[2:])
    assert len(second) < len(first)


async def test_a_failed_result_with_an_image_is_accepted(tmp_path: Path, provider: Provider) -> None:
    serve, make = provider
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(2, 2)}}
    call = {"type": "tool_use", "id": "a" * 60, "name": "old.tool", "input": {}}
    result = ToolMessage("a" * 60, "old.tool", ({"type": "text", "text": "half of it"}, image), is_error=True)
    async with serve(["done"]) as server, Agent(make(server.url), config(tmp_path)) as agent:
        for message in (UserMessage("q"), AssistantMessage((call,)), result):
            await agent.context.add(message)
        assert await agent.query("go on") == "done"
    assert server.refusals == []
    assert png(2, 2) in json.dumps(server.requests[0])
    assert "Error:" in json.dumps(server.requests[0])


async def test_two_hundred_calls_at_once_are_run_and_answered(tmp_path: Path, provider: Provider) -> None:
    serve, make = provider
    calls = [ToolCall("produce", {"words": n}) for n in range(200)]
    async with serve([calls, "done"]) as server, Agent(make(server.url), config(tmp_path)) as agent:
        assert await agent.query("go") == "done"
    assert server.refusals == []
    assert len(json.dumps(server.requests[1]).split('"call_')) > 400  # each call, and its result
