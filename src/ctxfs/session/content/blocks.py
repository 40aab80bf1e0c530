"""Where the blocks of a content are in its file, in its bytes and in its lines, and their digests. Pure.

A content is encoded in blocks. The index has a row for each: its offset in the file, its offset in the content's bytes,
the newlines before it, and the SHA-256 of its bytes; then the three totals, which end the last block. So

- a page of lines is a binary search for the block that holds its first newline;
- a block is read alone, from its offset to that of the next one, and checked by its digest;
- the whole is checked by the root, the digest over all digests, which the journal records. The index itself needs no
  trust: one with another root is not used, and can be built again from the content.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable
from functools import cached_property

from ctxfs.text.jsontext.write_stream import BLOCK

RAW_BLOCK = BLOCK * 3 // 4

INDEX_SUFFIX = ".idx"

INDEX_MAGIC = b"ctxfs-index-1\n\0\0"

_ROW = struct.Struct("<QQQ32s")

_COUNTS = struct.Struct("<QQQ")

_CRC = struct.Struct("<I")


def text_lines(newlines: int, *, ends_open: bool) -> int:
    r"""Count lines as ``\n`` separates them; ``ends_open``: there is text after the last one."""
    return newlines + ends_open


class BlockIndex:
    """The block index of one content: see the top of this module."""

    def __init__(self, rows: bytes, *, file_end: int, size_bytes: int, newlines: int) -> None:
        self._rows = rows
        self.count = len(rows) // _ROW.size
        self.file_end = file_end
        self.size_bytes = size_bytes
        self.newlines = newlines

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
        low = 0
        high = self.count - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.newlines_before(middle) < ordinal:
                low = middle
            else:
                high = middle - 1
        return low

    @cached_property  # asked for with every page
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
        """Decode. Raises ValueError if it is torn, damaged or not a block index."""
        start = len(INDEX_MAGIC) + _COUNTS.size
        rows = data[start : -_CRC.size]
        if not data.startswith(INDEX_MAGIC) or len(data) < start + _CRC.size or len(rows) % _ROW.size:
            raise ValueError("not a block index")
        if zlib.crc32(memoryview(data)[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise ValueError("the checksum of the block index does not match")
        file_end, size_bytes, newlines = _COUNTS.unpack_from(data, len(INDEX_MAGIC))
        return cls(rows, file_end=file_end, size_bytes=size_bytes, newlines=newlines)


class BlockIndexBuilder:
    """Builds the index of a content from its blocks, in their order.

    Args:
        file_start: where the first block starts in the file.
    """

    def __init__(self, file_start: int = 0) -> None:
        self.file_end = file_start
        self.size_bytes = 0
        self.newlines = 0
        self._rows = bytearray()

    @property
    def count(self) -> int:
        """How many blocks were added."""
        return len(self._rows) // _ROW.size

    def add(self, raw: bytes, encoded_length: int) -> None:
        """Add the next block: its bytes, and the length of its encoded form in the file."""
        self._rows += _ROW.pack(self.file_end, self.size_bytes, self.newlines, digest(raw))
        self.file_end += encoded_length
        self.size_bytes += len(raw)
        self.newlines += raw.count(b"\n")

    def build(self) -> BlockIndex:
        """The index of the blocks so far."""
        return BlockIndex(bytes(self._rows), file_end=self.file_end, size_bytes=self.size_bytes, newlines=self.newlines)


def index_size(blocks: int) -> int:
    """Return the size in bytes of the block index of a content with this number of blocks."""
    return len(INDEX_MAGIC) + _COUNTS.size + blocks * _ROW.size + _CRC.size


def root_digest(digests: Iterable[bytes]) -> str:
    """Return the SHA-256 over the blocks' SHA-256, as hexadecimal digits."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def index_name(name: str) -> str:
    """Return the name of a content file's block index."""
    return f"{name}{INDEX_SUFFIX}"


def is_block_index(name: str) -> bool:
    """Tell whether a file of this name may be a block index; a content can have such a name too."""
    return name.endswith(INDEX_SUFFIX)


def digest(block: bytes) -> bytes:
    """Return a block's SHA-256."""
    return hashlib.sha256(block).digest()
