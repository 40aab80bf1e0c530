"""UTF-8 that comes in pieces, which may end within a character. Pure."""

import codecs
from collections.abc import Iterable, Iterator

Utf8Decoder = codecs.getincrementaldecoder("utf-8")
"""Decodes pieces that come one by one; its argument names the error handler."""


def decoded(pieces: Iterable[bytes | memoryview], errors: str = "strict") -> Iterator[str]:
    """Decode pieces; what they hold of a character at the very end is an error. Raises UnicodeDecodeError."""
    decoder = Utf8Decoder(errors)
    yield from map(decoder.decode, pieces)
    if rest := decoder.decode(b"", final=True):
        yield rest


def whole_characters(data: bytes, errors: str = "strict") -> str:
    """Decode bytes without what they hold of a character that is cut off at their end. Raises UnicodeDecodeError."""
    return Utf8Decoder(errors).decode(data)


def lossless_bytes(text: str) -> bytes:
    """The bytes that a tool returned: UTF-8, with undecodable bytes as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
