"""The whole workflow: a tool that keeps its last two results, four questions, and a look at what was evicted.

    python examples/quickstart.py

With ANTHROPIC_API_KEY set it asks a real model; without, a scripted one that makes the same calls.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import anyio

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import ChatAnthropic
from ctxfs.messages import ChatModel, ToolCall
from ctxfs.testing import ScriptedModel

FOLDER = Path(tempfile.mkdtemp())


@tool("Read a file", ephemeral=2)  # the last two results stay in the context
async def read_file(name: str) -> str:
    return await anyio.Path(FOLDER / name).read_text()


def model() -> ChatModel:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return ChatAnthropic()
    turns = [([ToolCall("read_file", {"name": f"file{n}.txt"})], f"File {n} is about topic {n}.") for n in range(1, 5)]
    return ScriptedModel([step for turn in turns for step in turn])


async def main() -> None:
    for n in range(1, 5):
        (FOLDER / f"file{n}.txt").write_text("".join(f"line {i} of a text on topic {n}\n" for i in range(1, 400)))

    async with Agent(llm=model(), config=AgentConfig(tools=[read_file], offload_token_threshold=1000)) as agent:
        for n in range(1, 5):
            print(await agent.query(f"Read file{n}.txt and tell me its topic in one sentence."))
            print(f"  the context holds {agent.context.token_count:,} tokens")

        print("\nWhat has left the context:")
        for item in agent.context.items:
            if item.offloaded:
                print(f"  {item.tool_name} {item.content_tokens:,} -> {item.token_count:,} tokens: {item.offload_path}")
        print(f"\nctxfs ls {agent.session_id}")


asyncio.run(main())
