"""Content as bytes: one encoding rule for every layout, in blocks that are checked one by one. Pure.

``metadata["encoding"]`` names what the bytes are: "text" (UTF-8), "blocks" (the JSON of a list of content blocks),
"surrogates" (text with lone surrogates: UTF-8 with surrogates passed through), "blocks+surrogates" (both) or "bytes".
In an envelope the first two are JSON as they are, the others base64. Envelopes follow "Context FileSystem
上下文卸载功能", ``content`` last.
"""

import base64
import codecs
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import orjson
from pydantic_core import SchemaValidator, core_schema

from ctxfs import json_codec
from ctxfs.context.items import ItemType
from ctxfs.context.json_elements import json_elements
from ctxfs.context.json_pieces import BLOCK, has_surrogates, json_pieces
from ctxfs.context.records import Stored
from ctxfs.errors import InvalidRecord
from ctxfs.llm.messages import Block, Content, check_block, check_content, has_media, text_with

__all__ = [
    "BLOCK",
    "BlockIndex",
    "BlocksText",
    "ContentFile",
    "IndexChunks",
    "RawBytes",
    "decode_blocks",
    "decode_content",
    "encoding_of",
    "index_name",
    "readable_text",
    "root_digest",
    "text_lines",
    "text_of_blocks",
]

