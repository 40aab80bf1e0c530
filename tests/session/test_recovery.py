"""Recovery: whatever a crash or a disk left, what was acknowledged is there, and doing it twice changes nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contents import CONTENTS
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.stored import Stored
from ctxfs.session.discovery import parse_header
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index, render_index
from ctxfs.session.records import ContentRemoved
from ctxfs.session.recovery import Recovery
from ctxfs.storage.memory import MemoryStore
from session_items import evicted, tool_result, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

CONTENTS_OF_A_SESSION: list[Content] = [
    "plain\ntext\n",
    "",
    "lone \ud800",
    ({"type": "text", "text": 'with "content": in it'},),
    "many lines\n" * 60_000,
]


async def filled(store: MemoryStore, layout: Layout = ENVELOPE) -> list[tuple[str, Content]]:
    """Fill a session with stored contents, close it, and say what is in it."""
    ticks = iter(range(1_000_000))
    async with ContextFileSystem("session_1", store=store, layout=layout, clock=lambda: float(next(ticks))) as fs:
        made = []
        for number, content in enumerate(CONTENTS_OF_A_SESSION):
            item = tool_result(fs, content, f"call_{number}")
            await fs.writer.add([item])
            await fs.writer.evict([(item, evicted(fs, item), "r")])
            made.append((item.id, content))
        return made


async def reopened(store: MemoryStore, check: Callable[[ContextFileSystem], object] | None = None) -> Recovery:
    """Open for writing and close; say what had to be repaired, and see that the second time nothing has."""
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        if check is not None:
            check(fs)
        recovery = fs.recovery
        assert (await fs.verify()).problems == tuple(
            problem for problem in (await fs.verify()).problems if problem.name == "journal.jsonl"
        )
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        again = fs.recovery
        assert (again.cut_bytes, again.adopted, again.rebuilt_journal, again.rebuilt_index) == (0, (), False, False)
        assert again.damages == recovery.damages
    return recovery


async def assert_holds(store: MemoryStore, expected: list[tuple[str, Content]]) -> None:
    async with ContextFileSystem("session_1", store=store.peer(), read_only=True) as fs:
        for item_id, content in expected:
            assert await fs.load(item_id) == content


async def test_an_orderly_session_needs_no_repair() -> None:
    store = MemoryStore("session_1")
    expected = await filled(store)
    assert (await reopened(store)).clean
    await assert_holds(store, expected)


@pytest.mark.slow
async def test_a_journal_torn_at_any_byte_of_its_last_commit() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        item = tool_result(fs, "content")
        await fs.writer.add([item])
        start = len(store.disk.log)
        await fs.writer.evict([(item, evicted(fs, item), "r")])
        end = len(store.disk.log)
        whole, files = bytes(store.disk.log), dict(store.disk.files)
    for cut in {*range(start, end, 11), start + 1, end - 1, end}:
        store.disk.log[:], store.disk.files = whole[:cut], dict(files)
        recovery = await reopened(store)
        assert recovery.cut_bytes == (cut - start if cut < end else 0)
        assert bytes(store.disk.log).count(b"\n") == len(bytes(store.disk.log).splitlines())
        async with ContextFileSystem("session_1", store=store.peer()) as again:
            new = evicted(again, item)
            assert await again.items() == ((new,) if cut == end else (item,))
            assert await again.load(item.id) == "content"  # its file was there already, whole
            await again.writer.evict([(item, new, "r")])
            assert await again.items() == (new,)


@pytest.mark.parametrize("layout", [ENVELOPE, TEXT])
async def test_a_lost_journal_is_rebuilt_from_the_files(layout: Layout) -> None:
    store = MemoryStore("session_1")
    expected = await filled(store, layout)
    store.disk.log.clear()
    recovery = await reopened(store)
    assert recovery.rebuilt_journal
    assert len(recovery.adopted) == len(expected)
    await assert_holds(store, expected)
    del store.disk.files[INDEX_NAME]
    store.disk.log.clear()
    await reopened(store)
    times = [entry.offloaded_at for entry in (await stored_in(store)).values()]
    assert any(times) == (layout == ENVELOPE)  # a text says nothing of when it was stored


async def test_a_lost_journal_of_a_session_without_contents_is_told() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store):
        pass
    store.disk.log.clear()
    assert list(store.disk.files) == [INDEX_NAME]
    assert (await reopened(store)).rebuilt_journal


async def test_journal_and_index_lost_the_envelopes_say_it_all() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store, read_only=False) as fs:
        await fs.offload(tool_result(fs, "x", "../hostile"))
        before = dict(fs.state.stored)
    expected = await filled_more(store)
    before = await stored_in(store)
    store.disk.log.clear()
    del store.disk.files[INDEX_NAME]
    async with ContextFileSystem("session_1", store=store.peer(), read_only=True) as reader:
        assert dict(reader.state.stored) == before  # without writing anything
    assert not store.disk.log
    assert (await reopened(store)).rebuilt_journal
    assert await stored_in(store) == before
    await assert_holds(store, expected)
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "call_0", "Read")[0] == "call_0~2"


async def filled_more(store: MemoryStore) -> list[tuple[str, Content]]:
    return await filled(store.peer())


async def stored_in(store: MemoryStore) -> dict[str, Stored]:
    async with ContextFileSystem("session_1", store=store.peer(), read_only=True) as fs:
        return dict(fs.state.stored)


async def test_text_files_without_journal_and_index_are_still_read() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store, layout=TEXT) as fs:
        await fs.offload(tool_result(fs, "plain\ntext é", "call_1", "Bash"))
    store.disk.log.clear()
    del store.disk.files[INDEX_NAME]
    async with ContextFileSystem("session_1", store=store.peer(), layout=TEXT) as fs:
        assert await fs.load("call_1") == "plain\ntext é"
        assert fs.state.stored["call_1"].tool_name == "Bash"
        assert fs.state.stored["call_1"].lines == 2


async def test_a_damaged_line_in_the_middle_is_reported_and_its_content_found_again() -> None:
    store = MemoryStore("session_1")
    expected = await filled(store)
    position = bytes(store.disk.log).index(b'"item_id":"call_2"')
    store.disk.log[position + 12] ^= 1
    recovery = await reopened(store)
    assert any("checksum" in damage.reason for damage in recovery.damages)
    await assert_holds(store, expected)
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert not (await fs.verify()).ok


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped", "garbage", "of another time", "empty"])
async def test_a_bad_index_is_rebuilt_from_the_journal(damage: str) -> None:
    store = MemoryStore("session_1")
    await filled(store)
    index = store.disk.files.pop(INDEX_NAME)
    other = await stored_in(store)
    damaged = {
        "torn": index[: len(index) // 2],
        "flipped": index.replace(b'"lines":2', b'"lines":3'),
        "garbage": b"\x00" * 100,
        "of another time": b"".join(render_index("session_1", 1, [other["call_0"]])),
        "empty": b"",
    }
    if damage != "missing":
        store.disk.files[INDEX_NAME] = damaged[damage]
    recovery = await reopened(store)
    assert recovery.rebuilt_index == (damage != "of another time")
    assert dict(parse_index(store.disk.files[INDEX_NAME]).items) == await stored_in(store)


async def test_what_the_files_say_is_adopted_in_the_order_in_which_it_was_stored() -> None:
    store, ticks = MemoryStore("session_1"), iter(range(100))
    async with ContextFileSystem("session_1", store=store, clock=lambda: float(next(ticks))) as fs:
        for item_id in ("call_b", "call_a"):
            await fs.offload(tool_result(fs, f"of {item_id}", item_id))
    store.disk.log.clear()
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert list(fs.state.stored) == ["call_b", "call_a"]


async def test_the_files_of_what_was_removed_go_when_the_session_is_opened_again() -> None:
    store = MemoryStore("session_1")
    expected = await filled(store)
    before = dict(store.disk.files)
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        gone = fs.state.stored[expected[-1][0]]
        assert {gone.name, index_name(gone.name)} <= before.keys()
        await fs.writer.journal.remove([ContentRemoved.of(gone, removed_at=1.0, by="erase", reason="a secret")])
    left = set(store.disk.files)
    assert left == before.keys() - {gone.name, index_name(gone.name)}
    store.disk.files |= {name: before[name] for name in (gone.name, index_name(gone.name))}  # as a crash leaves them
    assert (await reopened(store)).clean
    assert set(store.disk.files) == left
    await assert_holds(store, expected[:-1])


async def test_a_file_of_a_commit_that_never_was_is_adopted_or_left_alone() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        same, other = tool_result(fs, "content", "same"), tool_result(fs, "content", "other")
        await fs.writer.add([same, other])
    store.disk.files[same.name] = envelope(same, "content")
    store.disk.files[other.name] = envelope(other, "something else")
    store.disk.files["tool_result/Read/new.json"] = envelope(same, "x").replace(b'"same"', b'"new"')
    store.disk.files["tool_result/Read/fake.json"] = envelope(same, "x")
    store.disk.files["notes.txt"] = b"a user's own file"
    store.disk.files["tool_result/Read/broken.json"] = b'{"schema_version":"1.0","item_id":"broken"'
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert set(fs.recovery.adopted) == {same.name, "tool_result/Read/new.json"}
        assert set(fs.recovery.foreign) == {
            other.name, "tool_result/Read/fake.json", "notes.txt", "tool_result/Read/broken.json",
        }  # fmt: skip
        await fs.writer.evict([(same, evicted(fs, same), "r")])
        assert await fs.load("same") == "content"
        assert await fs.load("new") == "x"
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "new", "Read")[0] == "new~2"
        assert await fs.offload(other) == f"{fs.base}/{fs.state.stored[other.id].name}"
        assert await fs.load("other") == "content"


def envelope(item: ContextItem, content: str) -> bytes:
    file = ContentFile(
        content,
        item_id=item.id,
        item_type=item.item_type,
        name=item.name,
        raw=False,
        offloaded_at=1,
        extra={"tool_name": "Read"},
    )
    return b"".join(file)


async def test_a_session_directory_without_anything_is_a_new_session(tmp_path: Path) -> None:
    (tmp_path / "session_1").mkdir(mode=0o700)
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        assert fs.recovery.clean


async def test_a_copied_session_opens_as_it_was(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path / "a") as fs:
        item = tool_result(fs, "many\nlines\n" * 100_000)
        await fs.writer.add([user_message(fs, "hello"), item])
        await fs.writer.evict([(item, evicted(fs, item), "r")])
        shutil.copytree(tmp_path / "a", tmp_path / "b")  # taken while it is written to
    async with ContextFileSystem("session_1", root_path=tmp_path / "b") as copy:
        assert [entry.id for entry in await copy.items()] == ["msg_001", item.id]
        assert await copy.load(item.id) == item.message.content
        assert (await copy.verify()).ok


@given(CONTENTS)
def test_headers_are_read_whatever_stands_in_them(content: Content) -> None:
    message = ToolMessage('a","content":"', 'tool","content":"x', content)
    file = ContentFile(
        content,
        item_id="a",
        item_type=ItemType.TOOL_RESULT,
        name="n",
        raw=False,
        offloaded_at=1,
        extra={"tool_name": message.tool_name, "label": message.tool_call_id, "content": {"content": ["é"]}},
    )
    data = b"".join(file)
    head, offset = parse_header(data)
    assert (head["item_id"], head["metadata"]["tool_name"]) == ("a", message.tool_name)
    assert offset == file.stored.content_offset


@given(st.lists(st.binary(max_size=30)).map(b"".join) | st.text(max_size=50).map(str.encode))
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_header(b"{" + data.replace(b"content", b""))


@given(st.integers(0, 5), st.data())
def test_an_index_survives_or_is_refused(count: int, data: st.DataObject) -> None:
    entries = [entry_named(f"call_{number}\n\ud800") for number in range(count)]
    rendered = b"".join(render_index("session_1", 7, entries))
    index = parse_index(rendered)
    assert (index.session_id, index.journal_seq, list(index.items.values())) == ("session_1", 7, entries)
    cut = data.draw(st.integers(0, len(rendered) - 1))
    with pytest.raises(ValueError):
        parse_index(rendered[:cut])
    flipped = bytearray(rendered)
    flipped[cut] ^= 0x20
    with pytest.raises(ValueError):
        parse_index(bytes(flipped))


def entry_named(item_id: str) -> Stored:
    return Stored(
        item_id=item_id, item_type=ItemType.USER_MESSAGE, name=item_id, encoding="text", size_bytes=1, chars=1,
        lines=1, digest="", blocks=1, content_offset=0, content_length=1, raw=False, offloaded_at=0,
    )  # fmt: skip
