"""Removing contents that nothing needs: what is live stays, what went says so, and a crash leaves no half of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.context import Context, History
from ctxfs.errors import ContentGone, NotRestorable, NotStored, UnknownItem
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.messages.names import short_name
from ctxfs.session import export_session, import_session, prune, prune_session
from ctxfs.session.cleanup.contents import prune_plans, remove_contents
from ctxfs.session.cleanup.live import plan_prune
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Decided, PartsNoted, Record, SessionStarted, UnknownRecord
from ctxfs.storage.memory import MemoryStore
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools
from session_items import claimed_item, evicted, make_item, tool_result, user_message

pytestmark = pytest.mark.anyio

DAY = 86_400.0
NOW = 100 * DAY


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def session(store: MemoryStore, clock: Clock, **settings: Any) -> ContextFileSystem:
    return ContextFileSystem("s", store=store.peer(), clock=clock, **settings)


async def dropped(fs: ContextFileSystem, call_id: str = "call_1") -> None:
    """A result that entered, was evicted, and left the context for good."""
    item = tool_result(fs, f"the content of {call_id}\n" * 10, call_id)
    await fs.writer.add([item])
    await fs.writer.evict([(item, evicted(fs, item), "r")])
    await fs.writer.remove([item.id], reason="no room")


async def test_what_was_dropped_goes_after_its_time_and_says_so() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        await dropped(fs)
        clock.now = 29 * DAY
        assert (await prune_session(fs, clock=clock)).collect == ()
    clock.now = NOW
    async with session(store, clock) as fs:
        clock.now = NOW + 31 * DAY
        (gone,) = (await prune_session(fs, by="a test", clock=clock)).collect
        assert (gone.item_id, gone.tool_name) == ("call_1", "Read")
        assert gone.name not in store.disk.files
        said = "removed on 1970-05-12 by a test (nothing in the context refers to it); it held a tool result of Read of"
        with pytest.raises(ContentGone, match="call_1") as caught:
            await fs.load("call_1")
        assert caught.value.detail.startswith(said)
        for ref in ("call_1", gone.name, f"{fs.base}/{gone.name}", short_name("call_1")):
            assert fs.find(ref) == "call_1"
            for tool, arguments in (
                (read_tool(fs), {"file_path": ref}),
                *((tool, {"ref": ref, "pattern": "x"}) for tool in retrieval_tools(fs)[:3]),
            ):
                if tool.name != "context_grep":
                    arguments.pop("pattern", None)
                result = await tool.run(arguments)
                assert result.is_error
                assert said in str(result.content)
        assert (await fs.verify()).ok
        assert (await prune_session(fs, clock=clock)).collect == ()
    async with session(store, clock) as fs:
        assert fs.recovery.clean
        with pytest.raises(ContentGone):
            fs.reader("call_1")
        with pytest.raises((ContentGone, NotRestorable)):
            await fs.writer.restore("call_1", reason="")
        with pytest.raises(UnknownItem):
            fs.reader("call_2")
        assert fs.writer.allocate(ItemType.TOOL_RESULT, "call_1", "Read")[0] == "call_1~2"


async def planned(fs: ContextFileSystem, **settings: Any) -> set[str]:
    plan = plan_prune("s", await fs.history(), **{"now": NOW, "undo_s": 0.0, "grace_s": 0.0, **settings})
    assert set(plan.kept) | {one.item_id for one in plan.collect} == set(fs.state.stored)
    return {one.item_id for one in plan.collect}


async def test_what_the_context_holds_or_names_stays() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        held = tool_result(fs, "x" * 20_000, "held")
        evicted_item = tool_result(fs, "evicted", "evicted")
        await fs.writer.add([held, evicted_item])
        await fs.writer.evict([(evicted_item, evicted(fs, evicted_item), "r")])
        for name in ("by_path", "by_short", "by_id", "lines", "nothing"):
            await dropped(fs, name)
        path = f"{fs.base}/tool_result/Read/by_path.json"
        await fs.writer.add(
            [user_message(fs, f"Path: {path}.\nand {short_name('by_short')}"), user_message(fs, '{"id":"by_id"}')]
        )
        source = ContentRange(item_id="lines", path="", first_line=1, last_line=2)
        await fs.writer.add([replace(tool_result(fs, "page", "page"), source=source)])
        assert await planned(fs) == {"nothing"}
        assert await planned(fs, grace_s=NOW + 1) == set()
        assert await planned(fs, undo_s=NOW + 1) == set()
        assert await planned(fs, damaged=True) == set()


async def test_arguments_of_a_reply_live_as_long_as_the_reply() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        stored = claimed_item(fs, AssistantMessage("arguments " * 2_000), kind=ItemType.TOOL_INPUT, raw_id="c.input")
        await fs.writer.store([stored])
        call = {"type": "tool_use", "id": "c", "name": "Write", "input": {"text": f"[stored {stored.name}]"}}
        reply = claimed_item(fs, AssistantMessage((call,)))
        await fs.writer.add([user_message(fs, "go"), reply])
        assert await planned(fs) == set()
        await fs.writer.remove([reply.id], reason="no room")
        assert await planned(fs) == {stored.id}


async def test_archives_keep_what_is_in_them_also_through_other_archives() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:

        async def archive(item_ids: list[str]) -> str:
            item_id, name = fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
            item = make_item(item_id, UserMessage("summary"), kind=ItemType.COMPACTION_SUMMARY, name=name)
            await fs.writer.archive(item, "text", item_ids, before=None, reason="r")
            return item_id

        item = tool_result(fs, "content " * 2_000)
        await fs.writer.add([item])
        first = await archive([item.id])
        second = await archive([first])
        assert {item.id, first, second} == set(fs.state.stored)
        assert await planned(fs) == set()
        await fs.writer.remove([second], reason="r")
        assert await planned(fs) == {item.id, first, second}
        assert await planned(fs, undo_s=NOW + 1) == set()


async def test_what_a_program_stored_and_what_a_history_decided_stays() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        await fs.writer.store([tool_result(fs, "a program's", "artifact")])
        await dropped(fs, "decided")
        await dropped(fs, "named")
        path = "tool_result/Read/named.json"
        decision = Decided(
            kind="result",
            call_id="c",
            sha256="0",
            item_id="decided",
            content=path,
            tokens_before=9,
            tokens=1,
            reason="r",
        )
        await fs.writer.decide([], [decision])
        assert await planned(fs) == set()


@pytest.mark.parametrize(
    "record", [UnknownRecord(data={"type": "new"}), SessionStarted(session_id="s", started_at=0.0, rebuilt=True)]
)
async def test_a_journal_that_does_not_say_all_keeps_everything(record: Record) -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        await dropped(fs)
        plan = plan_prune("s", [*await fs.history(), record], now=NOW, undo_s=0, grace_s=0)
        assert plan.collect == ()
        assert plan.size_bytes == 0
        assert set(plan.kept) == {"call_1"}


async def test_what_a_history_repeats_lines_of_stays() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        await dropped(fs, "repeated")
        await dropped(fs, "other")
        noted = PartsNoted(sources={"0" * 64: ("repeated", 1, 20)})
        plan = plan_prune("s", [*await fs.history(), noted], now=NOW, undo_s=0, grace_s=0)
    assert dict(plan.kept) == {"repeated": "a history repeats lines of it"}
    assert [one.item_id for one in plan.collect] == ["other"]


async def test_a_removal_that_was_cut_short_is_finished_by_the_next_writer() -> None:
    store, clock = MemoryStore("s"), Clock()
    large = "line\n" * 100_000
    async with session(store, clock) as fs:
        item = tool_result(fs, large)
        await fs.writer.store([item])
        files = {name: data for name, data in store.disk.files.items() if name.startswith(item.name)}
        assert len(files) == 2
        await remove_contents(fs, {"call_1": "a test", "nothing": "r"}, by="a test")
        assert not files.keys() & store.disk.files.keys()
    store.disk.files.update(files)  # the process died after the tombstone
    async with session(store, clock, read_only=True) as fs:
        with pytest.raises(ContentGone):
            await fs.load("call_1")
    async with session(store, clock) as fs:
        assert not files.keys() & store.disk.files.keys()
        assert fs.recovery.adopted == fs.recovery.foreign == ()


async def test_an_index_from_before_the_removal_contradicts_nothing() -> None:
    store, clock = MemoryStore("s"), Clock()
    async with session(store, clock) as fs:
        await fs.writer.store([tool_result(fs, "content")])
        await fs.writer.flush()
        before = store.disk.files["index.json"]
        await remove_contents(fs, {"call_1": "r"}, by="a test")
        store.disk.files["index.json"] = before
        assert (await fs.verify()).ok
    store.disk.files["index.json"] = before
    async with session(store, clock) as fs:
        assert fs.recovery.clean


@pytest.mark.not_measured
async def test_sessions_are_pruned_where_no_agent_writes(tmp_path: Path) -> None:
    for session_id in ("a", "b", "c"):
        async with ContextFileSystem(session_id, root_path=tmp_path) as fs:
            await dropped(fs)
    (tmp_path / "broken").mkdir()
    await anyio.Path(tmp_path / "broken" / "journal.jsonl").write_text("")
    await anyio.Path(tmp_path / "broken").chmod(0o777)
    settings: dict[str, Any] = {"root_path": tmp_path, "undo_s": 0, "grace_s": 0}
    plans = {one.plan.session_id: one for one in await prune_plans(**settings)}
    async with ContextFileSystem("b", root_path=tmp_path):
        done = {one.plan.session_id: one for one in await prune(**settings)}
    assert [len(plans[name].plan.collect) for name in ("a", "b", "c", "broken")] == [1, 1, 1, 0]
    assert [len(done[name].removed) for name in ("a", "b", "c", "broken")] == [1, 0, 1, 0]
    assert "locked" in done["b"].skipped
    assert "others" in done["broken"].skipped
    assert [len(one.removed) for one in await prune(["a", "b"], **settings)] == [0, 1]


async def test_a_session_with_tombstones_is_moved(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        await dropped(fs)
        await fs.writer.store([tool_result(fs, "kept", "call_2")])
        await prune_session(fs, undo_s=0, grace_s=0)
    await export_session("s", tmp_path / "file", root_path=tmp_path)
    await import_session(tmp_path / "file", root_path=tmp_path, session_id="t")
    async with ContextFileSystem("t", root_path=tmp_path) as fs:
        assert fs.recovery.clean
        assert await fs.load("call_2") == "kept"
        with pytest.raises(ContentGone):
            await fs.load("call_1")


async def test_a_context_shows_what_was_erased_under_it(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path) as context:
        await context.add({"role": "user", "content": "large " * 10_000})
        (item,) = context.items
        await remove_contents(context.fs, {item.id: "a secret"}, by="a test")
    async with Context("s", root_path=tmp_path) as context:
        (item,) = context.items
        assert str(item.message.content).startswith("[the content of this message was removed on ")
        assert "a secret" in str(item.message.content)


async def test_a_file_that_somebody_removed_by_hand_is_said_clearly(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        item = tool_result(fs, "content")
        await fs.writer.store([item])
        await anyio.Path(fs.session_path / item.name).unlink()
        with pytest.raises(NotStored, match="ctxfs did not remove it"):
            await fs.load("call_1")
        result = await read_tool(fs).run({"file_path": item.name})
        assert result.is_error
        assert "is missing" in str(result.content)


def test_a_history_says_it_too(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path) as history:
        shown = history.arrive("line of output\n" * 20_000, tool="Bash", call_id="c")
        assert "c" in str(shown)
    anyio.run(lambda: remove_all(tmp_path))
    with History("s", root_path=tmp_path) as history:
        result = history.run_tool("context_read", {"ref": "c"})
        assert result.is_error
        assert "removed on" in str(result.content)


async def remove_all(root: Path) -> None:
    async with ContextFileSystem("s", root_path=root) as fs:
        await remove_contents(fs, dict.fromkeys(list(fs.state.stored), "a test"), by="a test")
