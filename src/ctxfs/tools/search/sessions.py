"""Searching one of many sessions: opened only if its files may hold a match; an error is yielded."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ctxfs.session.entries import Entry, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.summary import problem_of
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion
from ctxfs.tools.search.candidates import may_match, needed_words
from ctxfs.tools.search.query import Query
from ctxfs.tools.search.search import Hit, Holdings, Matcher, Searched, Unread, search

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a session, or with a part of it, in words."""

    text: str


async def search_held(
    fs: ContextFileSystem, query: Query, matcher: Matcher[L], *, only: Entry | None = None
) -> AsyncGenerator[Hit[Entry, L] | Searched[Entry] | Problem, None]:
    """Search all that an open session holds and that the query is about; what cannot be read is a ``Problem``.

    ``only``: search this item alone, whatever types and tools the query names.
    """
    held = Holdings(fs)
    if only is not None:
        where = [only]
    else:
        where = [entry for entry in await entries(fs) if query.searches(entry)]
        for line in fs.recovery.first_journal_damage_lines(fs.session_id):
            yield Problem(line)
    async with aclosing(search(held, matcher, where)) as found:
        async for one in found:
            yield Problem(str(one.error)) if isinstance(one, Unread) else one


async def search_session(
    stores: SessionStores, session_id: str, query: Query, matcher: Matcher[L], *, disk_bytes: int | None = None
) -> AsyncGenerator[Hit[Entry, L] | Searched[Entry] | Problem, None]:
    """Search a session that is not open; an error is a ``Problem`` too, so that others can be searched after it.

    ``disk_bytes``: the size of all its files when it was last read and not damaged. If they still have it, the session
    is not opened unless its files may hold a match. None: it is opened.
    """
    try:
        if not await run_to_completion(partial(_may_match, stores, session_id, query, disk_bytes)):
            return
        fs = ContextFileSystem(session_id, root_path=stores, read_only=True)
        async with fs, aclosing(search_held(fs, query, matcher)) as found:
            async for one in found:
                yield Problem(f"session {session_id}: {one.text}") if isinstance(one, Problem) else one
    except Exception as error:  # noqa: BLE001 - what is wrong with one must not hide what others hold
        yield Problem(problem_of(session_id, error))


def _may_match(stores: SessionStores, session_id: str, query: Query, disk_bytes: int | None) -> bool:
    words = needed_words(query)
    if stores.directory is None or disk_bytes is None or words is None:
        return True
    return may_match(stores.directory / session_id, words, ignore_case=query.ignore_case, disk_bytes=disk_bytes)
