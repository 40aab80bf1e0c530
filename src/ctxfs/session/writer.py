"""A session's journal at work: who writes waits for durability, and who waits together is written together."""

import logging
from collections.abc import Callable, Iterable, Sequence

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ctxfs.content.blocks import index_name
from ctxfs.content.file import ContentFile, IndexChunks
from ctxfs.errors import SessionClosed, WriteFailed
from ctxfs.session.index import INDEX_NAME, render_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import Record
from ctxfs.session.recovery import Found
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.threads import uninterrupted

__all__ = ["SessionLog"]

INDEX_MIN_CHANGES = 32

logger = logging.getLogger(__name__)

Prepare = Callable[[], Sequence[ContentFile]]
Make = Callable[[], Sequence[Record]]


def _no_files() -> Sequence[ContentFile]:
    return ()


class _Ticket:
    """One caller's commit. ``prepare`` says which files it needs, just before they are written."""

    __slots__ = ("done", "error", "files", "make", "prepare", "records")

    def __init__(self, make: Make, prepare: Prepare) -> None:
        self.make = make
        self.prepare = prepare
        self.files: Sequence[ContentFile] = ()
        self.records: Sequence[Record] = ()
        self.error: Exception | None = None
        self.done = False

    def fail(self, error: Exception) -> None:
        """End with ``error``, which is raised in this ticket's caller and nowhere else."""
        self.error, self.done = error, True


class SessionLog:
    """The state of an open session, and the only way to change it: a commit that is durable first."""

    def __init__(self, store: Store, session_id: str, found: Found) -> None:
        self._store = store
        self._session_id = session_id
        self.state: SessionState = found.state
        self._seq = found.last_seq
        self._end = found.log_end
        self._queue: list[_Ticket] = []
        self._turn = anyio.Lock()
        self._ended = False
        self._index_seq = -1
        self._index_size = 0

    async def commit(self, make: Make, prepare: Prepare = _no_files) -> None:
        """Write the files of ``prepare``, then the records of ``make``, and take these in when they are durable.

        ``make`` runs after the files were written, in a worker thread. All of it happens, or nothing. Raises
        ``WriteFailed``, ``NameTaken``, ``SessionLocked`` and ``SessionClosed``. A commit that is cancelled has
        ended when the cancellation is raised.
        """
        await checkpoint_if_cancelled()
        await self._written(_Ticket(make, prepare))

    @uninterrupted
    async def _written(self, ticket: _Ticket) -> None:
        self._queue.append(ticket)
        async with self._turn:
            while not ticket.done:
                await self._write_queue()
        if ticket.error is not None:
            raise ticket.error

    def end(self) -> None:
        """Begin to write nothing more: the session is closed, and what opens it next numbers its lines itself."""
        self._ended = True

    def check_open(self) -> None:
        """Raise ``SessionClosed`` after the end."""
        if self._ended:
            raise SessionClosed(f"session {self._session_id} was closed meanwhile: open it, and begin again")

    async def _write_queue(self) -> None:
        tickets = self._next_batch()
        try:
            await self._write_batch(tickets)
        except BaseException:  # the event loop ends: those who waited along write their own
            self._queue[:0] = [ticket for ticket in tickets if not ticket.done]
            raise
        await self._write_index_if_due()

    async def _write_batch(self, tickets: Sequence[_Ticket]) -> None:
        try:
            await self._write(tickets)
        except Exception as error:  # noqa: BLE001 - each caller gets its own
            if len(tickets) == 1:
                tickets[0].fail(error)
            else:
                await self._write_each(tickets)

    def _next_batch(self) -> list[_Ticket]:
        """Take the callers that wait; who wants a file that another one is about to write waits for the next round."""
        batch: list[_Ticket] = []
        waiting: list[_Ticket] = []
        names: set[str] = set()
        for ticket in self._queue:
            try:
                ticket.files = ticket.prepare()
            except Exception as error:  # noqa: BLE001 - raised in its caller
                ticket.fail(error)
                continue
            wanted = {file.name for file in ticket.files}
            (batch if names.isdisjoint(wanted) else waiting).append(ticket)
            names |= wanted
        self._queue = waiting
        return batch

    async def _write_each(self, tickets: Sequence[_Ticket]) -> None:
        """Write one by one: one caller's failure is not another's."""
        for ticket in tickets:
            try:
                await self._write([ticket])
            except Exception as error:  # noqa: BLE001 - raised in its caller
                ticket.fail(error)

    async def _write(self, tickets: Sequence[_Ticket]) -> None:
        self.check_open()
        line = b""

        def log() -> bytes:
            """One line for all, so that a power failure leaves all of it or nothing."""
            nonlocal line
            for ticket in tickets:
                ticket.records = ticket.make()
            records = [record for ticket in tickets for record in ticket.records]
            line = encode_line(self._seq + 1, records) if records else b""
            return line

        await self._store.commit(_new_files(file for ticket in tickets for file in ticket.files), log)
        self._seq += bool(line)
        self._end += len(line)
        for ticket in tickets:
            fold(self.state, ticket.records)
            ticket.done = True

    async def write_index(self, *, always: bool = False) -> None:
        """Write the index unless it says all already. Raises ``WriteFailed``."""
        if self._index_seq == self._seq and not always:
            return
        seq, entries = self._seq, list(self.state.stored.values())
        await self._store.replace(INDEX_NAME, render_index(self._session_id, seq, entries))
        self._index_seq, self._index_size = seq, len(entries)

    async def _write_index_if_due(self) -> None:
        changes = len(self.state.stored) - self._index_size
        if self._ended or changes < max(INDEX_MIN_CHANGES, self._index_size // 2):
            return
        try:
            await self.write_index()
        except WriteFailed as error:  # a cache: the journal has it all, and flush and close try again
            self._index_size = len(self.state.stored)
            logger.warning("session %s: %s", self._session_id, error)

    async def refresh(self) -> None:
        """Take in what another process appended since; a torn last line is left for the next time.

        For readers: what a writer has is current.
        """
        async with self._turn:  # what one caller has read, no other one reads again
            log = scan(await self._store.read_log(self._end), last_seq=self._seq, offset=self._end)
            fold(self.state, log.records)
            self._seq, self._end = log.last_seq, log.end


def _new_files(files: Iterable[ContentFile]) -> list[NewFile]:
    made: list[NewFile] = []
    for file in files:
        made.append(NewFile(name=file.name, chunks=file))
        if file.wants_index:
            made.append(NewFile(name=index_name(file.name), chunks=IndexChunks(file), derived=True))
    return made
