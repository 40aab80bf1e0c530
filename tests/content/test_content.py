"""Content on disk: exact, checked, and readable by lines wherever they are."""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st

from contents import CONTENTS, TEXTS
from ctxfs.errors import CorruptContent, InvalidRecord, NotStored
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content, readable_text
from ctxfs.session.content.blocks import BlockIndex, BlockIndexBuilder, index_name, is_block_index
from ctxfs.session.content.encoding import RawBytes
from ctxfs.session.content.file import ContentFile, IndexChunks
from ctxfs.session.content.reader import BlockRange, ContentReader, IndexCache, scan_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext.write_stream import BLOCK

pytestmark = pytest.mark.anyio

NAME = "tool_result/Read/call_1.json"
LARGE: list[Content] = [
    "".join(f"line {number} é\n" for number in range(30_000)),
    'quoted "\\\n' * 40_000,
    "\x00\x1f\x7f" * 100_000,
    "😀" * (BLOCK + 1),
    "a" * (2 * BLOCK),
    "a" * (2 * BLOCK) + "\nsecond\n" + "c" * BLOCK + "\nfourth",
    "\n" * (BLOCK + 7),
    "lone \ud800 surrogate\n" * 20_000,
    ({"type": "text", "text": "many\nlines\n" * 30_000}, {"type": "text", "text": "é" * 150_000}),
    tuple({"type": "text", "text": f'{number}\n"é"' * 60} for number in range(1_000)),
]


def file_of(content: Content | RawBytes, *, raw: bool = False) -> ContentFile:
    return ContentFile(
        content,
        item_id="call_1",
        item_type=ItemType.TOOL_RESULT,
        name=NAME,
        raw=raw,
        offloaded_at=1705300100,
        extra={"tool_name": "Read"},
    )


async def stored(
    content: Content | RawBytes, *, raw: bool = False, index: bool = True, disk: Path | None = None
) -> tuple[ThreadedStore, ContentReader]:
    file = file_of(content, raw=raw)
    files = [NewFile(name=NAME, chunks=file)]
    if file.wants_index and index:
        files.append(NewFile(name=index_name(NAME), chunks=IndexChunks(file), derived=True))
    store = await store_of(files, disk)
    return store, ContentReader(store, file.stored)


async def store_of(files: Sequence[NewFile], disk: Path | None = None) -> ThreadedStore:
    store = ThreadedStore(MemoryStore() if disk is None else LocalStore(disk, "session_1", durability="process"))
    await store.open(create=True, write=True)
    await store.commit(files, lambda: b"")
    return store


@cache
def encoded(number: int, raw: bool) -> tuple[tuple[NewFile, ...], Stored]:
    """A large content as files that are encoded once, for tests of how it is read."""
    file = file_of(LARGE[number], raw=raw)
    content = NewFile(name=NAME, chunks=tuple(file))
    return (content, NewFile(name=index_name(NAME), chunks=tuple(IndexChunks(file)), derived=True)), file.stored


async def stored_large(
    number: int, *, raw: bool = False, disk: Path | None = None
) -> tuple[ThreadedStore, ContentReader]:
    files, content = encoded(number, raw)
    store = await store_of(files, disk)
    return store, ContentReader(store, content)


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


@given(content=CONTENTS, raw=st.booleans())
async def test_any_content_comes_back_exactly(content: Content, raw: bool) -> None:
    _, reader = await stored(content, raw=raw)
    assert await reader.load() == content


@pytest.mark.parametrize("number", range(len(LARGE)))
@pytest.mark.parametrize("raw", [False, True])
async def test_large_content_comes_back_exactly_also_without_its_index(number: int, raw: bool) -> None:
    content = LARGE[number]
    store, reader = await stored(content, raw=raw)
    assert await reader.load() == content
    file = file_of(content, raw=raw)
    list(file)
    assert (await scan_blocks(store, reader.stored)).to_bytes() == file.index.to_bytes()
    assert reader.stored.blocks > 1


