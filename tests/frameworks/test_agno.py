"""Agno, with the transport in the client of its model."""

from pathlib import Path
from typing import Any

import httpx2
from agno.agent import Agent
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from openai import OpenAI

from frameworks import flow, one_line


def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def ask(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
    client = OpenAI(api_key="any", base_url=url, http_client=httpx2.Client(transport=transport), max_retries=0)
    agent = Agent(model=OpenAIChat(id=one_line.MODEL, client=client), tools=[service_log], telemetry=False)
    before = [Message.model_validate(message) for message in kept or ()]
    reply = agent.run([*before, Message(role="user", content=question)])
    messages = [message.model_dump(mode="json") for message in reply.messages or ()]
    return str(reply.content), messages


def test_the_flow(tmp_path: Path) -> None:
    with one_line.chat_server() as server:
        one_line.play(ask, server, tmp_path)
