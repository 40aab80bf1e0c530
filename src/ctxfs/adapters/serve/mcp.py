"""Tools for any client of the Model Context Protocol, over standard input and output; see ``protocol``."""

import logging
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, BinaryIO, NamedTuple

import anyio
from anyio import to_thread

from ctxfs.adapters.serve.protocol import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Refused,
    greeting,
    id_of,
    line_of,
    mapping_in,
    message_in,
)
from ctxfs.adapters.serve.stdio import lines_of, standard_input
from ctxfs.errors import InvalidToolArguments, SessionError, StorageError
from ctxfs.errors.base import described
from ctxfs.messages.messages import Block
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.task_group import TaskGroup
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult, told
from ctxfs.tools.retrieval import retrieval_tools
from ctxfs.tools.stored import Scope

_log = logging.getLogger("ctxfs.adapters")


class Call(NamedTuple):
    """A call of a tool. ``meta``: the metadata that the client sends with it."""

    tool: Tool
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]


class Server:
    """Offers ``tools``, and runs their calls with ``run``.

    If a tool cannot do what it is asked to, the model sees the error.
    """

    def __init__(self, tools: Sequence[Tool], run: Callable[[Call], Awaitable[ToolResult]]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._run = run

    async def answer(self, line: bytes) -> bytes | None:
        """Return the line that answers a line of the client; None: it expects no answer."""
        request_id: Any = None
        try:
            message = message_in(line)
            if "id" not in message:
                return None  # a notification: nothing here depends on one
            if "method" not in message:
                return None  # a response: this server asks nothing
            request_id = id_of(message)
            result = await self._result(message["method"], mapping_in(message, "params"))
        except Refused as refusal:
            return line_of(request_id, error={"code": refusal.code, "message": str(refusal)})
        return line_of(request_id, result=result)

    async def _result(self, method: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match method:
            case "initialize":
                return greeting(params.get("protocolVersion"))
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [shown(tool) for tool in self._tools.values()]}
            case "tools/call":
                return await self._called(params)
        raise Refused(METHOD_NOT_FOUND, f"there is no method {str(method)[:80]!r}")

    async def _called(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            return _content(f"there is no tool {str(name)[:80]!r}: use one of {', '.join(self._tools)}", is_error=True)
        call = Call(tool, mapping_in(params, "arguments"), mapping_in(params, "_meta"))
        try:
            result = await self._run(call)
        except (InvalidToolArguments, SessionError, StorageError) as error:
            return _content(told(error), is_error=True)
        except Exception as error:
            _log.error("tool %s failed: %s", tool.name, described(error))
            raise Refused(INTERNAL_ERROR, f"{tool.name} failed: {type(error).__name__}") from error
        return _content(result.content, is_error=result.is_error)


def reading_server(fs: ContextFileSystem, *, query: bool = False) -> Server:
    """Return a server with which a model can read the session ``fs``, and no other; ``fs`` must be open read-only.

    ``query``: whether it can ask contents that have rows with SQL, too.

    A writer may go on writing to the session: each call sees everything that was stored before it.
    """

    async def run(call: Call) -> ToolResult:
        await fs.refresh()
        return await call.tool.run(call.arguments)

    tools = retrieval_tools(fs)
    if query:
        tools = (*tools, query_tool_of(fs))
    return Server(tools, run)


def query_tool_of(fs: ContextFileSystem) -> Tool:
    """Return ``context_query`` for a session."""
    # SQLite takes a while to import, and a host does not wait for a server that starts late.
    from ctxfs.tools.query import query_tool  # noqa: PLC0415

    return query_tool(Scope(fs), ids_from="context_list")


async def serve_stdio(
    server: Server,
    incoming: AsyncIterable[bytes] | None = None,
    outgoing: BinaryIO | None = None,
    *,
    first: bytes = b"",
) -> None:
    """Answer the requests on ``incoming`` until it ends, several at once; None: the process's standard streams.

    A client that no longer reads answers ends it, too. ``first``: a line that was read already; empty: none was.
    """
    lines = lines_of(standard_input() if incoming is None else incoming)
    answers = sys.stdout.buffer if outgoing is None else outgoing
    writing = anyio.Lock()

    async def respond(line: bytes) -> None:
        answer = await server.answer(line)
        if answer is not None:
            async with writing:
                await to_thread.run_sync(_write, answers, answer)

    try:
        async with aclosing(lines), TaskGroup() as tasks:
            if first.strip():
                tasks.start_soon(respond, first)
            async for line in lines:
                if line.strip():
                    tasks.start_soon(respond, line)
    except BrokenPipeError:
        _log.info("the client has closed the connection")


def _write(stream: BinaryIO, line: bytes) -> None:
    stream.write(line)
    stream.flush()


def shown(tool: Tool) -> Mapping[str, Any]:
    """A tool as a list of tools has it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "annotations": {"readOnlyHint": tool.read_only, "destructiveHint": False, "openWorldHint": False},
    }


def _content(content: str | Sequence[Block], *, is_error: bool) -> Mapping[str, Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    # The version of 2026-07-28 requires the last field, and older clients ignore it.
    return {"content": [_block(block) for block in blocks], "isError": is_error, "resultType": "complete"}


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content block in the protocol's form; a kind that it lacks, such as an image by URL, becomes its JSON."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return {"type": "image", "data": data, "mimeType": kind}
        case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return {"type": "resource", "resource": {"uri": "ctxfs:document", "mimeType": kind, "blob": data}}
    return {"type": "text", "text": json_codec.dumps_text(block)}
