"""Images and PDFs in base64: sizes, pages, and which images providers accept; no pixel is decoded."""

import base64
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

MAX_IMAGE_CHARS = 5 * 1024 * 1024
"""How much base64 an image may be."""
MAX_IMAGE_FILE_BYTES = MAX_IMAGE_CHARS // 4 * 3
"""How much of a file that is."""
MAX_IMAGE_PIXELS = 8000
"""How wide, and how high, an image may be."""

HEADER_BYTES = 256 * 1024
"""How much of an image is searched: a JPEG's size may stand behind large metadata."""
BYTES_PER_UNSEEN_PAGE = 50_000
MAX_DICTIONARY_BYTES = 500
MAX_STREAM_BYTES = 1 << 20
MAX_UNPACKED_BYTES = 32 << 20
SLICE_CHARS = 4 << 20

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PNG_END = b"IEND\xaeB`\x82"

# Start-of-frame markers; C4, C8 and CC in the same range are something else.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_type(head: bytes) -> str | None:
    """Return the media type of an image that providers accept, by its first 12 bytes; None for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def image_fault(media_type: Any, data: Any) -> tuple[str, str] | None:
    """Say what a provider refuses in an image in base64, as the field and the reason; None when it is accepted."""
    if media_type not in _IMAGE_TYPES:
        return "media_type", f"should be one of {', '.join(_IMAGE_TYPES)}"
    if isinstance(data, str) and len(data) > MAX_IMAGE_CHARS:
        return "data", f"image exceeds 5 MB maximum: {len(data)} bytes > {MAX_IMAGE_CHARS} bytes"
    raw = base64_bytes(data)
    return ("data", "invalid base64 data") if raw is None else _fault_of(media_type, raw)


def _fault_of(media_type: str, raw: bytes) -> tuple[str, str] | None:
    real = image_type(raw)
    size = _size(raw)
    if real is None or size is None or 0 in size or not _is_whole(real, raw):
        return "data", "could not process image"
    if real != media_type:
        return "media_type", f"the image was specified as {media_type}, but appears to be {real}"
    if max(size) > MAX_IMAGE_PIXELS:
        return "data", f"image dimensions exceed the maximum of {MAX_IMAGE_PIXELS} pixels: {size[0]} x {size[1]}"
    return None


def base64_bytes(data: Any) -> bytes | None:
    """Return the bytes of base64 ``data``; None when it is empty or no base64."""
    try:
        return base64.b64decode(data, validate=True) or None
    except (TypeError, ValueError):
        return None


def _is_whole(media_type: str, raw: bytes) -> bool:
    """Whether an image of known size has the end that its format asks for."""
    match media_type:
        case "image/png":
            return _PNG_END in raw
        case "image/jpeg":  # a thumbnail in the metadata has an end too, but that stands before the frame
            return b"\xff\xd9" in raw[_jpeg_frame(raw) :]
        case "image/gif":
            return b"\0;" in raw
    return len(raw) >= 8 + int.from_bytes(raw[4:8], "little")


def image_size(data: str) -> tuple[int, int] | None:
    """Return (width, height) in pixels of a PNG, GIF, WebP or JPEG in base64; None when the header does not say."""
    return _size(_decode(data[: HEADER_BYTES // 3 * 4]))


def _size(head: bytes) -> tuple[int, int] | None:
    match image_type(head):
        case "image/png" if len(head) >= 24:
            return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
        case "image/gif" if len(head) >= 10:
            return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
        case "image/webp" if len(head) >= 30:
            return _webp_size(head)
        case "image/jpeg" if position := _jpeg_frame(head):
            return int.from_bytes(head[position + 7 : position + 9]), int.from_bytes(head[position + 5 : position + 7])
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


def _jpeg_frame(head: bytes) -> int:
    """Where the start-of-frame marker stands, with the size behind it; 0 when it is not there."""
    position = 2
    while position + 9 <= len(head) and head[position] == 0xFF:
        marker = head[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in JPEG_FRAMES:
            return position
        else:
            position += 2 + int.from_bytes(head[position + 2 : position + 4])
    return 0


PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
OBJECT_STREAM = re.compile(rb"/Type\s*/ObjStm(?![A-Za-z])")
STREAM_START = re.compile(rb"stream\r?\n")


def document_pages(data: str) -> int:
    """Return the pages of a PDF in base64, at least 1.

    Page objects are counted, including those in compressed object streams. If none can be seen (an encrypted file), a
    page is assumed for every 50 KB.
    """
    raw = _decode(data)
    pages = len(PAGE.findall(raw)) + sum(len(PAGE.findall(stream)) for stream in _object_streams(raw))
    if pages:
        return pages
    return max(1, -(-len(raw) // BYTES_PER_UNSEEN_PAGE))


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
    """Decode base64; b"" if it is invalid, and so has no known size."""
    slices = (data[start : start + SLICE_CHARS] for start in range(0, len(data), SLICE_CHARS))
    with suppress(ValueError):
        return b"".join(map(base64.b64decode, slices))  # other threads can run between them
    with suppress(ValueError):
        return base64.b64decode(data)  # with line breaks in it, so that a slice ends anywhere
    return b""
