"""Small promises of a session on disk: layouts, labels, block indexes, and what a store that fails leaves."""

import errno
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.commit import Pending, carry_out, evicted, trimmed
from ctxfs.context.context import Context
from ctxfs.errors import ConfigError, InvalidRecord, SessionClosed, UnknownItem
from ctxfs.eviction.events import ContextEvent, Evicted, Offloaded, OffloadFailed, RecordFailed
from ctxfs.eviction.offload_plan import Archive, EagerOffload, Offload, Plan, Trim
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index
from ctxfs.storage.local import LocalStore
from ctxfs.storage.memory import MemoryStore
from ctxfs.text.jsontext.write_stream import BLOCK
from failing_fs import FailingFileSystem, as_port
from session_items import carried_out, claimed_item, make_item, tool_result, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]


def session(store: MemoryStore, **options: Any) -> ContextFileSystem:
    return ContextFileSystem("session_1", store=store.peer(), clock=lambda: 9.5, **options)


def offload(fs: ContextFileSystem, item: ContextItem) -> Offload:
    return Offload(
        item_id=item.id,
        path=f"{fs.base}/{item.name}",
        placeholder="gone",
        tokens_before=item.token_count,
        tokens_after=7,
        reason="r",
    )


@pytest.mark.parametrize(("first", "second"), [(TEXT, ENVELOPE), (ENVELOPE, TEXT)])
async def test_a_session_keeps_the_layout_it_was_started_with(first: Layout, second: Layout) -> None:
    store = MemoryStore("session_1")
    async with session(store, layout=first):
        pass
    async with session(store, layout=second) as fs:
        assert fs.state.layout == first.name
        await fs.writer.store([tool_result(fs, "content")])
    assert set(store.disk.files) == {f"tool_result/Read/call_1{first.extension}", INDEX_NAME}


async def test_messages_and_results_are_found_again_in_the_text_layout() -> None:
    store = MemoryStore("session_1")
    async with session(store, layout=TEXT) as fs:
        await fs.writer.store([user_message(fs, "hello\nyou"), tool_result(fs, "content")])
    store.disk.log.clear()
    del store.disk.files[INDEX_NAME]
    async with session(store, layout=TEXT) as fs:
        message, result = fs.state.stored["msg_001"], fs.state.stored["call_1"]
        assert (message.item_type, message.tool_name, message.lines) == (ItemType.USER_MESSAGE, None, 2)
        assert (result.item_type, result.tool_name, result.lines) == (ItemType.TOOL_RESULT, "Read", 1)


async def test_what_is_stored_already_does_not_keep_the_rest_from_being_stored() -> None:
    async with session(MemoryStore("session_1")) as fs:
        first, second = tool_result(fs, "one", "call_1"), tool_result(fs, "two", "call_2")
        await fs.writer.store([first])
        await fs.writer.store([first, second], metadata={"call_2": {"note": "n"}})
        assert await fs.load("call_2") == "two"
        assert fs.state.stored["call_2"].metadata["note"] == "n"
        assert fs.state.stored["call_2"].offloaded_at == 9


async def test_a_label_and_an_error_are_recorded_beside_the_content() -> None:
    async with session(MemoryStore("session_1")) as fs:
        skill = replace(user_message(fs, "how to"), item_type=ItemType.SKILL_PROMPT, label="a skill")
        failed = tool_result(fs, "no", "../odd")
        assert isinstance(failed.message, ToolMessage)
        await fs.writer.store(
            [skill, replace(failed, message=replace(failed.message, is_error=True)), tool_result(fs, "yes", "call_2")]
        )
        stored = fs.state.stored
        assert stored[skill.id].metadata == {"label": "a skill", "encoding": "text"}
        assert stored[failed.id].metadata == {
            "tool_name": "Read",
            "tool_call_id": "../odd",
            "is_error": True,
            "encoding": "text",
        }
        assert stored["call_2"].metadata == {"tool_name": "Read", "encoding": "text"}


@pytest.mark.parametrize(("size", "has_index"), [(BLOCK, False), (BLOCK + 1, True)])
async def test_only_content_of_several_blocks_has_a_block_index(size: int, has_index: bool) -> None:
    store = MemoryStore("session_1")
    async with session(store) as fs:
        item = tool_result(fs, "x" * size)
        await fs.writer.store([item])
        assert fs.state.stored["call_1"].blocks == 1 + has_index
        assert (f"{item.name}.idx" in store.disk.files) == has_index
        assert await fs.load("call_1") == "x" * size


