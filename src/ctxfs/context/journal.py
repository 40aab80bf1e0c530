"""The journal: one line a commit, and the state that its records add up to. Pure.

A line is ``{"v":1,"seq":n,"len":…,"crc":"…","rec":{…}}``: ``len`` and ``crc`` (CRC-32, over "n:" and the record) cover
the record's bytes, so that a line is whole or not there. A commit of several records is one line of type "batch".
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ctxfs import json_codec
from ctxfs.context.items import ContextItem
from ctxfs.context.records import (
    CallMade,
    Closed,
    EvictionSet,
    ItemAdded,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    Stored,
    UnknownRecord,
    WriterOpened,
    from_json,
    is_accounting,
    to_json,
    with_content,
)
from ctxfs.errors import InvalidRecord
from ctxfs.llm.messages import ToolMessage

__all__ = ["Damage", "Scan", "SessionState", "encode_line", "fold", "scan"]

VERSION = 1
_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_HOLE = bytes(16)  # fewer NULs, of a damaged line, leave it where it is
_HEAD = re.compile(rb'\{"v":(\d{1,9}),"seq":(\d{1,18}),"len":(\d{1,18}),"crc":"([0-9a-f]{8})","rec":')


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of the journal that are no record; they stay where they are and are skipped."""

    offset: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a piece of journal holds. ``end`` is the offset after its last whole line; what follows is torn."""

    records: tuple[Record, ...]
    damages: tuple[Damage, ...]
    last_seq: int
    end: int
    torn_bytes: int


def encode_line(seq: int, records: Sequence[Record]) -> bytes:
    """Encode what one commit records as one line.

    It is decoded before it is written. Raises ``InvalidRecord`` when it would not be read back as these records.
    """
    try:
        rec = _encoded(records)
    except _UNREADABLE as error:
        raise InvalidRecord(f"this cannot be recorded: {error!r}") from error
    if rec is None:
        raise InvalidRecord(f"this would be read back as something else: {records!r:.500}")
    return b'{"v":%d,"seq":%d,"len":%d,"crc":"%08x","rec":%b}\n' % (VERSION, seq, len(rec), _crc(seq, rec), rec)


def _encoded(records: Sequence[Record]) -> bytes | None:
    """The JSON that decodes to ``records``; None when there is none. Only two lone surrogates need the exact form."""
    data = [to_json(record) for record in records]
    for dump in (json_codec.dumps, json_codec.dumps_exact):
        rec = dump(data[0] if len(data) == 1 else {"type": "batch", "records": data})
        if [from_json(part) for part in _parts(_load(rec))] == list(records):
            return rec
    return None


def scan(data: bytes, *, last_seq: int = 0, offset: int = 0) -> Scan:
    """Read every line of ``data``, which starts at ``offset`` of the journal, after the line ``last_seq``."""
    records: list[Record] = []
    damages: list[Damage] = []
    end = _end_of_lines(data)
    position = 0
    while position < end:
        stop = data.index(b"\n", position)
        try:
            line = _decode_line(data[position:stop], last_seq)
        except _UNREADABLE as error:
            reason = str(error) or type(error).__name__
            damages.append(Damage(offset=offset + position, length=stop + 1 - position, reason=reason))
        else:
            if line.seq > last_seq + 1:
                gap = f"{line.seq - last_seq - 1} lines are missing before line {line.seq}"
                damages.append(Damage(offset=offset + position, length=0, reason=gap))
            damages += [Damage(offset=offset + position, length=0, reason=reason) for reason in line.lost]
            last_seq = line.seq
            records.extend(line.records)
        position = stop + 1
    return Scan(
        records=tuple(records),
        damages=tuple(damages),
        last_seq=last_seq,
        end=offset + end,
        torn_bytes=len(data) - end,
    )


def _end_of_lines(data: bytes) -> int:
    """Return where the last line ends that came to the medium.

    JSON has no NUL: lines at the end with a run of them are holes, of a write that a power failure cut short.
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
    """A line as it was read. ``lost`` says what is wrong with the accounting records that were left out of it."""

    seq: int
    records: Sequence[Record]
    lost: Sequence[str] = ()


def _decode_line(line: bytes, last_seq: int) -> _Line:
    head = _HEAD.match(line)
    if head is None or not line.endswith(b"}"):
        raise ValueError("not a journal line")
    seq, length, crc = int(head[2]), int(head[3]), int(head[4], 16)
    rec = line[head.end() : -1]
    if len(rec) != length or _crc(seq, rec) != crc:
        raise ValueError(f"the checksum of line {seq} does not match")
    if seq <= last_seq:
        raise ValueError(f"line {seq} comes after line {last_seq}")
    data = _load(rec)
    if int(head[1]) != VERSION:
        return _Line(seq=seq, records=[UnknownRecord(data=data)])
    return _decode_parts(seq, _parts(data))


