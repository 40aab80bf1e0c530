"""Stop an agent, at any moment and in any way, and go on later from its session.

python examples/resume.py
"""

import asyncio
import tempfile

from ctxfs import Agent, AgentConfig, tool
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel


@tool("Get the chapter of a book", ephemeral=1)
async def chapter(number: int) -> str:
    return f"Chapter {number}. " + "It was a dark and stormy night. " * 300


async def main() -> None:
    root = tempfile.mkdtemp()
    first = ScriptedModel(
        [[ToolCall("chapter", {"number": 1})], [ToolCall("chapter", {"number": 2})], "Stormy nights."]
    )
    agent = Agent(first, AgentConfig(tools=[chapter], offload_root_path=root))
    async with agent:
        print(await agent.query("What are the first two chapters about?"))

    # Perhaps in another process, perhaps tomorrow. Everything is there, also what was evicted.
    second = ScriptedModel([[ToolCall("chapter", {"number": 3})], "One more stormy night."])
    config = AgentConfig(tools=[chapter], offload_root_path=root, session_id=agent.session_id)
    async with Agent(second, config) as resumed:
        print(await resumed.query("And the third?"))
        for item in resumed.context.items:
            state = f"{item.content_tokens:,} tokens in a file" if item.offloaded else f"{item.token_count:,} tokens"
            print(f"  {item.id:9} {item.item_type:18} {state}")


asyncio.run(main())
