"""``ctxfs mcp``: what a session stored, for a client of the Model Context Protocol."""

from pathlib import Path

import anyio

from ctxfs.cli.options import Root, SessionArgument
from ctxfs.cli.session import open_session, sessions_directory
from ctxfs.serve.mcp import reading_server, serve_stdio

__all__ = ["mcp"]


def mcp(session: SessionArgument, root: Root = None) -> None:
    """Serve a session to an MCP client, over standard input and output.

    The client's model reads, searches and lists what this one session stored, also while an agent writes it.
    It sees no other session, and changes nothing. Needs the extra ctxfs[mcp].
    """
    anyio.run(_serve, sessions_directory(root), session)


async def _serve(root: Path, session: str) -> None:
    async with open_session(root, session) as fs:
        await serve_stdio(reading_server(fs))
