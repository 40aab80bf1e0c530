"""The bodies of requests and replies, bounded: however much they are, and whatever they unpack to."""

import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from ctxfs.session.content.compression import MAX_ARCHIVE_WINDOW, zstd

_AT_ONCE_BYTES = 1 << 20
"""A decompressor gives out its output in pieces of this size, so that the limit is asked between them."""


_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate", "zstd"})


class TooLarge(ValueError):
    """A body has more bytes than may be taken into memory."""


class UnreadableReply(ValueError):
    """A provider's reply that is read here cannot be unpacked, or has too many bytes; the text says which."""


async def beginning_of(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """Take pieces until they end, or are more than ``limit`` bytes; the rest can be taken from ``pieces``."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit:
            break
    return bytes(body)


async def whole_body(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """Take all pieces together. Raises ``TooLarge`` if they are more than ``limit`` bytes."""
    body = await beginning_of(pieces, limit)
    if len(body) > limit:
        raise TooLarge(f"the body has more than {limit:,} bytes")
    return body


def can_unpack(encodings: str | None) -> bool:
    """Whether ``unpacked`` knows all of these encodings."""
    return _ENCODINGS.issuperset(encoding.strip() for encoding in (encodings or "").lower().split(","))


def unpacked(raw: bytes, encodings: str | None, limit: int) -> bytes:
    """Unpack a body that is compressed as its header ``content-encoding`` says (None: it is not); call it in a thread.

    Raises:
        TooLarge: it has more than ``limit`` bytes, compressed or not.
        ValueError: it cannot be unpacked.

    """
    if len(raw) > limit:
        raise TooLarge(f"the body has more than {limit:,} bytes")
    for encoding in reversed((encodings or "").lower().split(",")):
        match encoding.strip():
            case "" | "identity":
                continue
            case "gzip" | "x-gzip":
                raw = _inflated(raw, 16 + zlib.MAX_WBITS, limit)
            case "deflate":
                try:
                    raw = _inflated(raw, zlib.MAX_WBITS, limit)
                except TooLarge:
                    raise
                except ValueError:  # many programs leave out the header that the standard asks for
                    raw = _inflated(raw, -zlib.MAX_WBITS, limit)
            case "zstd":
                raw = _unzstd(raw, limit)
            case other:
                raise ValueError(f"the encoding {other!r:.20} is unknown")
    return raw


def _inflated(raw: bytes, bits: int, limit: int) -> bytes:
    stream = zlib.decompressobj(bits)
    left = raw

    def more() -> bytes:
        nonlocal left
        piece = stream.decompress(left, _AT_ONCE_BYTES)
        left = stream.unconsumed_tail
        return piece

    return _within(more, stream, limit)


def _unzstd(raw: bytes, limit: int) -> bytes:
    stream = zstd.ZstdDecompressor(options=MAX_ARCHIVE_WINDOW)
    left = raw

    def more() -> bytes:
        nonlocal left
        piece: bytes = stream.decompress(left, _AT_ONCE_BYTES)
        left = b""  # it keeps what it has not used
        return piece

    return _within(more, stream, limit)


def _within(more: Callable[[], bytes], stream: Any, limit: int) -> bytes:
    """What ``more`` gives until the stream ends. Raises ValueError if it ends too early, is damaged or too large."""
    found = bytearray()
    while not stream.eof:
        try:
            piece = more()
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            raise ValueError(str(error)) from error
        if not piece and not stream.eof:
            raise ValueError("the compressed body ends too early")
        found += piece
        if len(found) > limit:
            raise TooLarge(f"the body has more than {limit:,} bytes when it is unpacked")
    if stream.unused_data:
        raise ValueError("something follows the compressed body")
    return bytes(found)
