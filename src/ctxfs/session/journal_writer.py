"""An open session's journal: the state that it adds up to, and commits that are durable before they take effect.

Group commit: all pending commits are written together, as one line of the journal. If that fails, each is written by
itself, so that one caller's failure does not affect the others.

A line that was begun is never written a second time without a look at the log: the store did not say whether it took
it, or an interrupt came before its records were taken in. The store then makes this the writer again, which waits for
what still runs, and the log says whether the line is there. Until that is known, nothing else is written.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ctxfs.errors import OutcomeUnknown, SessionClosed, SessionLocked, StorageError, WriteFailed
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.file import ContentFile, IndexChunks
from ctxfs.session.content.stored import Stored
from ctxfs.session.index import INDEX_NAME, render_index, wants_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import (
    CallMade,
    ContentRemoved,
    EvictionSet,
    ItemAdded,
    Pinned,
    Record,
    Removed,
    Replaced,
    RequestSent,
    Restored,
    SessionStarted,
    ToolsDefined,
    Undone,
    WriterOpened,
)
from ctxfs.session.recovery import SessionScan
from ctxfs.session.state import SessionState, evicts, fold
from ctxfs.storage.base import NewFile
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import raise_if_cancelled, run_to_completion, uninterrupted

INDEX_MIN_CHANGES = 32

Opening = SessionStarted | WriterOpened | EvictionSet
"""The records that opening a session makes."""

Preface = Opening | ToolsDefined | RequestSent
"""The records that may begin a line: who writes from there on, by which rules, and the request before it."""

logger = logging.getLogger("ctxfs.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What becomes durable together: contents, then records; all of it, or nothing.

    ``files``: those whose items have been stored in the meantime are left out. ``replacing``: contents that replace
    earlier ones, whose ``Stored`` is among the records; in a ``SharedStore`` only. ``records``: model calls with the
    number 0 get theirs when they are written, and evictions and restorations the time and the call. ``last``: the
    session is released with it; a ``SharedStore`` does both in one request. ``needs``: an earlier commit of the same
    call, without which this one is not written.
    """

    files: Sequence[ContentFile] = ()
    replacing: Sequence[ContentFile] = ()
    records: Sequence[Record] = ()
    last: bool = False
    needs: "Commit | None" = None


class Outcome(NamedTuple):
    """What became of a commit. ``error``: None if it is durable. ``change``: the number of the change it is part of."""

    error: Exception | None
    change: int


@dataclass(slots=True, eq=False)
class _Pending:
    """A commit in the queue.

    ``call``: one object for all commits of a call, whose evictions are one change if they are written together.
    ``needs``: see ``Commit``. ``files``: those still to be written. ``error`` is only for its caller.
    """

    commit: Commit
    call: object
    needs: "_Pending | None" = None
    files: Sequence[ContentFile] = ()
    records: Sequence[Record] = ()
    change: int = 0
    error: Exception | None = None
    done: bool = False


@dataclass(slots=True)
class _Batch:
    """Commits that are written together, as line ``seq`` of the journal, after ``state``, at the time ``now``.

    ``preface``: the records that begin the line. ``change``: the number of the change that evictions belong to; 0: each
    commit is a change of its own.
    """

    commits: Sequence[_Pending]
    seq: int
    state: SessionState
    now: float
    preface: Sequence[Preface] = ()
    change: int = 0
    line: bytes = field(default=b"", init=False)

    def files(self) -> list[NewFile]:
        """The contents, large ones with the index of their blocks."""
        replacing: list[NewFile] = []
        new: list[NewFile] = []
        for pending in self.commits:
            replacing += [NewFile(name=file.name, chunks=file, derived=True) for file in pending.commit.replacing]
            for file in pending.files:
                new.append(NewFile(name=file.name, chunks=file))
                if file.wants_index:
                    new.append(NewFile(name=index_name(file.name), chunks=IndexChunks(file), derived=True))
        return [*replacing, *new]

    def encode(self) -> bytes:
        """One line for all, so that a power failure leaves all or nothing; called once the files are written.

        When the batch is written again, because the store had lost it, the line is the same.
        """
        if self.line:
            return self.line
        state = self.state
        stamps = _Stamps(len(state.calls), state.replies, state.changes, self.now, self.change)
        call: object = None
        records: list[Record] = []
        for pending in self.commits:
            if pending.call is not call:
                call = pending.call
                stamps.begin()
            stored = [file.stored for file in pending.files]
            pending.records = [stamps.put_on(record) for record in (*stored, *pending.commit.records)]
            pending.change = stamps.changes
            records += pending.records
        if records:
            self.line = encode_line(self.seq, [*self.preface, *records])
        return self.line


