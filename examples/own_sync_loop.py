"""A loop without ``async``: the synchronous client of the ``anthropic`` SDK, and a context in a thread of its own.

    python examples/own_sync_loop.py

It talks to a Messages API on loopback, so it needs no key. With the real API only the client changes.
"""

import json
import tempfile
from collections.abc import Mapping
from typing import Any

from anthropic import Anthropic, BadRequestError
from anthropic.types import Message, ToolParam
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ctxfs import Context
from ctxfs.context import MessagesRequest
from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer
from ctxfs.tools import ToolResult, read_tool

MODEL = "claude-sonnet-5-5"
LOG = ToolParam(
    name="service_log",
    description="Look up the log of a service",
    input_schema={"type": "object", "properties": {"service": {"type": "string"}}, "required": ["service"]},
)


def service_log(service: str) -> str:
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


def ask(client: Anthropic, portal: BlockingPortal, context: Context, question: str) -> str:
    """The loop: coroutine functions of the context are called through the portal."""
    read = read_tool(context.fs)
    schemas = [LOG, ToolParam(name=read.name, description=read.description, input_schema=dict(read.input_schema))]
    context.overhead_tokens = context.counter.count(json.dumps(schemas))
    add(portal, context, {"role": "user", "content": question})
    while True:
        reply = send(client, portal, context, schemas)
        add(portal, context, reply, usage=reply.usage, model=reply.model)
        if not context.open_calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        blocks, sources = [], {}
        for call in context.open_calls:
            if call.name == "service_log":
                result = ToolResult(service_log(call.arguments["service"]))
            else:
                result = portal.call(read.run, call.arguments)
            blocks.append({"type": "tool_result", "tool_use_id": call.id, "content": result.content})
            if result.source is not None:
                sources[call.id] = result.source
        add(portal, context, {"role": "user", "content": blocks}, sources=sources)


def add(portal: BlockingPortal, context: Context, message: Message | Mapping[str, Any], **known: Any) -> None:
    """Take in a message; it is durable on return."""

    async def adding() -> None:
        await context.add(message, **known)

    portal.call(adding)


def send(client: Anthropic, portal: BlockingPortal, context: Context, schemas: list[ToolParam]) -> Message:
    """One reply. A prompt that is too long for the provider is made smaller and sent again."""
    while True:
        request: MessagesRequest = portal.call(context.request)
        try:
            return client.messages.create(model=MODEL, max_tokens=1024, tools=schemas, **request)
        except BadRequestError as error:
            portal.call(context.refused, error)


def main() -> None:
    script = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
    with (
        start_blocking_portal() as portal,
        MessagesServer([*script, "Every request was served."]) as server,
        portal.wrap_async_context_manager(Context(model=MODEL, root_path=tempfile.mkdtemp())) as context,
        Anthropic(api_key="any", base_url=server.url) as client,
    ):
        print(ask(client, portal, context, "Is everything all right?"))


main()