RAW_BLOCK = BLOCK * 3 // 4
SCHEMA_VERSION = "1.0"
INDEX_MAGIC = b"ctxfs-index-1\n\0\0"
_ROW = struct.Struct("<QQQ32s")
_COUNTS = struct.Struct("<QQQ")
_CRC = struct.Struct("<I")
_JSON_BYTES = SchemaValidator(core_schema.bytes_schema())  # a string's UTF-8, without a Python string on the way


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Content that is bytes and need not be text: what a terminal wrote."""

    data: bytes


def encoding_of(content: Content | RawBytes) -> str:
    """Name the encoding that ``content`` needs."""
    if isinstance(content, RawBytes):
        return "bytes"
    if isinstance(content, str):
        return "surrogates" if has_surrogates(content) else "text"
    return "blocks+surrogates" if has_surrogates(content) else "blocks"


def readable_text(content: Content) -> str:
    """Return what lines are counted in: the text, or the text blocks by line with the other blocks named."""
    return text_with(content, _named)


def _named(block: Block) -> str:
    kind = block["type"]
    source = block.get("source")
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        data = source["data"]
        size = len(data) * 3 // 4 - data[-2:].count("=") if source.get("type") == "base64" else len(data)
        return f"[{kind}: {source.get('media_type', 'unknown')}, {size} bytes]"
    return f"[{kind}: {len(json_codec.dumps(block))} bytes of JSON]"


def text_lines(newlines: int, *, ends_open: bool) -> int:
    r"""Count lines as ``\n`` separates them; ``ends_open``: there is text after the last one."""
    return newlines + ends_open


class BlockIndex:
    """Where the blocks of one content stand: in the file, in its bytes, in its lines, and their digests."""

    def __init__(self, rows: bytes, count: int, *, file_end: int, size_bytes: int, newlines: int) -> None:
        self._rows = rows
        self.count = count
        self.file_end = file_end
        self.size_bytes = size_bytes
        self.newlines = newlines

    @classmethod
    def build(
        cls, rows: Sequence[tuple[int, int, int, bytes]], *, file_end: int, size_bytes: int, newlines: int
    ) -> "BlockIndex":
        """Build from one (file offset, byte offset, newlines before, digest) per block."""
        packed = b"".join(_ROW.pack(*row) for row in rows)
        return cls(packed, len(rows), file_end=file_end, size_bytes=size_bytes, newlines=newlines)

    def row(self, number: int) -> tuple[int, int, int, bytes]:
        """Return a block's file offset, byte offset, newlines before it, and digest."""
        found: tuple[int, int, int, bytes] = _ROW.unpack_from(self._rows, number * _ROW.size)
        return found

    def file_span(self, number: int) -> tuple[int, int]:
        """Return where a block's encoded form starts and ends in the file."""
        end = self.row(number + 1)[0] if number + 1 < self.count else self.file_end
        return self.row(number)[0], end

    def newlines_before(self, number: int) -> int:
        """Count the newlines before a block; ``number`` may be one past the last."""
        return self.row(number)[2] if number < self.count else self.newlines

    def block_of_newline(self, ordinal: int) -> int:
        """Return the block that holds the ``ordinal``-th newline, counted from 1."""
        low, high = 0, self.count - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.newlines_before(middle) < ordinal:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def root(self) -> str:
        """The digest over all block digests, as hexadecimal digits."""
        return root_digest(self.row(number)[3] for number in range(self.count))

    def to_bytes(self) -> bytes:
        """Encode, with a checksum over everything."""
        counts = _COUNTS.pack(self.file_end, self.size_bytes, self.newlines)
        data = INDEX_MAGIC + counts + self._rows
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def from_bytes(cls, data: bytes) -> "BlockIndex":
        """Decode. Raises ValueError when it is torn, damaged or of another kind."""
        start = len(INDEX_MAGIC) + _COUNTS.size
        rows = data[start : -_CRC.size]
        if not data.startswith(INDEX_MAGIC) or len(data) < start + _CRC.size or len(rows) % _ROW.size:
            raise ValueError("not a block index")
        if zlib.crc32(memoryview(data)[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise ValueError("the checksum of the block index does not match")
        file_end, size_bytes, newlines = _COUNTS.unpack_from(data, len(INDEX_MAGIC))
        return cls(rows, len(rows) // _ROW.size, file_end=file_end, size_bytes=size_bytes, newlines=newlines)


def root_digest(digests: Iterable[bytes]) -> str:
    """Return the SHA-256 over the blocks' SHA-256, as hexadecimal digits."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def index_name(name: str) -> str:
    """Name the block index that stands beside a content file."""
    return f"{name}.idx"


class ContentFile:
    """An item's file, written block by block; iterating it yields the bytes and leaves ``stored`` and ``index``.

    ``extra`` is metadata beside the encoding. Iterating again starts afresh. Raises ValueError while iterating when the
    content, or the metadata, is not JSON.
    """

    def __init__(
        self,
        content: Content | RawBytes,
        *,
        item_id: str,
        item_type: ItemType,
        name: str,
        raw: bool,
        offloaded_at: int,
        extra: Mapping[str, Any],
    ) -> None:
        self._content = content
        self._item_id = item_id
        self._item_type = item_type
        self._name = name
        self._raw = raw
        self._offloaded_at = offloaded_at
        self._extra = extra
        self._stored: Stored | None = None
        self._index: BlockIndex | None = None

    @property
    def name(self) -> str:
        """The file's name in the session."""
        return self._name

    @property
    def stored(self) -> Stored:
        """What the journal records of the file, once it was iterated."""
        assert self._stored is not None, "iterate first"
        return self._stored

    @property
    def index(self) -> BlockIndex:
        """Where the blocks stand, once the file was iterated."""
        assert self._index is not None, "iterate first"
        return self._index

    @property
    def wants_index(self) -> bool:
        """Whether the content is large enough for a block index beside its file."""
        size = len(self._content.data) if isinstance(self._content, RawBytes) else len(self._content)
        return size > BLOCK and not isinstance(self._content, tuple)

    def __iter__(self) -> Iterator[bytes]:
        self._check()
        encoding = encoding_of(self._content)
        metadata = {**self._extra, "encoding": encoding}
        header, trailer = (b"", b"") if self._raw else self._frame(encoding, metadata)
        offset, size, newlines, last = len(header), 0, 0, b""
        rows: list[tuple[int, int, int, bytes]] = []
        for raw, encoded, is_last in _mark_last(encode_blocks(self._content, encoding, raw=self._raw)):
            yield b"".join((b"" if rows else header, encoded, trailer if is_last else b""))
            rows.append((offset, size, newlines, hashlib.sha256(raw).digest()))  # the disk is writing already
            offset += len(encoded)
            size += len(raw)
            newlines += raw.count(b"\n")
            last = raw
        if not rows:
            yield header + trailer
        self._index = BlockIndex.build(rows, file_end=offset, size_bytes=size, newlines=newlines)
        chars, lines = self._text_size(size, newlines, last)
        self._stored = Stored(
            item_id=self._item_id,
            item_type=self._item_type,
            name=self._name,
            encoding=encoding,
            size_bytes=size,
            chars=chars,
            lines=lines,
            digest=self._index.root,
            blocks=len(rows),
            content_offset=len(header),
            content_length=offset - len(header),
            raw=self._raw,
            offloaded_at=self._offloaded_at,
            metadata=metadata,
        )

    def _check(self) -> None:
        """Raise ``InvalidRecord`` for what could not be read back."""
        try:
            if not isinstance(self._content, RawBytes):
                check_content(self._content)
            json_codec.check_json(self._extra, "metadata")
        except ValueError as error:
            raise InvalidRecord(f"{self._name} cannot be stored: {error}") from error

    def _frame(self, encoding: str, metadata: Mapping[str, Any]) -> tuple[bytes, bytes]:
        head = {
            "schema_version": SCHEMA_VERSION,
            "item_id": self._item_id,
            "item_type": self._item_type,
            "offloaded_at": self._offloaded_at,
            "metadata": metadata,
        }
        quote = b"" if encoding == "blocks" else b'"'
        return json_codec.dumps(head)[:-1] + b',"content":' + quote, quote + b"}\n"

    def _text_size(self, size: int, newlines: int, last: bytes) -> tuple[int, int]:
        if isinstance(self._content, RawBytes):
            return size, text_lines(newlines, ends_open=bool(last) and not last.endswith(b"\n"))
        text = readable_text(self._content)
        if not isinstance(self._content, str):
            newlines = text.count("\n")
        return len(text), text_lines(newlines, ends_open=bool(text) and not text.endswith("\n"))


class IndexChunks:
    """The bytes of a file's block index; iterate the file first."""

    def __init__(self, file: ContentFile) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        yield self._file.index.to_bytes()


def _mark_last(blocks: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, bool]]:
    """Yield each pair with whether it is the last one."""
    held: tuple[bytes, bytes] | None = None
    for block in blocks:
        if held is not None:
            yield (*held, False)
        held = block
    if held is not None:
        yield (*held, True)


def encode_blocks(content: Content | RawBytes, encoding: str, *, raw: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield each block as its bytes and its form in the file; nothing for empty content."""
    if isinstance(content, str) and encoding == "text":
        for start in range(0, len(content), BLOCK):
            piece = content[start : start + BLOCK]
            data = piece.encode()
            yield data, data if raw else orjson.dumps(piece)[1:-1]
    elif isinstance(content, tuple) and encoding == "blocks":
        for data in _in_sizes(json_pieces(content), BLOCK):
            yield data, data
    else:
        for data in _in_sizes(_raw_pieces(content), RAW_BLOCK):
            yield data, data if raw else base64.b64encode(data)


def _raw_pieces(content: Content | RawBytes) -> Iterator[bytes]:
    if isinstance(content, RawBytes):
        yield content.data
    elif isinstance(content, str):
        for start in range(0, len(content), BLOCK):
            yield content[start : start + BLOCK].encode("utf-8", "surrogatepass")
    else:
        yield from json_pieces(content)


def _in_sizes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Cut and join ``pieces`` so that each has ``size`` bytes, and the last one the rest."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        while len(rest) >= size:
            yield bytes(rest[:size])
            del rest[:size]
    if rest:
        yield bytes(rest)


def decode_blocks(forms: Iterable[bytes | memoryview], encoding: str, *, raw: bool) -> Iterator[bytes]:
    """Return each block's bytes from its form in the file. Raises ValueError while iterated.

    No form is kept while its block is made: its memory, still in the processor's cache, is the block's.
    """
    if raw or encoding == "blocks":
        return map(bytes, forms)
    if encoding == "text":
        return map(_JSON_BYTES.validate_json, map(_quoted, forms))  # between quotes there is a string, or no JSON
    return (base64.b64decode(form, validate=True) for form in forms)


def _quoted(form: bytes | memoryview) -> bytes:
    return b"".join((b'"', form, b'"'))


def decode_content(blocks: Sequence[bytes], encoding: str) -> Content:
    """Return the content from its blocks' bytes; "bytes" that are not UTF-8 become surrogate escapes."""
    return tuple(_content_blocks(blocks)) if encoding.startswith("blocks") else _decoded(blocks, encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksText:
    """The readable text of content blocks: in ``pieces`` of UTF-8, which ``index`` finds lines in.

    ``media``: the images and documents, each with the line that names it.
    """

    index: BlockIndex
    pieces: Sequence[bytes]
    media: Sequence[tuple[int, Block]]


def text_of_blocks(blocks: Sequence[bytes]) -> BlocksText:
    """Return the readable text of a list of content blocks."""
    media: list[tuple[int, Block]] = []

    def texts() -> Iterator[str]:
        line = 1
        for number, block in enumerate(_content_blocks(blocks)):
            text = readable_text((block,))
            if has_media((block,)):
                media.append((line, block))
            line += text.count("\n") + 1
            yield "\n" + text if number else text

    pieces = list(_in_sizes((data for text in texts() for data in _raw_pieces(text)), BLOCK))
    newlines = list(accumulate((piece.count(b"\n") for piece in pieces), initial=0))
    rows = [(0, number * BLOCK, before, b"") for number, before in enumerate(newlines[:-1])]
    index = BlockIndex.build(rows, file_end=0, size_bytes=sum(map(len, pieces)), newlines=newlines[-1])
    return BlocksText(index=index, pieces=pieces, media=media)


def _content_blocks(blocks: Sequence[bytes]) -> Iterator[Block]:
    for block in json_elements(_decoded(blocks, "surrogates")):
        check_block(block)
        yield block


def _decoded(blocks: Iterable[bytes], encoding: str) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")(decoding_errors(encoding))
    pieces = [decoder.decode(block) for block in blocks]
    pieces.append(decoder.decode(b"", final=True))
    return "".join(pieces)


def decoding_errors(encoding: str) -> str:
    """Name the error handler that gives back the text exactly."""
    return {"surrogates": "surrogatepass", "bytes": "surrogateescape"}.get(encoding, "strict")


def digest(block: bytes) -> bytes:
    """Return a block's SHA-256."""
    return hashlib.sha256(block).digest()


def window(encoding: str, *, raw: bool) -> int:
    """Return how many bytes of a file are sure to hold the next whole block."""
    if encoding == "text":
        return BLOCK * (4 if raw else 6)
    return RAW_BLOCK if raw and encoding != "blocks" else BLOCK


def first_block(data: bytes, encoding: str, *, raw: bool) -> tuple[bytes, int]:
    """Return the first block of a file's bytes, and how many of them it takes. Raises ValueError."""
    if encoding != "text":
        return next(decode_blocks([data], encoding, raw=raw)), len(data)
    if raw:
        block = codecs.getincrementaldecoder("utf-8")().decode(data)[:BLOCK].encode()
        return block, len(block)
    piece = str(orjson.loads(b'"' + _whole_escapes(data) + b'"'))[:BLOCK]
    return piece.encode(), len(orjson.dumps(piece)) - 2


def _whole_escapes(data: bytes) -> bytes:
    """Cut what a window's edge has split: an escape sequence or a UTF-8 character."""
    tail = data.rfind(b"\\", -5)  # of six characters, which the longest escape sequence has, five are split
    if tail >= 0 and not _is_escaped(data, tail):
        length = 6 if data[tail + 1 : tail + 2] == b"u" else 2
        if tail + length > len(data):
            data = data[:tail]
    text = codecs.getincrementaldecoder("utf-8")().decode(data)
    return text.encode()


def _is_escaped(data: bytes, position: int) -> bool:
    before = data[:position]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
