"""LlamaIndex: the transport is in the clients of its model, and answers the reading.

    pip install ctxfs llama-index-core llama-index-llms-openai-like
    python examples/with_llama_index.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``api_base``.
"""

import asyncio
import tempfile

import httpx
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

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
        llm = OpenAILike(
            model="gpt-5",
            api_key="any",
            api_base=server.url,
            is_chat_model=True,
            is_function_calling_model=True,
            http_client=httpx.Client(transport=transport),
            async_http_client=httpx.AsyncClient(transport=transport),
        )
        agent = FunctionAgent(tools=[service_log], llm=llm, streaming=False)
        print(await agent.run(user_msg="Is everything all right?"))
        print("\n".join(transport.savings.lines()))


asyncio.run(main())
