"""Files that are found when a session is opened: only what is whole, and contradicts nothing, is taken in."""

from dataclasses import replace

import pytest

from ctxfs.errors import UnknownItem
from ctxfs.messages.items import ItemType
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.content.blocks import BlockIndexBuilder
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.reader import ContentReader, IndexCache, scan_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index, render_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.recovery import Recovery
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from session_items import evicted, tool_result

pytestmark = pytest.mark.anyio

NAME = "tool_result/Read/call_1.json"
LARGE = "line\n" * 100_000


def session(store: MemoryStore, layout: Layout = ENVELOPE) -> ContextFileSystem:
    return ContextFileSystem("session_1", store=store.peer(), clock=lambda: 9.0, layout=layout)


async def with_one(content: str = "content") -> MemoryStore:
    store = MemoryStore("session_1")
    async with session(store) as fs:
        item = tool_result(fs, content)
        await fs.writer.add([item])
        await fs.writer.evict([(item, evicted(fs, item), "r")])
    return store


def envelope(content: str, item_id: str = "call_1", **extra: object) -> bytes:
    return b"".join(
        ContentFile(
            content,
            item_id=item_id,
            item_type=ItemType.TOOL_RESULT,
            name=f"tool_result/Read/{item_id}.json",
            raw=False,
            offloaded_at=1,
            extra={"tool_name": "Read", **extra},
        )
    )


async def test_with_the_journal_lost_a_changed_file_counts_as_what_it_holds_now() -> None:
    """The index remembers another content: nobody may read that file under its digest."""
    store = await with_one("content")
    store.disk.log.clear()
    store.disk.files[NAME] = envelope("another")
    async with session(store) as fs:
        assert fs.recovery.adopted == (NAME,)
        assert await fs.load("call_1") == "another"
        assert (await fs.verify()).ok


async def test_with_the_journal_lost_the_index_says_what_the_file_does_not() -> None:
    store = MemoryStore("session_1")
    async with session(store, TEXT) as fs:
        await fs.writer.store([tool_result(fs, "content", tool="Read: a tool")], metadata={"call_1": {"note": "kept"}})
        before = dict(fs.state.stored)
    store.disk.log.clear()
    async with session(store) as fs:
        assert dict(fs.state.stored) == before


@pytest.mark.parametrize(
    "data",
    [
        envelope("content")[:-1],
        envelope("content")[:-2],
        envelope("content")[:-3] + b'\n"}',
        envelope("content") + b"\n",
        envelope("content").replace(b"}\n", b"} "),
        envelope("content", item_id="call_2"),
        envelope("content").replace(b'"text"', b'"none"'),
        envelope("content").replace(b'"offloaded_at":1', b'"offloaded_at":"x"'),
        envelope("content").replace(b'"tool_result"', b'"tool"'),
        envelope("content").replace(b'"metadata":{', b'"metadata":["'),
        envelope("content").replace(b',"content"', b';"content"'),
        envelope("content").replace(b'"content":', b'"content"='),
        envelope("con\\tent").replace(b"\\\\", b"\\x"),
        b"[" + envelope("content")[1:],
        b"",
        b'"}\n',
    ],
)  # fmt: skip
async def test_what_is_no_whole_envelope_of_its_name_is_foreign_and_stays(data: bytes) -> None:
    store = MemoryStore("session_1")
    async with session(store):
        pass
    store.disk.files[NAME] = data
    async with session(store) as fs:
        assert (fs.recovery.adopted, fs.recovery.foreign) == ((), (NAME,))
        assert not fs.recovery.clean
        with pytest.raises(UnknownItem):
            await fs.load("call_1")
    assert store.disk.files[NAME] == data


async def test_a_file_whose_record_was_lost_is_that_of_the_item_that_left_for_it() -> None:
    store = await with_one()
    records = [record for record in scan(bytes(store.disk.log)).records if not isinstance(record, Stored)]
    store.disk.log[:] = b"".join(encode_line(number, [record]) for number, record in enumerate(records, 1))
    del store.disk.files[INDEX_NAME]
    async with session(store) as fs:
        (item,) = await fs.items()
        assert item.offloaded
        assert (fs.recovery.adopted, fs.recovery.foreign) == ((NAME,), ())
        assert await fs.load(item.id) == "content"


async def test_a_file_whose_name_differs_only_in_case_is_another_one() -> None:
    store = await with_one()
    store.disk.files[NAME.upper()] = b"somebody's"
    async with session(store) as fs:
        assert (fs.recovery.adopted, fs.recovery.foreign) == ((), (NAME.upper(),))
        assert await fs.load("call_1") == "content"


async def test_a_file_of_an_id_that_is_stored_elsewhere_is_foreign() -> None:
    store = await with_one("content")
    other = "tool_result/Bash/call_1.json"
    store.disk.files[other] = envelope("planted")
    async with session(store) as fs:
        assert fs.recovery.foreign == (other,)
        assert await fs.load("call_1") == "content"
        assert fs.find(f"{fs.base}/{other}") is None


async def test_a_file_of_an_id_that_left_the_context_but_is_stored_is_foreign() -> None:
    store = await with_one("content")
    async with session(store) as fs:
        await fs.writer.remove(["call_1"], reason="r")
    other = "tool_result/Bash/call_1.json"
    store.disk.files[other] = envelope("planted")
    async with session(store) as fs:
        assert fs.recovery.foreign == (other,)
        assert await fs.load("call_1") == "content"


