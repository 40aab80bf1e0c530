"""A search of all contents of all sessions: what is found is streamed, the newest session first."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from ctxfs.session.entries import Entry
from ctxfs.session.listing.catalogue import is_listed, seen_sessions
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.paging import Line
from ctxfs.tools.search.line_pattern import MAX_CPU_S, LinePattern
from ctxfs.tools.search.lines import FoundLine
from ctxfs.tools.search.search import CutLines, Hit, Query
from ctxfs.tools.search.sessions import Problem, search_session
from ctxfs.view.content import Piece, pieces
from ctxfs.view.overview import chosen_rows
from ctxfs.view.sources import OpenSessions

MOST_ITEMS = 100
"""A search stops after this many items with a match, and can be continued: more are not read on one page."""
LINES_SHOWN = 3
PROGRESS_S = 0.5
"""How often the page says how far the search is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundItem:
    """An item with matching lines, and the first of them, which are not trusted; ``more``: there are others.

    ``title``: that of its session, or its id. ``pieces``: the text of each line, in matches and what is between them.
    ``is_first``: no other item of its session was found before.
    """

    session_id: str
    title: str
    item_id: str
    tool: str
    lines: Sequence[Line]
    pieces: Sequence[Sequence[Piece]]
    more: bool
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many of the sessions are searched, and how many items matched. The last one of a search is ``ended``.

    ``next_place`` is the place of the session in which it has to go on, and ``skip`` the number of its items that were
    shown; None: all are searched.
    """

    searched: int
    of: int
    items: int
    ended: bool = False
    next_place: int | None = None
    skip: int = 0


async def search_all(
    sessions: OpenSessions, pattern: str, *, first: int = 0, skip: int = 0
) -> AsyncGenerator[FoundItem | Problem | Progress, None]:
    """Search all sessions, the newest first; see ``search_sessions``.

    Where the sessions were never listed, the list is made after the search. So hits are there at once, but without the
    questions of their sessions. The search opens only sessions that can match; what the list says of other, damaged
    ones comes at the end of the first page.
    """
    was_listed = await is_listed(sessions.stores)
    known = chosen_rows(await (sessions.summaries() if was_listed else seen_sessions(sessions.stores)))
    told = set[str]()
    async with aclosing(search_sessions(sessions.stores, known, pattern, first=first, skip=skip)) as found:
        async for one in found:
            if isinstance(one, Problem):
                told.add(one.text)
            yield one
    if was_listed or first or skip:
        return
    for session in chosen_rows(await sessions.summaries()):
        if not session.is_damaged:
            continue
        async with aclosing(search_sessions(sessions.stores, [session], pattern)) as found:
            async for one in found:
                if isinstance(one, Problem) and one.text not in told:
                    yield one


async def search_sessions(
    stores: SessionStores, sessions: Sequence[SessionSummary], pattern: str, *, first: int = 0, skip: int = 0
) -> AsyncGenerator[FoundItem | Problem | Progress, None]:
    """Search the sessions from the place ``first`` on, and of this one without its first ``skip`` items with a match.

    Raises:
        InvalidToolArguments: the pattern is wrong.
    """
    query = Query(pattern=pattern)
    matcher = CutLines(query.compiled(CpuBudget(MAX_CPU_S)), LINES_SHOWN, budget_each=True)
    total = len(sessions)
    items = 0
    said_at = time.monotonic()
    for place, session in enumerate(sessions[first:], first):
        shown = 0
        async with aclosing(_items(stores, session, query, matcher)) as found:
            async for one in found:
                if not isinstance(one, FoundItem):
                    yield one
                    continue
                shown += 1
                if shown <= skip:
                    continue
                if items == MOST_ITEMS:
                    yield Progress(searched=place, of=total, items=items, ended=True, next_place=place, skip=shown - 1)
                    return
                items += 1
                yield replace(one, is_first=shown == skip + 1)
        skip = 0
        if time.monotonic() - said_at >= PROGRESS_S:
            said_at = time.monotonic()
            yield Progress(searched=place + 1, of=total, items=items)
    yield Progress(searched=total, of=total, items=items, ended=True)


async def _items(
    stores: SessionStores, session: SessionSummary, query: Query, matcher: CutLines
) -> AsyncGenerator[FoundItem | Problem, None]:
    """The items of one session that match, and what of it could not be searched."""
    session_id = session.session_id
    disk_bytes = None if session.is_damaged else session.disk_bytes
    lines: list[FoundLine] = []
    async with aclosing(search_session(stores, session_id, query, matcher, disk_bytes=disk_bytes)) as found:
        async for one in found:
            if isinstance(one, Problem):
                yield one
                continue
            if isinstance(one, Hit):
                lines.append(one.line)
                continue
            if lines:
                more = one.end.next_line is not None
                marking = query.compiled(CpuBudget(MAX_CPU_S))
                yield await run_in_steps(partial(_found_item, session, one.item, lines, marking, more=more))
                lines = []
            stopped = one.end.stopped
            if stopped is not None:
                item = f"session {session_id}: {one.item.item_id}"
                yield Problem(f"{item}: searched up to line {stopped.number - 1:,}: {stopped.error}")


def _found_item(
    session: SessionSummary, entry: Entry, lines: Sequence[FoundLine], pattern: LinePattern, *, more: bool
) -> FoundItem:
    return FoundItem(
        session_id=session.session_id,
        title=session.title or session.session_id,
        item_id=entry.item_id,
        tool=entry.tool_name or "",
        lines=tuple(lines),
        pieces=[pieces(pattern, line) for line in lines],
        more=more,
    )
