"""Over-size tool output becomes an artifact before it is ever sent, and the model reads more of it with its tools.

    python examples/materialize.py

A script replaces the model, so it needs no key; a model without tools of its own follows.
"""

import asyncio
import tempfile

from ctxfs import Agent, AgentConfig, tool
from ctxfs.messages import LegacyToolCalls, ToolCall
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize


@tool("Run the tests")
async def run_tests() -> str:
    lines = [f"test_{n:04} passed" for n in range(2_000)]
    lines[1_200] = "test_1200 FAILED\n  AssertionError: 3 != 4\n  at line 17"
    return "\n".join(lines)


def config() -> AgentConfig:
    return AgentConfig(tools=[run_tests], materialize=Materialize(), offload_root_path=tempfile.mkdtemp())


async def main() -> None:
    model = ScriptedModel(
        [
            [ToolCall("run_tests", {})],
            [ToolCall("context_grep", {"ref": "call_001", "pattern": "FAILED", "context_lines": 2})],
            "One test failed: test_1200.",
        ]
    )
    async with Agent(model, config()) as agent:
        print(await agent.query("Do the tests pass?"))
        first, second = (item for item in agent.context.items if item.tool_name)
        print(f"\nwhat the model saw first ({len(str(first.message.content)):,} characters), in part:")
        print("\n".join(str(first.message.content).split("\n")[:5]))
        print(f"\nwhat it then looked for:\n{second.message.content}")
        saved = agent.context.eager_stats
        print(f"\nmaterialized {saved.count} times, {saved.saved_chars:,} characters saved")

    # The same for a model without tool calls: they are text.
    call = '<function_call>{"name": "run_tests", "arguments": {}}</function_call>'
    async with Agent(LegacyToolCalls(ScriptedModel([call, "One test failed."])), config()) as agent:
        print(f"\nin text form: {await agent.query('Do the tests pass?')}")


asyncio.run(main())
