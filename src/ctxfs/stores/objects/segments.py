"""A session as a row of numbered, immutable segments, and the state that they add up to. Pure.

Segment n holds one commit: contents, lines of the log, deletions. It has a key of its own, and is created by a request
that fails if the key exists. This is the compare-and-swap: whoever creates segment n was the one writer at n, and a
writer that has been taken over fails at its next number, whatever its clock says.

A *whole* segment holds the complete state of the session, and the segments before it no longer count. It is written
when bytes have to be removed for good. Earlier segments that hold such bytes are then made *void*, that is, replaced by
empty objects: their numbers stay taken, since a writer that was asleep may wake up at one of them.

A *chunk* holds the steps of many segments, so that opening a session reads few objects. Chunks are derived data: each
is true of the segments that it covers, no matter who wrote it, and none has to exist. They cover 16 segments, 64, 256
and so on.

A segment is one line of JSON, the head with the rows of its steps, followed by the bytes that these refer to. A chunk
is one line of JSON, the head, followed by a zstd frame of the same: a line with the rows, and the bytes. Segments are
not compressed, because contents in them are read by ranges.

The head begins with a checksum of the key and of everything behind it. The journal's lines and the contents have their
own, but nothing else would notice that a writer's epoch, a file's name or the number of a chunk's last segment changed.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from ctxfs.errors import StorageError
from ctxfs.session.content.compression import compressor, frame_content
from ctxfs.text.jsontext import codec as json_codec

VERSION: Final = 2
FIRST_CHUNK: Final = 16
GROWTH: Final = 4
LEVELS: Final = 8
_SEAL: Final = b'{"crc":"%08x",'
_SEAL_BYTES: Final = len(_SEAL % 0)


class Located(NamedTuple):
    """Where a content is: the key of its object, the offset of its first byte, and its size in bytes."""

    key: str
    offset: int
    size: int


class Put(NamedTuple):
    """A file gets this content; ``grows``: it is appended to the content that the file has."""

    name: str
    at: Located
    grows: bool = False


class Append(NamedTuple):
    """The log grew by these bytes."""

    data: bytes


class Delete(NamedTuple):
    """A file was deleted."""

    name: str


class Cut(NamedTuple):
    """The log was cut to this length, in bytes."""

    size: int


Step = Put | Append | Delete | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A segment's metadata: who wrote it, when, and as which writer of the session.

    Args:
        epoch: counts the writers that took the session, from 1. An epoch is one writer's, which makes one segment at a
            time: so it recognizes its own segment by its bytes when the answer to its request was lost.
        writer: the writer's random name; empty: it released the session with this segment.
        at: when it was written, by the writer's clock, in seconds since 1970, to the millisecond.
        identity: random, and the same in all segments of a session. Another session with the same id, in another bucket
            or after the bucket was emptied, has a different identity.
        removed: the session was removed with this segment, and no longer has what the segments before it hold. A later
            session with the same id continues the numbers, which are never freed: a writer that was asleep finds its
            number taken.
        whole: the session's state is in this segment and those after it.
    """

    epoch: int
    writer: str
    at: float
    identity: str = ""
    removed: bool = False
    whole: bool = False


class Piece(NamedTuple):
    """A decoded object: one segment, or a chunk, which ``covers`` the segments from the first number up to the second.

    ``fences``: in a chunk, a whole segment or the last one, the numbers at which a writer took the session.
    ``began``: see ``SegmentLog``.
    """

    head: Head
    steps: tuple[Step, ...]
    covers: tuple[int, int] | None = None
    fences: tuple[int, ...] = ()
    began: int = 0


class Draft(NamedTuple):
    """A content to be written inside the segment; ``Put`` is for a content with an object of its own."""

    name: str
    data: bytes
    grows: bool = False


def segment_key(number: int) -> str:
    """Return the key of a segment, relative to its session."""
    return f"s/{number:012d}"


