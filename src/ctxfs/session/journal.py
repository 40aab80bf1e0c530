"""The journal: one line per commit, and the state that its records add up to. Pure.

A line is ``{"v":1,"seq":n,"len":…,"crc":"…","rec":{…}}``: ``len`` and ``crc`` (CRC-32, over "n:" and the record) cover
the record's bytes, so that a line is either whole or invalid. A commit of several records is one line of type "batch".
"""

import re
import reprlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctxfs.errors import InvalidRecord
from ctxfs.session.content.stored import Stored
from ctxfs.session.record_json import from_json, is_accounting, to_json
from ctxfs.session.records import (
    CallMade,
    ItemAdded,
    Pinned,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    Undone,
    UnknownRecord,
)
from ctxfs.text.jsontext import codec as json_codec

VERSION = 1

_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)

_HOLE = bytes(16)  # fewer NULs, of a damaged line, leave it where it is

_HEAD = re.compile(rb'\{"v":(\d{1,9}),"seq":(\d{1,18}),"len":(\d{1,18}),"crc":"([0-9a-f]{8})","rec":')

_HEAD_BYTES = 100
"""More than ``_HEAD`` can match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of the journal that are not a record; they stay where they are and are skipped."""

    offset: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The contents of a piece of journal. ``end`` is the offset after its last whole line; the rest is torn."""

    records: tuple[Record, ...]
    damages: tuple[Damage, ...]
    last_seq: int
    end: int
    torn_bytes: int


def encode_line(seq: int, records: Sequence[Record]) -> bytes:
    """Encode what one commit records as one line.

    The line is decoded before it is written. Raises ``InvalidRecord`` if it would not be read back as these records.
    """
    try:
        rec = _encoded(records)
    except _UNREADABLE as error:
        raise InvalidRecord(f"this cannot be recorded: {error!r}") from error
    if rec is None:
        raise InvalidRecord(f"this would be read back as something else: {reprlib.repr(list(records))}")
    return _line(seq, rec) + b"\n"


def _line(seq: int, rec: bytes) -> bytes:
    return b'{"v":%d,"seq":%d,"len":%d,"crc":"%08x","rec":%b}' % (VERSION, seq, len(rec), _crc(seq, rec), rec)


def _encoded(records: Sequence[Record]) -> bytes | None:
    """The JSON that decodes to ``records``; None: there is none. Only two lone surrogates need the exact form."""
    data = [to_json(record) for record in records]
    for dump in (json_codec.dumps_unchecked, json_codec.dumps_exact):
        rec = dump(data[0] if len(data) == 1 else {"type": "batch", "records": data})
        if [from_json(part) for part in _parts(json_codec.loads_record(rec, "rec"))] == list(records):
            return rec
    return None


def scan(data: bytes, *, last_seq: int = 0, offset: int = 0, stops_at_damage: bool = False) -> Scan:
    """Read every line of ``data``, which starts at ``offset`` of the journal, after the line ``last_seq``.

    ``stops_at_damage``: what follows the first damage is not read, so that a file of nothing but damage costs nothing.
    """
    # Each line is one of six cases, and only the tail is cut off, never a line before it:
    # - whole and next in number: its records are taken in;
    # - whole, but numbers are missing before it: it is taken in, and the gap is a damage of no length;
    # - whole, with the number of the line before it: what it adds to that one is taken in, unless it contradicts it;
    # - whole, but with accounting records that cannot be read: the others are taken in, each loss is a damage;
    # - whole, but of another version: it takes its number, and what it says is a loss;
    # - unreadable, by its form, checksum or number: a damage, and skipped.
    # The tail after the last line that reached the disk was never acknowledged: it is torn.
    records: list[Record] = []
    damages: list[Damage] = []
    last: list[Record] | None = None  # the records of the last line
    end = _end_of_lines(data)
    position = 0
    while position < end and not (damages and stops_at_damage):
        stop = data.index(b"\n", position)
        try:
            line = _decode_line(data[position:stop])
            is_new = line.seq > last_seq
            new = line.records if is_new else _added_to(last, line, last_seq)
        except _UNREADABLE as error:
            reason = str(error) or type(error).__name__
            damages.append(Damage(offset=offset + position, length=stop + 1 - position, reason=reason))
        else:
            if line.seq > last_seq + 1:
                missing = line.seq - last_seq - 1
                gap = f"{missing} {'line is' if missing == 1 else 'lines are'} missing before line {line.seq}"
                damages.append(Damage(offset=offset + position, length=0, reason=gap))
            damages += [Damage(offset=offset + position, length=0, reason=reason) for reason in line.lost]
            if is_new or last is None:
                last = []
            last += new
            last_seq = line.seq
            records.extend(new)
        position = stop + 1
    return Scan(
        records=tuple(records),
        damages=tuple(damages),
        last_seq=last_seq,
        end=offset + end,
        torn_bytes=len(data) - end,
    )


def is_whole(data: bytes) -> bool:
    """Whether each line of a journal, from its first one, has its version, checksum and number; none is decoded.

    Bytes after the last newline do not count: they were never acknowledged.
    """
    lines = data.split(b"\n")[:-1]
    try:
        return all(_checked(line)[:2] == (VERSION, number) for number, line in enumerate(lines, 1))
    except ValueError:
        return False


class LineCheck:
    """Checks the lines of a journal while it is read in pieces, so that nothing is kept of one that holds none.

    A line must be whole: its records are not decoded, and its number is not compared with the one before it.
    """

    def __init__(self) -> None:
        self._begun = bytearray()  # the line whose end has not been read
        self._offset = 0

    def take(self, piece: bytes) -> None:
        """Check what ends in the next piece; ValueError, with the line's offset, if that cannot be a line."""
        *ended, rest = piece.split(b"\n")
        try:
            for line in ended:
                self._begun += line
                _checked(bytes(self._begun))
                self._offset += len(self._begun) + 1
                self._begun.clear()
            self._begun += rest
            self._check_begun()
        except ValueError as error:
            raise ValueError(f"at byte {self._offset:,}: {error}") from error

    def _check_begun(self) -> None:
        """Refuse a line that goes on for longer than it says that it is."""
        most = _HEAD_BYTES
        head = _HEAD.match(self._begun)
        if head is not None:
            most = head.end() + int(head[3]) + 1
        if len(self._begun) > most:
            raise ValueError("not a journal line")


