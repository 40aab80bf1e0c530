"""What left a context comes back: undone, restored from an archive, pinned. The journal only grows."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.context import Context
from ctxfs.context.live import LiveTranscript
from ctxfs.errors import (
    ContentGone,
    ContextOverflow,
    CorruptContent,
    NotRestorable,
    ToolDefinitionError,
    UnknownItem,
)
from ctxfs.eviction.candidates import RESTORED_REPLIES
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.events import Evicted
from ctxfs.eviction.window import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Reply, Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session import erase, prune_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import ContentRemoved, ItemAdded, Pinned, Record, Removed, Replaced, Undone
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.back import Back, pinned, restored, undone, unpinned
from ctxfs.session.timeline.costs import account
from ctxfs.session.timeline.reading import read_timeline
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage import MemoryStore
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.tools import recall_tools
from ctxfs.tools.decorator import tool
from session_items import make_item, stored_record

pytestmark = pytest.mark.anyio

ID = "session_20260101_000000_aaaaaa"
TEXT = "a line of the log\n" * 200
OLD = Path(__file__).parent / "session_0_1_0"


class Session:
    """Contexts on one store; what they told is in ``events``."""

    def __init__(self, **settings: Any) -> None:
        self.store = MemoryStore(ID)
        self.events: list[Any] = []
        self.settings: dict[str, Any] = {"window": None, "pricing": None, "on_event": self.events.append, **settings}

    def context(self, **settings: Any) -> Context:
        self.store = self.store.peer()
        fs = ContextFileSystem(ID, root_path="/sessions", store=self.store)
        return Context(fs, counter=CharsCounter(), **{**self.settings, **settings})


async def called(ctx: Context, n: int, text: str = TEXT, **arguments: Any) -> tuple[Message, ...]:
    """One exchange; returns what was sent for it."""
    sent = await ctx.messages()
    call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"n": n, **arguments}}
    await ctx.add(AssistantMessage((call,)), ToolMessage(f"c{n}", "log", text))
    return sent


async def filled(ctx: Context, calls: int = 4) -> list[tuple[Message, ...]]:
    await ctx.add(UserMessage("go"))
    return [await called(ctx, n) for n in range(1, calls + 1)]


def small(limit: int, **settings: Any) -> Window:
    return Window(window_tokens=limit, reply_tokens=0, **settings)


def item_of(ctx: Context, item_id: str) -> ContextItem:
    return next(item for item in ctx.items if item.id == item_id)


async def held_the_same(session: Session, ctx: Context) -> None:
    """After a restart the context holds what it held."""
    items = ctx.items
    await ctx.close()
    async with session.context() as again:
        assert again.items == items
    await ctx.open()


# Undo ----------------------------------------------------------------------------------------------------------------


async def test_evictions_are_undone_one_after_the_other_and_the_journal_only_grows() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        assert [item.id for item in ctx.items if item.destroyed] == ["c1", "c2"]
        told = [event.change for event in session.events if isinstance(event, Evicted)]
        assert told == ["change_1", "change_2"]
        before = await ctx.fs.history()
        (back,) = await ctx.undo()
        assert (back.id, back.message, back.destroyed) == ("c2", ToolMessage("c2", "log", TEXT), False)
        (first,) = await ctx.undo()
        assert first.id == "c1"
        assert [item for item in ctx.items if item.destroyed] == []
        assert [step.item_id for step in ctx.plan().offloads] == ["c3"]  # the others are held
        await held_the_same(session, ctx)
        with pytest.raises(NotRestorable, match="nothing that was evicted is left"):
            await ctx.undo()
        now = await ctx.fs.history()
        assert now[: len(before)] == before
        assert [one.change for one in now if isinstance(one, Undone)] == [2, 1]


async def test_a_change_is_undone_by_its_id_and_only_once() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        (back,) = await ctx.undo("change_1")
        assert back.id == "c1"
        assert item_of(ctx, "c2").destroyed
        with pytest.raises(NotRestorable, match="change_1 cannot be undone: it was undone already"):
            await ctx.undo("change_1")
        for unknown in ("change_9", "c1", ""):
            with pytest.raises(NotRestorable, match="there is no such change"):
                await ctx.undo(unknown)


async def test_what_is_back_stays_for_ten_replies_and_is_then_evicted_as_a_new_change() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        await ctx.undo("change_1")
        for _ in range(10):
            await ctx.add(UserMessage("and"))
            await ctx.messages()
            assert not item_of(ctx, "c1").destroyed
            await ctx.add(AssistantMessage("on"))
        await ctx.messages()
        assert item_of(ctx, "c1").destroyed
        timeline = await read_timeline(ctx.fs)
        assert [one.what for one in timeline.history("c1")] == ["added", "evicted", "restored", "evicted"]
        assert [one.change for one in timeline.history("c1")] == [None, "change_1", None, "change_4"]


async def test_a_compaction_of_several_steps_is_one_change_and_undone_to_the_byte() -> None:
    session = Session()
    async with session.context() as ctx:
        await filled(ctx, 9)
        held = ctx.items
    async with session.context(window=small(1_500)) as ctx:
        await ctx.messages()
        kinds = {one.what for one in (await read_timeline(ctx.fs)).history() if one.change}
        assert kinds == {"evicted", "archived"}
    assert {event.change for event in session.events if isinstance(event, Evicted)} == {"change_1"}
    async with session.context() as ctx:
        await ctx.undo()
        assert ctx.items == held
        await held_the_same(session, ctx)


async def compacted(session: Session, limit: int, calls: int) -> tuple[ContextItem, ...]:
    """A session whose old exchanges are in an archive; returns what it held before."""
    rules = {ItemType.ASSISTANT_MESSAGE: 1}
    async with session.context() as ctx:
        await filled(ctx, calls)
        held = ctx.items
    async with session.context(window=small(limit, compaction=SelectiveCompaction(rules=rules))) as ctx:
        await ctx.messages()
        assert sum(item.item_type is ItemType.COMPACTION_SUMMARY for item in ctx.items) == 1
    return held


async def test_archived_exchanges_are_where_they_were_and_the_archive_is_gone() -> None:
    session = Session()
    held = await compacted(session, 2_300, 5)
    async with session.context() as ctx:
        assert len(ctx.items) < len(held)
        back = await ctx.undo()
        assert ctx.items == tuple(item for item in held)
        assert {item.id for item in back} < {item.id for item in held}
        assert [item for item in back if item not in held] == []
        await held_the_same(session, ctx)
        calls = [one.reply_id for one in (await read_timeline(ctx.fs)).calls]
        assert len(calls) == len(set(calls)) == 5  # a reply that came back is not a call


async def test_what_is_back_saves_nothing_any_more_and_is_no_call() -> None:
    session = Session()
    await compacted(session, 2_300, 5)
    async with session.context() as ctx:
        before = account(await ctx.fs.history())
        assert before.departures
        await ctx.restore("c2")
        part = account(await ctx.fs.history())
        assert part.replies == before.replies == 5
        assert sum(d.tokens_freed for d in part.departures) < sum(d.tokens_freed for d in before.departures)
        assert "c2" not in {item_id for departure in part.departures for item_id in departure.item_ids}
        await ctx.undo()
        after = account(await ctx.fs.history())
        assert (after.departures, after.replies) == ((), 5)
        await called(ctx, 6)
        assert account(await ctx.fs.history()).rewriting() > before.rewriting()


def test_a_longer_placeholder_that_is_back_is_no_eviction() -> None:
    item = make_item("c1", ToolMessage("c1", "log", TEXT), 900)
    records: list[Record] = [ItemAdded(item=item)]
    for text, tokens, change in (("the long placeholder", 60, 1), ("short", 10, 2), ("the long placeholder", 60, -1)):
        records.append(
            Replaced(
                item_id="c1", content=text, token_count=tokens, path="x", destroyed=True, reason="due", change=change
            )
        )
    (shortened,) = account(records[:3]).departures
    (longer,) = account(records).departures
    assert (shortened.tokens_after, longer.tokens_after) == (10, 60), "its content is still out, once"
    assert [one.what for one in Timeline(records).history()] == ["added", "evicted", "shortened", "restored"]


async def test_one_exchange_of_an_archive_comes_back_and_the_archive_stays_for_the_rest() -> None:
    session = Session()
    held = await compacted(session, 2_300, 5)
    async with session.context() as ctx:
        archive = next(item for item in ctx.items if item.item_type is ItemType.COMPACTION_SUMMARY)
        gone = [item.id for item in held if item.id not in {i.id for i in ctx.items}]
        assert gone[:4] == ["msg_002", "c1", "msg_003", "c2"]
        back = await ctx.restore("c2", reason="it is needed")
        assert back.message == ToolMessage("c2", "log", TEXT)
        ids = [item.id for item in ctx.items]
        assert ids[:4] == ["msg_001", archive.id, "msg_003", "c2"]
        await held_the_same(session, ctx)
        for item_id in gone:
            await ctx.restore(item_id)
        assert archive.id not in [item.id for item in ctx.items]
        assert [item.id for item in ctx.items] == [item.id for item in held]
        (last,) = await ctx.undo()  # the same compaction evicted one more
        assert last.id == "c4"
        assert [item.message for item in ctx.items] == [item.message for item in held]


@pytest.mark.not_measured
async def test_a_summary_is_undone_and_so_is_the_summary_before_it() -> None:
    replies = iter(["the first summary", "the second summary"])

    async def summarize(prompt: str) -> Reply:
        return Reply(
            message=AssistantMessage(next(replies)), usage=Usage(input_tokens=1), stop_reason="end_turn", model="m"
        )

    session = Session(offload_enabled=True)
    rules = SelectiveCompaction(rules={})
    async with session.context() as ctx:
        await filled(ctx, 4)
        first = ctx.items
    async with session.context(window=small(2_300, summarize=summarize, compaction=rules)) as ctx:
        await ctx.messages()
    async with session.context() as ctx:
        assert "the first summary" in str([item.message for item in ctx.items])
        for n in range(5, 9):
            await called(ctx, n)
        second = ctx.items
    async with session.context(window=small(2_300, summarize=summarize, compaction=rules)) as ctx:
        await ctx.messages()
        assert "the second summary" in str([item.message for item in ctx.items])
    async with session.context() as ctx:
        with pytest.raises(NotRestorable, match="undo that first"):
            await ctx.undo("change_1")
        await ctx.undo()
        assert ctx.items == second
        await ctx.undo()
        assert [item.message for item in ctx.items][: len(first)] == [item.message for item in first]
        await held_the_same(session, ctx)
        bills = [call for call in ctx.fs.state.calls if call.summary]
        assert len(bills) == 2


async def test_an_undo_that_does_not_fit_the_window_is_refused_with_figures_before_anything_changes() -> None:
    session = Session()
    await compacted(session, 2_300, 5)
    async with session.context(window=small(3_000)) as ctx:
        before, held = await ctx.fs.history(), ctx.items
        with pytest.raises(ContextOverflow, match="change_1 would bring back") as refused:
            await ctx.undo()
        assert refused.value.limit_tokens == 3_000
        assert refused.value.actual_tokens > 4_500
        assert "c1" in refused.value.items
        assert await ctx.fs.history() == before
        assert ctx.items == held


async def test_a_damaged_content_is_found_before_anything_comes_back() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        name = ctx.fs.state.stored["c1"].name
        data = bytearray(session.store.disk.files[name])
        data[-20] ^= 1
        session.store.disk.files[name] = bytes(data)
        before = await ctx.fs.history()
        with pytest.raises(CorruptContent):
            await ctx.undo("change_1")
        assert await ctx.fs.history() == before
        assert item_of(ctx, "c1").destroyed


async def test_a_session_of_0_1_0_is_undone_too(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / ID)
    async with Context(ID, root_path=tmp_path, window=None, pricing=None) as ctx:
        back = await ctx.undo()
        assert [item.item_type for item in back][:1] == [ItemType.COMPACTION_SUMMARY]
        await ctx.undo()
        changes = (await read_timeline(ctx.fs)).state_at().undone
        assert changes == {5, 4}
        (result,) = await ctx.undo("change_3")
        assert "line of log 3" in str(result.message.content)
        items = ctx.items
    async with Context(ID, root_path=tmp_path, window=None, pricing=None) as again:
        assert again.items == items


async def test_a_session_of_0_1_0_is_pinned_searched_erased_and_pruned(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / ID)
    async with Context(ID, root_path=tmp_path, window=None, pricing=None) as ctx:
        first, result = ctx.items[0].id, next(iter(ctx.fs.state.stored))
        assert (await ctx.pin(first)).pinned
        assert not (await ctx.unpin(first)).pinned
        tools = {tool.name: tool for tool in recall_tools(ctx.fs)}
        assert "log 3" in (await tools["history_search"].run({"query": "log 3"})).text
        assert (await prune_session(ctx.fs)).collect == ()
    plan = await erase(ID, [result], root_path=tmp_path)
    assert result in {item.item_id for item in plan.items}
    async with Context(ID, root_path=tmp_path, window=None, pricing=None) as ctx:
        with pytest.raises(ContentGone, match="removed on"):
            await ctx.fs.load(result)
        assert (await ctx.fs.verify()).ok
        assert (await ctx.request_at(1)).messages


def test_what_was_removed_on_purpose_does_not_come_back() -> None:
    item, stored = make_item("call_1", ToolMessage("call_1", "bash", "printed")), stored_record("call_1")
    left = Replaced(
        item_id="call_1", content="gone", token_count=5, path=None, destroyed=True, reason="", trimmed=(), change=1
    )
    records: list[Record] = [ItemAdded(item=item), stored, left]
    assert undone(records).item_ids == ("call_1",)
    removed = ContentRemoved.of(stored, removed_at=1.0, by="erase", reason="a secret")
    with pytest.raises(ContentGone, match="a secret"):
        undone([*records, removed])


# Arguments of calls --------------------------------------------------------------------------------------------------

FREE = EvictionPricing()
CODE = "print(1)\n" * 2_000


async def trimmed(session: Session) -> ContextItem:
    """A session in which the large arguments of a reply were evicted; returns the reply as it was."""
    async with session.context() as ctx:
        await ctx.add(UserMessage("go"))
        await called(ctx, 1, "written", code=CODE, path="a.py")
        reply = ctx.items[1]
        for n in range(2, 40):
            if item_of(ctx, reply.id).trimmed:
                break
            await called(ctx, n, "ok")
        assert item_of(ctx, reply.id).trimmed
    return reply


@pytest.mark.not_measured
@pytest.mark.parametrize("which", ["undo", "reply", "arguments"])
async def test_the_arguments_of_a_call_come_back(which: str) -> None:
    session = Session(pricing=FREE)
    reply = await trimmed(session)
    async with session.context() as ctx:
        stored = next(one for one in ctx.fs.state.stored.values() if one.item_type is ItemType.TOOL_INPUT)
        match which:
            case "undo":
                (back,) = await ctx.undo()
            case "reply":
                back = await ctx.restore(reply.id)
            case _:
                back = await ctx.restore(stored.item_id)
        assert back.message == reply.message
        assert (back.trimmed, back.token_count) == ((), reply.token_count)
        assert not ctx.plan()
        await held_the_same(session, ctx)


# Pins ----------------------------------------------------------------------------------------------------------------


async def test_what_is_pinned_stays_whatever_rule_evicts_and_over_a_restart() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx, 2)
        item = await ctx.pin("c1")
        assert item.pinned
        for n in (3, 4):
            await called(ctx, n)
        await ctx.messages()
        assert [item.id for item in ctx.items if item.destroyed] == ["c2", "c3"]
        before = await ctx.fs.history()
        assert (await ctx.pin("c1")).pinned
        assert await ctx.fs.history() == before
        await held_the_same(session, ctx)
        assert not (await ctx.unpin("c1")).pinned
        await ctx.messages()
        assert item_of(ctx, "c1").destroyed
        with pytest.raises(UnknownItem):
            await ctx.unpin("nothing")
        with pytest.raises(UnknownItem):
            await ctx.pin("nothing")


@pytest.mark.parametrize("pricing", [None, FREE])
async def test_unpinning_what_was_pinned_since_the_opening_builds_nothing_again(
    pricing: EvictionPricing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a long session that would take as long as to open it. What came in pinned has no placeholder yet."""
    built: list[int] = []
    real = LiveTranscript.take_in

    async def counting(live: LiveTranscript, items: Sequence[ContextItem], counter: TokenCounter) -> None:
        built.append(len(items))
        await real(live, items, counter)

    session = Session(keep_recent={"log": 1}, pricing=pricing)
    async with session.context() as ctx:
        await filled(ctx, 2)
        monkeypatch.setattr(LiveTranscript, "take_in", counting)
        await ctx.pin("c1")
        assert not (await ctx.unpin("c1")).pinned
        assert not (await ctx.unpin("c1")).pinned
        assert built == []
        await ctx.pin("c2")
        await called(ctx, 3)
        await ctx.messages()
        assert [item.id for item in ctx.items if item.destroyed] == ["c1"]
    built.clear()
    async with session.context() as ctx:
        assert not (await ctx.unpin("c2")).pinned
        assert built == [len(ctx.items)] * 2
        await called(ctx, 4)
        await ctx.messages()
        assert item_of(ctx, "c2").destroyed
        await held_the_same(session, ctx)


