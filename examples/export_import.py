"""Move a session to another machine as one file; the agent goes on there, and can still read what was evicted.

python examples/export_import.py
"""

import asyncio
import tempfile
from pathlib import Path

from ctxfs import Agent, AgentConfig, tool
from ctxfs.errors import ArchiveDamaged
from ctxfs.messages import ToolCall
from ctxfs.session import export_session, import_session
from ctxfs.testing import ScriptedModel


@tool("Run the tests", ephemeral=1)
async def run_tests(suite: str) -> str:
    return "\n".join(f"{suite}::test_{n} {'FAILED' if n == 322 else 'PASSED'}" for n in range(1, 500))


async def here(root: Path) -> Path:
    model = ScriptedModel([[ToolCall("run_tests", {"suite": s})] for s in ("unit", "api")] + ["One test fails."])
    async with Agent(model, AgentConfig(tools=[run_tests], offload_root_path=str(root))) as agent:
        print("here:", await agent.query("Do the tests pass?"))
        session_id = agent.session_id
    done = await export_session(session_id, root / "session.ctxfs", root_path=root)
    print(f"exported: {done.files} content, {done.size_bytes:,} bytes with the journal")
    return done.path


async def there(root: Path, archive: Path) -> None:
    session = await import_session(archive, root_path=root)
    print("imported:", session.session_id == session.path.name)
    model = ScriptedModel(["I remember."])
    config = AgentConfig(tools=[run_tests], offload_root_path=str(root), session_id=session.session_id)
    async with Agent(model, config) as agent:
        print("there:", await agent.query("Which one?"))
        item = next(item for item in agent.context.items if item.offloaded)
        print("in the context:", str(item.message.content).splitlines()[0])
        content = await agent.context.fs.load(item.id)
        print("in its file:", str(content).splitlines()[321])


async def main() -> None:
    old, new = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    archive = await here(old)
    await there(new, archive)

    cut = new / "cut.ctxfs"
    cut.write_bytes(archive.read_bytes()[:-1])
    try:
        await import_session(cut, root_path=new, session_id="never")
    except ArchiveDamaged as error:
        print("a damaged file:", error)


asyncio.run(main())