@pytest.mark.parametrize(
    "body", [b'{"items":[\n],', b'{"session_id":"s","items":[\n],', b'{"session_id":"s","items":[']
)
def test_an_index_with_a_right_checksum_and_nothing_else_is_none(body: bytes) -> None:
    head = body.removesuffix(b"],").removesuffix(b"\n") + b"\n"
    with pytest.raises(ValueError, match="not an index"):
        parse_index(head + b'],"crc":"%08x"}\n' % zlib.crc32(head))


@pytest.mark.parametrize(("chars", "in_file"), [(90, False), (101, True)])
async def test_content_above_the_inline_limit_goes_to_its_file_at_once(chars: int, in_file: bool) -> None:
    store = MemoryStore("session_1")
    async with session(store, inline_limit_chars=100) as fs:
        item = tool_result(fs, "x" * chars)
        await fs.writer.add([item])
        assert (fs.find(item.id) is not None) == in_file
    async with session(store) as fs:
        assert await fs.items() == (item,)
        (unloaded,) = await fs.items(load=False)
        assert unloaded.message.content == ("" if in_file else "x" * chars)


async def test_paths_inside_the_session_are_known_by_either_name() -> None:
    async with session(MemoryStore("session_1")) as fs:
        item = tool_result(fs, "content")
        assert fs.find(f"{fs.base}/{item.name}") is None
        await fs.writer.store([item])
        assert fs.find(f"{fs.base}/{item.name}") == fs.find(item.name) == item.id
        assert fs.find(f"/elsewhere/{item.name}") is None
        assert fs.find(f"{fs.base}x/{item.name}") is None


async def test_a_closed_session_and_a_reader_write_nothing() -> None:
    store = MemoryStore("session_1")
    fs = session(store)
    with pytest.raises(SessionClosed, match="not open"):
        await fs.writer.flush()
    await fs.open()
    await fs.open()
    item = tool_result(fs, "content")
    await fs.writer.store([item])
    await fs.close()
    await fs.close()
    assert not fs.is_open
    log = bytes(store.disk.log)
    async with session(store, read_only=True) as reader:
        with pytest.raises(SessionClosed, match="reading only"):
            await reader.writer.remove([item.id], reason="r")
        with pytest.raises(SessionClosed, match="reading only"):
            reader.writer.allocate(ItemType.USER_MESSAGE, None)
        with pytest.raises(UnknownItem):
            reader.reader("nobody")
    assert bytes(store.disk.log) == log


async def test_calls_are_numbered_and_items_archived_are_found() -> None:
    store = MemoryStore("session_1")
    async with session(store) as fs:
        await fs.writer.record_call(Usage(input_tokens=5), "m", counted_tokens=4)
        await fs.writer.record_call(Usage(input_tokens=6), "m")
        with pytest.raises(InvalidRecord, match="counted_tokens"):
            fs.writer.call_made(Usage(input_tokens=7), "m", counted_tokens="8")  # type: ignore[arg-type]
        assert not fs.writer.call_made(Usage(input_tokens=7), "m").summary
        first, second, archive = user_message(fs, "a"), user_message(fs, "b"), user_message(fs, "gone")
        await fs.writer.add([first, second])
        await fs.writer.archive(archive, "a, b", [first.id], before=second.id, reason="r")
    async with session(store) as fs:
        calls = [(c.number, c.usage.input_tokens, c.counted_tokens, c.made_at, c.summary) for c in fs.state.calls]
        assert calls == [(1, 5, 4, 9.5, False), (2, 6, 0, 9.5, False)]
        assert [i.id for i in await fs.items()] == [archive.id, second.id]
        assert (fs.state.archived.get(first.id), fs.state.archived.get(second.id)) == (archive.id, None)
        assert await fs.load(archive.id) == "a, b"


# ---- carrying out a plan


async def test_one_plan_makes_the_items_and_tells_of_each() -> None:
    async with session(MemoryStore("session_1")) as fs:
        items = [tool_result(fs, "one", "call_1"), tool_result(fs, "two", "call_2")]
        await fs.writer.add(items)
        again = replace(
            items[1], id="call_3", source=ContentRange(item_id="call_1", path="p", first_line=1, last_line=1)
        )
        await fs.writer.add([again])
        found = {item.id: item for item in [*items, again]}
        applied = await carried_out(Plan(offloads=tuple(offload(fs, item) for item in found.values())), found, fs)
        assert applied.left == ("call_1", "call_2", "call_3")
        assert [(i.token_count, i.offloaded, i.destroyed, i.message.content) for i in applied.items] == [
            (7, True, True, "gone")
        ] * 3
        kinds = [type(event) for event in applied.events]
        assert kinds == [Offloaded, Evicted, Offloaded, Evicted, Evicted]  # what repeats lines is not stored again
        assert not fs.find("call_3")


