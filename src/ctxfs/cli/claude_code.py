"""``ctxfs claude-code``: the server of the plug-in for Claude Code."""

import os

import anyio

from ctxfs.adapters.serve.claude_code import plugin_at, serve
from ctxfs.cli.options import PreviewAbove, Root, StoreUrl
from ctxfs.cli.session import sessions_at, stores_of
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS

_SESSION = "CLAUDE_CODE_SESSION_ID"


def claude_code(
    root: Root = None,
    store: StoreUrl = None,
    preview_above_tokens: PreviewAbove = DEFAULT_PREVIEW_ABOVE_TOKENS,
) -> None:
    """Serve Claude Code's plug-in: its hook, and its reading tools.

    The plug-in starts it. Large tool output is stored in full before the model sees it; the model is sent a preview
    of it, and reads the rest as needed.
    """
    plugin = plugin_at(
        stores_of(sessions_at(root, store, may_be_new=True)),
        os.environ.get(_SESSION, ""),
        preview_above_tokens=preview_above_tokens or None,
    )
    anyio.run(serve, plugin)
