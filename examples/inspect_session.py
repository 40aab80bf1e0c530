"""Look into a session from Python, as ``ctxfs ls``, ``cat``, ``grep`` and ``check`` do; its agent may be running.

python examples/inspect_session.py
"""

import asyncio
import tempfile

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel


@tool("Run the tests", ephemeral=1)
async def run_tests(suite: str) -> str:
    lines = [f"{suite}::test_{n} PASSED" for n in range(1, 500)]
    lines[321] = f"{suite}::test_322 FAILED: AssertionError: expected 3, got 4"
    return "\n".join(lines)


async def look_into(root: str, session_id: str) -> None:
    fs = ContextFileSystem(session_id, root_path=root, read_only=True)
    async with fs:
        for item in await fs.items():
            print(
                f"{item.id:10} {item.item_type:18} {'file' if item.offloaded else 'context':8} {item.token_count:>6,}"
            )

        print("\nWhat the model sees in the place of the first result:\n")
        placeholder = next(item.message.content for item in await fs.items() if item.offloaded)
        print(str(placeholder).replace(root, "<root>"))

        for item_id, stored in fs.state.stored.items():
            print(f"\n{item_id} is in {stored.name}: {stored.lines} lines, {stored.size_bytes:,} bytes")
            reader = fs.reader(item_id)
            print("line 322:", *await reader.lines(322, 322))
            print("the last:", *await reader.tail(1))
        report = await fs.verify()
        print(f"\n{report.checked} content checked: {'as written' if report.ok else report.problems}")


async def main() -> None:
    root = tempfile.mkdtemp()
    model = ScriptedModel([[ToolCall("run_tests", {"suite": s})] for s in ("unit", "api")] + ["One test fails."])
    async with Agent(model, AgentConfig(tools=[run_tests], offload_root_path=root)) as agent:
        print(await agent.query("Do the tests pass?"))
        await look_into(root, agent.session_id)


asyncio.run(main())
