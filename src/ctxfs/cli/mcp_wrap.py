"""``ctxfs mcp wrap``: stand before an MCP server, so that its large results come as previews."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import anyio
import typer
from anyio import to_thread

from ctxfs.adapters.serve.stdio import lines_of, standard_input
from ctxfs.adapters.serve.wrap import Line, Upstream, Wrapper, relay
from ctxfs.adapters.serve.wrapped_program import program
from ctxfs.cli.mcp import tell_a_person
from ctxfs.cli.options import PreviewAbove, Query, Root, StoreUrl
from ctxfs.cli.session import find_history_session, sessions_at, stores_of
from ctxfs.context.history.history import History
from ctxfs.errors import ConfigError
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS

_SERVER_ENDED = 1
_VARIABLE = re.compile(r"\{(\w+)\}")

_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVER", help="The server's program, and its arguments.", show_default=False),
]
_Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="A server at this URL (Streamable HTTP).", show_default=False),
]
_Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        help="Send a header to the URL; {VARIABLE} in it is taken from the environment, where secrets belong. "
        "Repeatable.",
        show_default=False,
    ),
]
_InSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Keep everything in this session, or 'last' (default: one for each client, directory and server).",
        show_default=False,
    ),
]


def wrap(
    command: _Command = None,
    *,
    url: _Url = None,
    header: _Headers = None,
    session: _InSession = None,
    query: Query = False,
    preview_above_tokens: PreviewAbove = DEFAULT_PREVIEW_ABOVE_TOKENS,
    root: Root = None,
    store: StoreUrl = None,
) -> None:
    """Stand before an MCP server, and preview its large results.

    The client starts this command instead of the server. A tool's result above the limit is stored in full, and the
    model is sent a preview of it, and tools to read and search the rest. All else passes unchanged. Needs the extra
    ctxfs[cli]; with --url ctxfs[mcp].
    """
    if bool(command) == (url is not None):
        raise ConfigError("give mcp wrap either a server's command after --, or its --url")
    if header and url is None:
        raise ConfigError("--header is sent to a --url: a server's program has its environment")
    headers = _headers(header or ())
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} is not a URL: it must begin with https:// or http://")
    place = sessions_at(root, store, may_be_new=True)
    stores = stores_of(place)

    def history_in(session_id: str) -> History:
        return History(
            session_id, root_path=stores, preview_above_tokens=preview_above_tokens or None, read_tool="context_read"
        )

    # Here, so that a session that cannot be used is refused before the server is started.
    chosen = None if session is None else anyio.run(find_history_session, place, session)
    wrapper = Wrapper(history_in, server=[str(Path.cwd()), *(command or [str(url)])], session_id=chosen, query=query)
    upstream = program(command) if command else _reached(str(url), headers)
    tell_a_person()
    try:
        client_gone = anyio.run(_relay, wrapper, upstream)
    finally:
        wrapper.close()
    if not client_gone:
        sys.stderr.write("ctxfs: the MCP server has ended, so this ends, too\n")
        raise typer.Exit(_SERVER_ENDED)


async def _relay(wrapper: Wrapper, upstream: AbstractAsyncContextManager[Upstream]) -> bool:
    async with upstream as server:
        return await relay(wrapper, server, lines_of(standard_input()), _send)


async def _send(line: Line) -> None:
    await to_thread.run_sync(_write, line)


def _write(line: Line) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _reached(url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Upstream]:
    # The SDK takes a second to import, and a server that is a program does without it.
    from ctxfs.adapters.serve import wrapped_url  # noqa: PLC0415

    return wrapped_url.url(url, headers)


def _headers(given: Sequence[str]) -> dict[str, str]:
    """The headers, with what the environment has in place of variables."""
    headers = {}
    for one in given:
        name, is_header, value = one.partition("=")
        if not is_header or not name:
            raise ConfigError(f"--header {name!r}: give NAME=VALUE, as in 'Authorization=Bearer {{TOKEN}}'")
        missing = [variable for variable in _VARIABLE.findall(value) if variable not in os.environ]
        if missing:
            raise ConfigError(f"--header {name}: the environment has no {', '.join(missing)}")
        headers[name] = _VARIABLE.sub(lambda match: os.environ[match[1]], value)
    return headers
