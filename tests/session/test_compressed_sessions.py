"""Sessions whose large contents are compressed: named so, found after every loss, and moved as they are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.context import Context, History, Part
from ctxfs.errors import ConfigError
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout, as_layout, layout_of
from ctxfs.session import export_session, import_session
from ctxfs.session.content.compression import compressor, zstd
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.record_json import from_json, to_json
from ctxfs.storage.memory import MemoryStore
from session_items import make_item

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

LARGE = "".join(f"line {number}: nothing special\n" for number in range(20_000))
NAME = "tool_result/Read/call_1.json.zst"
UNCOMPRESSED = replace(ENVELOPE, compress_from_chars=0)


def result(fs: ContextFileSystem, content: Content = LARGE) -> ContextItem:
    item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, "call_1", "Read", content)
    return make_item(item_id, ToolMessage("call_1", "Read", content), 100, name=name)


async def stored(store: MemoryStore, layout: Layout = ENVELOPE, content: Content = LARGE) -> None:
    async with session(store, layout) as fs:
        await fs.writer.store([result(fs, content)])


def session(store: MemoryStore, layout: Layout = ENVELOPE) -> ContextFileSystem:
    return ContextFileSystem("session_1", store=store.peer(), clock=lambda: 9.0, layout=layout)


@pytest.mark.parametrize(
    ("layout", "content", "name"),
    [
        (ENVELOPE, LARGE, NAME),
        (ENVELOPE, "x" * 32_000, "tool_result/Read/call_1.json"),
        (ENVELOPE, "x" * 33_000, NAME),
        (ENVELOPE, ({"type": "text", "text": LARGE},), NAME),
        (UNCOMPRESSED, LARGE, "tool_result/Read/call_1.json"),
        (TEXT, LARGE, "tool_result/Read/call_1.txt"),
        (replace(TEXT, compress_from_chars=10), LARGE, "tool_result/Read/call_1.txt.zst"),
        (replace(TEXT, compress_from_chars=10), "x" * 5, "tool_result/Read/call_1.txt"),
    ],
)
async def test_the_size_and_the_layout_decide_and_the_name_says_so(layout: Layout, content: Content, name: str) -> None:
    store = MemoryStore("session_1")
    await stored(store, layout, content)
    assert name in store.disk.files
    async with session(store) as fs:
        assert await fs.load("call_1") == content
        assert fs.state.stored["call_1"].compression == ("zstd" if name.endswith(".zst") else "")
        assert (await fs.verify()).ok
        assert fs.find(f"{fs.base}/{name}") == "call_1"


async def test_zstd_alone_gives_back_the_envelope() -> None:
    store = MemoryStore("session_1")
    await stored(store)
    data = store.disk.files[NAME]
    assert len(data) < len(LARGE) / 5
    envelope = json.loads(zstd.decompress(bytes(data)))
    assert (envelope["item_id"], envelope["content"]) == ("call_1", LARGE)


@pytest.mark.parametrize("layout", [ENVELOPE, replace(TEXT, compress_from_chars=1)])
@pytest.mark.parametrize("content", [LARGE, "lone \ud800 surrogate\n" * 9_000, ({"type": "text", "text": LARGE},)])
async def test_a_lost_journal_and_index_are_rebuilt_from_compressed_files(layout: Layout, content: Content) -> None:
    store = MemoryStore("session_1")
    await stored(store, layout, content)
    async with session(store) as fs:
        before = fs.state.stored["call_1"]
    store.disk.log.clear()
    for name in [name for name in store.disk.files if name == "index.json" or name.endswith(".idx")]:
        if layout is ENVELOPE or name.endswith(".idx"):
            del store.disk.files[name]
    async with session(store) as fs:
        assert fs.recovery.adopted == (before.name,)
        assert fs.state.stored["call_1"] == before
        assert await fs.load("call_1") == content


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[1:],
        lambda data: compressor()(b'{"item_id":"call_1"') + data,
        lambda data: zstd.compress(zstd.decompress(data)),
        lambda data: compressor()(zstd.decompress(data)[:50] + b" ") + data,
        lambda data: zstd.compress(b'{"x":1,"content":"') + data,
        lambda data: data[:20],
    ],
)
async def test_a_compressed_file_that_is_not_as_ctxfs_writes_it_is_foreign(damage: Any) -> None:
    store = MemoryStore("session_1")
    await stored(store)
    store.disk.log.clear()
    del store.disk.files["index.json"]
    store.disk.files[NAME] = damage(bytes(store.disk.files[NAME]))
    async with session(store) as fs:
        assert fs.recovery.foreign == (NAME,)
        assert "call_1" not in fs.state.stored


async def test_a_session_keeps_its_layout_and_takes_what_is_compressed_from_the_setting() -> None:
    store = MemoryStore("session_1")
    await stored(store, UNCOMPRESSED, "small")
    async with session(store, ENVELOPE) as fs:
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "a", "Read", LARGE)[1].endswith(".json.zst")
    async with session(store, UNCOMPRESSED) as fs:
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "a", "Read", LARGE)[1].endswith(".json")
    async with session(store, replace(TEXT, compress_from_chars=1)) as fs:
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "a", "Read", LARGE)[1].endswith(".json.zst")
    assert layout_of("unknown", TEXT) is ENVELOPE
    assert layout_of(None, TEXT) is TEXT
    assert as_layout("text") == TEXT
    assert as_layout(Layout("text", 5)) == replace(TEXT, compress_from_chars=5)
    for wrong in (-1, True, 1.5):
        with pytest.raises(ConfigError, match="compress_from_chars"):
            Layout("text", wrong)  # type: ignore[arg-type]


async def test_the_record_of_a_content_that_is_not_compressed_is_as_it_was() -> None:
    store = MemoryStore("session_1")
    await stored(store, UNCOMPRESSED)
    async with session(store) as fs:
        data = to_json(fs.state.stored["call_1"])
    assert "compression" not in data
    assert from_json(data) == from_json({**data, "compression": ""})


async def test_a_context_names_the_file_that_is_there(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, keep_recent={"Read": 1}) as context:
        await context.add({"role": "user", "content": "Look"})
        for call_id in ("call_1", "call_2"):
            call: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}
            await context.add({"role": "assistant", "content": [call]})
            answer = {"type": "tool_result", "tool_use_id": call_id, "content": LARGE}
            await context.add({"role": "user", "content": [answer]})
        await context.request()
        item = next(item for item in context.items if item.id == "call_1")
    assert item.offload_path == str(tmp_path / "s" / NAME)
    assert await anyio.Path(item.offload_path).exists()


async def test_a_history_compresses_only_when_asked(tmp_path: Path) -> None:
    parts = [Part(kind="result", content=LARGE, place=place, id=f"call_{place}", tool="Read") for place in range(2)]
    for session_id, setting, name in (("a", None, "call_0.txt"), ("b", 1_000, "call_0.txt.zst")):
        settings: dict[str, Any] = {"keep_recent": {"Read": 1}, "layout": Layout("text", setting)}
        settings["preview_above_tokens"] = None
        async with History(session_id, root_path=tmp_path, **settings) as history:
            edits = await history.arewrite(parts)
        path = anyio.Path(tmp_path / session_id / "tool_result" / "Read" / name)
        assert f"{path}\n" in str(edits[0])
        assert await path.exists()


async def test_a_session_is_moved_with_its_contents_compressed(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        await fs.writer.store([result(fs)])
    await export_session("s", tmp_path / "one", root_path=tmp_path)
    assert (await anyio.Path(tmp_path / "one").stat()).st_size < len(LARGE) / 4
    await import_session(tmp_path / "one", root_path=tmp_path, session_id="t")
    await export_session("t", tmp_path / "two", root_path=tmp_path)
    assert await anyio.Path(tmp_path / "one").read_bytes() == await anyio.Path(tmp_path / "two").read_bytes()
    async with ContextFileSystem("t", root_path=tmp_path, read_only=True) as fs:
        assert await fs.load("call_1") == LARGE
        assert (await fs.verify()).ok


async def test_a_damaged_compressed_content_is_said_and_hides_nothing_else(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        await fs.writer.store([result(fs)])
    path = anyio.Path(tmp_path / "s" / NAME)
    data = await path.read_bytes()
    await path.write_bytes(data[: len(data) // 2] + b"\0\0\0\0" + data[len(data) // 2 + 4 :])
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        (problem,) = (await fs.verify()).problems
        assert problem.name == NAME
        assert await fs.reader("call_1").lines(1, 2) == ("line 0: nothing special", "line 1: nothing special")