class JournalReader:
    """The state of an open session, which follows what is appended to its journal."""

    def __init__(self, store: ThreadedStore, session_id: str) -> None:
        self.state = SessionState()
        self._store = store
        self._session_id = session_id
        self._seq = 0
        self._end = 0
        self._turn = LoopLock()

    def resume(self, found: SessionScan) -> None:
        """Continue from the state in which the session was found."""
        self.state = found.state
        self._seq = found.last_seq
        self._end = found.log_end

    async def catch_up(self) -> tuple[Record, ...]:
        """Take in and return what another process has appended; a torn last line is left for the next time."""
        async with self._turn:  # so that no caller reads what another one has read
            return self._take_in(await self._store.read_log(self._end))

    def _take_in(self, appended: bytes) -> tuple[Record, ...]:
        if not appended:
            return ()
        log = scan(appended, last_seq=self._seq, offset=self._end)
        fold(self.state, log.records)
        self._seq = log.last_seq
        self._end = log.end
        return log.records


class JournalWriter(JournalReader):
    """The state of an open session, and the only way to change it: a commit that is durable first."""

    def __init__(self, store: ThreadedStore, session_id: str, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, session_id)
        self._clock = clock
        self._preface: tuple[Preface, ...] = ()
        self._change = 0
        self._queue: list[_Pending] = []
        self._begun: _Batch | None = None  # whether its line is in the log is not known
        self._ended = False
        self._index_seq = -1
        self._index_size = 0
        self._wants_index = wants_index(store)

    def begin_line(self, *records: Preface) -> None:
        """Begin the next line with ``records``; of each kind, only the last one given counts."""
        kinds = {type(record) for record in records}
        kept = [record for record in self._preface if type(record) not in kinds]
        self._preface = (*kept, *records)

    async def opened(self, *records: Opening) -> None:
        """Take in the records of opening the session. They are durable when this returns.

        In a ``SharedStore`` they become durable with the next line, which saves a request; nothing needs them earlier.
        """
        if self._store.is_shared:
            fold(self.state, records)
            self.begin_line(*records)
        else:
            await self.commit(Commit(records=records))

    def request_to_write(self) -> RequestSent | None:
        """The request with which the next line begins; None: there is none."""
        return next((record for record in self._preface if isinstance(record, RequestSent)), None)

    @contextmanager
    def one_change(self) -> Iterator[None]:
        """Make all evictions inside one change, so that they are undone together."""
        self._change = self.state.changes + 1
        try:
            yield
        finally:
            self._change = 0

    async def commit(self, commit: Commit) -> None:
        """Write ``commit``, and take in its records once they are durable.

        Raises ``WriteFailed``, ``NameTaken``, ``SessionLocked``, ``SessionClosed`` and ``InvalidRecord``. A commit that
        is cancelled has ended when the cancellation is raised. ``OutcomeUnknown``: the store could not be asked again
        whether it took the commit; ``settle``, or the next commit, will.
        """
        (outcome,) = await self.commit_each([commit])
        if outcome.error is not None:
            raise outcome.error

    async def commit_each(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Write commits together, as one change, and return what became of each, in their order.

        If they cannot be written together, each is written by itself, in their order: what one of them fails for does
        not concern the others, unless they need it. Raises nothing but a cancellation, when all have ended, and what
        keeps anything from being written: ``SessionError`` of another event loop, ``OutcomeUnknown`` of earlier work.
        """
        await raise_if_cancelled()
        call = object()
        queued: dict[int, _Pending] = {}  # by the identity of their commits
        for commit in commits:
            needed: _Pending | None = None
            if commit.needs is not None:
                needed = queued[id(commit.needs)]
            queued[id(commit)] = _Pending(commit, call, needed)
        own = list(queued.values())
        await self._written(own)
        return [Outcome(pending.error, pending.change) for pending in own]

    @uninterrupted
    async def _written(self, own: Sequence[_Pending]) -> None:
        """Wait for the caller's turn, and write what is in the queue until the caller's ``own`` commits are done."""
        self._queue += own
        try:
            async with self._turn:
                if self._begun is not None:
                    await self._settle()
                while not all(pending.done for pending in own):
                    batch, self._queue = _next_batch(self._queue, self.state.stored)
                    try:
                        await self._write(batch)
                    except BaseException:  # an interrupt: the other callers write their own commits
                        self._queue[:0] = [other for other in batch if not (other.done or other in own)]
                        raise
                    await self._write_index_if_due()
        except BaseException:  # their caller holds what was not written, and will write it again
            for pending in own:
                pending.done = True
            self._queue = [pending for pending in self._queue if not pending.done]
            raise

    async def _write(self, commits: Sequence[_Pending]) -> None:
        """Write them together or, if that fails, one by one, so that one commit's failure does not affect others."""
        for pending in commits:
            if pending.needs is not None and pending.needs.error is not None:
                pending.error = pending.needs.error
                pending.done = True
        commits = [pending for pending in commits if not pending.done]
        if not commits:
            return
        try:
            self.check_open()
            batch = _Batch(
                commits,
                seq=self._seq + 1,
                state=self.state,
                now=self._clock(),
                preface=self._preface,
                change=self._change,
            )
            try:
                await self._append(batch)
            except OutcomeUnknown:
                if not await self._settle():
                    await self._append(batch)
        except Exception as error:  # noqa: BLE001 - raised in its caller
            if len(commits) == 1 or self._begun is not None:
                for pending in commits:
                    pending.error = error
                    pending.done = True
                return
            for alone in commits:
                await self._write([alone])

    async def _append(self, batch: _Batch) -> None:
        """Write the line of ``batch``, and take its records in; it stays begun if its outcome is unknown."""
        self._begun = batch
        try:
            # The protocol check comes last: it takes longer than everything else here.
            if any(pending.commit.last for pending in batch.commits) and self._store.is_shared:
                await self._store.commit_and_release(batch.files(), batch.encode)
            else:
                await self._store.commit(batch.files(), batch.encode)
        except OutcomeUnknown:
            raise
        except Exception:
            self._begun = None
            raise
        if batch.line:
            fold(self.state, batch.preface)
            self._preface = tuple(record for record in self._preface if record not in batch.preface)
        for pending in batch.commits:
            fold(self.state, pending.records)
        self._end_of(batch)

    def _end_of(self, batch: _Batch) -> None:
        """Note that the line of ``batch`` is in the log, and its records in the state."""
        for pending in batch.commits:
            pending.done = True
        if batch.line:
            end = self._end + len(batch.line)
            self._seq = batch.seq
            # Last: after an interrupt before this, `_settle` finds the line in the log, and does all of it again.
            self._end = end
        self._begun = None

    async def settle(self) -> None:
        """Learn what became of a commit whose outcome is unknown, and take it in if the log has it.

        Does nothing if there is none. Raises ``SessionLocked`` if another writer has written since, ``OutcomeUnknown``
        if the store cannot be asked now, and ``SessionNotFound``.
        """
        async with self._turn:
            await self._settle()

    async def _settle(self) -> bool:
        """Do what ``settle`` does; return whether the log has what was begun.

        The state is folded again from the whole log, since an interrupt may have left it half folded.
        """
        begun = self._begun
        if begun is None:
            return False
        try:
            await self._store.acquire()
            log = await self._store.read_log()
        except StorageError as error:
            raise OutcomeUnknown("the last commit", str(error)) from error
        appended = log[self._end :]
        if len(log) < self._end or appended not in (b"", begun.line):
            await self._store.release()
            raise SessionLocked(self._session_id, "a writer that took the session over")
        self.state.become(await run_to_completion(lambda: fold(SessionState(), scan(log).records)))
        if appended:
            self._preface = tuple(record for record in self._preface if record not in begun.preface)
        fold(self.state, (record for record in self._preface if isinstance(record, Opening)))
        if appended:
            self._end_of(begun)
        self._begun = None
        self._queue = [pending for pending in self._queue if not pending.done]
        return bool(appended)

    @uninterrupted
    async def remove(self, tombstones: Sequence[ContentRemoved]) -> None:
        """Remove contents for good: ``tombstones`` are durable before the first file goes. Raises as ``commit``.

        ``ctxfs.session`` decides what may be removed; nothing is checked here. A file that cannot be removed is left
        to the next writer that opens the session.
        """
        await self.commit(Commit(records=tombstones))
        names: list[str] = []
        for gone in tombstones:
            names += (gone.name, index_name(gone.name))
        await self._store.delete(names)

    async def release(self) -> None:
        """Let another writer in; until ``acquire`` every commit raises ``SessionClosed``."""
        async with self._turn:
            await self._store.release()

    async def acquire(self) -> tuple[Record, ...] | None:
        """Be the writer again; take in what others appended in the meantime, and return it.

        None: the session must be opened again, because another writer died, the outcome of a commit is unknown, or the
        journal is not the one that was released. Raises ``SessionLocked``, ``SessionNotFound`` and ``WriteFailed``.
        """
        async with self._turn:
            if self._begun is not None:
                return None
            if not await self._store.acquire():
                return None
            return await self._gained()

    async def follow(self) -> tuple[Record, ...] | None:
        """While the session is released, take in what others appended, and return it, without taking a lease.

        None: the journal is not the one that was released.
        """
        async with self._turn:
            return await self._gained()

    async def _gained(self) -> tuple[Record, ...] | None:
        if self._end == 0:
            # Nothing is known of the journal, so any line in it was begun by another process.
            if await self._store.read_log():
                return None
            return ()
        # From the line break on that ends the last known line: elsewhere, this is not the journal that was released.
        since = await self._store.read_log(self._end - 1)
        if not since.startswith(b"\n"):
            return None
        return self._take_in(since[1:])

    def end(self) -> None:
        """Accept no more commits: the session is closed, and its next writer numbers its lines itself."""
        self._ended = True

    def check_open(self) -> None:
        """Raise ``SessionClosed`` after the end."""
        if self._ended:
            raise SessionClosed(f"session {self._session_id} was closed in the meantime: open it and start again")

    async def write_index(self) -> None:
        """Write the index, unless it is up to date or the store does without it. Raises ``WriteFailed``."""
        if self._index_seq == self._seq or not self._wants_index:
            return
        seq = self._seq  # as it is now: commits may be written while the index is
        entries = list(self.state.stored.values())
        await self._store.replace(INDEX_NAME, render_index(self._session_id, seq, entries))
        self._index_seq = seq
        self._index_size = len(entries)

    async def _write_index_if_due(self) -> None:
        changes = len(self.state.stored) - self._index_size
        if self._ended or not self._wants_index or changes < max(INDEX_MIN_CHANGES, self._index_size // 2):
            return
        try:
            await self.write_index()
        except WriteFailed as error:  # a cache: the journal has it all, and flush and close try again
            self._index_size = len(self.state.stored)
            logger.warning("session %s: %s", self._session_id, error)


def _next_batch(queue: Iterable[_Pending], stored: Mapping[str, Stored]) -> tuple[list[_Pending], list[_Pending]]:
    """The commits to write now, and those to delay, which write a file that an earlier commit also writes."""
    batch: list[_Pending] = []
    waiting: list[_Pending] = []
    names: set[str] = set()
    for pending in queue:
        pending.files = [file for file in pending.commit.files if file.item_id not in stored]
        wanted = {file.name for file in pending.files}
        if names.isdisjoint(wanted) and pending.needs not in waiting:
            batch.append(pending)
        else:
            waiting.append(pending)
        names |= wanted
    return batch, waiting


@dataclass(slots=True)
class _Stamps:
    """What records get when they are written: model calls a number; records that change items, the time and call."""

    calls: int
    replies: int
    changes: int
    now: float
    change: int
    _is_new: bool = True

    def begin(self) -> None:
        """Begin with the next commit: its evictions are a change."""
        self._is_new = True

    def put_on(self, record: Record) -> Record:
        """``record``, the next one in the journal, with what it gets on writing."""
        match record:
            case CallMade():
                self.calls += 1
                return record if record.number else replace(record, number=self.calls)
            case ItemAdded():
                self.replies += record.is_reply
            case Replaced() | Removed() if evicts(record):
                if self._is_new:
                    self.changes = self.change or self.changes + 1
                    self._is_new = False
                return replace(record, at=self.now, after_call=self.replies, change=self.changes)
            case Replaced() | Removed() | Restored() | Undone() | Pinned():
                return replace(record, at=self.now, after_call=self.replies)
        return record
