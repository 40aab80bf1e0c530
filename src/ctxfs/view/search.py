"""A search of all contents of all sessions, a few seconds at a time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ctxfs.errors import CtxfsError
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.summary import problem_of
from ctxfs.storage.sessions import SessionStores
from ctxfs.tools.line_pattern import LinePattern
from ctxfs.tools.paging import Line
from ctxfs.view.content import content_page

SEARCH_S = 3.0
"""A search stops after about this many seconds, and can be continued."""
MOST_HITS = 100
"""A search stops after this many items, and can be continued."""
LINES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An item with matching lines, and the first of them, which are not trusted; ``more``: there are others."""

    session_id: str
    item_id: str
    tool: str
    lines: Sequence[Line]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of a search.

    Args:
        hits: in the order of the sessions.
        problems: what could not be searched, and why.
        searched: how many sessions were searched.
        next_place: the place in the list of the session to continue with; None: all were searched.
    """

    hits: Sequence[Hit]
    problems: Sequence[str]
    searched: int
    next_place: int | None


async def search_sessions(stores: SessionStores, session_ids: Sequence[str], pattern: str, *, first: int = 0) -> Found:
    """Search the sessions from the place ``first`` on.

    Raises:
        InvalidToolArguments: the pattern is wrong.
    """
    LinePattern(pattern)
    until = time.monotonic() + SEARCH_S
    hits: list[Hit] = []
    problems: list[str] = []
    for place, session_id in enumerate(session_ids[first:], first):
        if place > first and (time.monotonic() > until or len(hits) >= MOST_HITS):
            return Found(hits=hits, problems=problems, searched=place - first, next_place=place)
        try:
            async with ContextFileSystem(session_id, store=stores, read_only=True) as fs:
                hits += await _search(fs, pattern, until, problems)
        except Exception as error:  # noqa: BLE001 - what is wrong with one must not hide what others hold
            problems.append(f"{session_id}: {problem_of(session_id, error)}")
    return Found(hits=hits, problems=problems, searched=len(session_ids) - first, next_place=None)


async def _search(fs: ContextFileSystem, pattern: str, until: float, problems: list[str]) -> Sequence[Hit]:
    hits: list[Hit] = []
    searched = 0
    for item_id in _contents(fs):
        if time.monotonic() > until or len(hits) >= MOST_HITS:
            problems.append(
                f"{fs.session_id}: only its first {searched:,} contents were searched: search this session on its own"
            )
            break
        searched += 1
        try:
            page = await content_page(fs, item_id, "grep", pattern=pattern)
        except CtxfsError as error:
            problems.append(f"{fs.session_id}: {item_id}: {error}")
            continue
        if page.lines:
            hits.append(
                Hit(
                    session_id=fs.session_id,
                    item_id=item_id,
                    tool=_tool(fs, item_id),
                    lines=page.lines[:LINES_SHOWN],
                    more=len(page.lines) > LINES_SHOWN or page.next_first is not None,
                )
            )
    return hits


def _contents(fs: ContextFileSystem) -> Iterator[str]:
    """The ids of all contents, each once: those in files, and those in the journal."""
    state = fs.state
    yield from state.stored
    yield from (item_id for item_id, item in state.items.items() if item_id not in state.stored and not item.destroyed)


def _tool(fs: ContextFileSystem, item_id: str) -> str:
    stored, item = fs.state.stored.get(item_id), fs.state.items.get(item_id)
    return (stored.tool_name if stored is not None else item.tool_name if item is not None else None) or ""
