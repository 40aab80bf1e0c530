"""The segments of a session in a bucket: reading them, and writing the next one. Blocks; not thread-safe."""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Final
from uuid import uuid4

from ctxfs.errors import NotStored, OutcomeUnknown, StorageError, WriteFailed
from ctxfs.storage.failures import NoAnswer
from ctxfs.stores.answers import Terms, repeated
from ctxfs.stores.objects.bucket import Bucket, Taken
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.segments import (
    FIRST_CHUNK,
    Append,
    Draft,
    Head,
    Leftovers,
    Located,
    Put,
    SegmentLog,
    Step,
    chunk_key,
    chunks_due,
    chunks_to_read,
    decode,
    encode,
    is_chunk_within,
    is_segment_key,
    segment_key,
    within,
)

logger = logging.getLogger("ctxfs.stores")

SESSIONS: Final = "sessions/"
"""Under this prefix each session has an empty object, its mark, so that sessions can be listed.

The key names the session and the epoch of its writer: ``sessions/ID/IDENTITY-EPOCH``. A writer makes it before it takes
the session. So while a session that was released has no new mark, it has not changed, and listing need not look at it.
"""

MARKS_KEPT: Final = 2
"""Every second writer deletes the marks before its own, so that not each opening takes that request, and a page of
1,000 keys lists at least 500 sessions."""

OWN_OBJECT_BYTES: Final = 1 << 20
"""A content larger than this has an object of its own, because a segment is always read whole."""

SEGMENT_BYTES: Final = 8 << 20
"""The most that the contents in a segment take up: further contents of a commit have objects of their own too."""

AT_ONCE: Final = 8
"""Up to this many objects are read at the same time."""


CHUNK_TRIES: Final = 3
"""So often the chunks are listed again if one of them was deleted meanwhile; then the segments are read."""


def random_name() -> str:
    """Return a name that no other writer or session in a bucket has: short, since it stands in each segment."""
    return secrets.token_hex(8)


def session_prefix(session_id: str) -> str:
    """Return the prefix of a session's keys: a hash of its id, since object stores partition by prefix.

    The id itself would stay in the key of the one object that is left of a removed session.
    """
    digest = hashlib.sha256(session_id.encode()).hexdigest()
    return f"{digest[:4]}/{digest[4:36]}/"


