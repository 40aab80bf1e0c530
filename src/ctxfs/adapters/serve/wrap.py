"""Stand before an MCP server: its large results come as previews, and the reading tools stand beside its own.

Only what must change is changed. Every other line of either side, whatever it is (resources, prompts, progress,
cancellation, questions of the server, errors), goes on as it came, byte for byte. So this works with each version of
the protocol, and with what a later one adds.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import anyio

from ctxfs.adapters.serve.mcp import Call, Server, query_tool_of, shown
from ctxfs.adapters.serve.protocol import METHOD_NOT_FOUND
from ctxfs.context.history.history import History
from ctxfs.errors import CtxfsError
from ctxfs.messages.names import session_name
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult

_log = logging.getLogger("ctxfs.adapters")

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
"""Since the version of 2026-07-28 each request has it in its metadata, and there is no ``initialize``."""

_GREETINGS = ("initialize", "server/discover")
_CONCERN_US = (*_GREETINGS, "tools/list", "tasks/result")
"""Requests whose answers are changed, beside ``tools/call``."""

_OF_A_LIST = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What the version of 2026-07-28 requires of a list; older clients ignore it."""

_INSTRUCTIONS = (
    "Large tool results are stored in full, and shown as a preview. Read what you need of one with context_grep and "
    "context_read: search it first, then read around what was found."
)

ENDS_S = 2.0
"""How long a server may take to end once its input has ended: so long the SDKs' clients wait, too."""

Line = bytes
"""A message, as its side sent it, with the newline at its end."""


class Upstream(Protocol):
    """The server behind: ``send`` it a line; ``lines`` yields its own until it ends."""

    async def send(self, line: Line) -> None:
        """Send a line; one that can no longer arrive is dropped, since ``lines`` ends then."""

    async def end(self) -> None:
        """Say that no more lines will be sent: the client has gone."""

    def lines(self) -> AsyncIterator[Line]:
        """The server's lines, until it ends."""


class _Asked(NamedTuple):
    """A request of the client that the server has not answered: its method, and the tool that it calls."""

    method: str
    tool: str = "task"


class OwnCall(NamedTuple):
    """A call of one of our tools, which the server does not get."""

    request_id: str | int
    line: Line


