"""One content as a file: written block by block, with its frame and the index of its blocks. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs.errors import InvalidRecord
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content, check_content, readable_text
from ctxfs.session.content.blocks import BlockIndex, BlockIndexBuilder, text_lines
from ctxfs.session.content.compression import ZSTD, compressor, fixed_frame
from ctxfs.session.content.encoding import RawBytes, encode_blocks, encoding_of
from ctxfs.session.content.stored import Stored
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.write_stream import BLOCK

SCHEMA_VERSION = "1.0"


class ContentFile:
    """An item's file, written block by block; iterating it yields the bytes and leaves ``stored`` and ``index``.

    ``item_id``: the item whose content it is. ``name``: the file's in the session. ``extra`` is metadata beside the
    encoding. ``compressed``: in zstd frames. Iterating again starts afresh. Raises
    ValueError while iterating when the content, or the metadata, is not JSON.
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
        compressed: bool = False,
    ) -> None:
        self._content = content
        self._compression = ZSTD if compressed else ""
        self.item_id = item_id
        self._item_type = item_type
        self.name = name
        self._raw = raw
        self._offloaded_at = offloaded_at
        self._extra = extra
        self._stored: Stored | None = None
        self._index: BlockIndex | None = None

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
        header = _header(
            item_id=self.item_id,
            item_type=self._item_type,
            encoding=encoding,
            raw=self._raw,
            offloaded_at=self._offloaded_at,
            metadata=metadata,
        )
        if header and self._compression:
            header = compressor()(header)
        trailer = trailer_of(encoding, raw=self._raw, compression=self._compression)
        blocks = BlockIndexBuilder(len(header))
        last = b""
        before = header
        forms = encode_blocks(self._content, encoding, raw=self._raw, compression=self._compression)
        for raw, encoded, is_last in _mark_last(forms):
            after = trailer if is_last else b""
            yield b"".join((before, encoded, after))
            before = b""
            blocks.add(raw, len(encoded))  # the disk is writing already
            last = raw
        if not blocks.count:
            yield header + trailer
        self._index = blocks.build()
        chars, lines = self._text_size(blocks.size_bytes, blocks.newlines, last)
        self._stored = Stored(
            item_id=self.item_id,
            item_type=self._item_type,
            name=self.name,
            encoding=encoding,
            size_bytes=blocks.size_bytes,
            chars=chars,
            lines=lines,
            digest=self._index.root,
            blocks=blocks.count,
            content_offset=len(header),
            content_length=blocks.file_end - len(header),
            raw=self._raw,
            offloaded_at=self._offloaded_at,
            metadata=metadata,
            compression=self._compression,
        )

    def _check(self) -> None:
        """Raise ``InvalidRecord`` for what could not be read back."""
        try:
            if not isinstance(self._content, RawBytes):
                check_content(self._content)
            json_codec.check_json(self._extra, "metadata")
        except ValueError as error:
            raise InvalidRecord(f"{self.name} cannot be stored: {error}") from error

    def _text_size(self, size: int, newlines: int, last: bytes) -> tuple[int, int]:
        if isinstance(self._content, RawBytes):
            return size, text_lines(newlines, ends_open=bool(last) and not last.endswith(b"\n"))
        text = readable_text(self._content)
        if not isinstance(self._content, str):
            newlines = text.count("\n")
        return len(text), text_lines(newlines, ends_open=bool(text) and not text.endswith("\n"))


def header_of(stored: Stored) -> bytes:
    """Return what stands before the content in its file, uncompressed."""
    return _header(
        item_id=stored.item_id,
        item_type=stored.item_type,
        encoding=stored.encoding,
        raw=stored.raw,
        offloaded_at=stored.offloaded_at,
        metadata=stored.metadata,
    )


def _header(
    *, item_id: str, item_type: ItemType, encoding: str, raw: bool, offloaded_at: int, metadata: Mapping[str, Any]
) -> bytes:
    if raw:
        return b""
    head = {
        "schema_version": SCHEMA_VERSION,
        "item_id": item_id,
        "item_type": item_type,
        "offloaded_at": offloaded_at,
        "metadata": metadata,
    }
    quote = b"" if encoding == "blocks" else b'"'
    return json_codec.dumps(head)[:-1] + b',"content":' + quote


def trailer_of(encoding: str, *, raw: bool, compression: str) -> bytes:
    """Return what stands after the content in its file."""
    if raw:
        return b""
    end = b"}\n" if encoding == "blocks" else b'"}\n'
    return fixed_frame(end) if compression else end


def file_bytes(stored: Stored) -> int:
    """The size in bytes of a content's file, without its block index."""
    trailer = trailer_of(stored.encoding, raw=stored.raw, compression=stored.compression)
    return stored.content_offset + stored.content_length + len(trailer)


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
