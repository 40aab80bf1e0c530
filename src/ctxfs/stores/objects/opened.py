"""An open session in a bucket: reading from it and writing to it, in a worker thread."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ctxfs.errors import NameTaken, NotStored, SessionLocked, SessionNotFound, StorageError
from ctxfs.storage.base import NewFile, check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.growing import Growing
from ctxfs.stores.answers import Terms
from ctxfs.stores.objects.bucket import Bucket, Taken
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.row import SegmentRow
from ctxfs.stores.objects.segments import Append, Cut, Delete, Draft, Located, Put, Step
from ctxfs.stores.opened import OpenedSession


class OpenedObjectSession(OpenedSession):
    """See ``OpenedSession``. Each change creates the next segment, whose number nobody else can use."""

    def __init__(
        self,
        bucket: Bucket,
        session_id: str,
        terms: Terms,
        *,
        cache: ReadCache | None = None,
        mine: set[str] | None = None,
        place: str = "this object store",
        snapshot: bool = False,
    ) -> None:
        super().__init__(session_id, terms, mine=mine, place=place)
        self._row = SegmentRow(bucket, session_id, terms, cache)
        self._snapshot = snapshot

    # ---- the one writer

    def _exists(self) -> bool:
        self._row.catch_up()
        return self._row.log.exists

    def _take(self, me: str, *, create: bool) -> tuple[int, bool]:
        """Create a segment with the next epoch, so that an earlier writer fails when it creates one of this number.

        A writer that released the session does not look what others wrote since then: if anybody did, its number is
        taken, or listed after it.
        """
        if self._lost is not None or not self._is_free():
            self._row.catch_up()
        while True:
            if not self._row.log.exists and not create:
                raise SessionNotFound(self._session_id, self._place)
            last = self._row.log.head
            is_others = last is not None and last.writer and last.writer not in self._mine
            if last is not None and is_others and self._terms.clock() < last.at + self._terms.ttl_s:
                holder = f"writer {last.writer}, which wrote less than {self._terms.ttl_s:g} s ago"
                raise SessionLocked(self._session_id, holder)
            head = self._row.next_head(me, epochs=1)
            try:
                self._row.take(head)
            except Taken:
                continue  # another writer was faster
            self._row.cover_full_rows()
            return head.epoch, last is not None and not last.writer

    def _is_free(self) -> bool:
        """Whether the last segment that is known released the session."""
        last = self._row.log.head
        return last is not None and not last.removed and not last.writer

    def _let_go(self, me: str, terms: Terms) -> bool:
        if self._lost is not None:
            self._row.catch_up()
        if self._row.log.head is None or self._row.log.head.writer != me:
            return True
        try:
            self._row.make(self._row.next_head(""), [] if self._lost is not None else self._grown(), terms)
        except Taken:
            self._row.catch_up_with_next()  # the session was taken over, or a commit of this writer arrived late
            return False
        self._growing.files.clear()
        self._row.cover_rest()
        return True

    def _remove(self) -> None:
        try:
            self._row.remove(self._row.next_head("", removed=True))
        except Taken:
            raise self._locked_out() from None

    def has_orphans(self) -> bool:
        """Whether there are contents that no segment names; a writer may be about to write it."""
        with self._lock:
            return bool(self._row.orphans())

    def delete_orphans(self) -> int:
        """Delete the contents of writers that were killed before their segment; return how many there were."""
        with self._writing():
            return self._row.delete_orphans()

    # ---- reading

    def refresh(self) -> None:
        """As a reader, take in what was written since the last time; the writer knows it already."""
        if not self._snapshot:
            self._catch_up()

    def _catch_up(self) -> None:
        with self._lock:
            if not self._me:
                self._row.catch_up()

    def _find(self, name: str) -> tuple[tuple[Located, ...], Growing]:
        """Return where a file's parts are, and the bytes of it that are not written yet. Raises ``NotStored``."""
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
        """See ``ThreadStore.pieces``; a length of None: up to the end."""
        parts, growing = self._find(name)
        for offset, length in spans:
            try:
                data = self._row.read(parts, offset, length)
            except StorageError:
                self._catch_up()
                before, (parts, growing) = parts, self._find(name)
                if parts == before:
                    raise
                data = self._row.read(parts, offset, length)  # the session was rewritten meanwhile
            yield data + growing.after(name, sum(at.size for at in parts), offset, length, data)

    def _names(self, prefix: str) -> Iterable[str]:
        self.refresh()
        with self._lock:
            return [name for name in self._row.log.files if name.startswith(prefix)]

    def read_log(self, offset: int) -> bytes:
        """See ``Store.read_log``."""
        self.refresh()
        with self._lock:
            return bytes(self._row.log.log[offset:])

    # ---- writing

    def _commit(self, files: Sequence[NewFile], log: Callable[[], bytes], *, release: bool) -> None:
        """Commit with one request; each large content takes another one before it."""
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
        self._change([*steps, Append(line)] if line else steps, release=release)

    def _overwrite(self, name: str, data: bytes) -> None:
        self._change([self._row.content(name, data)])

    def _write_growing(self) -> None:
        self._change([])

    def _delete(self, names: Sequence[str]) -> None:
        """Delete files; objects that hold only one content are deleted after the segment that records it."""
        gone = [name for name in dict.fromkeys(names) if name in self._row.log.files]
        if gone:
            parts = [at for name in gone for at in self._row.log.files[name]]
            self._change([Delete(name) for name in gone])
            self._row.delete_own_objects(parts)

    def _truncate_log(self, length: int) -> None:
        self._change([Cut(length)])

    def _log_size(self) -> int:
        return len(self._row.log.log)

    def _rewrite(self, log: bytes | None) -> None:
        new = bytes(self._row.log.log) if log is None else log
        try:
            self._row.rewrite(self._row.next_head(self._me, whole=True), new)
        except Taken:
            raise self._locked_out() from None

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

    def _locked_out(self) -> SessionLocked:
        return SessionLocked(self._session_id, "a writer that took the session over meanwhile")
