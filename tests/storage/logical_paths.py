"""What the model's tools find by a path that names no directory: ``ctxfs://session/…``."""

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.messages import ToolCall
from ctxfs.storage import SessionStores
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Tool, recall_tools, retrieval_tools

__all__ = ["check_tools_at_logical_paths"]


@tool("Look", ephemeral=1)
def look(place: str) -> dict[str, object]:
    return {"place": place, "rows": [{"name": f"{place} {n}", "text": "word " * 5} for n in range(2_000)]}


async def check_tools_at_logical_paths(stores: SessionStores) -> None:
    """Read, search and cut out what was evicted, as a reader on another machine does, by the placeholder's path."""
    model = ScriptedModel([*([ToolCall("look", {"place": place})] for place in ("first", "second")), "done"])
    config = AgentConfig(
        offload_root_path=stores, session_id="thread-1", tools=[look], pricing=None, preview_above_tokens=None
    )
    async with Agent(model, config) as agent:
        await agent.query("Look")
        path = next(item.offload_path for item in agent.context.items if item.offload_path is not None)
    assert path.startswith("ctxfs://thread-1/")
    assert path in str(model.requests[-1]["messages"])
    async with ContextFileSystem("thread-1", root_path=stores, read_only=True) as fs:
        tools = {tool.name: tool for tool in (*retrieval_tools(fs), *recall_tools(fs))}
        assert "first 3" in await shown(tools["context_read"], ref=path)
        assert "first 1999" in await shown(tools["context_grep"], ref=path, pattern=r"first 1999\b")
        assert "first 1999" in await shown(tools["context_tail"], ref=path, lines=5)
        cut = await shown(tools["context_read"], ref=path, path="$.rows[1500:1501].name")
        assert "first 1500" in cut
        assert "first 1501" not in cut
        assert "first 1700" in await shown(tools["history_search"], query="first 1700", regex=True, item=fs.find(path))
        assert "first 0" in await shown(tools["history_read"], item=path)
        relative = path.removeprefix("ctxfs://thread-1/")
        assert "first 1999" in await shown(tools["context_tail"], ref=relative, lines=5)


async def shown(tool: Tool, **arguments: object) -> str:
    result = await tool.run(arguments)
    assert not result.is_error, result.text
    return result.text