@pytest.mark.not_measured
@pytest.mark.parametrize("pricing", [None, FREE])
async def test_what_was_restored_and_unpinned_stays_as_long_as_what_was_only_restored(
    pricing: EvictionPricing | None,
) -> None:
    session = Session(keep_recent={"log": 1}, pricing=pricing)
    async with session.context() as ctx:
        await filled(ctx, 3)
        assert item_of(ctx, "c1").destroyed
        await ctx.restore("c1")
        await ctx.pin("c1")
        await ctx.unpin("c1")
        for n in range(4, 4 + RESTORED_REPLIES):
            assert not item_of(ctx, "c1").destroyed
            await called(ctx, n)
        await ctx.messages()
        assert item_of(ctx, "c1").destroyed
        await held_the_same(session, ctx)


def test_what_unpins_an_item_is_decided_from_the_journal() -> None:
    added = ItemAdded(item=make_item("call_1", ToolMessage("call_1", "bash", "printed")))
    assert not unpinned([added], "call_1")
    back = unpinned([added, Pinned(item_ids=("call_1",))], "call_1")
    assert back.records == (Pinned(item_ids=("call_1",), pinned=False),)
    with pytest.raises(UnknownItem):
        unpinned([added], "nothing")


async def test_pinning_what_was_evicted_brings_it_back() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        item = await ctx.pin("c1")
        assert (item.pinned, item.destroyed, item.message) == (True, False, ToolMessage("c1", "log", TEXT))
        await held_the_same(session, ctx)


