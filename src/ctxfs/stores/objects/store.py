"""Sessions in an object store: each a row of immutable segments in a bucket."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, Self

from typing_extensions import override

from ctxfs.errors import (
    NameTaken,
    NotStored,
    OutcomeUnknown,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
    WriteFailed,
)
from ctxfs.errors.checks import names_settings
from ctxfs.storage.base import NewFile, RewritingStore, SharedStore, check_name, check_session_name
from ctxfs.storage.failures import TROUBLES, writing
from ctxfs.stores.answers import GIVE_UP_S, TTL_S, Terms
from ctxfs.stores.objects.bucket import Bucket, Taken
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.row import SESSIONS, SegmentRow, random_name
from ctxfs.stores.objects.segments import Append, Cut, Delete, Draft, Head, Located, Put, Step

logger = logging.getLogger("ctxfs.stores")

PART_BYTES: Final = 1 << 20
"""Buffered output is written when there is this much of it ..."""

PART_S: Final = 5.0
"""... or when the oldest bytes have waited this long."""


@dataclass(slots=True)
class Growing:
    """Bytes that were appended to files, by name, and are not written yet, since each write is a request.

    ``since``: when the oldest of them were appended.
    """

    files: dict[str, bytearray] = field(default_factory=dict)
    since: float = 0.0

    def add(self, name: str, data: bytes, now: float) -> None:
        """Take the next bytes of a file; none, the first time, means that the file exists and is empty."""
        if not any(self.files.values()):
            self.since = now
        self.files.setdefault(name, bytearray()).extend(data)

    def is_due(self, now: float) -> bool:
        """Whether the buffered bytes have to be written now."""
        waiting = sum(map(len, self.files.values()))
        return waiting >= PART_BYTES or (waiting > 0 and now >= self.since + PART_S)

    def after(self, name: str, size: int, offset: int, length: int | None, read: bytes) -> bytes:
        """Return the bytes after ``read`` in a range of a file, ``size`` bytes of which have been written."""
        waiting = self.files.get(name, b"")
        start = max(0, offset - size)
        if length is None:
            return bytes(waiting[start:])
        return bytes(waiting[start : start + length - len(read)])


@names_settings()
class ObjectStore(SharedStore, RewritingStore):
    """A ``Store`` in a bucket of an object store, for one session, which any machine that reaches the bucket can open.

    A commit is one request, which creates a segment with a number that nobody else can use. So a writer that was taken
    over, however long it slept, fails at its next commit with ``SessionLocked``, and nothing of that commit is visible.
    An acknowledged commit is in the bucket; how durable the bucket is, is up to its provider.

    Args:
        bucket: where the sessions are; see ``open_bucket``.
        session_id: the id of the session.
        ttl_s: the lease: how many seconds after its last commit a writer that did not release the session may be
            taken over; 0: at once. It only avoids needless take-overs: correctness does not depend on it, nor on any
            clock.
        give_up_s: for how many seconds a request that gets no answer is repeated before ``OutcomeUnknown`` is raised.
        cache: keeps pages that were read on this machine's disk; None: each page is a request.
        clock: gives this machine's time, in seconds since the epoch.
        sleep: waits between two tries of a request, for that many seconds.
        place: the store's name, for errors.
        snapshot: readers see the session as it is when they open it, which takes fewer requests.

    Raises:
        UnsafePath: the session id is invalid.
        ConfigError: a time that is negative, or not a number.
    """

    def __init__(
        self,
        bucket: Bucket,
        session_id: str,
        *,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        cache: ReadCache | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        place: str = "this object store",
        snapshot: bool = False,
    ) -> None:
        self._session_id = check_session_name(session_id)
        self._bucket = bucket
        self._terms = Terms(ttl_s=ttl_s, give_up_s=give_up_s, clock=clock, sleep=sleep)
        self._cache = cache
        self._place = place
        self._snapshot = snapshot
        self._mine: set[str] = set()  # the names that writers from here have had, whose leases they need not wait for
        self._reset()

    def _reset(self) -> None:
        """Have nothing of any opening."""
        self._lock = threading.Lock()
        self._row = SegmentRow(self._bucket, self._session_id, self._terms, self._cache)
        self._growing = Growing()
        self._me = ""  # the writer's name while this is the writer
        self._epoch = 0
        self._lost: Exception | None = None  # why this is not the writer any more

    # ---- opening and closing

    @override
    def open(self, *, create: bool, write: bool) -> Self:
        """Each opening is an object of its own: an earlier one may still be waiting for the server.

        A reader does not create the session: it sees an empty one until a writer does.
        """
        opened = copy(self)
        opened._reset()  # noqa: SLF001 - of the same class
        opened._begin(create=create, write=write)  # noqa: SLF001
        return opened

    def _begin(self, *, create: bool, write: bool) -> None:
        with self._lock:
            if write:
                self._become_writer(create=create)
            else:
                self._row.catch_up()
                self._check_exists(create=create)

    @override
    def close(self) -> None:
        """Also where the outcome of a commit is unknown."""
        with self._lock:
            if self._me and not isinstance(self._lost, SessionLocked):
                # Do not wait for the server again; the next writer waits until the lease has run out.
                self._give_back(self._terms if self._lost is None else replace(self._terms, give_up_s=0))
            self._me = ""

    def remove(self) -> None:
        """Remove the open session, as its one writer, and close it. A sleeping writer is refused when it wakes up.

        Raises ``SessionClosed``, ``SessionLocked``, ``WriteFailed`` and ``OutcomeUnknown``.
        """
        with self._writing():
            try:
                self._row.remove(self._row.next_head("", removed=True))
            except Taken:
                raise self._locked_out() from None
            self._me = ""
        self.close()

    def _check_exists(self, *, create: bool) -> None:
        if not self._row.log.exists and not create:
            raise SessionNotFound(self._session_id, self._place)

    # ---- the one writer

    @property
    @override
    def epoch(self) -> int:
        return self._epoch if self._me and self._lost is None else 0

    @override
    def release(self) -> None:
        with self._lock:
            if self._me:
                self._check_writer()
                self._give_back(self._terms)

    @override
    def acquire(self) -> bool:
        with self._lock:
            if self._me and self._lost is None:
                return True
            return self._become_writer(create=False)

    def _become_writer(self, *, create: bool) -> bool:
        """Take the next epoch; return whether the previous writer released the session."""
        me = random_name()
        self._mine.add(me)  # even if the answer is lost
        self._epoch, was_released = self._take(me, create=create)
        self._me = me
        self._lost = None
        self._growing.files.clear()
        return was_released

    def _take(self, me: str, *, create: bool) -> tuple[int, bool]:
        """Create a segment with the next epoch, so that an earlier writer fails when it creates one of this number.

        A writer that released the session does not look what others wrote since then: if anybody did, its number is
        taken, or listed after it. Return the epoch, and whether the previous writer released the session.
        """
        if self._lost is not None or not self._is_free():
            self._row.catch_up()
        while True:
            self._check_exists(create=create)
            last = self._row.log.head
            if last is not None and self._has_lease(last):
                holder = f"writer {last.writer}, which wrote less than {self._terms.ttl_s:g} s ago"
                raise SessionLocked(self._session_id, holder)
            head = self._row.next_head(me, epochs=1)
            try:
                self._row.take(head)
            except Taken:
                continue  # another writer was faster
            self._row.cover_full_rows()
            return head.epoch, last is not None and not last.writer

    def _has_lease(self, last: Head) -> bool:
        """Whether another writer has the session, which may not be taken over yet."""
        if not last.writer or last.writer in self._mine:
            return False
        if not self._terms.ttl_s:
            return False  # whatever the clocks of two machines say
        return self._terms.clock() < last.at + self._terms.ttl_s

    def _is_free(self) -> bool:
        """Whether the last segment that is known released the session."""
        last = self._row.log.head
        return last is not None and not last.removed and not last.writer

    def _give_back(self, terms: Terms) -> None:
        """Release the session. If that fails, the next writer waits until the lease has run out."""
        me = self._me
        self._me = ""
        try:
            while not self._let_go(me, terms):
                pass  # a commit of this writer arrived late, and counted
        except StorageError as error:
            logger.warning(
                "session %s could not be released, and is free in %g s: %s", self._session_id, self._terms.ttl_s, error
            )

    def _let_go(self, me: str, terms: Terms) -> bool:
        """Release the session, unless another writer has it; False: it has just changed, so try again."""
        if self._lost is not None:
            self._row.catch_up()
        if self._row.log.head is None or self._row.log.head.writer != me:
            return True
        # A lost commit may have carried what was appended, so that is not written a second time.
        grown = self._grown() if self._lost is None else []
        try:
            self._row.make(self._row.next_head(""), grown, terms)
        except Taken:
            self._row.catch_up_with_next()  # the session was taken over, or a commit of this writer arrived late
            return False
        self._growing.files.clear()
        self._row.cover_rest()
        return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write as the one writer, one thread at a time. ``SessionLocked`` and ``OutcomeUnknown`` end that."""
        with self._lock:
            self._check_writer()
            try:
                yield
            except SessionLocked as error:
                self._lost = error
                TROUBLES.met("lost session")
                logger.warning("session %s was taken over by another writer: this one writes no more", self._session_id)
                raise
            except OutcomeUnknown as error:
                self._lost = error
                TROUBLES.met("unknown outcome")
                logger.warning("session %s: whether a change was stored is not known: %s", self._session_id, error)
                raise

    def _check_writer(self) -> None:
        if self._lost is not None:
            raise self._lost
        if not self._me:
            raise SessionClosed(f"session {self._session_id} is open for reading only, or was released")

    def _locked_out(self) -> SessionLocked:
        return SessionLocked(self._session_id, "a writer that took the session over meanwhile")

    # ---- writing

    @override
    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """With one request; each large content takes another one before it.

        After a crash before the last request, nothing names these contents: see ``delete_orphans``.
        """
        with self._writing():
            self._commit(files, log, release=False)

    @override
    def commit_and_release(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        with self._writing():
            self._commit(files, log, release=True)
            self._me = ""

    def _commit(self, files: Sequence[NewFile], log: Callable[[], bytes], *, release: bool) -> None:
        steps: list[Step | Draft] = []
        seen: set[str] = set()
        carried = 0
        for file in files:
            check_name(file.name)
            if not file.derived and (self._is_there(file.name) or file.name in seen):
                raise NameTaken(file.name)
            seen.add(file.name)
            with writing(file.name):
                data = b"".join(file.chunks)
            step = self._row.content(file.name, data, carried=carried)
            if isinstance(step, Draft):
                carried += len(data)
            steps.append(step)
        with writing("the log"):
            line = log()
        if line:
            steps.append(Append(line))
        self._change(steps, release=release)

    @override
    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        check_name(name)
        with self._writing():
            with writing(name):
                whole = data if isinstance(data, bytes) else b"".join(data)
            self._change([self._row.content(name, whole)])
            self._growing.files.pop(name, None)

    @override
    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """A small part is buffered, and written with ``sync``, with the next commit, from 1 MiB on, or after 5 s.

        Until then other machines do not see it, and it is lost if the process dies.
        """
        check_name(name)
        with self._writing():
            now = self._terms.clock()
            self._growing.add(name, data, now)
            if sync or self._growing.is_due(now):
                self._change([])

    @override
    def delete(self, names: Sequence[str]) -> None:
        """Objects that hold only one content are deleted after the segment that records it.

        After a crash in between, they are orphans.
        """
        for name in names:
            check_name(name)
        with self._writing():
            for name in names:
                self._growing.files.pop(name, None)
            gone = [name for name in dict.fromkeys(names) if name in self._row.log.files]
            if gone:
                parts: list[Located] = []
                for name in gone:
                    parts += self._row.log.files[name]
                self._change([Delete(name) for name in gone])
                self._row.delete_own_objects(parts)

    @override
    def truncate_log(self, length: int) -> None:
        with self._writing():
            self._change([Cut(length)])

    @override
    def rewrite(self, log: bytes | None = None) -> None:
        with self._writing():
            self._change([])  # what was appended
            old = bytes(self._row.log.log)
            new = old if log is None else log
            if len(new) != len(old):
                raise WriteFailed("the log", "its replacement must have the same length")
            try:
                self._row.rewrite(self._row.next_head(self._me, whole=True), new)
            except Taken:
                raise self._locked_out() from None

    @override
    def has_orphans(self) -> bool:
        with self._lock:
            return bool(self._row.orphans())

    @override
    def delete_orphans(self) -> int:
        with self._writing():
            return self._row.delete_orphans()

    def _change(self, steps: Sequence[Step | Draft], *, release: bool = False) -> None:
        """As the one writer, create the next segment with these steps and with buffered output."""
        all_steps = [*self._grown(), *steps]
        if not all_steps and not release:
            return
        try:
            self._row.make(self._row.next_head("" if release else self._me), all_steps)
        except Taken:
            raise self._locked_out() from None
        self._growing.files.clear()
        if release:
            self._row.cover_rest()
        else:
            self._row.cover_full_rows()

    def _grown(self) -> list[Draft | Put]:
        return [self._row.content(name, bytes(data), grows=True) for name, data in self._growing.files.items()]

    # ---- reading

    def refresh(self) -> None:
        """As a reader, take in what was written since the last time; the writer knows it already."""
        if not self._snapshot:
            self._catch_up()

    def _catch_up(self) -> None:
        with self._lock:
            if not self._me:
                self._row.catch_up()

    @override
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return next(self._pieces(name, [(offset, length)]))

    @override
    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        return self._pieces(name, spans)

    def _pieces(self, name: str, spans: Iterable[tuple[int, int | None]]) -> Iterator[bytes]:
        """The bytes of each span; a length of None: up to the end."""
        parts, growing = self._find(name)
        for offset, length in spans:
            try:
                data = self._row.read(parts, offset, length)
            except StorageError:
                # The session may have been rewritten meanwhile: its newest state says where the content is now.
                self._catch_up()
                before = parts
                parts, growing = self._find(name)
                if parts == before:
                    raise
                data = self._row.read(parts, offset, length)
            yield data + growing.after(name, sum(at.size for at in parts), offset, length, data)

    @override
    def size(self, name: str) -> int:
        parts, growing = self._find(name)
        return sum(at.size for at in parts) + len(growing.files.get(name, b""))

    def _find(self, name: str) -> tuple[tuple[Located, ...], Growing]:
        """Return where a file's parts are, and the bytes of it that are not written yet. Raises ``NotStored``."""
        check_name(name)
        with self._lock:
            if not self._is_there(name) and not self._me:
                self._row.catch_up()
            if not self._is_there(name):
                raise NotStored(name)
            waiting = self._growing.files.get(name)
            return self._row.log.files.get(name, ()), Growing({} if waiting is None else {name: waiting[:]})

    def _is_there(self, name: str) -> bool:
        return name in self._row.log.files or name in self._growing.files

    @override
    def names(self, prefix: str = "") -> list[str]:
        self.refresh()
        with self._lock:
            names = {*self._row.log.files, *self._growing.files}
        return sorted(name for name in names if name.startswith(prefix))

    @override
    def read_log(self, offset: int = 0) -> bytes:
        self.refresh()
        with self._lock:
            return bytes(self._row.log.log[offset:])


def newest_marks(bucket: Bucket) -> dict[str, str]:
    """List the sessions of a bucket, sorted, each with the newest mark of its writers: ``IDENTITY-EPOCH``. Blocks.

    It may include a session whose creation or removal was interrupted: opening it raises ``SessionNotFound``.
    Raises ``StorageError``.
    """
    newest: dict[str, tuple[int, str]] = {}
    for key in bucket.keys(SESSIONS):
        session_id, _, mark = key.removeprefix(SESSIONS).partition("/")
        epoch = mark.rpartition("-")[2]
        made = (int(epoch) if epoch.isdigit() else 0, mark)
        newest[session_id] = max(made, newest.get(session_id, made))
    return {session_id: newest[session_id][1] for session_id in sorted(newest)}
