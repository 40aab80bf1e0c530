"""``ctxfs mcp``: stored contents for a client of the Model Context Protocol, and the plug-in for Claude Code."""

import os
import sys
from typing import Annotated

import anyio
import typer

from ctxfs.adapters.serve.protocol import greet, greet_once
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import PreviewAbove, Query, Root, StoreUrl, known_sessions
from ctxfs.cli.session import SessionsAt, open_session, sessions_at, stores_of
from ctxfs.errors import ConfigError
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS, check_preview_above

_CLAUDE_CODE_SESSION = "CLAUDE_CODE_SESSION_ID"

_Session = Annotated[
    str | None,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="A session's id, the beginning of one, or 'last' for the newest.",
        show_default=False,
    ),
]


def mcp(
    session: _Session = None,
    *,
    claude_code: Annotated[
        bool, typer.Option("--claude-code", help="Serve Claude Code's plug-in: its hook, and its reading tools.")
    ] = False,
    query: Query = False,
    preview_above_tokens: PreviewAbove = DEFAULT_PREVIEW_ABOVE_TOKENS,
    root: Root = None,
    store: StoreUrl = None,
) -> None:
    """Serve stored contents to an MCP client.

    The client speaks over standard input and output. Its model can read, search and list what SESSION stored, even
    while an agent writes to it. It sees no other session, and changes nothing.

    With --claude-code, the plug-in of Claude Code is served, which starts this command itself: large tool output is
    stored in full before the model sees it, and the model is sent a preview of it.

    `ctxfs mcp wrap` stands before any other MCP server, and previews its large results; `ctxfs mcp install` wraps the
    servers of a client, and `ctxfs mcp uninstall` takes that back.
    """
    if (session is None) != claude_code:
        raise ConfigError("give mcp either a SESSION, which `ctxfs sessions` lists, or --claude-code")
    if session is not None:
        place = sessions_at(root, store)
        session_id = anyio.run(_checked, place, session)
        tell_a_person()
        # A client waits for the answer, and the tools are a good part of a start. It blocks, so it is not in the loop,
        # where the first Ctrl-C would only ask to end it.
        anyio.run(_serve, place, session_id, query, greet())
        return
    if query:
        raise ConfigError("--query goes with a SESSION: the plug-in does not have it")
    stores = stores_of(sessions_at(root, store, may_be_new=True))
    check_preview_above(preview_above_tokens or None)  # before it greets
    tell_a_person("The plug-in of Claude Code starts this command itself")
    first = greet_once()
    from ctxfs.adapters.serve.claude_code import plugin_at, serve  # noqa: PLC0415 - half of the time of a start

    plugin = plugin_at(
        stores, os.environ.get(_CLAUDE_CODE_SESSION, ""), preview_above_tokens=preview_above_tokens or None
    )
    anyio.run(serve, plugin, first)


def tell_a_person(how: str = "Write this command into the configuration of one, which starts it itself") -> None:
    """Say what this is for, if it was started in a terminal: it would wait for ever, and say nothing.

    ``how``: how a client comes to start it. To be called once nothing else is refused any more. Raises ``ConfigError``
    if there is no standard input.
    """
    if sys.stdin is None:
        raise ConfigError(f"an MCP client speaks over standard input, and this process has none. {how}")
    if sys.stdin.isatty():
        to_stderr(
            f"ctxfs: this waits for an MCP client, which speaks over standard input and output. {how}. Ctrl-C ends it"
        )


async def _checked(place: SessionsAt, session: str) -> str:
    """The id of a session that can be opened."""
    async with open_session(place, session) as fs:
        return fs.session_id


async def _serve(place: SessionsAt, session_id: str, query: bool, first: bytes) -> None:
    from ctxfs.adapters.serve.mcp import reading_server, serve_stdio  # noqa: PLC0415 - after the greeting

    async with open_session(place, session_id) as fs:
        await serve_stdio(reading_server(fs, query=query), first=first)