@given(content=CONTENTS, raw=st.booleans(), first=st.integers(-2, 12), count=st.integers(-1, 12))
async def test_lines_are_those_between_newlines(content: Content, raw: bool, first: int, count: int) -> None:
    _, reader = await stored(content, raw=raw)
    lines = lines_of(readable_text(content))
    assert reader.stored.lines == len(lines)
    assert reader.stored.chars == len(readable_text(content))
    assert list(await reader.lines(first, first + count)) == lines[max(first, 1) - 1 : max(first + count, 0)]
    assert list(await reader.tail(count)) == (lines[-count:] if count > 0 else [])


@pytest.mark.not_measured
@pytest.mark.parametrize("number", range(len(LARGE)))
async def test_lines_of_large_content(number: int) -> None:
    _, reader = await stored_large(number)
    lines = lines_of(readable_text(LARGE[number]))
    total = len(lines)
    for first in {1, 2, total // 3, total // 2, total - 1, total}:
        if 1 <= first <= total:
            assert list(await reader.lines(first, first + 3)) == lines[first - 1 : first + 3]
    assert list(await reader.tail(5)) == lines[-5:]
    assert "".join([text async for text in reader.text_blocks()]) == readable_text(LARGE[number])


@given(text=TEXTS, first=st.integers(1, 8), limit=st.integers(0, 30))
async def test_a_bound_on_characters_cuts_the_same_lines(text: str, first: int, limit: int) -> None:
    _, reader = await stored(text)
    lines = [f"{line}\n" for line in lines_of(text)]
    whole = "".join(lines[first - 1 : first + 5])
    if not text.endswith("\n") and first + 5 >= len(lines):
        whole = whole.removesuffix("\n")
    cut = whole[:limit]
    expected = tuple(cut.removesuffix("\n").split("\n")) if cut else ()
    assert await reader.lines(first, first + 5, max_chars=limit) == expected


async def test_a_bound_keeps_a_huge_line_from_being_read_whole() -> None:
    _, reader = await stored("x" * (4 * BLOCK))
    assert await reader.lines(1, 1, max_chars=10) == ("x" * 10,)


def test_the_envelope_is_the_specs() -> None:
    envelope = json.loads(b"".join(file_of("... 原始内容 ...\n")))
    assert list(envelope) == ["schema_version", "item_id", "item_type", "offloaded_at", "metadata", "content"]
    assert envelope == {
        "schema_version": "1.0",
        "item_id": "call_1",
        "item_type": "tool_result",
        "offloaded_at": 1705300100,
        "metadata": {"tool_name": "Read", "encoding": "text"},
        "content": "... 原始内容 ...\n",
    }


async def test_blocks_with_what_utf_8_cannot_say_come_back() -> None:
    content: Content = ({"type": "text", "text": "lone \ud800"}, {"type": "text", "text": "b"})
    _, reader = await stored(content)
    assert await reader.load() == content


async def test_an_index_that_is_known_is_not_that_of_another_content_of_the_same_name() -> None:
    old, new = (file_of("line\n" * count) for count in (60_000, 90_000))
    store = await store_of([NewFile(name=NAME, chunks=old)])
    indexes = IndexCache(store, keep=False)
    assert (await indexes.get(old.stored)).root == old.stored.digest
    await store.replace(NAME, b"".join(new))
    assert (await indexes.get(new.stored)).root == new.stored.digest


def test_an_index_is_known_by_its_name() -> None:
    assert is_block_index(index_name("tool_result/Read/call_1.json"))
    assert not is_block_index("tool_result/Read/call_1.json")


@given(CONTENTS)
def test_every_envelope_is_json(content: Content) -> None:
    envelope = json.loads(b"".join(file_of(content)))
    if envelope["metadata"]["encoding"] == "text":
        assert envelope["content"] == content


def test_the_text_layout_holds_the_content_as_it_is() -> None:
    assert b"".join(file_of("a\né\n", raw=True)) == "a\né\n".encode()
    assert b"".join(file_of(RawBytes(b"\xff\x00"), raw=True)) == b"\xff\x00"


@pytest.mark.parametrize("raw", [False, True])
async def test_bytes_that_are_no_text(raw: bool) -> None:
    data = b"ok\n\xff\xfe\x00 half \xe2\x82\nend"
    _, reader = await stored(RawBytes(data), raw=raw)
    assert b"".join([block async for block in reader.raw_blocks()]) == data
    assert (await reader.lines(1, 3))[0::2] == ("ok", "end")
    content = await reader.load()
    assert isinstance(content, str)
    assert content.encode("utf-8", "surrogateescape") == data


async def test_other_blocks_are_named_in_the_readable_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    _, reader = await stored(({"type": "text", "text": "a\nb"}, image, {"type": "new"}))
    assert await reader.lines(1, 9) == ("a", "b", "[image: image/png, 5 bytes]", "[new: 14 bytes of JSON]")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1, 2), b"bytes", {1: 2}, object()])