class SegmentRow:
    """The segments of a session that have been read so far; ``log`` is their fold."""

    def __init__(self, bucket: Bucket, session_id: str, terms: Terms, cache: ReadCache | None = None) -> None:
        self.log = SegmentLog()
        self._bucket = bucket
        self._session_id = session_id
        self._prefix = session_prefix(session_id)
        self._terms = terms
        self._cache = cache
        self._last_chunk = (0, 0)
        self._covered = 0  # chunks cover all segments before this number
        self._chunks: set[str] = set()  # the keys of the chunks that are in the bucket

    # ---- reading

    def catch_up(self) -> None:
        """Take in the segments that were created since the last time; the first time, read the chunks before them.

        Missing or void segments are valid if a later one says that the session was removed or rewritten.
        Raises ``StorageError`` if a segment is missing without such a later one.
        """
        is_first = not self.log.end
        if is_first:
            self._read_chunks()
        missing = self._take_listed()
        if missing is not None:
            # A segment that was made while the list was read may be in it without the one before it: list once more.
            missing = self._take_listed()
        if missing is not None:
            raise StorageError(
                f"session {self._session_id}: segment {missing} is missing from the object store "
                f"({segment_key(missing)})"
            )
        if is_first and self._covered:
            self._look_for_oldest()

    def _look_for_oldest(self) -> None:
        """Drop the contents whose objects are gone, if the oldest one is: an expiry rule of the bucket takes it first.

        Chunks hide that segments are missing. A full check would list every object of the session at each opening.
        """
        located = chain.from_iterable(self.log.files.values())
        oldest = next((at for at in located if at.size), None)
        if oldest is None:
            return
        try:
            self._bucket.get_range(self._prefix + oldest.key, oldest.offset, 1)
        except NotStored:
            pass
        else:
            return
        there = set(self._listed(""))
        gone = [name for name, parts in self.log.files.items() if any(at.key not in there for at in parts)]
        for name in gone:
            del self.log.files[name]
        logger.warning(
            "session %s: %d of its files are gone from the store, the oldest first. Does the bucket have a lifecycle "
            "rule that expires objects? It must not: a session needs all of them, however old they are",
            self._session_id,
            len(gone),
        )

    def _take_listed(self) -> int | None:
        """Take in the listed segments; return the number of the first one that is missing, or None.

        A listed segment is one of four:
        - the next one: it is taken in;
        - void, since the session was rewritten: it counts as missing;
        - one that removed or rewrote the session: whatever is missing before it does not count any more;
        - any other one that does not follow: there is a gap.
        """
        missing: int | None = None
        last_known = segment_key(self.log.end - 1) if self.log.end else "s/"
        segments = filter(is_segment_key, self._listed("s/", after=last_known))
        for key, data in self._fetched(segments):
            number = int(key.removeprefix("s/"))
            if data:
                piece = decode(key, data)
                if (piece.head.removed or piece.head.whole) and number > self.log.end:
                    self.log = SegmentLog(end=number)
                    missing = None
                if number == self.log.end:
                    self.log.take(piece)
                    continue
            if missing is None:
                missing = self.log.end
        return missing

    def _listed(self, prefix: str, *, after: str = "") -> list[str]:
        """List the session's keys that begin with ``prefix`` and come after ``after``, all relative to the session."""
        begins = self._prefix + prefix
        keys = self._bucket.keys(begins, after=self._prefix + after) if after else self._bucket.keys(begins)
        return [key.removeprefix(self._prefix) for key in keys]

    def _read_chunks(self) -> None:
        """Read the chunks. A writer deletes those that a longer one covers, so one may be gone after it was listed."""
        for _ in range(CHUNK_TRIES):
            listed = self._listed("k/")
            self._chunks = set(listed)
            try:
                for key, data in self._fetched(chunks_to_read(listed)):
                    self.log.take(decode(key, data))
                    self._covered = self.log.end
            except NotStored:
                self.log = SegmentLog()
                self._covered = 0
            except StorageError:
                return  # a chunk is damaged: the segments still hold everything
            else:
                return

    def catch_up_with_next(self) -> None:
        """Take in the new segments: at least the next one, which is known to exist.

        Raises ``StorageError`` if the store does not list it.
        """
        end = self.log.end
        self.catch_up()
        if self.log.end == end:
            raise StorageError(
                f"session {self._session_id}: segment {end} exists, but the object store does not list it: "
                "this store cannot hold sessions"
            )

    def _fetched(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the objects in order; several are read at the same time."""
        wanted = list(keys)
        if len(wanted) < 2:  # no threads for one request
            for key in wanted:
                yield key, self._get(key)
            return
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ctxfs") as threads:
            for start in range(0, len(wanted), AT_ONCE):  # so that no more than these are in memory
                some = wanted[start : start + AT_ONCE]
                yield from zip(some, threads.map(self._get, some), strict=True)

    def _get(self, key: str) -> bytes:
        return self._bucket.get(self._prefix + key)

    def read(self, parts: Iterable[Located], offset: int, length: int | None) -> bytes:
        """Read from the content that consists of ``parts``, through the cache if there is one."""
        return b"".join(self._read_part(at, start, size) for at, start, size in within(parts, offset, length))

    def _read_part(self, at: Located, offset: int, length: int) -> bytes:
        def fetch(start: int, size: int) -> bytes:
            return self._bucket.get_range(self._prefix + at.key, at.offset + start, size)

        if self._cache is None or self.log.head is None:
            return fetch(offset, length)
        return self._cache.read(self._cached_as(at), at.size, offset, length, fetch)

    def _cached_as(self, at: Located) -> str:
        assert self.log.head is not None
        return f"{self.log.head.identity}\0{at.key}\0{at.offset}"

    # ---- writing

    def next_head(self, writer: str, *, epochs: int = 0, removed: bool = False, whole: bool = False) -> Head:
        """Return the head of the next segment, with an epoch that is higher by ``epochs``."""
        last = self.log.head
        return Head(
            epoch=(last.epoch if last is not None else 0) + epochs,
            writer=writer,
            at=int(self._terms.clock() * 1_000) / 1_000,  # not rounded up: a lease must not seem to begin later
            identity=last.identity if last is not None and self.log.exists else random_name(),
            removed=removed,
            whole=whole,
        )

    def content(self, name: str, data: bytes, *, grows: bool = False, carried: int = 0) -> Draft | Put:
        """Return a content to be written inside the segment, or create an object of its own for it.

        ``carried``: how many bytes of content the segment holds already.

        Raises ``WriteFailed``.
        """
        if len(data) <= min(OWN_OBJECT_BYTES, SEGMENT_BYTES - carried):
            return Draft(name, data, grows)
        key = f"c/{uuid4().hex}"
        self._put(self._prefix + key, data)
        return Put(name, Located(key, 0, len(data)), grows)

    def make(
        self, head: Head, steps: Sequence[Step | Draft], terms: Terms | None = None, *, fences: Sequence[int] = ()
    ) -> None:
        """Create the next segment. Raises ``Taken``, ``WriteFailed`` or ``OutcomeUnknown``."""
        key = segment_key(self.log.end)
        data = encode(key, head, steps, fences)
        tries = 0

        def make() -> None:
            nonlocal tries
            tries += 1
            try:
                self._bucket.create(self._prefix + key, data)
            except Taken as error:
                known = self._known(key)
                if not known and tries > 1:  # it is void by now: an earlier try may have created it
                    raise OutcomeUnknown(key, "the session was taken over and rewritten meanwhile") from error
                if known != data:  # else an earlier try created it, and the answer was lost
                    raise

        repeated(make, key, terms or self._terms)
        self.log.take(decode(key, data))

    def take(self, head: Head) -> None:
        """Create the segment with which a new writer takes the session, after its mark. Raises what ``make`` raises.

        A removal frees the numbers below its own segment. So after the segments were listed, this writer may have slept
        until its number was free again: that it could create this number does not say that nothing follows it.
        """
        mark = self._mark(head.identity, head.epoch)
        number = self.log.end
        self._put(mark, b"")
        try:
            self.make(head, [])
        except Taken:
            self.catch_up_with_next()  # another writer was faster
            if self._is_gone(head):
                self._delete([mark])  # a session that was removed meanwhile leaves no name
            raise
        self.catch_up()
        if self.log.end > number + 1:
            key = segment_key(number)
            if self._is_gone(head):
                strays = [mark] if number in self.log.fences else [mark, self._prefix + key]
                self._delete(strays)
            raise Taken(key)
        if head.epoch % MARKS_KEPT == 0:
            before = range(max(1, head.epoch - MARKS_KEPT), head.epoch)
            with suppress(StorageError):  # they only make the list longer, and are deleted with the session
                self._bucket.delete([self._mark(head.identity, epoch) for epoch in before])

    def _mark(self, identity: str, epoch: int) -> str:
        return f"{SESSIONS}{self._session_id}/{identity}-{epoch}"

    def _is_gone(self, head: Head) -> bool:
        """Whether the session that ``head`` was to take was removed, as far as the segments are known."""
        last = self.log.head
        return not self.log.exists or last is None or last.identity != head.identity

    def _put(self, key: str, data: bytes) -> None:
        """Create an object that nothing refers to yet; an unknown outcome therefore counts as a failed write."""
        try:
            repeated(lambda: self._bucket.put(key, data), key, self._terms)
        except OutcomeUnknown as error:
            raise WriteFailed(key, error.reason) from error

    def _known(self, key: str) -> bytes:
        """Return an object that is known to exist. Raises ``NoAnswer`` if it cannot be read."""
        try:
            return self._get(key)
        except StorageError as error:
            raise NoAnswer(str(error)) from error

    def cover_full_rows(self) -> None:
        """Write the chunks that are complete. Call this after each segment, so that there is no gap between chunks."""
        for start, end in chunks_due(self.log.end):
            self._write_chunk(start, end)

    def cover_rest(self) -> None:
        """Write the chunks that are complete; also one of the rest, if that is too many segments to read at once."""
        self.cover_full_rows()
        if self.log.end - self._covered > AT_ONCE:
            self._write_chunk(self.log.end, self.log.end)

    def _write_chunk(self, start: int, end: int) -> None:
        """Write a chunk, and add the segments that no earlier one covers. If it fails, opening reads more objects."""
        began = self.log.began
        # An earlier chunk may have failed: this one begins where the last one ended, so that there is no gap.
        start = min(start, self._covered // FIRST_CHUNK * FIRST_CHUNK)
        # What is before ``began`` is in one chunk or in none: this one has none of it, or all.
        if start < began:
            start = began if self._covered >= began else 0
        if (start, end) == self._last_chunk:
            return
        data = self.log.chunk(start, end)
        if data is None:
            return
        with suppress(StorageError):
            # The new chunk first: after a crash in between, some segments are in two chunks, which is harmless.
            self._bucket.put(self._prefix + chunk_key(start, end), data)
            self._covered = end
            self._last_chunk = (start, end)
            if began and not start:
                self.log.began = end
            self._delete_covered(start, end)

    def _delete_covered(self, start: int, end: int) -> None:
        """Delete the chunks within the one that was just written: a bucket has each line in at most one chunk.

        Those that cannot be deleted now are deleted with the next chunk that covers them.
        """
        written = chunk_key(start, end)
        covered = [key for key in self._chunks if key != written and is_chunk_within(key, start, end)]
        self._chunks.add(written)
        if covered:
            self._bucket.delete([self._prefix + key for key in covered])
            self._chunks.difference_update(covered)

    def orphans(self) -> list[str]:
        """The keys of contents with an object of their own that no segment names: their writers were killed.

        Those of a writer that is about to write their segment are among them, unless this is the one writer.
        """
        listed = self._listed("c/")  # before the segments: a content that comes later may get its segment later
        self.catch_up()
        named = {at.key for at in chain.from_iterable(self.log.files.values())}
        return [key for key in listed if key not in named]

    def delete_orphans(self) -> int:
        """Delete ``orphans``, as the one writer; return how many there were. Raises ``WriteFailed``."""
        keys = self.orphans()
        if keys:
            self._delete([self._prefix + key for key in keys])
        return len(keys)

    def delete_own_objects(self, parts: Iterable[Located]) -> None:
        """Delete the objects of contents that have one of their own; contents inside segments stay."""
        keys = [self._prefix + at.key for at in parts if at.key.startswith("c/")]
        if keys:
            self._bucket.delete(keys)

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects that nothing refers to any more. Raises ``WriteFailed``."""
        try:
            repeated(lambda: self._bucket.delete(keys), self._prefix, self._terms)
        except OutcomeUnknown as error:
            raise WriteFailed(self._prefix, error.reason) from error

    def rewrite(self, head: Head, log: bytes) -> None:
        """Write a whole segment with ``head`` and this log, and remove all else that the bucket holds of the session.

        Segments that hold only current data stay as they are. Raises what ``make`` raises, and also ``WriteFailed`` if
        the session was rewritten, but not all old data could be removed.
        """
        # List the objects first: those that appear later may belong to the next writer.
        held = self._listed("")
        left = Leftovers(self.log.files, log)
        for key, data in self._fetched(filter(is_segment_key, held)):
            if not data:
                continue
            try:
                left.look(key, decode(key, data))
            except StorageError:  # damaged, and not needed where the session could be opened: a chunk covers it
                left.segments.add(key)
        gone = left.objects(held)
        # From this segment on, no reader finds the old data. After a crash between it and the last request below, some
        # of the data is still in the bucket; the next rewriting finds and removes it.
        self.make(head, [*self._kept(left), Append(log)], fences=self.log.fences)
        self._write_chunk(0, self.log.end)
        if self._cache is not None:
            for at in left.dead:
                self._cache.remove(self._cached_as(at), at.size)
        self._delete([self._prefix + key for key in gone])
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ctxfs") as threads:
            for _ in threads.map(self._make_void, left.segments):
                pass  # so that the error of each is raised

    def _make_void(self, key: str) -> None:
        """Replace a segment with an empty object: its number stays taken."""
        self._put(self._prefix + key, b"")

    def _kept(self, left: Leftovers) -> Iterator[Draft | Put]:
        """Yield the session's files; contents inside segments that will be removed are written again."""
        carried = 0
        for name, parts in self.log.files.items():
            if left.moves(parts):
                step = self.content(name, self.read(parts, 0, None), carried=carried)
                if isinstance(step, Draft):
                    carried += len(step.data)
                yield step
            else:
                for number, at in enumerate(parts):
                    yield Put(name, at, grows=number > 0)

    def remove(self, head: Head) -> None:
        """End the session with a segment that has this ``head``, and delete its other objects.

        That segment stays, and so do those at whose numbers a sleeping writer may wake up; they have no names. Raises
        what ``make`` raises, and also ``WriteFailed`` or ``NoAnswer`` if the session was removed, but not all of its
        objects.
        """
        # List the objects first: those that appear later may belong to the next session with this id.
        objects = list(self._bucket.keys(self._prefix))
        marks = list(self._bucket.keys(f"{SESSIONS}{self._session_id}/{head.identity}-"))
        stay = {self._prefix + segment_key(number) for number in self.log.fences}
        # With this segment the session is gone. After a crash before the next request, its objects are still there, and
        # no reader takes them in; `ObjectSessions.forget` removes them too.
        self.make(head, [], fences=self.log.fences)
        self._bucket.delete([key for key in (*objects, *marks) if key not in stay])
