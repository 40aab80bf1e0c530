"""LiteLLM with the wire view of Chat Completions, over loopback."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from ctxfs.context import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer
from frameworks import flow

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or its import asks the network

import litellm


def turn(body: dict[str, Any]) -> Any:
    """The scripted model, as a turn of the server."""
    messages = body["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    question = messages[-1]["content"] if messages[-1]["role"] == "user" else ""
    move = flow.next_move(question, results)
    return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]


@contextmanager
def server(turns: int = 20) -> Iterator[ChatCompletionsServer]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ChatCompletionsServer([turn] * turns)) as running,
    ):
        yield running
    assert running.refusals == []


class LoopAgent:
    """A loop whose messages are its own list, in which the replies of LiteLLM are as they came."""

    def __init__(self, server: ChatCompletionsServer, root: Path, kept: str | None) -> None:
        self.history = History("thread-1", root_path=root, **flow.SETTINGS)
        self.messages: list[Any] = json.loads(kept or "[]")
        self._tools = [
            {"type": "function", "function": {"name": tool.name, "parameters": dict(tool.input_schema)}}
            for tool in self.history.tools
        ]
        self._server = server
        self._first = len(server.requests)

    @property
    def requests(self) -> list[list[str]]:
        sent = self._server.requests[self._first :]
        return [[json.dumps(message, sort_keys=True) for message in body["messages"]] for body in sent]

    def ask(self, question: str) -> str:
        self.messages.append({"role": "user", "content": question})
        while True:
            reply = self._reply({"model": "openai/gpt-5", "messages": self.messages, "tools": self._tools})
            message = reply.choices[0].message
            self.messages.append(message)
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                given = json.loads(call.function.arguments)
                name = call.function.name
                content = flow.service_log(**given) if name == flow.TOOL else self.history.run_tool(name, given).content
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def _reply(self, body: Any) -> Any:
        reply = self._send(body)
        self.history.replied(reply.usage, reply.model)
        return reply

    def _send(self, body: Any) -> Any:
        return litellm.completion(**self.history.chat(body), api_base=self._server.url, api_key="any")

    def kept(self) -> str:
        return json.dumps(self.messages, default=lambda message: message.model_dump(exclude_none=True))

    def close(self) -> None:
        self.history.close()


class StreamedAgent(LoopAgent):
    """Streamed, and put together by LiteLLM."""

    def _send(self, body: Any) -> Any:
        rewritten = self.history.chat(body)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = litellm.completion(**rewritten, **options, api_base=self._server.url, api_key="any")
        return litellm.stream_chunk_builder(list(chunks))


class AsyncAgent(LoopAgent):
    """Awaited, each call in an event loop of its own."""

    def _send(self, body: Any) -> Any:
        async def send() -> Any:
            rewritten = await self.history.achat(body)
            return await litellm.acompletion(**rewritten, api_base=self._server.url, api_key="any")

        return asyncio.run(send())


@pytest.mark.parametrize("agent", [LoopAgent, StreamedAgent, AsyncAgent])
def test_the_flow_on_the_wire(agent: Callable[..., LoopAgent], tmp_path: Path) -> None:
    with server() as running:
        played = flow.play(lambda root, kept: agent(running, root, kept), tmp_path)
    assert flow.NEEDLE in played.kept, "what the developer keeps is the original"
    assert min(flow.billed_tokens(tmp_path)) > 0