async def test_what_json_cannot_give_back_is_not_stored(value: Any) -> None:
    with pytest.raises(InvalidRecord):
        await stored(({"type": "odd", "value": value},))


async def changing_a_byte_is_noticed(
    data: st.DataObject, text: str, store: ThreadedStore, reader: ContentReader
) -> None:
    """Change one byte of the content ``text``: reading it fails, or gives the same text."""
    start = reader.stored.content_offset
    position = data.draw(st.integers(start, start + reader.stored.content_length - 1))
    whole = bytearray(await store.read(NAME))
    whole[position] ^= data.draw(st.integers(1, 255))
    await store.replace(NAME, bytes(whole))
    try:
        changed = await reader.load()
    except CorruptContent:
        return
    assert changed == text  # another spelling of the same bytes, as \\u0041 for A


@given(data=st.data(), text=TEXTS.filter(len))
async def test_a_changed_byte_is_noticed(data: st.DataObject, text: str) -> None:
    await changing_a_byte_is_noticed(data, text, *await stored(text))


async def test_a_page_checks_only_its_own_blocks() -> None:
    text = "".join(f"{number:09}\n" for number in range(80_000))
    store, reader = await stored(text)
    whole = bytearray(await store.read(NAME))
    whole[-100] ^= 1
    await store.replace(NAME, bytes(whole))
    assert await reader.lines(1, 2) == ("000000000", "000000001")
    with pytest.raises(CorruptContent, match="block 3"):
        await reader.tail(3)


@pytest.mark.parametrize("damage", [b"", b"torn", None])
async def test_a_lost_or_damaged_index_is_found_again_and_written_back(damage: bytes | None) -> None:
    text = "a line\n" * 100_000
    store, reader = await stored(text, index=False)
    if damage is not None:
        await store.replace(index_name(NAME), damage)
    keeping = ContentReader(store, reader.stored, indexes=IndexCache(store, keep=True))
    assert await keeping.tail(1) == ("a line",)
    assert BlockIndex.from_bytes(await store.read(index_name(NAME))).root == reader.stored.digest


async def test_an_index_of_other_content_is_not_believed() -> None:
    text = "a line\n" * 100_000
    store, reader = await stored(text)
    other = file_of("b line\n" * 100_000)
    list(other)
    await store.replace(index_name(NAME), other.index.to_bytes())
    assert await reader.load() == text


