"""Compressed content: the same bytes in zstd frames, a frame for each block; nothing hostile unfolds without bound."""

import io
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.test_content import LARGE, NAME, changing_a_byte_is_noticed, lines_of
from contents import CONTENTS, TEXTS
from ctxfs.errors import CorruptContent
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content, readable_text
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.compression import compressor, first_frame, fixed_frame, frame_content, zstd
from ctxfs.session.content.encoding import RawBytes, decode_blocks
from ctxfs.session.content.file import ContentFile, IndexChunks
from ctxfs.session.content.reader import ContentReader, scan_blocks
from ctxfs.session.verify import check_file
from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext.write_stream import BLOCK

pytestmark = pytest.mark.anyio


def file_of(content: Content | RawBytes, *, raw: bool, compressed: bool = True) -> ContentFile:
    return ContentFile(
        content,
        item_id="call_1",
        item_type=ItemType.TOOL_RESULT,
        name=NAME,
        raw=raw,
        offloaded_at=1705300100,
        extra={"tool_name": "Read"},
        compressed=compressed,
    )


async def stored(
    content: Content | RawBytes, *, raw: bool = False, index: bool = True, disk: Path | None = None
) -> tuple[ThreadedStore, ContentReader]:
    file = file_of(content, raw=raw)
    files = [NewFile(name=NAME, chunks=file)]
    if file.wants_index and index:
        files.append(NewFile(name=index_name(NAME), chunks=IndexChunks(file), derived=True))
    store = ThreadedStore(MemoryStore() if disk is None else LocalStore(disk, "session_1", durability="process"))
    await store.open(create=True, write=True)
    await store.commit(files, lambda: b"")
    return store, ContentReader(store, file.stored)


@given(content=CONTENTS, raw=st.booleans())
async def test_any_content_comes_back_and_its_file_unfolds_to_the_plain_one(content: Content, raw: bool) -> None:
    store, reader = await stored(content, raw=raw)
    assert await reader.load() == content
    assert reader.stored.compression == "zstd"
    plain = b"".join(file_of(content, raw=raw, compressed=False))
    assert zstd.decompress(await store.read(NAME) or zstd.compress(b"")) == plain


@pytest.mark.not_measured
@pytest.mark.parametrize("number", range(len(LARGE)))
@pytest.mark.parametrize(("raw", "index"), [(False, True), (True, False)])
async def test_large_content_comes_back_also_without_its_index(
    number: int, raw: bool, index: bool, tmp_path: Path
) -> None:
    content = LARGE[number]
    store, reader = await stored(content, raw=raw, index=index, disk=tmp_path)
    assert await reader.load() == content
    found = await scan_blocks(store, reader.stored)
    assert (found.root, found.size_bytes) == (reader.stored.digest, reader.stored.size_bytes)
    text = readable_text(content)
    lines = lines_of(text)
    middle = len(lines) // 2
    assert await reader.lines(middle, middle + 3) == tuple(lines[max(0, middle - 1) : middle + 3])
    assert "".join([piece async for piece in reader.text_from(middle + 1)]) == "\n".join(text.split("\n")[middle:])
    await store.close()


@given(parts=st.lists(st.sampled_from(["x" * 1_000, "y" * (BLOCK - 5), "\n", "z\n", "é" * BLOCK]), max_size=12))
async def test_blocks_of_text_end_at_the_ends_of_lines_unless_a_line_is_longer(parts: list[str]) -> None:
    text = "".join(parts)
    _, reader = await stored(text)
    blocks = [block.decode() async for block in reader.raw_blocks()]
    assert "".join(blocks) == text
    assert all(block.endswith("\n") or len(block) == BLOCK for block in blocks[:-1])
    assert all(len(one) + len(two) >= BLOCK for one, two in pairwise(blocks[:-1]))


@given(data=st.data(), text=TEXTS.filter(len), raw=st.booleans())
async def test_a_changed_byte_is_noticed(data: st.DataObject, text: str, raw: bool) -> None:
    await changing_a_byte_is_noticed(data, text, *await stored(text, raw=raw))


def test_a_frame_is_bounded_before_it_unfolds() -> None:
    bomb = compressor()(bytes(1 << 28))
    assert len(bomb) < 1 << 17
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        frame_content(bomb, 1_000)
    sink = io.BytesIO()
    with zstd.ZstdFile(sink, "w", options={zstd.CompressionParameter.window_log: 24}) as file:
        file.write(bytes(1 << 25))
    with pytest.raises(ValueError, match="cannot be decompressed"):  # its window alone would take 16 MiB
        frame_content(sink.getvalue(), 1 << 26)


def test_what_is_not_one_whole_frame_is_refused() -> None:
    frame = compressor()(b"content")
    assert frame_content(frame, 7) == b"content"
    for wrong in (frame + frame, frame[:-1], frame + b"x", b""):
        with pytest.raises(ValueError, match="not one whole zstd frame"):
            frame_content(wrong, 100)
    with pytest.raises(ValueError, match="cannot be decompressed"):
        frame_content(b"no frame", 100)
    assert first_frame(frame[:-1], 100) is None
    assert first_frame(frame + b"more", 100) == (b"content", len(frame))


@pytest.mark.parametrize("data", [b"", b"}\n", bytes(range(255))])
def test_a_fixed_frame_is_a_frame(data: bytes) -> None:
    assert zstd.decompress(fixed_frame(data)) == data
    assert frame_content(fixed_frame(data), 255) == data


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(ValueError, match="'lz9' is unknown"):
        list(decode_blocks([b"x"], "text", raw=True, compression="lz9"))


async def test_a_content_that_unfolds_to_more_than_its_record_says_is_not_read_to_its_end() -> None:
    store, reader = await stored("short")
    bombs = compressor()(b"a" * BLOCK) * 1_000
    start = reader.stored.content_offset
    head = await store.read(NAME, 0, start)
    await store.replace(NAME, head + bombs)
    hostile = replace(reader.stored, content_length=len(bombs), digest="")
    with pytest.raises(CorruptContent, match="more than 5 bytes"):
        await ContentReader(store, hostile).load()


async def test_frames_that_end_too_early_are_noticed() -> None:
    store, reader = await stored("many\nlines\n" * 100_000)
    data = await store.read(NAME)
    for cut in (reader.stored.content_offset + 3, len(data) // 2):
        await store.replace(NAME, data[:cut])
        with pytest.raises(CorruptContent, match="ends too early"):
            await scan_blocks(store, reader.stored)


@pytest.mark.parametrize("content", ["short", "many\nlines\n" * 8_000])
async def test_each_bit_of_the_headers_of_frames_is_checked(content: str) -> None:
    """Also the one that every decoder ignores."""
    store, reader = await stored(content)
    data = await store.read(NAME)
    index = await check_file(store, reader.stored)
    starts = [0, *(index.row(number)[0] for number in range(index.count))]
    for bit in (8 * start + bit for start in starts for bit in range(48)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        await store.replace(NAME, bytes(changed))
        with pytest.raises(CorruptContent):
            await check_file(store, reader.stored)
    await store.replace(NAME, data)
    await check_file(store, reader.stored)


async def test_a_frame_longer_than_the_first_window_is_found() -> None:
    noise = "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9000), k=BLOCK + 10)))
    _, reader = await stored(noise, index=False)
    assert await reader.load() == noise
    assert reader.stored.content_length > BLOCK
