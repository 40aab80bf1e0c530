"""The size of an image and the pages of a PDF, read from base64 data; nothing is decoded beyond its headers."""

import base64
import re
import zlib
from collections.abc import Iterator

__all__ = ["document_pages", "image_size"]

HEADER_BYTES = 256 * 1024
"""How much of an image is searched: a JPEG's size may stand behind large metadata."""
BYTES_PER_UNSEEN_PAGE = 50_000
MAX_DICTIONARY_BYTES = 500
MAX_STREAM_BYTES = 1 << 20
MAX_UNPACKED_BYTES = 32 << 20
SLICE_CHARS = 4 << 20

# Start-of-frame markers; C4, C8 and CC in the same range are something else.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(data: str) -> tuple[int, int] | None:
    """Return (width, height) in pixels of a PNG, GIF, WebP or JPEG in base64; None when the header does not say."""
    head = _decode(data[: HEADER_BYTES // 3 * 4])
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(head) and head[position] == 0xFF:
        marker = head[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in JPEG_FRAMES:
            height, width = head[position + 5 : position + 7], head[position + 7 : position + 9]
            return int.from_bytes(width), int.from_bytes(height)
        else:
            position += 2 + int.from_bytes(head[position + 2 : position + 4])
    return None


PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
OBJECT_STREAM = re.compile(rb"/Type\s*/ObjStm(?![A-Za-z])")
STREAM_START = re.compile(rb"stream\r?\n")


def document_pages(data: str) -> int:
    """Return the pages of a PDF in base64, at least 1.

    Page objects are counted, also those in compressed object streams. When none can be seen (an encrypted file), a page
    is assumed for every 50 KB.
    """
    raw = _decode(data)
    pages = len(PAGE.findall(raw)) + sum(len(PAGE.findall(stream)) for stream in _object_streams(raw))
    return pages or -(-len(raw) // BYTES_PER_UNSEEN_PAGE) or 1


def _object_streams(raw: bytes) -> Iterator[bytes]:
    """Yield the object streams, unpacked, up to ``MAX_UNPACKED_BYTES`` in all: a small file can unpack to anything."""
    left = MAX_UNPACKED_BYTES
    for found in OBJECT_STREAM.finditer(raw):
        start = STREAM_START.search(raw, found.end(), found.end() + MAX_DICTIONARY_BYTES)
        if start is None or left <= 0:
            continue
        packed = memoryview(raw)[start.end() : start.end() + MAX_STREAM_BYTES]
        try:
            unpacked = zlib.decompressobj().decompress(packed, MAX_STREAM_BYTES)
        except zlib.error:  # another filter, or encrypted: its pages stay unseen
            continue
        left -= len(unpacked)
        yield unpacked


def _decode(data: str) -> bytes:
    """Decode base64; b"" for what is none, which then has no known size."""
    for step in (SLICE_CHARS, len(data) + 1):  # other threads can run between slices; line breaks need the whole
        try:
            return b"".join(base64.b64decode(data[start : start + step]) for start in range(0, len(data), step))
        except ValueError:
            continue
    return b""
