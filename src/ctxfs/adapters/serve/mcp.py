"""Tools for any client of the Model Context Protocol, over standard input and output.

A server that only offers tools needs a handful of the protocol's messages, one JSON object a line. They are written out
here because the package ``mcp`` takes over a second of CPU time to import, and a host does not wait for a server that
starts late. Follows the specification of 2025-11-25; a newer client falls back to a version that it shares with us.
"""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import anyio
from anyio import to_thread

from ctxfs.errors import InvalidToolArguments, SessionError, StorageError
from ctxfs.errors.base import described
from ctxfs.messages.messages import Block
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.task_group import TaskGroup
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult, told
from ctxfs.tools.retrieval import retrieval_tools
from ctxfs.tools.stored import Scope
from ctxfs.version import __version__

_log = logging.getLogger("ctxfs.adapters")

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of the protocol in which these messages are the same, the newest first."""

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603
"""Codes of JSON-RPC."""

_INSTRUCTIONS = (
    "Tool results that were large are stored in full. Where a placeholder or a summary stands for one, read what you "
    "need of it with these tools: search it first, then read around what was found."
)


class Call(NamedTuple):
    """A call of a tool. ``meta``: the metadata that the client sends with it."""

    tool: Tool
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]


class _Refused(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


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
            message = _message(line)
            if "id" not in message:
                return None  # a notification: nothing here depends on one
            if "method" not in message:
                return None  # a response: this server asks nothing
            request_id = _id(message)
            result = await self._result(message["method"], _mapping(message, "params"))
        except _Refused as refusal:
            return _line(request_id, error={"code": refusal.code, "message": str(refusal)})
        return _line(request_id, result=result)

    async def _result(self, method: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match method:
            case "initialize":
                return _greeting(params.get("protocolVersion"))
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [shown(tool) for tool in self._tools.values()]}
            case "tools/call":
                return await self._called(params)
        raise _Refused(METHOD_NOT_FOUND, f"there is no method {str(method)[:80]!r}")

    async def _called(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            return _content(f"there is no tool {str(name)[:80]!r}: use one of {', '.join(self._tools)}", is_error=True)
        call = Call(tool, _mapping(params, "arguments"), _mapping(params, "_meta"))
        try:
            result = await self._run(call)
        except (InvalidToolArguments, SessionError, StorageError) as error:
            return _content(told(error), is_error=True)
        except Exception as error:
            _log.error("tool %s failed: %s", tool.name, described(error))
            raise _Refused(_INTERNAL_ERROR, f"{tool.name} failed: {type(error).__name__}") from error
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


async def serve_stdio(server: Server, incoming: BinaryIO | None = None, outgoing: BinaryIO | None = None) -> None:
    """Answer the requests on ``incoming`` until it ends, several at once; None: the process's standard streams.

    A client that no longer reads answers ends it, too.
    """
    lines = sys.stdin.buffer if incoming is None else incoming
    answers = sys.stdout.buffer if outgoing is None else outgoing
    writing = anyio.Lock()

    async def respond(line: bytes) -> None:
        answer = await server.answer(line)
        if answer is not None:
            async with writing:
                await to_thread.run_sync(_write, answers, answer)

    try:
        async with TaskGroup() as tasks:
            while line := await to_thread.run_sync(lines.readline, abandon_on_cancel=True):
                if line.strip():
                    tasks.start_soon(respond, line)
    except BrokenPipeError:
        _log.info("the client has closed the connection")


def _write(stream: BinaryIO, line: bytes) -> None:
    stream.write(line)
    stream.flush()


def _message(line: bytes) -> Mapping[str, Any]:
    """The message in a line. Raises ``_Refused`` for anything else."""
    try:
        message = json_codec.loads(line)
    except ValueError as error:
        raise _Refused(_PARSE_ERROR, f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise _Refused(_INVALID_REQUEST, "a message is a JSON object")
    return message


def _id(message: Mapping[str, Any]) -> str | int:
    """The id of a request. Raises ``_Refused`` unless it is one that the protocol allows."""
    given = message["id"]
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise _Refused(_INVALID_REQUEST, "the id of a request is a text or a whole number")


def _mapping(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field, which may be missing. Raises ``_Refused`` for anything else."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Refused(_INVALID_PARAMS, f"{name} must be an object")
    return value


def _line(request_id: Any, **outcome: Any) -> bytes:
    return json_codec.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}) + b"\n"


def _greeting(asked: Any) -> Mapping[str, Any]:
    return {
        "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "ctxfs", "version": __version__},
        "instructions": _INSTRUCTIONS,
    }


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
