"""``ctxfs claude-code``: the server of the plug-in for Claude Code."""

import os
from typing import Annotated

import anyio
import typer

from ctxfs.cli.options import Root, StoreUrl
from ctxfs.cli.session import sessions_at, stores_of
from ctxfs.materialize import Materialize
from ctxfs.serve.claude_code import plugin_at, serve

__all__ = ["claude_code"]

_SESSION = "CLAUDE_CODE_SESSION_ID"
_BYTES_PER_CHAR = 4

MaxInline = Annotated[
    int,
    typer.Option(
        "--max-inline-chars",
        min=1,
        metavar="N",
        envvar="CTXFS_MAX_INLINE_CHARS",
        help="Leave tool output of up to N characters as it is.",
    ),
]


def claude_code(root: Root = None, store: StoreUrl = None, max_inline_chars: MaxInline = 10_000) -> None:
    """Serve Claude Code's plug-in: its hook, and its reading tools.

    The plug-in starts it. Large tool output is stored in full before the model sees it; the model is sent a summary
    of it, and reads the rest as needed.
    """
    limits = Materialize(max_inline_chars=max_inline_chars, max_inline_bytes=_BYTES_PER_CHAR * max_inline_chars)
    place = stores_of(sessions_at(root, store, may_be_new=True))
    anyio.run(serve, plugin_at(place, limits, os.environ.get(_SESSION, "")))
