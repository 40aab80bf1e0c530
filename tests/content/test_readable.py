"""What a content reads like, and how little of it is read for a part."""

import base64
from typing import Any

import pytest

from ctxfs.errors import InvalidRecord
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content, readable_text
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.encoding import RawBytes, encoding_of
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.reader import ContentReader, IndexCache
from ctxfs.storage.base import NewFile
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext.write_stream import BLOCK

NAME = "tool_result/Read/call_1.txt"


def test_what_is_no_text_is_named_with_its_size() -> None:
    def named(source: Any, kind: str = "image") -> str:
        return readable_text(({"type": kind, "source": source},))

    assert named({"type": "base64", "media_type": "image/png", "data": "aGk="}) == "[image: image/png, 2 bytes]"
    assert named({"type": "text", "data": "hello"}, "document") == "[document: unknown, 5 bytes]"
    assert named({"type": "url", "url": "u"}).endswith("bytes of JSON]")
    call = {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "."}}
    assert readable_text((call,)) == '[calls ls {"path":"."}]'


class CountingStore(MemoryStore):
    """Notes how many bytes are asked for, None for all that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int | None] = []

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if name == NAME:
            self.asked.append(length)
        return super().read(name, offset, length)


async def stored(content: Content | RawBytes, *, raw: bool = True) -> tuple[CountingStore, ContentReader]:
    counting = CountingStore()
    store = ThreadedStore(counting)
    await store.open(create=True, write=True)
    file = ContentFile(
        content, item_id="call_1", item_type=ItemType.TOOL_RESULT, name=NAME, raw=raw, offloaded_at=0, extra={}
    )
    await store.commit([NewFile(name=NAME, chunks=file)], lambda: b"")
    reader = ContentReader(store, file.stored)
    await reader.block_index()  # it lies nowhere: only who may write puts it beside the file
    assert await store.names() == [NAME]
    counting.asked.clear()
    return counting, reader


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("plain", "text"),
        ("lone \ud800", "surrogates"),
        (({"type": "text", "text": "plain"},), "blocks"),
        (({"type": "text", "text": "lone \ud800"},), "blocks+surrogates"),
        (RawBytes(b"bytes"), "bytes"),
    ],
)
def test_how_a_content_is_encoded_is_named_in_its_metadata(content: Content | RawBytes, encoding: str) -> None:
    assert encoding_of(content) == encoding


@pytest.mark.anyio
@pytest.mark.parametrize("character", ["\0", "a", "é", "😀"])
async def test_blocks_are_found_again_in_the_file_whatever_a_character_takes_there(character: str) -> None:
    for raw in (True, False):
        _, reader = await stored(character * (2 * BLOCK + 1), raw=raw)
        assert (await reader.block_index()).count == reader.stored.blocks >= 3


@pytest.mark.parametrize("data", [b"a", b"ab", b"abc", b"abcd"])
def test_an_image_is_named_with_its_size(data: bytes) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    assert readable_text(({"type": "image", "source": source},)) == f"[image: image/png, {len(data)} bytes]"


@pytest.mark.anyio
async def test_bytes_that_end_within_a_character_show_that() -> None:
    _, reader = await stored(RawBytes(b"price: 3 \xe2\x82"))
    assert "".join([text async for text in reader.text_blocks()]) == "price: 3 \ufffd"
    assert await reader.lines(1, 1) == ("price: 3 \ufffd",)


@pytest.mark.anyio
@pytest.mark.parametrize("block", [{"text": "no type"}, {"type": "text"}, "no block"])
async def test_what_is_no_content_block_is_not_stored(block: Any) -> None:
    with pytest.raises(InvalidRecord):
        await stored((block,))


@pytest.mark.anyio
async def test_a_bound_on_a_line_bounds_what_is_read() -> None:
    store, reader = await stored("x" * (8 * BLOCK))
    assert await reader.lines(1, 1, max_chars=BLOCK) == ("x" * BLOCK,)
    assert sum(length or 8 * BLOCK for length in store.asked) <= 5 * BLOCK  # a character may take four bytes


@pytest.mark.anyio
async def test_a_bound_counts_characters_whatever_they_take() -> None:
    _, reader = await stored("😀" * 40)
    for bound in (1, 10, 40):
        assert await reader.lines(1, 1, max_chars=bound) == ("😀" * bound,)


@pytest.mark.anyio
async def test_only_content_of_several_blocks_gets_an_index_when_it_is_read() -> None:
    for size, names in ((BLOCK, [NAME]), (BLOCK + 1, [NAME, index_name(NAME)])):
        store, reader = await stored("x" * size)
        store.close()
        threaded = ThreadedStore(store)
        await threaded.open(create=False, write=True)
        await ContentReader(threaded, reader.stored, indexes=IndexCache(threaded, keep=True)).load()
        assert store.names() == names


@pytest.mark.anyio
async def test_several_blocks_are_read_once_and_nothing_else() -> None:
    text = "".join(f"{number:09}\n" for number in range(5 * BLOCK // 10))
    store, reader = await stored(text)
    assert reader.stored.blocks == 5
    assert "".join([piece async for piece in reader.text_from(1)]) == text
    assert sum(length or len(text) for length in store.asked) == len(text)
    store.asked.clear()
    assert [piece async for piece in reader.text_from(reader.stored.lines)] == [text[-10:]]
    assert sum(length or len(text) for length in store.asked) <= BLOCK