async def test_a_price_does_not_evict_what_is_pinned() -> None:
    session = Session(pricing=FREE)
    async with session.context() as ctx:
        await ctx.add(UserMessage("go"))
        await called(ctx, 1, "written", code=CODE, path="a.py")
        await ctx.pin(ctx.items[1].id)
        for n in range(2, 40):
            await called(ctx, n, "ok")
        assert not ctx.items[1].trimmed
        assert not ctx.items[1].destroyed


async def test_a_compaction_leaves_what_is_pinned_with_its_exchange() -> None:
    session = Session()
    async with session.context() as ctx:
        await filled(ctx, 6)
        await ctx.pin("c2")
    async with session.context(window=small(2_400)) as ctx:
        await ctx.messages()
        assert item_of(ctx, "c2").message == ToolMessage("c2", "log", TEXT)
        assert any(item.item_type is ItemType.COMPACTION_SUMMARY or item.destroyed for item in ctx.items)
        await ctx.messages()


async def test_a_context_of_pins_that_does_not_fit_says_so() -> None:
    session = Session(keep_recent={"log": "all"}, pin_user_messages=True)
    async with session.context() as ctx:
        await filled(ctx, 5)
        assert [item.pinned for item in ctx.items] == [
            True,
            False,
            True,
            False,
            True,
            False,
            True,
            False,
            True,
            False,
            True,
        ]
    async with session.context(window=small(2_300)) as ctx:
        with pytest.raises(ContextOverflow, match="these are pinned, so they stay: unpin one: c1"):
            await ctx.messages()
        assert [item.destroyed for item in ctx.items if item.pinned] == [False] * 6


