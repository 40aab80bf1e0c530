"""Content as bytes: one encoding rule for every layout, in blocks that are checked one by one. Pure.

``metadata["encoding"]`` names what the bytes are: "text" (UTF-8), "blocks" (the JSON of a list of content blocks),
"surrogates" (text with lone surrogates: UTF-8 with surrogates passed through), "blocks+surrogates" (both) or "bytes".
In an envelope the first two are JSON as they are, the others base64. Envelopes follow "Context FileSystem
上下文卸载功能", ``content`` last. Of a compressed file each of these forms is a zstd frame, and blocks of text end at
the ends of lines.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from ctxfs.messages.messages import Block, Content, check_block, has_media, readable_text
from ctxfs.session.content.blocks import RAW_BLOCK, BlockIndex, BlockIndexBuilder
from ctxfs.session.content.compression import ZSTD, compressor, first_frame, frame_content
from ctxfs.text.jsontext.tokens import json_elements
from ctxfs.text.jsontext.write_stream import BLOCK, has_surrogates, json_pieces
from ctxfs.text.utf8 import decoded, whole_characters


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


def encode_blocks(
    content: Content | RawBytes, encoding: str, *, raw: bool, compression: str = ""
) -> Iterator[tuple[bytes, bytes]]:
    """Yield each block as its bytes and its form in the file; nothing for empty content."""
    if compression:
        compressed = compressor()
        for data, form in _encoded(content, encoding, raw=raw, at_lines=True):
            yield data, compressed(form)
    else:
        yield from _encoded(content, encoding, raw=raw, at_lines=False)


def _encoded(content: Content | RawBytes, encoding: str, *, raw: bool, at_lines: bool) -> Iterator[tuple[bytes, bytes]]:
    if isinstance(content, str) and encoding == "text":
        for piece in _at_lines(content) if at_lines else _at_sizes(content):
            data = piece.encode()
            yield data, data if raw else orjson.dumps(piece)[1:-1]
    elif isinstance(content, tuple) and encoding == "blocks":
        for data in _in_sizes(json_pieces(content), BLOCK):
            yield data, data
    else:
        for data in _in_sizes(_raw_pieces(content), RAW_BLOCK):
            yield data, data if raw else base64.b64encode(data)


def _at_sizes(text: str) -> Iterator[str]:
    return (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))


def _at_lines(text: str) -> Iterator[str]:
    """Cut after the last line that ends within a block; a longer line is cut anywhere."""
    start = 0
    while start < len(text):
        end = start + BLOCK
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def _raw_pieces(content: Content | RawBytes) -> Iterator[bytes]:
    if isinstance(content, RawBytes):
        yield content.data
    elif isinstance(content, str):
        for piece in _at_sizes(content):
            yield piece.encode("utf-8", "surrogatepass")
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


def decode_blocks(
    forms: Iterable[bytes | memoryview], encoding: str, *, raw: bool, compression: str = ""
) -> Iterator[bytes]:
    """Return each block's bytes from its form in the file. Raises ValueError while iterated.

    No form is kept while its block is made: its memory, still in the processor's cache, is the block's.
    """
    if compression:
        forms = map(partial(_decompressed, limit=window(encoding, raw=raw), compression=compression), forms)
    if raw or encoding == "blocks":
        return map(bytes, forms)
    if encoding == "text":
        return map(_utf8_of_string(), map(_quoted, forms))  # between quotes there is a string, or no JSON
    return map(_from_base64, forms)


def _utf8_of_string() -> Callable[[bytes], bytes]:
    """The function that returns a JSON string's UTF-8, without a Python string on the way."""
    # It would be a tenth of what importing a context costs.
    from pydantic_core import SchemaValidator, core_schema  # noqa: PLC0415

    return SchemaValidator(core_schema.bytes_schema()).validate_json


def _from_base64(form: bytes | memoryview) -> bytes:
    """Decode base64 as it was written: its last character has bits that no byte needs, and they must be 0."""
    data = base64.b64decode(form, validate=True)
    last = len(data) - len(data) % 3
    if last < len(data) and base64.b64encode(data[last:]) != bytes(form[-4:]):
        raise ValueError("not the base64 that was written")
    return data


def _decompressed(form: bytes | memoryview, *, limit: int, compression: str) -> bytes:
    _check_known(compression)
    return frame_content(form, limit)


def _check_known(compression: str) -> None:
    if compression != ZSTD:
        raise ValueError(f"its compression {compression!r} is unknown to this version of ctxfs")


def _quoted(form: bytes | memoryview) -> bytes:
    return b"".join((b'"', form, b'"'))


def decode_content(blocks: Sequence[bytes], encoding: str) -> Content:
    """Return the content from its blocks' bytes; "bytes" that are not UTF-8 become surrogate escapes."""
    if encoding.startswith("blocks"):
        return tuple(_content_blocks(blocks))
    return _decoded(blocks, encoding)


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

    def raw_pieces() -> Iterator[bytes]:
        line = 1
        for number, block in enumerate(_content_blocks(blocks)):
            text = readable_text((block,))
            if has_media((block,)):
                media.append((line, block))
            line += text.count("\n") + 1
            yield from _raw_pieces("\n" + text if number else text)

    pieces = list(_in_sizes(raw_pieces(), BLOCK))
    index = BlockIndexBuilder()
    for piece in pieces:
        index.add(piece, 0)
    return BlocksText(index=index.build(), pieces=pieces, media=media)


def _content_blocks(blocks: Sequence[bytes]) -> Iterator[Block]:
    for block in json_elements(_decoded(blocks, "surrogates")):
        check_block(block)
        yield block


def _decoded(blocks: Iterable[bytes], encoding: str) -> str:
    return "".join(decoded(blocks, decoding_errors(encoding)))


def decoding_errors(encoding: str) -> str:
    """Name the error handler that gives back the text exactly."""
    return {"surrogates": "surrogatepass", "bytes": "surrogateescape"}.get(encoding, "strict")


def window(encoding: str, *, raw: bool) -> int:
    """Return how many bytes of a file are sure to hold the next whole block."""
    if encoding == "text":
        return BLOCK * (4 if raw else 6)
    return RAW_BLOCK if raw and encoding != "blocks" else BLOCK


def first_compressed_block(data: bytes, encoding: str, *, raw: bool, compression: str) -> tuple[bytes, int] | None:
    """Return the first block of a compressed file's bytes, and how many of them it takes; None: they are too few.

    Raises ValueError.
    """
    _check_known(compression)
    found = first_frame(data, window(encoding, raw=raw))
    if found is None:
        return None
    form, used = found
    return next(decode_blocks([form], encoding, raw=raw)), used


def first_block(data: bytes, encoding: str, *, raw: bool) -> tuple[bytes, int]:
    """Return the first block of a file's bytes, and how many of them it takes. Raises ValueError."""
    if encoding != "text":
        return next(decode_blocks([data], encoding, raw=raw)), len(data)
    if raw:
        block = whole_characters(data)[:BLOCK].encode()
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
    return whole_characters(data).encode()


def _is_escaped(data: bytes, position: int) -> bool:
    before = data[:position]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
