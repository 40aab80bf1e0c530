"""The MCP SDK's own client, connected to a server of ctxfs in the same process: the lines go through memory."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ctxfs.adapters.serve.mcp import Server


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[Client]:
    """A client of ``server``, after the handshake."""
    async with Client(_wired(server)) as client:
        yield client


@asynccontextmanager
async def _wired(server: Server) -> AsyncIterator[Any]:
    to_client, at_client = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    from_client, at_server = anyio.create_memory_object_stream[SessionMessage](math.inf)

    async def respond(message: SessionMessage) -> None:
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if (answer := await server.answer(line)) is not None:
            assert answer.count(b"\n") == 1
            await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(answer, by_name=False)))

    async def serve() -> None:
        async for message in at_server:
            tasks.start_soon(respond, message)

    async with to_client, at_client, from_client, at_server, anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield at_client, from_client
        tasks.cancel_scope.cancel()
