"""How much of the disk is taken up, by session, by tool, by item.

A file that several sessions name, such as those of a fork, is counted once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctxfs.errors.checks import names_settings
from ctxfs.session.content.file import file_bytes
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary, file_stats, problem_of
from ctxfs.storage.sessions import SessionStores, session_ids
from ctxfs.storage.threads import run_to_completion
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores


async def counted_once(stores: SessionStores) -> list[SessionSummary]:
    """The sessions of a place, each with the ``disk_bytes`` that it does not share with newer ones.

    Removing it frees that much, as long as the oldest are removed first.
    Raises ``ConfigError`` if the place cannot be read.
    """
    summaries = await list_summaries(stores)
    root = stores.directory
    if root is None:
        return summaries
    shared = await run_to_completion(lambda: shared_with_newer(root, summaries))
    return [replace(one, disk_bytes=max(0, one.disk_bytes - shared.get(one.session_id, 0))) for one in summaries]


def shared_with_newer(root: Path, summaries: Sequence[SessionSummary]) -> dict[str, int]:
    """How many bytes of each session are in files that it shares with newer ones. Examines every stored file."""
    seen: set[tuple[int, int]] = set()
    shared: dict[str, int] = {}
    for summary in sorted(summaries, key=lambda one: one.changed_at, reverse=True):
        if not summary.stored:
            continue
        for status in file_stats(root / summary.session_id):
            if status.st_nlink == 1:
                continue
            file = status.st_dev, status.st_ino
            if file in seen:
                shared[summary.session_id] = shared.get(summary.session_id, 0) + status.st_size
            seen.add(file)
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """How much one session, one tool or one item takes up.

    ``size_bytes`` is the size of its files: for a session all of them, else those of contents. ``content_bytes`` is the
    size of the contents without compression, ``contents`` their number. ``session_id`` is "" for a tool of several.
    ``shared_bytes``: for a session, how much of ``size_bytes`` is in files that a newer session, such as a fork,
    shares; the sessions together take up the sum of ``size_bytes``, less all of these.
    """

    name: str
    session_id: str
    size_bytes: int
    content_bytes: int
    contents: int
    shared_bytes: int = 0


@names_settings({"store": STORE_IS_ROOT_PATH})
async def usage_by_session(root_path: str | Path | SessionStores | None = None) -> tuple[DiskUsage, ...]:
    """Return how much each session takes up, the largest first. Raises ``ConfigError`` if the place cannot be read.

    In a place other than a directory, no files are shared, and this is what the session itself holds.
    """
    stores = await resolved_stores(root_path)
    summaries = await list_summaries(stores)
    root = stores.directory
    shared: dict[str, int] = {}
    if root is not None:
        shared = await run_to_completion(lambda: shared_with_newer(root, summaries))
    return _largest_first(
        DiskUsage(
            name=summary.session_id,
            session_id=summary.session_id,
            size_bytes=summary.disk_bytes,
            content_bytes=summary.stored_bytes,
            contents=summary.stored,
            shared_bytes=shared.get(summary.session_id, 0),
        )
        for summary in summaries
    )


@names_settings({"store": STORE_IS_ROOT_PATH})
async def usage_by_tool(
    session_id: str | None = None,
    *,
    root_path: str | Path | SessionStores | None = None,
) -> tuple[DiskUsage, ...]:
    """Return how much the contents of each tool take up, the largest first; ``session_id``: None means all sessions.

    Contents of no tool are listed under their type, such as ``user_message``.
    """
    by_tool: dict[str, list[DiskUsage]] = {}
    for item in await usage_by_item(session_id, root_path=root_path, by_tool=True):
        by_tool.setdefault(item.name, []).append(item)
    return _largest_first(
        DiskUsage(
            name=name,
            session_id=session_id or "",
            size_bytes=sum(item.size_bytes for item in items),
            content_bytes=sum(item.content_bytes for item in items),
            contents=len(items),
        )
        for name, items in by_tool.items()
    )


@names_settings({"store": STORE_IS_ROOT_PATH})
async def usage_by_item(
    session_id: str | None = None,
    *,
    root_path: str | Path | SessionStores | None = None,
    by_tool: bool = False,
) -> tuple[DiskUsage, ...]:
    """Return how much each content takes up, the largest first; ``session_id``: None means all sessions.

    ``by_tool`` names each item by its tool. Sessions that cannot be read are left out; if one session is given and
    cannot be opened, that error is raised.
    """
    stores = await resolved_stores(root_path)
    found: list[DiskUsage] = []
    for name in await session_ids(stores) if session_id is None else [session_id]:
        try:
            async with ContextFileSystem(name, root_path=stores, read_only=True) as fs:
                found += [_usage(stored, name, by_tool=by_tool) for stored in fs.state.stored.values()]
        except Exception as error:
            if session_id is not None:
                raise
            problem_of(name, error)  # it is left out, but a defect of ours is logged
    return _largest_first(found)


def _usage(stored: Stored, session_id: str, *, by_tool: bool) -> DiskUsage:
    name = stored.item_id
    if by_tool:
        name = stored.tool_name or str(stored.item_type)
    return DiskUsage(
        name=name,
        session_id=session_id,
        size_bytes=file_bytes(stored),
        content_bytes=stored.size_bytes,
        contents=1,
    )


def _largest_first(found: Iterable[DiskUsage]) -> tuple[DiskUsage, ...]:
    return tuple(sorted(found, key=lambda usage: (-usage.size_bytes, usage.session_id, usage.name)))