def is_segment_key(key: str) -> bool:
    """Whether a key, relative to its session, is that of a segment."""
    return key.startswith("s/") and key[2:].isdigit()


def chunk_key(start: int, end: int) -> str:
    """Return the key of the chunk that covers the segments from ``start`` up to, but not including, ``end``."""
    return f"k/{start:012d}-{end:012d}"


def encode(key: str, head: Head, steps: Sequence[Step | Draft], fences: Iterable[int] = ()) -> bytes:
    """Encode the segment with this key; ``fences``: those of the segments before it, if it is whole or the last one."""
    row = _head_row(head)
    if head.whole:
        row["whole"] = True
    if head.whole or head.removed:
        row["fences"] = list(fences)
    rows, body = _rows(steps)
    return _sealed(key, {**row, "steps": rows}, body)


def decode(key: str, data: bytes) -> Piece:
    """Decode the object under ``key``.

    Raises:
        StorageError: it is not a segment or chunk, it is not the one that was written, or a later version wrote it.
    """
    try:
        return _piece(key, data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StorageError(f"{key} is not a segment of a session, or is damaged: {error!r:.80}") from error


def _piece(key: str, data: bytes) -> Piece:
    end = data.find(b"\n") + 1
    row = json_codec.loads(data[:end])
    if row["v"] != VERSION:
        other = "a later version" if row["v"] > VERSION else "an earlier state"
        raise StorageError(f"{key} was written by {other} of ctxfs: install that one")
    if data[:_SEAL_BYTES] != _seal(key, memoryview(data)[_SEAL_BYTES:]):
        raise ValueError("its checksum does not match")
    head = Head(
        epoch=row["epoch"],
        writer=row["writer"],
        at=row["at"],
        identity=row["session"],
        removed=row.get("removed", False),
        whole=row.get("whole", False),
    )
    covers = (row["start"], row["end"]) if "start" in row else None
    if covers is None:
        steps = tuple(_steps(key, row["steps"], data, end))
    else:
        data = frame_content(memoryview(data)[end:], row["size"])
        end = data.find(b"\n") + 1
        steps = tuple(_steps(key, json_codec.loads(data[:end]), data, end))
    return Piece(head, steps, covers, tuple(row.get("fences", ())), row.get("began", 0))


def _sealed(key: str, row: dict[str, Any], body: Iterable[bytes]) -> bytes:
    """Return an object: the line of its head, with the checksum in front, and the ``body``."""
    rest = b"".join([json_codec.dumps(row)[1:], b"\n", *body])
    return _seal(key, rest) + rest


def _seal(key: str, rest: bytes | memoryview) -> bytes:
    """Return the first bytes of an object. With the key, one that was put in another's place is found out too."""
    return _SEAL % zlib.crc32(rest, zlib.crc32(key.encode()))


def _head_row(head: Head) -> dict[str, Any]:
    row: dict[str, Any] = {
        "v": VERSION,
        "session": head.identity,
        "epoch": head.epoch,
        "writer": head.writer,
        "at": head.at,
    }
    if head.removed:
        row["removed"] = True
    return row


def _rows(steps: Iterable[Step | Draft]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the rows of the steps, and the bytes that these refer to, in their order."""
    rows: list[dict[str, Any]] = []
    body: list[bytes] = []
    for step in steps:
        row, data = _row(step)
        rows.append(row)
        body.append(data)
    return rows, body


def _row(step: Step | Draft) -> tuple[dict[str, Any], bytes]:
    match step:
        case Draft(name, data, grows):
            return {_verb(grows): name, "size": len(data)}, data
        case Put(name, at, grows):
            return {_verb(grows): name, "key": at.key, "offset": at.offset, "size": at.size}, b""
        case Append(data):
            return {"log": len(data)}, data
        case Delete(name):
            return {"delete": name}, b""
        case Cut(size):
            return {"cut": size}, b""


def _verb(grows: bool) -> str:
    return "grow" if grows else "put"


def _steps(key: str, rows: list[dict[str, Any]], data: bytes, offset: int) -> Iterator[Step]:
    for row in rows:
        if "put" in row or "grow" in row:
            grows = "grow" in row
            at = Located(row.get("key", key), row.get("offset", offset), row["size"])
            if "key" not in row:  # the content is in this object
                offset += row["size"]
            yield Put(row[_verb(grows)], at, grows)
        elif "log" in row:
            yield Append(data[offset : offset + row["log"]])
            offset += row["log"]
        elif "delete" in row:
            yield Delete(row["delete"])
        else:
            yield Cut(row["cut"])
    if offset != len(data):
        raise ValueError(f"{len(data)} bytes, not {offset}")


@dataclass(slots=True)
class SegmentLog:
    """The fold of the segments so far: the files, the log, and the writer.

    ``files``: where the parts of each file's content are. ``end``: the number of the next segment. ``head``: the head
    of the last one; None: there is no segment. ``fences``: the numbers at which a writer took the session from one that
    had not released it, and at which that one will therefore fail. ``began``: one chunk covers all segments before this
    number, including a whole one or one that removed the session; 0: there is none of these.
    """

    files: dict[str, tuple[Located, ...]] = field(default_factory=dict)
    log: bytearray = field(default_factory=bytearray)
    end: int = 0
    head: Head | None = None
    fences: list[int] = field(default_factory=list)
    began: int = 0
    _steps: dict[int, Sequence[Step]] = field(default_factory=dict, repr=False)  # by segment number, for chunks

    def take(self, piece: Piece) -> None:
        """Take in the next segment, or a chunk that begins with it. Raises ``StorageError`` if it is not the next."""
        first, end = piece.covers or (self.end, self.end + 1)
        if first != self.end or end <= first:
            raise StorageError(f"segments {first} to {end} do not follow after {self.end}")
        if piece.head.whole or piece.head.removed:
            # What was before it does not count any more: the session begins with this segment, or has ended.
            self.files = {}
            self.log = bytearray()
            self.fences = []
            self._steps = {}
            self.began = end
            first = 0
        elif piece.covers is None and self._was_taken_over(piece.head):
            self.fences.append(first)
        self.fences += piece.fences
        self.began = max(self.began, piece.began)
        self._steps[first] = piece.steps
        self.end = end
        self.head = piece.head
        for step in piece.steps:
            match step:
                case Put(name, at, grows):
                    before = self.files.get(name, ()) if grows else ()
                    self.files[name] = (*before, at)
                case Append(data):
                    self.log += data
                case Delete(name):
                    self.files.pop(name, None)
                case Cut(size):
                    del self.log[size:]

    def _was_taken_over(self, head: Head) -> bool:
        """Whether the next segment takes the session from a writer that had not released it."""
        return self.head is not None and bool(self.head.writer) and head.epoch != self.head.epoch

    @property
    def exists(self) -> bool:
        """Whether there is a session: it was created, and has not been removed."""
        return self.head is not None and not self.head.removed

    def chunk(self, start: int, end: int) -> bytes | None:
        """Encode the chunk from segment ``start`` up to the last one; None: ``start`` is inside a chunk that was read.

        Contents stay in the segments that hold them.
        """
        assert self.head is not None
        assert end == self.end
        if start not in self._steps:
            return None
        steps: list[Step] = []
        for first in sorted(self._steps):
            if first >= start:
                steps += self._steps[first]
        rows, body = _rows(_joined(steps))
        content = b"".join([json_codec.dumps(rows), b"\n", *body])
        row = _head_row(self.head)
        row["size"] = len(content)
        row["start"] = start
        row["end"] = end
        row["fences"] = [number for number in self.fences if number >= start]
        if self.began:
            row["began"] = self.began if start else end
        return _sealed(chunk_key(start, end), row, [compressor()(content)])


def _joined(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the same steps, with one ``Append`` in the place of several that follow each other."""
    lines: list[bytes] = []
    for step in steps:
        if isinstance(step, Append):
            lines.append(step.data)
            continue
        if lines:
            yield Append(b"".join(lines))
            lines = []
        yield step
    if lines:
        yield Append(b"".join(lines))


def within(parts: Iterable[Located], offset: int, length: int | None) -> Iterator[tuple[Located, int, int]]:
    """Yield where ``length`` bytes (None: all) from ``offset`` on are: a part, the offset in it, and a size.

    At the end of the content there may be fewer bytes. No range is empty, since stores refuse empty ranges.
    """
    left = length
    for part in parts:
        size = max(0, part.size - offset)
        if left is not None:
            size = min(size, left)
            left -= size
        if size:
            yield part, offset, size
        offset = max(0, offset - part.size)


def chunks_due(end: int) -> Iterator[tuple[int, int]]:
    """Yield the chunks that are complete once segment ``end`` - 1 is written, the smallest first."""
    size = FIRST_CHUNK
    for _ in range(LEVELS):
        if end % size:
            return
        yield end - size, end
        size *= GROWTH


def _covered_by(key: str) -> tuple[int, int] | None:
    """The segments that a chunk covers, from the first number up to the second; None: it is not a chunk's key."""
    start, _, end = key.removeprefix("k/").partition("-")
    if start.isdigit() and end.isdigit():
        return int(start), int(end)
    return None


def is_chunk_within(key: str, start: int, end: int) -> bool:
    """Whether the key is that of a chunk that covers no other segments than those from ``start`` up to ``end``."""
    covers = _covered_by(key)
    return covers is not None and start <= covers[0] and covers[1] <= end


def chunks_to_read(keys: Iterable[str]) -> list[str]:
    """Choose, from the keys of all chunks, the fewest that cover the segments from the first one on without a gap."""
    longest: dict[int, int] = {}
    for key in keys:
        covers = _covered_by(key)
        if covers is not None:
            start, end = covers
            longest[start] = max(longest.get(start, 0), end)
    chosen: list[str] = []
    at = 0
    while at in longest:
        chosen.append(chunk_key(at, longest[at]))
        at = longest[at]
    return chosen


@dataclass(slots=True)
class Leftovers:
    """The objects to remove so that a bucket holds only the current state of the session.

    Args:
        files: the session's files, each with the locations of its parts.
        log: the session's log, as it will be.
    """

    files: Mapping[str, tuple[Located, ...]]
    log: bytes
    segments: set[str] = field(default_factory=set)
    """The keys of the segments that hold data besides the current state, and of earlier whole segments."""
    dead: set[Located] = field(default_factory=set)
    """Contents, in any segment, that the session no longer has."""
    _live: frozenset[Located] = field(init=False, repr=False)
    _lines: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._live = frozenset(chain.from_iterable(self.files.values()))
        self._lines = frozenset(self.log.split(b"\n"))

    def look(self, key: str, piece: Piece) -> None:
        """Take note of what a segment holds besides the current state."""
        has_dead_content = False
        has_dead_line = False
        for step in piece.steps:
            if isinstance(step, Put) and step.at not in self._live:
                self.dead.add(step.at)
                if step.at.key == key:  # in the segment itself, and not in an object of its own
                    has_dead_content = True
            if isinstance(step, Append) and not self._lines.issuperset(step.data.split(b"\n")):
                has_dead_line = True
        if piece.head.whole or has_dead_line or has_dead_content:
            self.segments.add(key)

    def moves(self, parts: Iterable[Located]) -> bool:
        """Whether a content has to be written again, because a segment that holds part of it will be removed."""
        return any(at.key in self.segments for at in parts)

    def objects(self, keys: Collection[str]) -> list[str]:
        """The keys of the objects to delete: all chunks, and separate contents that the session no longer has."""
        live = {at.key for at in self._live}
        return [key for key in keys if not is_segment_key(key) and key not in live]