async def test_a_file_that_says_something_else_than_the_context_is_put_aside() -> None:
    store = MemoryStore("session_1")
    async with session(store) as fs:
        item = tool_result(fs, "content")
        await fs.writer.add([item])
    store.disk.files[NAME] = envelope("planted")
    async with session(store) as fs:
        assert fs.recovery.foreign == (NAME,)
        assert [found.message.content for found in await fs.items()] == ["content"]
        await fs.offload(item)
        assert await fs.load("call_1") == "content"
    assert store.disk.files[f"{NAME}.foreign"] == envelope("planted")


async def test_a_content_whose_record_was_damaged_is_found_again_by_its_file() -> None:
    store = await with_one("content")
    position = bytes(store.disk.log).index(b'"type":"stored"')
    store.disk.log[position + 9] ^= 1
    async with session(store) as fs:
        assert fs.recovery.adopted == (NAME,)
        assert await fs.load("call_1") == "content"


async def test_an_index_that_contradicts_the_journal_is_rebuilt() -> None:
    store = await with_one("content")
    before = parse_index(store.disk.files[INDEX_NAME])
    wrong = replace(before.items["call_1"], chars=8)
    store.disk.files[INDEX_NAME] = b"".join(render_index("session_1", before.journal_seq, [wrong]))
    async with session(store) as fs:
        assert fs.recovery == Recovery(rebuilt_index=True)
        assert fs.state.stored["call_1"].chars == 7
    assert parse_index(store.disk.files[INDEX_NAME]).items == before.items


async def test_verify_tells_an_index_that_contradicts_the_journal() -> None:
    store = await with_one("content")
    async with session(store) as fs:
        entry = fs.state.stored["call_1"]
        store.disk.files[INDEX_NAME] = b"".join(render_index("session_1", 2, [replace(entry, chars=8)]))
        (problem,) = (await fs.verify()).problems
        assert (problem.name, problem.detail) == (INDEX_NAME, "it contradicts the journal about call_1")
        store.disk.files[INDEX_NAME] = b"{}"
        (problem,) = (await fs.verify()).problems
        assert (problem.name, "rebuilds it" in problem.detail) == (INDEX_NAME, True)
        del store.disk.files[INDEX_NAME]
        (problem,) = (await fs.verify()).problems
        assert problem.name == INDEX_NAME


async def test_verify_reads_every_content() -> None:
    store = await with_one(LARGE)
    async with session(store) as fs:
        report = await fs.verify()
        assert (report.ok, report.checked) == (True, 1)
        data = bytearray(store.disk.files[NAME])
        data[-100] ^= 1
        store.disk.files[NAME] = bytes(data)
        (problem,) = (await fs.verify()).problems
        assert problem.name == NAME
        del store.disk.files[NAME]
        assert not (await fs.verify()).ok


@pytest.mark.parametrize("damage", ["another's", "flipped", "of another kind", "gone"])
async def test_a_block_index_beside_the_file_is_never_believed(damage: str) -> None:
    store = await with_one(LARGE)
    beside = f"{NAME}.idx"
    good = store.disk.files[beside]
    other_store = MemoryStore("session_2")
    async with session(other_store) as other:
        await other.writer.store([tool_result(other, "other\n" * 100_000)])
    damaged = {
        "another's": other_store.disk.files[beside],
        "flipped": good[:60] + bytes([good[60] ^ 1]) + good[61:],
        "of another kind": b"{}",
    }
    if damage == "gone":
        del store.disk.files[beside]
    else:
        store.disk.files[beside] = damaged[damage]
    async with session(store) as fs:
        assert await fs.reader("call_1").lines(99_999, 100_000) == ("line", "line")
        assert await fs.load("call_1") == LARGE
    assert store.disk.files[beside] == good  # derived: made again


async def test_an_index_that_is_known_counts_only_for_the_content_that_it_was_made_of() -> None:
    store = await with_one(LARGE)
    async with session(store) as fs:
        entry = fs.state.stored["call_1"]
        reading = ThreadedStore(store.peer())
        await reading.open(create=False, write=False)
        right = await scan_blocks(reading, entry)
        other = BlockIndexBuilder()
        other.add(b"x", 1)
        cache = IndexCache(reading, keep=False)
        cache.put(entry, other.build())
        assert (await cache.get(entry)).root == right.root == entry.digest
        assert await ContentReader(reading, entry, indexes=cache).load() == LARGE


async def test_what_a_command_printed_before_it_was_killed_is_there_in_part() -> None:
    store = MemoryStore("session_1")
    fs = session(store)
    await fs.open()
    growing = await fs.writer.grow("Bash")
    await growing.append(b"one\nand \xff half")
    assert fs.find(growing.name) == growing.item_id
    assert fs.find("tool_result/Read/unknown.json") is None
    async with session(MemoryStore("session_1")):
        pass
    name = growing.name
    killed = MemoryStore("session_1")
    killed.disk.files = dict(store.disk.files)
    killed.disk.log[:] = store.disk.log
    async with session(killed) as found:
        assert found.recovery.adopted == (name,)
        entry = found.state.stored[growing.item_id]
        assert (entry.metadata["partial"], entry.encoding, entry.raw) == (True, "bytes", True)
        assert (entry.size_bytes, entry.chars, entry.lines) == (14, 14, 2)
        assert await found.reader(growing.item_id).lines(1, 9) == ("one", "and \ufffd half")
    await fs.close()