async def test_pinning_what_would_not_fit_is_refused() -> None:
    session = Session()
    await compacted(session, 2_300, 5)
    async with session.context(window=small(2_310)) as ctx:
        held = ctx.items
        with pytest.raises(ContextOverflow, match="this would bring back"):
            await ctx.pin("c1")
        assert ctx.items == held


def test_a_tool_is_pinned_or_ephemeral() -> None:
    @tool("Plan.", pin=True)
    def plan() -> str:
        return "a plan"

    assert plan.pin
    with pytest.raises(ToolDefinitionError, match="choose one"):
        tool("Plan.", name="plan", pin=True, ephemeral=1)(lambda: "")
    with pytest.raises(ToolDefinitionError, match="pin is 1"):
        tool("Plan.", pin=1)  # type: ignore[arg-type]


def test_nothing_to_bring_back_is_false() -> None:
    assert not Back()


# What the journal holds itself ---------------------------------------------------------------------------------------

EAGER_TO_EVICT = EvictionParameters(max_loss=1000.0, read_back_weight=0.0)


async def test_arguments_that_have_no_file_of_their_reply_come_back_from_the_journal() -> None:
    session = Session(pricing=pricing_on(lambda: 0.0, parameters=EAGER_TO_EVICT))
    async with session.context() as ctx:
        await ctx.add(UserMessage("go"))
        await called(ctx, 1, "written", code="print(1)\n" * 400)
        reply = ctx.items[1]
        for _ in range(5):
            await ctx.add(UserMessage("and"))
            await ctx.messages()
            await ctx.add(AssistantMessage("on"))
        assert item_of(ctx, reply.id).trimmed
        assert reply.id not in ctx.fs.state.stored
        (back,) = await ctx.undo()
        assert (back.message, back.trimmed, back.token_count) == (reply.message, (), reply.token_count)
        assert (await read_timeline(ctx.fs)).history(reply.id)[-1].what == "restored"
        assert not ctx.plan()
        await held_the_same(session, ctx)


