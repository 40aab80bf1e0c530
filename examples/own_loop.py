"""Your own loop around the bare ``anthropic`` SDK: you call the model, ctxfs keeps the context.

    python examples/own_loop.py

It talks to a Messages API on loopback, so it needs no key. With the real API only the client changes.
"""

import asyncio
import tempfile

from anthropic import AsyncAnthropic
from anthropic.types import ToolParam

from ctxfs import Context, tool
from ctxfs.testing import MessagesServer, ToolCall
from ctxfs.tools import Tool, read_tool


@tool("Look up the log of a service")
async def service_log(service: str) -> str:
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(600))


async def ask(client: AsyncAnthropic, context: Context, tools: dict[str, Tool], question: str) -> str:
    """The loop. Everything in it is yours to change."""
    schemas = [
        ToolParam(name=t.name, description=t.description, input_schema=dict(t.input_schema)) for t in tools.values()
    ]
    await context.add({"role": "user", "content": question})
    while True:
        request = await context.request()  # what is due leaves here, then: system and messages, with cache breakpoints
        reply = await client.messages.create(model="claude-any", max_tokens=1024, tools=schemas, **request)
        await context.add(reply, usage=reply.usage, model=reply.model)
        if not context.open_calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        results = {call.id: await tools[call.name].run(call.arguments) for call in context.open_calls}
        blocks = [{"type": "tool_result", "tool_use_id": i, "content": r.content} for i, r in results.items()]
        sources = {i: r.source for i, r in results.items() if r.source is not None}
        await context.add({"role": "user", "content": blocks}, sources=sources)


async def main() -> None:
    script = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
    async with MessagesServer([*script, "All three services served every request."]) as server:
        client = AsyncAnthropic(api_key="any", base_url=server.url)
        async with Context(root_path=tempfile.mkdtemp(), keep_recent={"service_log": 1}) as context:
            tools = {t.name: t for t in (service_log, read_tool(context.fs))}
            print(await ask(client, context, tools, "Is everything all right?"))
            for item in context.items:
                if item.offloaded:
                    print(f"left: {item.id}, {item.content_tokens:,} -> {item.token_count:,} tokens")
        await client.close()


asyncio.run(main())