def rewritten(log: bytes, change: Callable[[Any], Any]) -> bytes:
    """The log with each record's JSON data as ``change`` gives it; each line keeps its number and its length.

    Damaged lines, and those of a later version, stay as they are.

    Raises:
        InvalidRecord: a changed line would be longer, or would be read back as something else.

    """
    return b"\n".join(_rewritten_line(line, change) for line in log.split(b"\n"))


def _rewritten_line(line: bytes, change: Callable[[Any], Any]) -> bytes:
    try:
        version, seq, rec = _checked(line)
        data = json_codec.loads_record(rec, "rec")
        parts = list(_parts(data))
    except _UNREADABLE:
        return line
    changed = [change(part) for part in parts] if version == VERSION else parts
    if changed == parts:
        return line
    new = {**data, "records": changed} if data.get("type") == "batch" else changed[0]
    for dump in (json_codec.dumps_unchecked, json_codec.dumps_exact):
        shorter = dump(new)
        if len(shorter) <= len(rec) and json_codec.loads_record(shorter, "rec") == new:
            return _line(seq, shorter.ljust(len(rec)))
    raise InvalidRecord(f"line {seq} of the journal cannot be written again in its place")


def _end_of_lines(data: bytes) -> int:
    """Return the end of the last line that reached the disk.

    JSON has no NUL: last lines with a run of them are holes, left by a write that a power failure cut short.
    """
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if data.find(_HOLE, start, end) < 0:
            break
        end = start
    return end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line as it was read. ``lost`` says what is wrong with what was left out of it."""

    seq: int
    records: Sequence[Record]
    lost: Sequence[str] = ()


def _added_to(last: Sequence[Record] | None, line: _Line, last_seq: int) -> list[Record]:
    """What ``line`` adds to the line of the same number, ``last``; ValueError if there is none, or they contradict.

    A writer that did not know whether its line was written may have written the records again, with later ones.
    """
    if last is None or line.seq < last_seq:
        raise ValueError(f"line {line.seq} comes after line {last_seq}")
    known = [_unstamped(record) for record in last]
    new: list[Record] = []
    for record in line.records:
        if (unstamped := _unstamped(record)) not in known:
            known.append(unstamped)
            new.append(record)
    taken = {_claim(record) for record in last} - {None}
    if taken.intersection(map(_claim, new)):
        raise ValueError(f"line {line.seq} comes after another line {last_seq}, and contradicts it")
    return new


def _unstamped(record: Record) -> Record:
    """``record`` without the time at which it was written."""
    if isinstance(record, Replaced | Removed | Restored | Undone | Pinned):
        return replace(record, at=0.0)
    return record


def _claim(record: Record) -> tuple[str, object] | None:
    """What only one record may say; None: there may be several such records."""
    match record:
        case ItemAdded():
            return "item", record.item.id
        case Stored():
            return "content", record.item_id
        case CallMade():
            return "call", record.number
        case SessionStarted():
            return "session", record.session_id
        case _:
            return None


def _decode_line(line: bytes) -> _Line:
    version, seq, rec = _checked(line)
    data = json_codec.loads_record(rec, "rec")
    if version != VERSION:  # which no checksum covers
        lost = f"line {seq} is of version {version}, not {VERSION}: a later ctxfs wrote it, or it was changed"
        return _Line(seq=seq, records=[UnknownRecord(data=data)], lost=[lost])
    return _decode_parts(seq, _parts(data))


def _checked(line: bytes) -> tuple[int, int, bytes]:
    """The version and the number of a line, and the bytes of its record. Raises ValueError if it is not whole."""
    head = _HEAD.match(line)
    if head is None or not line.endswith(b"}"):
        raise ValueError("not a journal line")
    seq = int(head[2])
    length = int(head[3])
    crc = int(head[4], 16)
    rec = line[head.end() : -1]
    if len(rec) != length or _crc(seq, rec) != crc:
        raise ValueError(f"the checksum of line {seq} does not match")
    return int(head[1]), seq, rec


def _decode_parts(seq: int, parts: Sequence[Any]) -> _Line:
    """All records of one commit, or none; only an invalid record of a call's cost does not spoil the others."""
    records: list[Record] = []
    lost: list[str] = []
    for part in parts:
        try:
            records.append(from_json(part))
        except _UNREADABLE as error:
            if len(parts) == 1 or not is_accounting(part):
                raise
            what = "cost" if part["type"] == "call_made" else "sent"
            lost.append(f"what a call {what} is not readable in line {seq}: {error}")
    return _Line(seq=seq, records=records, lost=lost)


def _parts(data: Any) -> Sequence[Any]:
    return data["records"] if data.get("type") == "batch" else [data]


def _crc(seq: int, rec: bytes) -> int:
    return zlib.crc32(rec, zlib.crc32(b"%d:" % seq))
