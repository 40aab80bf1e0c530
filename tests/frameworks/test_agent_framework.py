"""Microsoft's Agent Framework, with the transport in the client of its model."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI

from ctxfs.adapters.transport import history_transport
from ctxfs.context import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ResponsesServer
from frameworks import flow, one_line


def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def sdk(url: str, transport: Any) -> AsyncOpenAI:
    client = httpx2.AsyncClient(transport=transport)
    return AsyncOpenAI(api_key="any", base_url=url, http_client=client, max_retries=0)


def asks(kind: Any, **options: Any) -> one_line.Ask:
    def ask(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
        async def run() -> tuple[str, Any]:
            client = kind(model=one_line.MODEL, async_client=sdk(url, transport))
            agent = Agent(client=client, tools=[service_log])
            session = kept or agent.create_session()
            reply = await agent.run(question, session=session, options=options or None)
            return str(reply.text), session

        return asyncio.run(run())

    return ask


def seen(session: Any) -> str:
    return str(session.to_dict())


def test_the_flow(tmp_path: Path) -> None:
    with one_line.chat_server() as server:
        one_line.play(asks(OpenAIChatCompletionClient), server, tmp_path, seen=seen)


def test_the_responses_api_that_stores_nothing(tmp_path: Path) -> None:
    with one_line.responses_server() as server:
        one_line.play(asks(OpenAIChatClient, store=False), server, tmp_path, seen=seen)


def test_a_history_that_the_server_holds_is_sent_as_it_is(tmp_path: Path) -> None:
    """By default the client of the Responses API sends what is new, and names the reply before it."""
    turns: list[Any] = [[ToolCall("service_log", {"n": 1})], "fine"]
    with ResponsesServer(turns) as server, History("run", root_path=tmp_path, **flow.SETTINGS) as history:
        transport = history_transport(history, reading_turns=8)
        answer, _ = asks(OpenAIChatClient)(server.url, flow.QUESTION, transport, None)
    assert answer == "fine"
    (problem,) = transport.savings.problems
    assert "previous_response_id is set" in problem