class Wrapper:
    """What happens to each line between one client and one server.

    ``history_in`` makes the history of a session; ``session_id`` None: one for the client (by its name) and the
    ``server``, so that it is the same after a restart of the client. ``server``: what makes it this one, such as the
    directory, its command, its URL. ``query``: whether ``context_query`` is among the tools.
    """

    def __init__(
        self,
        history_in: Callable[[str], History],
        *,
        server: Sequence[str],
        session_id: str | None = None,
        query: bool = False,
    ) -> None:
        self._history_in = history_in
        self._server = server
        self._session_id = session_id
        self._query = query
        self._history: History | None = None
        self._asked: dict[str | int, _Asked] = {}
        self._running: dict[str | int, anyio.CancelScope] = {}

    @property
    def history(self) -> History:
        """The client's; made when it is first needed."""
        if self._history is None:
            self._history = self._history_in(self._session_id or session_of("client", self._server))
        return self._history

    def close(self) -> None:
        """Close the history, if there is one."""
        if self._history is not None:
            self._history.close()

    def own_call(self, line: Line) -> OwnCall | None:
        """The call of one of our tools in a line of the client; None: the server gets the line, as it came.

        The cancelling of such a call cancels it; the server, which gets it too, ignores a request that it never had.
        """
        try:
            message = json_codec.loads(line)
        except ValueError:
            return None  # whatever it is, the server judges it
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict):
                self._introduced(one)
                self._noted(one)
        match message:
            case {"method": "tools/call", "id": str() | int() as own, "params": {"name": str(name)}}:
                if name in self._tools:
                    self._running[own] = anyio.CancelScope()
                    return OwnCall(own, line)
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as own}}:
                if (scope := self._running.get(own)) is not None:
                    scope.cancel()
        return None

    async def answer(self, call: OwnCall) -> Line | None:
        """The answer to a call; None: it was cancelled, so there is none."""
        try:
            with self._running[call.request_id]:
                return await Server(tuple(self._tools.values()), self._run).answer(call.line)
        finally:
            del self._running[call.request_id]
        return None

    def _noted(self, message: Mapping[str, Any]) -> None:
        """Remember a request whose answer concerns us."""
        match message:
            case {"method": "tools/call", "id": str() | int() as asked, "params": {"name": str(tool)}}:
                if tool not in self._tools:
                    self._asked[asked] = _Asked("tools/call", tool)
            case {"method": str(method), "id": str() | int() as asked} if method in _CONCERN_US:
                self._asked[asked] = _Asked(method)

    async def from_server(self, line: Line) -> Line:
        """What the client gets of a line of the server: the line itself, unless it answers what concerns us."""
        try:
            message = json_codec.loads(line)
        except ValueError:
            return line  # whatever it is, the client judges it
        if isinstance(message, list):  # a batch: only one old version has them, but it has
            return json_codec.dumps([await self._from_server(one) for one in message]) + b"\n"
        changed = await self._from_server(message)
        return line if changed is message else json_codec.dumps(changed) + b"\n"

    async def _from_server(self, message: Any) -> Any:
        if not isinstance(message, dict) or "method" in message:
            return message
        request_id = message.get("id")
        asked = self._asked.pop(request_id, None) if isinstance(request_id, str | int) else None
        if asked is None:
            return message
        if asked.method == "tools/list":
            return self._listed(message)
        result = message.get("result")
        if not isinstance(result, dict):
            return message
        if asked.method in _GREETINGS:
            return {**message, "result": _greeting(result)}
        new = await self._previewed(result, asked.tool)
        return message if new is None else {**message, "result": new}

    @property
    def _tools(self) -> Mapping[str, Tool]:
        tools = self.history.tools
        if self._query:
            tools = (*tools, query_tool_of(ContextFileSystem("schemas")))
        return {tool.name: tool for tool in tools}

    async def _run(self, call: Call) -> ToolResult:
        if call.tool.name in {tool.name for tool in self.history.tools}:
            return await self.history.arun_tool(call.tool.name, call.arguments)

        async def ask(fs: ContextFileSystem) -> ToolResult:
            return await query_tool_of(fs).run(call.arguments)

        return await self.history.aread(ask)

    def _introduced(self, message: Mapping[str, Any]) -> None:
        """Choose the session by the name with which the client introduces itself, before anything is stored."""
        if self._history is not None:
            return
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        meta = given.get("_meta")
        info = given.get("clientInfo") or (meta.get(_CLIENT_INFO) if isinstance(meta, dict) else None)
        name = info.get("name") if isinstance(info, dict) else None
        if isinstance(name, str):
            self._history = self._history_in(self._session_id or session_of(name, self._server))

    def _listed(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A list of tools with ours after the server's; a server without tools has ours alone."""
        ours = [shown(tool) for tool in self._tools.values()]
        match message:
            case {"result": {"tools": list(tools), **rest}}:
                theirs = [_without_output_schema(tool) for tool in tools]
            case {"error": {"code": -32601}}:  # METHOD_NOT_FOUND
                return {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": ours, **_OF_A_LIST}}
            case _:
                return message
        if both := sorted({str(tool.get("name")) for tool in theirs if isinstance(tool, dict)} & self._tools.keys()):
            text = f"ctxfs cannot wrap this server, which has tools of its own named {', '.join(both)}: run it as it is"
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": METHOD_NOT_FOUND, "message": text}}
        shown_now = theirs if rest.get("nextCursor") else [*theirs, *ours]  # ours are on the last page
        return {**message, "result": {**rest, "tools": shown_now}}

    async def _previewed(self, result: Mapping[str, Any], tool: str) -> Mapping[str, Any] | None:
        """A result with previews in place of what is large in it; None: nothing is."""
        blocks = result.get("content")
        content = blocks if isinstance(blocks, list) else []
        texts = [text for block in content if (text := _text_of(block)) is not None]
        structured = result.get("structuredContent")
        text, is_all = _one_text(texts, structured)
        preview = await self._arrived(text, tool)
        beside = None
        if structured is not None and not is_all:
            beside = await self._arrived(json_codec.dumps_text(structured), tool)
        if preview is None and beside is None:
            return None
        new = content if preview is None else _with_preview(content, preview)
        if beside is not None:
            new = [*new, {"type": "text", "text": beside}]
        dropped = beside is not None or is_all
        return {
            **{key: one for key, one in result.items() if key != "structuredContent" or not dropped},
            "content": new,
        }

    async def _arrived(self, text: str, tool: str) -> str | None:
        """The preview of a text that was stored; None: it stays as it is, which is logged if it could not be stored."""
        if not self.history.may_be_large(text):
            return None
        try:
            preview = await self.history.aarrive(text, tool=tool, call_id=tool)
        except CtxfsError as error:
            _log.error("a result of %s cannot be stored, and is passed on whole: %s", tool, error)
            return None
        return preview if isinstance(preview, str) and preview != text else None


def session_of(client: str, server: Sequence[str]) -> str:
    """The session of a client's work with a server."""
    place = json_codec.dumps([client, *server])
    return session_name(f"mcp-{client[:40]}-{sha256(place).hexdigest()[:10]}")


def _without_output_schema(tool: Any) -> Any:
    """A tool without the promise that all of its results have structured content: a large one has a preview."""
    if isinstance(tool, dict) and "outputSchema" in tool:
        return {key: value for key, value in tool.items() if key != "outputSchema"}
    return tool


def _text_of(block: Any) -> str | None:
    """The text of a content block that is one; None for an image, a sound, a link."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
    return None


def _with_preview(content: Sequence[Any], preview: str) -> list[Any]:
    """The blocks with ``preview`` where their first text was; blocks of other kinds stay."""
    new: list[Any] = []
    placed = False
    for block in content:
        if _text_of(block) is None:
            new.append(block)
        elif not placed:
            new.append({"type": "text", "text": preview})
            placed = True
    return new


def _one_text(texts: Sequence[str], structured: Any) -> tuple[str, bool]:
    """The texts of a result as one, and whether that is all that its structured content says, too.

    Servers send the same as text, for clients that know no structured content: one JSON value, or one in each block. In
    the latter case the text is a row in each line, which is searched and read better than what the blocks hold.
    """
    text = "\n".join(texts)
    if structured is None:
        return text, False
    inner = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else None
    if inner == text:
        return text, True
    try:
        values = [json_codec.loads(one) for one in texts]
    except ValueError:
        return text, False
    if len(values) == 1 and values[0] in (structured, inner):
        return text, True
    if values and values == inner:
        return "\n".join(json_codec.dumps_text(value) for value in values), True
    return text, False


def _greeting(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a server says of itself, with our tools."""
    capabilities = result.get("capabilities")
    can = dict(capabilities) if isinstance(capabilities, dict) else {}
    can.setdefault("tools", {})
    theirs = result.get("instructions")
    said = f"{theirs}\n\n{_INSTRUCTIONS}" if isinstance(theirs, str) and theirs else _INSTRUCTIONS
    return {**result, "capabilities": can, "instructions": said}


async def relay(
    wrapper: Wrapper,
    upstream: Upstream,
    incoming: AsyncIterator[Line],
    send: Callable[[Line], Awaitable[None]],
) -> bool:
    """Carry lines between a client (``incoming``, ``send``) and a server, until either has gone.

    When the client has no more to say, the server is told, and what it still answers within ``ENDS_S`` is passed on.
    Returns whether it was the client that has gone.
    """
    client_gone = False
    writing = anyio.Lock()

    async def to_client(line: Line) -> None:
        async with writing:
            await send(line)

    async def answer(call: OwnCall) -> None:
        if (line := await wrapper.answer(call)) is not None:
            await to_client(line)

    async def from_client() -> None:
        async for line in incoming:
            call = wrapper.own_call(line)
            if call is None:
                await upstream.send(line)
            else:
                tasks.start_soon(answer, call)
        nonlocal client_gone
        client_gone = True
        await upstream.end()
        await anyio.sleep(ENDS_S)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(from_client)
        async for line in upstream.lines():
            await to_client(await wrapper.from_server(line))
        tasks.cancel_scope.cancel()
    return client_gone