async def test_a_read_back_that_was_evicted_is_undone_from_the_journal() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await ctx.add(UserMessage("go"))
        source = ContentRange(item_id="c0", path="/sessions/c0", first_line=3, last_line=90)
        call = {"type": "tool_use", "id": "c1", "name": "log", "input": {}}
        await ctx.add(AssistantMessage((call,)), ToolMessage("c1", "log", TEXT), sources={"c1": source})
        await called(ctx, 2)
        await called(ctx, 3)
        assert item_of(ctx, "c1").destroyed
        (back,) = await ctx.undo("change_1")
        assert (back.message, back.offloaded) == (ToolMessage("c1", "log", TEXT), False)
        await held_the_same(session, ctx)


async def test_what_was_removed_for_good_is_not_undone() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        fs = ctx.fs
        await fs.writer.remove(["c1"], reason="enough")
        with pytest.raises(NotRestorable, match="c1 was removed"):
            await ctx.undo("change_1")


async def test_what_the_user_restored_already_is_nothing_to_undo() -> None:
    session = Session(keep_recent={"log": 1})
    async with session.context() as ctx:
        await filled(ctx)
        await ctx.restore("c1")
        before = await ctx.fs.history()
        assert await ctx.undo("change_1") == ()
        assert await ctx.fs.history() == before
        await ctx.restore("c2")
        with pytest.raises(NotRestorable, match="nothing that was evicted is left"):
            await ctx.undo()


