"""The Bash tool: commands are approved one by one, and what they print streams to the disk, however much it is.

python examples/bash_tool.py
"""

import asyncio
import tempfile

from ctxfs import Agent, AgentConfig
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Bash


def ask(call: ToolCall) -> bool | str:
    """In real life: ask a person."""
    command = str(call.arguments.get("command", ""))
    allowed = not command.startswith("rm ")
    print(f"{'run ' if allowed else 'deny'}: {call.name} {command}")
    return allowed or "nothing is deleted here"


async def main() -> None:
    model = ScriptedModel(
        [
            [ToolCall("Bash", {"command": "seq 1 100000; exit 3"}), ToolCall("Bash", {"command": "rm -rf /"})],
            [ToolCall("context_read", {"ref": "terminal_001", "offset": 50_000, "limit": 2})],
            [ToolCall("Bash", {"command": "sleep 100", "timeout_s": 0.2})],
            "Done.",
        ]
    )
    config = AgentConfig(bash=Bash(), approve=ask, offload_root_path=tempfile.mkdtemp())
    async with Agent(model, config) as agent:
        print(await agent.query("Count to 100,000."))
        for item in agent.context.items:
            if item.tool_name:
                lines = str(item.message.content).split("\n")
                print(f"\n{item.tool_name}: " + "\n  ".join([*lines[:4], *(["…"] if len(lines) > 4 else [])]))


asyncio.run(main())