@given(st.integers(0, 300), st.integers(0, 9), st.integers(1, 4), st.integers(1, 120), st.integers(1, 3))
def test_runs_are_shared_out_whole_and_evenly(blocks: int, skip: int, readers: int, longest: int, first: int) -> None:
    whole = BlockRange(blocks=range(7, 7 + blocks), skip=skip)
    runs = list(whole.shared_out(readers, longest, first=first))
    assert [number for run in runs for number in run.blocks] == list(whole.blocks)
    assert [run.skip for run in runs] == [skip, *[0] * len(runs)][: len(runs)]
    sizes = [len(run.blocks) for run in runs[1:]]
    assert sum(len(run.blocks) for run in runs[:1]) == min(first, blocks)
    assert len(set(sizes[:-1])) <= 1
    assert max(sizes, default=0) <= longest
    assert len(sizes) <= readers * max(1, math.ceil((blocks - first) / (longest * readers)))  # no reader has one more


@pytest.mark.not_measured
@pytest.mark.parametrize("number", range(len(LARGE)))
@pytest.mark.parametrize(("raw", "in_memory"), [(False, True), (True, False)])
async def test_runs_give_the_text_from_a_line_on_and_where_it_stands(
    number: int, raw: bool, in_memory: bool, tmp_path: Path
) -> None:
    store, reader = await stored_large(number, raw=raw, disk=None if in_memory else tmp_path)
    data = readable_text(LARGE[number]).encode("utf-8", "surrogatepass")
    for first in (1, 2, reader.stored.lines // 2, reader.stored.lines):
        newlines = max(first, 1) - 1
        position = _after(data, newlines) if newlines else 0
        read: list[tuple[int, bytes]] = []
        for run in (await reader.run_from(first)).shared_out(2, 3, first=1):
            read += await to_thread.run_sync(list, await reader.read_run(run))
        assert b"".join(piece for _, piece in read) == data[position:]
        for before, piece in read:
            assert before == data.count(b"\n", 0, position)
            position += len(piece)
    await store.close()


async def test_a_run_that_is_read_block_by_block_is_checked_block_by_block(tmp_path: Path) -> None:
    store, reader = await stored("".join(f"{number:09}\n" for number in range(80_000)), disk=tmp_path)
    whole = bytearray(await store.read(NAME))
    whole[-100] ^= 1
    await store.replace(NAME, bytes(whole))
    pieces = await reader.read_run(await reader.run_from(1))
    first = await to_thread.run_sync(lambda: list(islice(pieces, 3)))
    assert [newlines for newlines, _ in first] == [0, BLOCK // 10, 2 * BLOCK // 10]
    with pytest.raises(CorruptContent, match="block 3"):
        await to_thread.run_sync(list, pieces)
    await store.delete([NAME])
    with pytest.raises(NotStored):
        await to_thread.run_sync(list, await reader.read_run(await reader.run_from(1)))
    await store.close()


def _after(data: bytes, newlines: int) -> int:
    return len(b"\n".join(data.split(b"\n")[:newlines])) + 1


async def test_a_deleted_file_is_not_stored() -> None:
    store, reader = await stored("text")
    await store.delete([NAME])
    with pytest.raises(NotStored):
        await reader.load()


@given(
    st.integers(0, 2**60),
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"\n", b"b\n\nc"]), st.integers(0, 2**60)), max_size=9),
    st.data(),
)
def test_block_indexes_survive_the_disk_or_are_refused(
    start: int, blocks: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    builder, rows, size, newlines = BlockIndexBuilder(start), [], 0, 0
    for raw, length in blocks:
        rows.append((builder.file_end, size, newlines, hashlib.sha256(raw).digest()))
        builder.add(raw, length)
        size, newlines = size + len(raw), newlines + raw.count(b"\n")
    encoded = builder.build().to_bytes()
    decoded = BlockIndex.from_bytes(encoded)
    assert [decoded.row(n) for n in range(decoded.count)] == rows
    assert (decoded.size_bytes, decoded.newlines) == (size, newlines)
    assert decoded.file_end == start + sum(length for _, length in blocks)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ValueError):
        BlockIndex.from_bytes(encoded[:cut])
    flipped = bytearray(encoded)
    flipped[cut] ^= 0x10
    with pytest.raises(ValueError):
        BlockIndex.from_bytes(bytes(flipped))
