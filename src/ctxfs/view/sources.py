"""Sessions as the page reads them: opened once, read-only, and followed as their writers go on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

import anyio

from ctxfs.errors import SessionNotFound
from ctxfs.messages.names import TERMINAL
from ctxfs.session.discovery import unknown_files
from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.index import INDEX_NAME
from ctxfs.session.journal import Scan, scan
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import Question, SessionSummary, first_question
from ctxfs.session.records import Record
from ctxfs.session.state import SessionState
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage.sessions import SessionStores, has_writer, session_ids
from ctxfs.storage.threads import run_in_steps, run_to_completion
from ctxfs.view.activity import Activity
from ctxfs.view.activity_builder import ActivityBuilder
from ctxfs.view.findings import Unfinished

T = TypeVar("T")

MOST_OPEN = 8
"""The most sessions that are kept open; the least recently used is closed first."""


class OpenSession:
    """A session that is read as it grows: its files, and the records of its journal so far.

    ``question``: the first question; None: there is none yet. Not trusted.
    ``is_running``: a writer had it open at the last look. ``unfinished``: if none had, what was written but not
    recorded.

    Args:
        stores: where the sessions are.
        session_id: the id of this one.
    """

    def __init__(self, stores: SessionStores, session_id: str) -> None:
        self._stores = stores
        self.fs = ContextFileSystem(session_id, root_path=stores, read_only=True)
        self.activity = Activity()
        self.question: Question | None = None
        self.records: list[Record] = []
        self.is_running = False
        self.unfinished = Unfinished()
        self._derived: dict[type, Any] = {}
        self._builder = ActivityBuilder()
        self._timeline: Timeline | None = None
        self._read = (0, 0)  # the journal's last line, and where it ends
        self._turn = anyio.Lock()

    @property
    def state(self) -> SessionState:
        """The state that the journal adds up to, as far as it was read for ``activity``."""
        return self._builder.state

    @property
    def version(self) -> int:
        """The number of the last line of the journal that was read; it grows with the session."""
        return self._read[0]

    async def open(self) -> Self:
        """Open the session. Raises what ``ContextFileSystem.open`` raises."""
        await self.fs.open()
        await self.refresh()
        return self

    async def close(self) -> None:
        """Close the session; idempotent."""
        await self.fs.close()

    async def timeline(self) -> Timeline:
        """The calls of the session, and their requests."""
        async with self._turn:
            if self._timeline is None:
                self._timeline = await run_in_steps(partial(Timeline, tuple(self.records)))
            return self._timeline

    async def derived(self, kind: type[T], make: Callable[[Self], T]) -> T:
        """What ``make`` makes of the session, made once and again only when the session has changed.

        It runs in a thread, since it may take seconds where a session is long; nothing is taken in meanwhile.
        """
        async with self._turn:
            if kind not in self._derived:
                self._derived[kind] = await run_in_steps(partial(make, self))
            made: T = self._derived[kind]
            return made

    async def refresh(self) -> bool:
        """Take in what was appended since the last time; return whether anything changed."""
        async with self._turn:
            is_running = await run_to_completion(partial(has_writer, self._stores, self.fs.session_id))
            last_seq, end = self._read
            data = await storage_of(self.fs).read_log(end)
            if not data and is_running == self.is_running:
                return False
            found = await run_in_steps(partial(scan, data, last_seq=last_seq, offset=end))
            await self.fs.refresh()
            unfinished = Unfinished() if is_running else await self._unfinished(found.torn_bytes)
            if self.question is None:
                self.question = await first_question(self.fs, found.records)
            # Whole, also for a request whose tab was closed: the next one would take the same records in again.
            return await run_to_completion(partial(self._take_in, found, is_running, unfinished))

    def _take_in(self, found: Scan, is_running: bool, unfinished: Unfinished) -> bool:
        """Take over what was read; return whether there are new records. It runs in a thread, and takes long."""
        self.is_running = is_running
        self.unfinished = unfinished
        self._derived.clear()
        if found.end == self._read[1]:
            return False  # a line that is not complete yet
        self._builder.feed(found.records)
        self.activity = self._builder.activity
        self.records += found.records
        self._timeline = None
        self._read = found.last_seq, found.end
        return True

    async def _unfinished(self, torn_bytes: int) -> Unfinished:
        """What a writer that is no longer running left unfinished."""
        names = [n for n in await storage_of(self.fs).names() if n != INDEX_NAME and not n.startswith(TERMINAL)]
        orphans, _ = await unknown_files(storage_of(self.fs), self.fs.state, None, names)
        return Unfinished(files=tuple(one.name for one in orphans), torn_bytes=torn_bytes)


@dataclass(slots=True)
class OpenSessions:
    """The sessions that are being viewed."""

    stores: SessionStores
    _open: dict[str, OpenSession] = field(default_factory=dict)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def is_open(self, session_id: str) -> bool:
        """Whether the session is open already, so that ``get`` is quick."""
        return session_id in self._open

    async def check(self, session_id: str) -> None:
        """Raise ``SessionNotFound`` unless there is such a session."""
        if session_id not in await session_ids(self.stores):
            raise SessionNotFound(session_id, self.stores.url)

    async def get(self, session_id: str) -> OpenSession:
        """The session as it is now. Raises ``SessionNotFound``, and whatever opening it raises."""
        async with self._turn:
            found = self._open.pop(session_id, None)
            if found is None:
                await self.check(session_id)
                found = await OpenSession(self.stores, session_id).open()
            self._open[session_id] = found  # the most recently used is closed last
            if len(self._open) > MOST_OPEN:
                await self._open.pop(next(iter(self._open))).close()
        await found.refresh()
        return found

    async def summaries(self) -> Sequence[SessionSummary]:
        """The summaries of all sessions, in no order, from the catalogue, which reads changed sessions again."""
        return await list_summaries(self.stores)

    async def running(self, session_ids: Iterable[str]) -> frozenset[str]:
        """The sessions among these that a writer has open."""
        asked = tuple(session_ids)
        return await run_to_completion(lambda: frozenset(one for one in asked if has_writer(self.stores, one)))

    async def close(self) -> None:
        """Close all sessions."""
        while self._open:
            await self._open.popitem()[1].close()