def _decode_parts(seq: int, parts: Sequence[Any]) -> _Line:
    """All records of one commit, or none; only what a call cost can be wrong without taking the others with it."""
    records: list[Record] = []
    lost: list[str] = []
    for part in parts:
        try:
            records.append(from_json(part))
        except _UNREADABLE as error:
            if len(parts) == 1 or not is_accounting(part):
                raise
            lost.append(f"what a call cost is not readable in line {seq}: {error}")
    return _Line(seq=seq, records=records, lost=lost)


def _load(rec: bytes) -> Any:
    data = json_codec.loads(rec)
    json_codec.check_json(data, "rec", max_depth=json_codec.MAX_RECORD_DEPTH)  # it may have to be written again
    return data


def _parts(data: Any) -> Sequence[Any]:
    return data["records"] if data.get("type") == "batch" else [data]


def _crc(seq: int, rec: bytes) -> int:
    return zlib.crc32(rec, zlib.crc32(b"%d:" % seq))


@dataclass(slots=True)
class SessionState:
    """What a session is, as far as its journal says.

    ``items`` are those in the context, in order; the content of those in ``content_stored`` is in their files and empty
    here. ``stored`` is every content that is durable, ``archived`` the archive of each item that left in one, ``ids``
    every id ever given out, ``eviction`` the rules in force, ``paths`` where the session lay.
    """

    items: dict[str, ContextItem] = field(default_factory=dict)
    content_stored: set[str] = field(default_factory=set)
    stored: dict[str, Stored] = field(default_factory=dict)
    by_name: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    archived: dict[str, str] = field(default_factory=dict)
    calls: list[CallMade] = field(default_factory=list)
    eviction: EvictionSet | None = None
    paths: set[str] = field(default_factory=set)
    epoch: int = 0
    layout: str | None = None
    closed: bool = False

    def apply(self, record: Record) -> None:
        """Take one record in. A record about an item that is not there changes nothing: its line may be damaged."""
        match record:
            case SessionStarted():
                self.layout = record.layout
            case WriterOpened():
                self.epoch = record.epoch
                self.paths.add(record.path)
                self.closed = False
            case EvictionSet():
                self.eviction = record
            case ItemAdded():
                self._add(record)
            case Stored():
                self.stored[record.item_id] = record
                self.by_name[record.name] = record.item_id
                self.ids.add(record.item_id)
            case Replaced():
                self._replace(record)
            case Restored():
                self._restore(record)
            case Removed():
                self._remove(record)
            case CallMade():
                self.calls.append(record)
            case Closed():
                self.closed = True

    def _add(self, record: ItemAdded) -> None:
        item = record.item
        self.ids.add(item.id)
        if record.content_stored:
            self.content_stored.add(item.id)
        if record.before is None or record.before not in self.items:
            self.items[item.id] = item
            return
        entries = list(self.items.items())
        position = next(index for index, (item_id, _) in enumerate(entries) if item_id == record.before)
        self.items = dict([*entries[:position], (item.id, item), *entries[position:]])

    def _remove(self, record: Removed) -> None:
        for item_id in record.item_ids:
            self.items.pop(item_id, None)
            self.content_stored.discard(item_id)
            if record.archive is not None:
                self.archived[item_id] = record.archive

    def _replace(self, record: Replaced) -> None:
        item = self.items.get(record.item_id)
        if item is None:
            return
        message = with_content(item.message, record.content)
        if isinstance(message, ToolMessage):
            message = replace(message, offloaded=True, offload_path=record.path)
        self.content_stored.discard(item.id)
        self.items[item.id] = replace(
            item,
            message=message,
            token_count=record.token_count,
            offloaded=record.path is not None,
            destroyed=record.destroyed,
            offload_path=record.path,
            trimmed=record.trimmed,
        )

    def _restore(self, record: Restored) -> None:
        item = self.items.get(record.item_id)
        if item is None or item.id not in self.stored:
            return
        message = with_content(item.message, "")
        if isinstance(message, ToolMessage):
            message = replace(message, offloaded=False, offload_path=None)
        self.content_stored.add(item.id)
        self.items[item.id] = replace(
            item,
            message=message,
            token_count=item.content_tokens,
            offloaded=False,
            destroyed=False,
            offload_path=None,
        )


def fold(state: SessionState, records: Iterable[Record]) -> SessionState:
    """Take ``records`` into ``state``, in order, and return it."""
    for record in records:
        state.apply(record)
    return state
