"""An MCP server with something of everything, for tests that wrap it: ``python server_to_wrap.py [port]``."""

import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("everything", instructions="Words of the server.")


@server.tool()
def log(lines: int) -> str:
    """So many lines."""
    return "".join(f"{n}: served\n" for n in range(lines)) + "ERROR at last\n"


@server.tool()
def rows(count: int) -> list[dict[str, int]]:
    """So many rows, as structured content, and each one as text."""
    return [{"number": n, "double": 2 * n} for n in range(count)]


@server.tool()
def shot(lines: int) -> list[Image | str]:
    """A text, and an image after it."""
    return [log(lines), Image(data=bytes.fromhex("89504e470d0a1a0a"), format="png")]


@server.tool()
def fails(lines: int) -> str:
    """An error, with so many lines."""
    raise ToolError(log(lines))


@server.tool()
async def counts(to: int, ctx: Context) -> str:
    """Counts, and reports each number."""
    for n in range(to):
        await ctx.report_progress(n, to, f"at {n}")
    return "counted"


@server.tool()
async def waits(marker: str) -> str:
    """Waits until it is cancelled, and then makes a file."""
    try:
        await anyio.sleep_forever()
    finally:
        Path(marker).touch()  # noqa: ASYNC240 - it is being cancelled
    return "never"


@server.tool()
def header(ctx: Context) -> str:
    """A header of the request."""
    return str((ctx.headers or {}).get("x-token"))


@server.resource("note://one")
def note() -> str:
    """A resource that is larger than any limit."""
    return log(3_000)


@server.prompt()
def greet(name: str) -> str:
    """A prompt."""
    return f"Say hello to {name}"


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
