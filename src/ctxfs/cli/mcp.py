"""``ctxfs mcp``: the contents of a session, for a client of the Model Context Protocol."""

import anyio

from ctxfs.adapters.serve.mcp import reading_server, serve_stdio
from ctxfs.cli.options import Root, SessionArgument, StoreUrl
from ctxfs.cli.session import SessionsAt, open_session, sessions_at


def mcp(session: SessionArgument, root: Root = None, store: StoreUrl = None) -> None:
    """Serve a session to an MCP client, over standard input and output.

    The client's model can read, search and list what this one session stored, even while an agent writes to it. It sees
    no other session, and changes nothing.
    """
    anyio.run(_serve, sessions_at(root, store), session)


async def _serve(root: SessionsAt, session: str) -> None:
    async with open_session(root, session) as fs:
        await serve_stdio(reading_server(fs))
