"""LlamaIndex, with the transport in the client of its model."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

from frameworks import flow, one_line


def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def ask(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
    llm = OpenAILike(
        model=one_line.MODEL,
        api_key="any",
        api_base=url,
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
        http_client=httpx.Client(transport=transport),
        async_http_client=httpx.AsyncClient(transport=transport),
    )

    async def run() -> tuple[str, Any]:
        memory = kept or ChatMemoryBuffer.from_defaults(token_limit=10**9)
        agent = FunctionAgent(tools=[service_log], llm=llm, streaming=False)
        reply = await agent.run(user_msg=question, memory=memory)
        return str(reply), memory

    return asyncio.run(run())


def seen(memory: ChatMemoryBuffer) -> str:
    return str([message.blocks for message in memory.get_all()])


def test_the_flow(tmp_path: Path) -> None:
    with one_line.chat_server() as server:
        one_line.play(ask, server, tmp_path, seen=seen)
