"""Your own loop around the ``anthropic`` SDK: you call the model, ctxfs keeps the context.

    python examples/own_loop.py

It talks to a Messages API on loopback, so it needs no key. With the real API only the client changes.
"""

import asyncio
import json
import tempfile

from anthropic import AsyncAnthropic, BadRequestError
from anthropic.types import Message, ToolParam

from ctxfs import Context, tool
from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer
from ctxfs.tools import Tool, read_tool

MODEL = "claude-sonnet-5-5"


@tool("Look up the log of a service")
async def service_log(service: str) -> str:
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


async def ask(client: AsyncAnthropic, context: Context, tools: list[Tool], question: str) -> str:
    """The loop. Everything in it is yours to change."""
    schemas = [ToolParam(name=t.name, description=t.description, input_schema=dict(t.input_schema)) for t in tools]
    context.overhead_tokens = context.counter.count(json.dumps(schemas))  # sent with every call, and not in the context
    await context.add({"role": "user", "content": question})
    while True:
        reply = await call(client, context, schemas)
        await context.add(reply, usage=reply.usage, model=reply.model)
        if not context.open_calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        await run_tools(context, {t.name: t for t in tools})


async def call(client: AsyncAnthropic, context: Context, schemas: list[ToolParam]) -> Message:
    """One reply, streamed. A prompt that is too long for the provider is made smaller and sent again."""
    while True:
        request = await context.request()  # evicts what is due; gives system and messages, with cache breakpoints
        try:
            async with client.messages.stream(model=MODEL, max_tokens=1024, tools=schemas, **request) as stream:
                async for text in stream.text_stream:
                    print(text, end="", flush=True)
                return await stream.get_final_message()
        except BadRequestError as error:
            await context.refused(error)  # makes room; raises any other error, or ContextOverflow


async def run_tools(context: Context, tools: dict[str, Tool]) -> None:
    """Answer the calls of the last reply."""
    results = {call.id: await tools[call.name].run(call.arguments) for call in context.open_calls}
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": r.content} for i, r in results.items()]
    sources = {i: r.source for i, r in results.items() if r.source is not None}  # what is read back is not stored twice
    await context.add({"role": "user", "content": blocks}, sources=sources)


async def main() -> None:
    script = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
    async with (
        MessagesServer([*script, "All three services served every request.\n"]) as server,
        AsyncAnthropic(api_key="any", base_url=server.url) as client,
        Context(model=MODEL, root_path=tempfile.mkdtemp()) as context,
    ):
        tools: list[Tool] = [service_log, read_tool(context.fs)]
        await ask(client, context, tools, "Is everything all right?")
        for item in context.items:
            if item.offloaded:
                print(f"evicted: {item.id}, {item.content_tokens:,} -> {item.token_count:,} tokens")
        print(f"billed: {sum(call.usage.total_input_tokens for call in context.fs.state.calls):,} input tokens")


asyncio.run(main())