async def test_an_exchange_comes_back_behind_an_archive_that_is_the_first_message() -> None:
    """Before it a reply would come first, which providers refuse."""
    rules: dict[ItemType, Strategy | int] = {
        ItemType.USER_MESSAGE: Strategy.DROP,
        ItemType.ASSISTANT_MESSAGE: 1,
    }
    session = Session()
    async with session.context() as ctx:
        await filled(ctx, 5)
    async with session.context(window=small(2_300, compaction=SelectiveCompaction(rules=rules))) as ctx:
        await ctx.messages()
    async with session.context() as ctx:
        assert ctx.items[0].item_type is ItemType.COMPACTION_SUMMARY
        gone = next(item_id for item_id in ctx.fs.state.archived if item_id.startswith("c"))
        await ctx.restore(gone)
        assert [item.item_type for item in ctx.items[:2]] == [ItemType.COMPACTION_SUMMARY, ItemType.ASSISTANT_MESSAGE]
        await ctx.messages()
        await held_the_same(session, ctx)


async def test_what_would_put_a_reply_in_front_is_refused() -> None:
    session = Session()
    await compacted(session, 2_300, 5)
    async with session.context() as ctx:
        fs = ctx.fs
        await fs.writer.remove(["msg_001"], reason="enough")
        before = await ctx.fs.history()
        with pytest.raises(NotRestorable, match="a reply would come first"):
            await ctx.undo()
        assert await ctx.fs.history() == before