async def test_what_cannot_be_stored_stays_and_holds_back_nothing_else(tmp_path: Path) -> None:
    disk = FailingFileSystem(lambda number, name: name == "link", errno.ENOSPC)
    disk.armed = False
    store = LocalStore(tmp_path, "session_1", fs=as_port(disk))
    async with ContextFileSystem("session_1", root_path=tmp_path, store=store) as fs:
        stored, new = tool_result(fs, "one", "call_1"), tool_result(fs, "two", "call_2")
        await fs.writer.add([stored, new])
        await fs.writer.store([stored])
        disk.armed = True
        found = {item.id: item for item in (stored, new)}
        applied = await carried_out(Plan(offloads=(offload(fs, new), offload(fs, stored))), found, fs)
        assert applied.left == ("call_1",)
        assert [item.id for item in applied.items] == ["call_1"]
        failed, evicted_one = [e for e in applied.events if not isinstance(e, Offloaded)]
        assert isinstance(failed, OffloadFailed)
        assert (failed.item_id, "injected" in str(failed.error)) == ("call_2", True)
        assert isinstance(evicted_one, Evicted)
        one = await carried_out(Plan(offloads=(offload(fs, new),)), found, fs)
        assert (one.items, one.left, [type(e) for e in one.events]) == ((), (), [OffloadFailed])
        archive = Archive(
            item_id="msg_9", name="compaction_summary/msg_9.json", path="/s", item_ids=("call_2",),
            placeholder="moved", tokens_before=9, tokens_after=2, reason="r",
        )  # fmt: skip
        nothing = await carried_out(Plan(archive=archive), found, fs)
        assert (nothing.archived, [type(e) for e in nothing.events]) == (None, [OffloadFailed])
        disk.armed = False
        assert [item.message.content for item in await fs.items()] == ["gone", "two"]


async def test_trims_of_one_reply_build_on_each_other() -> None:
    async with session(MemoryStore("session_1")) as fs:
        blocks = [
            {"type": "tool_use", "id": f"t{n}", "name": "Write", "input": {"path": "a", "text": "long" * 50}}
            for n in range(2)
        ]
        reply = claimed_item(fs, AssistantMessage(tuple(blocks)), 100)
        await fs.writer.add([reply])
        trims = [trim_of(fs, reply.id, n) for n in range(2)]
        applied = await carried_out(Plan(offloads=tuple(trims)), {reply.id: reply}, fs)
        (new,) = applied.items
        assert (new.token_count, new.trimmed) == (100 - 2 * 35, (0, 1))
        assert [block["input"] for block in new.message.content if isinstance(block, dict)] == [{"path": "a"}] * 2
        assert applied.left == ("t0.input", "t1.input") == tuple(trim.stored.id for trim in trims)
        assert fs.find("t0.input")
        assert fs.find("t1.input")
        assert await fs.items() == (new,)
        assert trimmed(reply, trims[0]).trimmed == (0,)


def trim_of(fs: ContextFileSystem, item_id: str, block: int) -> Trim:
    message = UserMessage("long" * 50)
    stored = claimed_item(fs, message, 40, kind=ItemType.TOOL_INPUT, raw_id=f"t{block}.input", tool="Write")
    return Trim(
        item_id=item_id, block=block, arguments={"path": "a"}, stored=stored, path=f"{fs.base}/{stored.name}",
        tokens_before=40, tokens_after=5, reason="r",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("going", "before"),
    [
        (("a1", "t1"), "u2"),
        (("a1", "t1", "u2"), "a2"),
        (("u1", "u2"), "a1"),
        (("u2",), "a2"),
        (("a1", "t1", "u2", "a2"), None),
    ],
)
async def test_an_archive_stands_where_what_it_holds_stood(going: tuple[str, ...], before: str | None) -> None:
    async with session(MemoryStore("session_1")) as fs:
        items = {i.id: i for i in conversation(fs)}
        await fs.writer.add(list(items.values()))
        slot_id, name = fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
        archive = Archive(
            item_id=slot_id, name=name, path=f"{fs.base}/{name}", item_ids=going, placeholder="moved",
            tokens_before=40, tokens_after=2, reason="r",
        )  # fmt: skip
        applied = await carried_out(Plan(archive=archive), items, fs)
        assert applied.archived is not None
        assert (applied.archived.before, applied.archived.item_ids) == (before, going)
        order = [i.id for i in await fs.items()]
        expected = [item_id for item_id in items if item_id not in going]
        expected.insert(expected.index(before) if before else len(expected), slot_id)
        assert order == expected
        (event,) = applied.events
        assert isinstance(event, Evicted)
        assert event.reason == f"{len(going)} messages: r"
        assert (applied.archived.item.token_count, applied.archived.item.content_tokens) == (2, 40)


