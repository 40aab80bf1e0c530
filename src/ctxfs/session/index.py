"""index.json: what is stored, readable for people and programs; a cache of the journal, never the truth."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ctxfs.session.content.stored import Stored
from ctxfs.session.record_json import from_json, to_json
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext import codec as json_codec

INDEX_NAME = "index.json"
SCHEMA_VERSION = "1.0"
ENTRIES_A_CHUNK = 256
_CRC_HEAD = b'],"crc":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A parsed index: what was stored up to the journal's line ``journal_seq``."""

    session_id: str
    journal_seq: int
    items: Mapping[str, Stored]


def render_index(session_id: str, journal_seq: int, stored: Iterable[Stored]) -> Iterator[bytes]:
    """Yield the index in pieces, one entry a line, with a checksum at its end."""
    head = {"schema_version": SCHEMA_VERSION, "session_id": session_id, "journal_seq": journal_seq}
    piece = json_codec.dumps(head)[:-1] + b',"items":['
    separator = b"\n"
    crc = 0
    pending = [piece]
    for entry in stored:
        data = to_json(entry)
        del data["type"]
        pending.append(separator + json_codec.dumps(data))
        separator = b",\n"
        if len(pending) >= ENTRIES_A_CHUNK:
            piece = b"".join(pending)
            crc = zlib.crc32(piece, crc)
            yield piece
            pending = []
    piece = b"".join(pending)
    yield piece + b'\n],"crc":"%08x"}\n' % zlib.crc32(piece + b"\n", crc)


def parse_index(data: bytes) -> Index:
    """Read an index. Raises ValueError if it is torn, damaged or of another kind."""
    position = data.rfind(_CRC_HEAD)
    if position < 0 or not data.endswith(b'"}\n'):
        raise ValueError("not an index")
    if data[position + len(_CRC_HEAD) : -3] != b"%08x" % zlib.crc32(memoryview(data)[:position]):
        raise ValueError("the checksum of the index does not match")
    head, *lines = data[:position].splitlines()
    try:
        fields = json_codec.loads(head + b"]}")
        # line by line: one call for all of them would hold the interpreter for long
        entries = [from_json({"type": "stored", **_fields(line.rstrip(b","))}) for line in lines]
        items = {entry.item_id: entry for entry in entries if isinstance(entry, Stored)}
        return Index(session_id=fields["session_id"], journal_seq=fields["journal_seq"], items=items)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an index: {error}") from error


def _fields(line: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json_codec.loads_record(line, "entry")
    return fields


def wants_index(store: ThreadedStore) -> bool:
    """Whether the index is written in this store: no tool could read it on a server, and each write is a request."""
    return not store.is_shared
