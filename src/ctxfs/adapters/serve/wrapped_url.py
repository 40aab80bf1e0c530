"""An MCP server behind a URL, reached by the transport of the official SDK, which is slow to import."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio

from ctxfs.adapters.extras import needs
from ctxfs.adapters.serve.wrap import Line, Upstream
from ctxfs.errors.base import described

with needs("mcp"):
    import httpx2  # comes with the SDK
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.inbound import (
        MCP_METHOD_HEADER,
        MCP_NAME_HEADER,
        MCP_PROTOCOL_VERSION_HEADER,
        NAME_BEARING_METHODS,
        encode_header_value,
        mcp_param_headers,
        x_mcp_header_map,
    )
    from mcp.shared.message import ClientMessageMetadata, SessionMessage
    from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

_log = logging.getLogger("ctxfs.adapters")

_VERSION = "io.modelcontextprotocol/protocolVersion"
"""Since the version of 2026-07-28 each request names its version, in its metadata."""
_SIGN_IN = (
    "ctxfs does not sign in by OAuth. Give it a token, which the environment holds, with "
    "--header 'Authorization=Bearer {TOKEN}', or let the client reach this server without ctxfs"
)
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)  # the SDK's own: a server may hold a stream open


@dataclass
class _Refusal:
    """Why the server refused the last request, if it did not know who asks; "": it did not refuse it so."""

    reason: str = ""

    async def note(self, response: httpx2.Response) -> None:
        """Take note of an answer."""
        if response.status_code not in (401, 403):
            self.reason = ""
            return
        if not self.reason:
            _log.error("the MCP server answers %d: %s", response.status_code, _SIGN_IN)
        self.reason = f"the MCP server answers {response.status_code}: {_SIGN_IN}"


class _Url:
    """A server behind a URL. ``read`` and ``write``: the streams of the SDK's transport."""

    def __init__(self, read: Any, write: Any, refusal: _Refusal) -> None:
        self._read = read
        self._write = write
        self._refusal = refusal
        self._version = ""
        self._greeted: set[str | int] = set()
        self._named_in_headers: dict[str, Mapping[tuple[str, ...], str]] = {}

    async def send(self, line: Line) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            _log.warning("a line of the client is not a message of the protocol, and was not sent")
            return
        if isinstance(message, JSONRPCRequest) and message.method == "initialize":
            self._greeted.add(message.id)
        metadata = ClientMessageMetadata(headers=self._headers(message))
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # lines() ends, too
            await self._write.send(SessionMessage(message, metadata))

    async def end(self) -> None:
        """Nothing: what it still answers comes, and leaving the transport ends the session."""

    async def lines(self) -> AsyncGenerator[Line, None]:
        async for received in self._read:
            if isinstance(received, Exception):
                _log.warning("the MCP server: %s", described(received))
                continue
            message = received.message
            if isinstance(message, JSONRPCResponse):
                self._learn(message)
            elif isinstance(message, JSONRPCError) and self._refusal.reason:
                error = message.error.model_copy(update={"message": self._refusal.reason})
                message = message.model_copy(update={"error": error})
            yield message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"

    def _learn(self, answer: Any) -> None:
        """Remember the version that both sides agreed on, and which arguments of its tools stand in headers."""
        result = answer.result
        if answer.id in self._greeted:
            self._greeted.discard(answer.id)
            self._version = str(result.get("protocolVersion", ""))
        for tool in result.get("tools") or ():
            if isinstance(tool, dict) and isinstance(tool.get("inputSchema"), dict):
                self._named_in_headers[str(tool.get("name"))] = x_mcp_header_map(tool["inputSchema"])

    def _headers(self, message: Any) -> dict[str, str]:
        """The headers that the transport needs beside the message: since 2026-07-28, they repeat parts of it."""
        params = getattr(message, "params", None) or {}
        meta = params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            headers.update(mcp_param_headers(self._named_in_headers.get(name, {}), params.get("arguments") or {}))
        return headers


@asynccontextmanager
async def url(address: str, headers: Mapping[str, str]) -> AsyncGenerator[Upstream, None]:
    """Reach a server by its URL (Streamable HTTP), with these headers in each request."""
    refusal = _Refusal()
    hooks: Any = {"response": [refusal.note]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, event_hooks=hooks) as http,
        # The bound on one event is for a client's own memory; what we are here for is results that are large.
        streamable_http_client(address, http_client=http, max_sse_event_size=None) as (read, write),
    ):
        yield _Url(read, write, refusal)
