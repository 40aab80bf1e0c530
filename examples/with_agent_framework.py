"""Microsoft's Agent Framework: the transport is in the client of its model, and answers the reading.

    pip install ctxfs agent-framework-core agent-framework-openai
    python examples/with_agent_framework.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import asyncio
import tempfile

import httpx2
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from ctxfs import History
from ctxfs.adapters.transport import history_transport
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer

SCRIPT = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]


def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


async def main() -> None:
    async with (
        ChatCompletionsServer([*SCRIPT, [ToolCall("context_list", {})], "Every request was served."]) as server,
        History("thread-1", root_path=tempfile.mkdtemp(), model="gpt-5") as history,
    ):
        transport = history_transport(history, reading_turns=8)
        client = httpx2.AsyncClient(transport=transport)
        sdk = AsyncOpenAI(api_key="any", base_url=server.url, http_client=client)
        agent = Agent(client=OpenAIChatCompletionClient(model="gpt-5", async_client=sdk), tools=[service_log])
        print((await agent.run("Is everything all right?")).text)
        print("\n".join(transport.savings.lines()))


asyncio.run(main())