def test_what_is_in_archives_that_hold_each_other_comes_back_where_it_was() -> None:
    records: list[Record] = []
    for item_id in ("msg_001", "msg_002", "summary_1", "summary_2"):
        item = make_item(item_id, UserMessage(item_id))
        records.append(ItemAdded(item=item, content_stored=item_id == "msg_001"))
    records.append(Removed(item_ids=("msg_001",), reason="full", archive="summary_1"))
    records.append(Removed(item_ids=("summary_1",), reason="full", archive="summary_2"))
    records.append(Removed(item_ids=("summary_2",), reason="damaged", archive="summary_1"))
    back = restored(records, "msg_001")
    assert (back.item_ids, back.reads) == (("msg_001",), ("msg_001",))
    assert list(fold(SessionState(), (*records, *back.records)).items) == ["msg_001", "msg_002"]


def test_a_change_of_an_item_whose_record_is_damaged_leaves_nothing_to_undo() -> None:
    lost = Replaced(item_id="lost", content="…", token_count=1, path="p", destroyed=True, reason="it pays")
    assert undone([lost], "change_1") == Back(change="change_1")


def test_an_archive_that_left_in_another_one_is_undone_after_that() -> None:
    said = [make_item("msg_001", UserMessage("go")), make_item("msg_002", AssistantMessage("on"))]
    archives = [make_item(one, UserMessage("…"), kind=ItemType.COMPACTION_SUMMARY) for one in ("first", "second")]
    records: list[Record] = [
        *(ItemAdded(item=item) for item in (*said, archives[0])),
        Removed(item_ids=("msg_002",), reason="old", archive="first", change=1),
        ItemAdded(item=archives[1]),
        Removed(item_ids=("first",), reason="old", archive="second", change=2),
    ]
    with pytest.raises(NotRestorable, match="its archive first left after it: undo that first"):
        undone(records, "change_1")
    assert undone(records).item_ids == ("first",)


@pytest.mark.not_measured
@pytest.mark.parametrize("restores", [False, True])
async def test_what_is_pinned_where_it_stands_is_kept_by_every_rule_and_after_a_restart(restores: bool) -> None:
    """Its content is in the context, or is back for ten replies: it stays for good, as in a resumed session."""
    session = Session(keep_recent={"log": 1}, pricing=EvictionPricing())
    async with session.context() as ctx:
        await filled(ctx, 4)
        kept = "c1" if restores else "c4"
        if restores:
            await ctx.restore(kept)
        before = await ctx.fs.history()
        assert (await ctx.pin(kept)).pinned
        assert (await ctx.pin(kept)).pinned
        after = await ctx.fs.history()
        assert [type(one) for one in after[len(before) :]] == [Pinned], "once, and nothing else"
        for n in range(5, 18):
            await called(ctx, n)
        await ctx.messages()
        assert not item_of(ctx, kept).destroyed
        assert [item.id for item in ctx.items if item.tool_name and not item.destroyed] == [kept, "c17"]
        await held_the_same(session, ctx)
        await called(ctx, 18)
        await ctx.messages()
        assert not item_of(ctx, kept).destroyed
        assert not (await ctx.unpin(kept)).pinned
        await called(ctx, 19)
        await ctx.messages()
        assert item_of(ctx, kept).destroyed


def test_placeholders_that_grow_give_back_what_each_change_had_freed() -> None:
    """Nothing is freed once the placeholder has as many tokens as the content, however it came to that."""
    item = make_item("c1", ToolMessage("c1", "log", TEXT), 900)
    records: list[Record] = [ItemAdded(item=item)]
    records += [
        Replaced(item_id="c1", content="…", token_count=tokens, path="x", destroyed=True, reason="due")
        for tokens in (60, 900, 950)
    ]
    assert [one.tokens_after for one in account(records[:2]).departures] == [60]
    assert account(records[:3]).departures == account(records).departures == ()


def test_what_is_pinned_is_pinned_once() -> None:
    records: list[Record] = [ItemAdded(item=make_item("c1", ToolMessage("c1", "log", TEXT), 900))]
    first = pinned(records, "c1")
    assert list(first.records) == [Pinned(item_ids=("c1",))]
    assert not pinned([*records, *first.records], "c1").records
