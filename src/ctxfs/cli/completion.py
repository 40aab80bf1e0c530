"""The sessions and items that a shell offers while a command is typed.

Those in a store are not offered, since each keystroke would make requests.
"""

from contextlib import suppress
from pathlib import Path

import anyio
import typer

from ctxfs.cli.directory import sessions_directory
from ctxfs.cli.session import by_change, open_session
from ctxfs.errors import CtxfsError
from ctxfs.session.entries import entries
from ctxfs.storage.local import is_session
from ctxfs.storage.threads import without_threads


def known_sessions(context: typer.Context, incomplete: str) -> list[str]:
    """The sessions to offer for ``incomplete``, the last changed first."""
    root = _root_of(context)
    if root is None:
        return ["last"]
    with suppress(CtxfsError):
        return ["last", *(name for name in by_change(root, incomplete) if is_session(root, name))]
    return ["last"]


def known_items(context: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001 - as typer calls it
    """The items of the session that was given before."""
    root, session = _root_of(context), context.params.get("session")
    return [] if root is None or not session else anyio.run(_items, root, session)


def _root_of(context: typer.Context) -> Path | None:
    """The directory that holds the sessions; None for a store, since each keystroke would make requests."""
    if context.params.get("store") is not None:
        return None
    return sessions_directory(context.params.get("root"), may_be_new=True)


async def _items(root: Path, session: str) -> list[str]:
    with suppress(CtxfsError), without_threads():
        async with open_session(root, session) as fs:
            return [entry.item_id for entry in await entries(fs)]
    return []
