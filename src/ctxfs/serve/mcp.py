"""Stored contents for any client of the Model Context Protocol: tools over standard input and output.

The only module that imports the package ``mcp``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool

from ctxfs.errors import InvalidToolArguments, SessionError, StorageError
from ctxfs.jsontext import codec as json_codec
from ctxfs.llm.messages import Block, Content
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tools.base import Tool, ToolResult, told
from ctxfs.tools.retrieval import retrieval_tools
from ctxfs.version import __version__

__all__ = ["Call", "reading_server", "serve_stdio", "server_of"]

_INSTRUCTIONS = (
    "Tool results that were large are stored in full. Where a placeholder or a summary stands for one, read what you "
    "need of it with these tools: search it first, then read around what was found."
)


class Call(NamedTuple):
    """A call of a tool. ``meta``: the metadata that the client sends with it."""

    tool: Tool
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]


def server_of(tools: Sequence[Tool], run: Callable[[Call], Awaitable[ToolResult]]) -> Server[Any]:
    """Return a server that offers ``tools`` and runs their calls with ``run``.

    If a tool cannot do what it is asked to, the model sees the error.
    """
    by_name = {tool.name: tool for tool in tools}
    offered = [_shown(tool) for tool in tools]

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=offered)

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        if (tool := by_name.get(params.name)) is None:
            return _result(f"there is no tool {params.name!r}: use one of {', '.join(by_name)}", is_error=True)
        try:
            result = await run(Call(tool, params.arguments or {}, params.meta or {}))
        except (InvalidToolArguments, SessionError, StorageError) as error:
            return _result(told(error), is_error=True)
        return _result(result.content, is_error=result.is_error)

    return Server(
        "ctxfs", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def reading_server(fs: ContextFileSystem) -> Server[Any]:
    """Return a server with which a model can read the session ``fs``, and no other; ``fs`` must be open read-only.

    A writer may go on writing to the session: each call sees everything that was stored before it.
    """

    async def run(call: Call) -> ToolResult:
        await fs.refresh()
        return await call.tool.run(call.arguments)

    return server_of(retrieval_tools(fs), run)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until standard input ends."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _shown(tool: Tool) -> McpTool:
    return McpTool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        annotations=ToolAnnotations(read_only_hint=tool.read_only, destructive_hint=False, open_world_hint=False),
    )


def _result(content: Content, *, is_error: bool) -> CallToolResult:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return CallToolResult(content=[_block(block) for block in blocks], is_error=is_error)


def _block(block: Block) -> ContentBlock:
    """A content block in the protocol's form; a kind that it lacks, such as an image by URL, becomes its JSON."""
    match block:
        case {"type": "text", "text": str(text)}:
            return TextContent(text=text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return ImageContent(data=data, mime_type=kind)
        case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return EmbeddedResource(resource=BlobResourceContents(uri="ctxfs:document", mime_type=kind, blob=data))
    return TextContent(text=json_codec.dumps_text(block))
