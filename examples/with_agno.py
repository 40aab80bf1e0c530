"""Agno: the transport is in the client of its model, and answers the reading.

    pip install ctxfs agno 'openai>=3.50'
    python examples/with_agno.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import tempfile

import httpx2
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from openai import OpenAI

from ctxfs import History
from ctxfs.adapters.transport import history_transport
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer

SCRIPT = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]


def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


with (
    ChatCompletionsServer([*SCRIPT, [ToolCall("context_list", {})], "Every request was served."]) as server,
    History("thread-1", root_path=tempfile.mkdtemp(), model="gpt-5") as history,
):
    transport = history_transport(history, reading_turns=8)
    client = OpenAI(api_key="any", base_url=server.url, http_client=httpx2.Client(transport=transport))
    agent = Agent(model=OpenAIChat(id="gpt-5", client=client), tools=[service_log], telemetry=False)
    print(agent.run("Is everything all right?").content)
    print("\n".join(transport.savings.lines()))
