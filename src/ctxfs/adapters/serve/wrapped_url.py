"""An MCP server behind a URL, reached by the transport of the official SDK, which is slow to import."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from ctxfs.adapters.extras import needs
from ctxfs.adapters.serve.wrap import Line, Upstream
from ctxfs.errors import ConfigError
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
    from mcp_types import INTERNAL_ERROR, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

_log = logging.getLogger("ctxfs.adapters")

_VERSION = "io.modelcontextprotocol/protocolVersion"
"""Since the version of 2026-07-28 each request names its version, in its metadata."""
_SIGN_IN = (
    "ctxfs does not sign in by OAuth. Give it a token, which the environment holds, with "
    "--header 'Authorization=Bearer {TOKEN}', or let the client reach this server without ctxfs"
)
_MOST_REASON_CHARS = 300
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)  # the SDK's own: a server may hold a stream open


class _Http(httpx2.AsyncClient):
    """The client of the SDK's transport, which answers a message with an error where the server does not.

    The transport itself ends when a server cannot be reached, and all requests that still wait with it; where a token
    is needed, it does not say so.
    """

    async def send(self, request: httpx2.Request, **given: Any) -> httpx2.Response:
        """Send a request. A message without an answer, or that was refused, gets an error of the protocol."""
        if request.method != "POST":
            return await super().send(request, **given)
        response: httpx2.Response | None = None
        try:
            response = await super().send(request, **given)
            if response.headers.get("content-type", "").lower().startswith("application/json"):
                await response.aread()  # it may break off, too, or be packed otherwise than it says
        except httpx2.RequestError as error:
            if response is not None:
                await response.aclose()
            where = request.url.netloc.decode("ascii")
            return _failed(request, 502, f"the MCP server at {where} gave no answer: {_reason(error)}")
        if response.status_code not in (401, 403):
            return response
        await response.aclose()
        return _failed(request, response.status_code, f"the MCP server answers {response.status_code}: {_SIGN_IN}")


def _reason(error: httpx2.RequestError) -> str:
    """What tells a wrong name from a wrong port or certificate. Of our own headers, which may be secrets, nothing."""
    name = type(error).__name__
    return name if isinstance(error, httpx2.LocalProtocolError) else f"{name}: {str(error)[:_MOST_REASON_CHARS]}"


def _failed(request: httpx2.Request, status: int, message: str) -> httpx2.Response:
    """What the SDK's transport passes on as the error of the request that it waits for, whatever its id."""
    _log.error("%s", message)
    error = {"code": INTERNAL_ERROR, "message": message}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class _Url:
    """A server behind a URL. ``read`` and ``write``: the streams of the SDK's transport."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write
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
    """Reach a server by its URL (Streamable HTTP), with these headers in each request.

    Raises:
        ConfigError: the address is not a URL, or names no host.

    """
    try:
        host = httpx2.URL(address).host
    except httpx2.InvalidURL as error:
        raise ConfigError(f"--url {address!r} is not a URL: {error}") from error
    if not host:
        raise ConfigError(f"--url {address!r} is not a URL: it names no host, as in https://example.org/mcp")
    async with (
        _Http(headers=headers, timeout=_TIMEOUT) as http,
        # The bound on one event is for a client's own memory; what we are here for is results that are large.
        streamable_http_client(address, http_client=http, max_sse_event_size=None) as (read, write),
    ):
        yield _Url(read, write)