def conversation(fs: ContextFileSystem) -> list[ContextItem]:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    return [
        make_item("s", SystemMessage("s")),
        make_item("u1", UserMessage("go")),
        make_item("a1", AssistantMessage((call,))),
        make_item("t1", tool_result(fs, "x", "t1").message),
        make_item("u2", UserMessage("on")),
        make_item("a2", AssistantMessage("done")),
    ]


async def test_new_items_leave_in_the_same_commit() -> None:
    store = MemoryStore("session_1")
    async with session(store) as fs:
        stays, leaves = tool_result(fs, "one", "call_1"), tool_result(fs, "two", "call_2")
        lines = bytes(store.disk.log).count(b"\n")
        items = {item.id: item for item in (stays, leaves)}
        eager = {"call_2": EagerOffload(item=leaves, chars=3, offload=offload(fs, leaves))}
        applied = await carry_out(Plan(), items, fs, Pending(items=dict(items), eager=eager))
        assert bytes(store.disk.log).count(b"\n") == lines + 1
        assert applied.left == ("call_2",)
        assert await fs.items() == (stays, evicted(leaves, offload(fs, leaves)))
        assert [type(e) for e in applied.events] == [Offloaded, Evicted]


async def test_what_comes_in_takes_the_place_of_others_in_one_commit() -> None:
    store = MemoryStore("session_1")
    async with session(store, inline_limit_chars=100) as fs:
        old, new, more = (user_message(fs, text) for text in ("old", "new " * 100, "more"))
        await fs.writer.add([old])
        lines = bytes(store.disk.log).count(b"\n")
        await fs.writer.add([new, more], removing=[old.id])
        assert bytes(store.disk.log).count(b"\n") == lines + 1
        assert await fs.items() == (new, more)
    async with session(store) as again:
        assert await again.items() == (new, more)


def test_session_ids_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        ContextFileSystem("../x", root_path=tmp_path)


async def test_what_was_said_while_the_journal_was_gone_is_in_it_when_it_is_back(tmp_path: Path) -> None:
    told: list[ContextEvent] = []
    async with Context("session_1", root_path=tmp_path, on_event=told.append) as context:
        await context.add(UserMessage("one"))
        (tmp_path / "session_1" / "journal.jsonl").rename(tmp_path / "elsewhere")
        await context.add(AssistantMessage("two"))
        assert isinstance(failed := told[-1], RecordFailed)
        assert "moved, removed" in str(failed.error)
        assert list(context.unrecorded) == ["msg_002"]
        assert [message.content for message in await context.messages()] == ["one", "two"]
        (tmp_path / "elsewhere").rename(tmp_path / "session_1" / "journal.jsonl")
        await context.add(UserMessage("three"))
        assert list(context.unrecorded) == []
    async with Context("session_1", root_path=tmp_path) as context:
        assert [item.message.content for item in context.items] == ["one", "two", "three"]


async def test_an_eviction_that_cannot_be_recorded_does_not_hold_back_the_others_and_is_raised_last() -> None:
    async with session(MemoryStore("session_1")) as fs:
        good, bad = tool_result(fs, "one " * 100, "call_1"), tool_result(fs, "two " * 100, "call_2")
        items = {item.id: item for item in (good, bad)}
        pending = Pending(items=dict(items))
        wrong: Any = 3
        plan = Plan(offloads=(offload(fs, good), replace(offload(fs, bad), reason=wrong)))
        applied = await carry_out(plan, items, fs, pending)
        assert isinstance(applied.error, InvalidRecord)
        assert applied.left == ("call_1",)
        assert not pending
        assert [item.offloaded for item in await fs.items()] == [True, False]
