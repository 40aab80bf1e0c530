"""An open session in a bucket, in a worker thread: who writes, what is read, and what is written."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from ctxfs.errors import (
    NameTaken,
    NotStored,
    OutcomeUnknown,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
)
from ctxfs.storage.answers import Terms
from ctxfs.storage.base import NewFile, check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.growing import Growing
from ctxfs.storage.objects.bucket import Bucket, Taken
from ctxfs.storage.objects.cache import ReadCache
from ctxfs.storage.objects.row import SegmentRow
from ctxfs.storage.objects.segments import Append, Cut, Delete, Draft, Located, Put, Step

logger = logging.getLogger("ctxfs.storage")

__all__ = ["OpenedSession"]


class OpenedSession:
    """One opening of one session. Its methods block; they may be called in any thread, one at a time does its work.

    ``mine``: the names that this writer has had, for whose leases it need not wait; shared by all of its openings.
    ``place``: the store's name, for errors.
    """

    def __init__(
        self,
        bucket: Bucket,
        session_id: str,
        terms: Terms,
        *,
        cache: ReadCache | None = None,
        mine: set[str] | None = None,
        place: str = "this object store",
    ) -> None:
        self._session_id = session_id
        self._place = place
        self._terms = terms
        self._row = SegmentRow(bucket, session_id, terms, cache)
        self._mine = mine if mine is not None else set()
        self._lock = threading.Lock()
        self._me = ""  # the writer's name while this is the writer
        self._lost: Exception | None = None  # why this is the writer no longer
        self._growing = Growing()

    # ---- opening

    def open(self, *, create: bool, write: bool) -> None:
        """See ``Store.open``."""
        with self._lock:
            self._row.read_all()
            if not self._row.log.exists and not create:
                raise SessionNotFound(self._session_id, self._place)
            if write:
                self._become_writer()

    def close(self) -> None:
        """Let go of the session, also where the outcome of a commit is unknown."""
        with self._lock:
            if self._me and not isinstance(self._lost, SessionLocked):
                # What did not answer is not waited for again; the next writer waits until the lease has run out.
                self._give_back(self._terms if self._lost is None else replace(self._terms, give_up_s=0))

    def release(self) -> None:
        """See ``LeaseStore.release``."""
        with self._lock:
            if self._me:
                self._check_writer()
                self._give_back(self._terms)

    def acquire(self) -> bool:
        """See ``LeaseStore.acquire``."""
        with self._lock:
            if self._me and self._lost is None:
                return True
            self._row.catch_up()
            if not self._row.log.exists:
                raise SessionNotFound(self._session_id, self._place)
            was_let_go = self._row.log.head is not None and not self._row.log.head.writer
            self._become_writer()
            return was_let_go

    @property
    def epoch(self) -> int:
        """See ``SharedStore.epoch``."""
        head = self._row.log.head
        return head.epoch if head is not None and self._me and self._lost is None else 0

    def _become_writer(self) -> None:
        """Make a segment with the next epoch: an earlier writer fails at the next number."""
        while True:
            head = self._row.log.head
            is_others = head is not None and head.writer and head.writer not in self._mine
            if head is not None and is_others and self._terms.clock() < head.at + self._terms.ttl_s:
                holder = f"writer {head.writer}, which wrote less than {self._terms.ttl_s:g} s ago"
                raise SessionLocked(self._session_id, holder)
            me = uuid4().hex
            self._mine.add(me)  # also where the answer is lost
            try:
                self._row.make(self._row.next_head(me, epochs=1), [])
            except Taken:
                self._row.catch_up_with_next()  # somebody else was faster
                continue
            self._me, self._lost = me, None
            self._growing.files.clear()
            return

    def _give_back(self, terms: Terms) -> None:
        """Say that the session is free. Where that fails, the next writer waits until the lease has run out."""
        me, self._me = self._me, ""
        try:
            if self._lost is not None:
                self._row.catch_up()
            while self._row.log.head is not None and self._row.log.head.writer == me:
                try:
                    self._row.make(self._row.next_head(""), [] if self._lost is not None else self._grown(), terms)
                except Taken:
                    self._row.catch_up_with_next()  # it was taken over, or a commit of this writer arrived at last
                    continue
                self._growing.files.clear()
                self._row.cover_rest()
        except StorageError as error:
            logger.warning(
                "session %s could not be released, and is free in %g s: %s", self._session_id, self._terms.ttl_s, error
            )

    def remove(self) -> None:
        """Remove the session; see ``SegmentRow.remove``."""
        with self._lock:
            self._check_writer()
            try:
                self._row.remove(self._row.next_head("", removed=True))
            except Taken:
                self._lose(self._locked_out())
            self._me = ""

    # ---- reading

    def refresh(self) -> None:
        """As a reader, take in what the writer wrote since; the writer knows it."""
        with self._lock:
            if not self._me:
                self._row.catch_up()

    def _find(self, name: str) -> tuple[tuple[Located, ...], Growing]:
        """Where a file is, and what is not written of it yet. Raises ``NotStored``."""
        check_name(name)
        with self._lock:
            if not self._there(name) and not self._me:
                self._row.catch_up()
            if not self._there(name):
                raise NotStored(name)
            waiting = self._growing.files.get(name)
            return self._row.log.files.get(name, ()), Growing({} if waiting is None else {name: waiting[:]})

    def _there(self, name: str) -> bool:
        return name in self._row.log.files or name in self._growing.files

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        parts, growing = self._find(name)
        return sum(at.size for at in parts) + len(growing.files.get(name, b""))

    def read(self, name: str, offset: int, length: int | None) -> bytes:
        """See ``Store.read``."""
        return next(self.pieces(name, [(offset, length)]))

    def pieces(self, name: str, spans: Iterable[tuple[int, int | None]]) -> Iterator[bytes]:
        """See ``ThreadStore.pieces``; a length of None: all."""
        parts, growing = self._find(name)
        size = sum(at.size for at in parts)
        for offset, length in spans:
            data = self._row.read(parts, offset, length)
            yield data + growing.after(name, size, offset, length, data)

    def names(self, prefix: str) -> list[str]:
        """See ``Store.names``."""
        self.refresh()
        with self._lock:
            return sorted(name for name in {*self._row.log.files, *self._growing.files} if name.startswith(prefix))

    def read_log(self, offset: int) -> bytes:
        """See ``Store.read_log``."""
        self.refresh()
        with self._lock:
            return bytes(self._row.log.log[offset:])

    # ---- writing

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """See ``Store.commit``: one request, and one before it for each large content."""
        with self._lock:
            self._check_writer()
            steps: list[Step | Draft] = []
            seen: set[str] = set()
            carried = 0
            for file in files:
                check_name(file.name)
                if not file.derived and (self._there(file.name) or file.name in seen):
                    raise NameTaken(file.name)
                seen.add(file.name)
                with writing(file.name):
                    data = b"".join(file.chunks)
                steps.append(self._row.content(file.name, data, carried=carried))
                carried += len(data) if isinstance(steps[-1], Draft) else 0
            with writing("the log"):
                line = log()
            self._change([*steps, Append(line)] if line else steps)

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """See ``Store.replace``."""
        check_name(name)
        with self._lock:
            self._check_writer()
            with writing(name):
                data = b"".join(chunks)
            self._change([self._row.content(name, data)])

    def append(self, name: str, data: bytes, *, sync: bool) -> None:
        """See ``GrowingStore.append``: what is small waits for more of it, or for the next commit."""
        check_name(name)
        with self._lock:
            self._check_writer()
            self._growing.add(name, data, now := self._terms.clock())
            if sync or self._growing.is_due(now):
                self._change([])

    def delete(self, names: Sequence[str]) -> None:
        """See ``Store.delete``. A content with an object of its own is deleted after the segment that says so."""
        for name in names:
            check_name(name)
        with self._lock:
            self._check_writer()
            for name in names:
                self._growing.files.pop(name, None)
            gone = [name for name in dict.fromkeys(names) if name in self._row.log.files]
            if gone:
                parts = [at for name in gone for at in self._row.log.files[name]]
                self._change([Delete(name) for name in gone])
                self._row.delete_own_objects(parts)

    def truncate_log(self, length: int) -> None:
        """See ``Store.truncate_log``."""
        with self._lock:
            self._check_writer()
            self._change([Cut(length)])

    def _change(self, steps: Sequence[Step | Draft]) -> None:
        """Make the next segment, as the one writer, together with what grew."""
        all_steps = [*self._grown(), *steps]
        if not all_steps:
            return
        try:
            self._row.make(self._row.next_head(self._me), all_steps)
        except Taken:
            self._lose(self._locked_out())
        except OutcomeUnknown as error:
            self._lose(error)
        self._growing.files.clear()
        self._row.cover_full_rows()

    def _grown(self) -> list[Draft | Put]:
        return [self._row.content(name, bytes(data), grows=True) for name, data in self._growing.files.items()]

    def _lose(self, error: Exception) -> None:
        self._lost = error
        raise error from None

    def _locked_out(self) -> SessionLocked:
        return SessionLocked(self._session_id, "a writer that took the session over meanwhile")

    def _check_writer(self) -> None:
        if self._lost is not None:
            raise self._lost
        if not self._me:
            raise SessionClosed(f"session {self._session_id} is open for reading only, or was released")
