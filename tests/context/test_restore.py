"""What was evicted comes back into the live context, and stays for a while: whichever rule evicts, resumed or not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ctxfs.context.context import Context
from ctxfs.errors import CorruptContent, NotRestorable, SessionClosed, UnknownItem, WriteFailed
from ctxfs.eviction.candidates import RESTORED_REPLIES, Holds
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.window import Window
from ctxfs.lab.replay.explanation import explain
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import ItemAdded, Replaced, Restored
from ctxfs.session.state import SessionState, fold
from ctxfs.storage import MemoryStore
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.tools import Materialize, Materializer
from session_items import make_item, stored_record

pytestmark = pytest.mark.anyio

ID = "session_20260101_000000_aaaaaa"
TEXT = "a line of the log\n" * 200


class Session:
    """Contexts on one store, with a tool of which one result stays."""

    def __init__(self, **settings: Any) -> None:
        self.store = MemoryStore(ID)
        self.settings: dict[str, Any] = {"keep_recent": {"log": 1}, "window": None, "pricing": None, **settings}

    def context(self, **settings: Any) -> Context:
        self.store = self.store.peer()
        fs = ContextFileSystem(ID, root_path="/sessions", store=self.store)
        return Context(fs, counter=CharsCounter(), **{**self.settings, **settings})


async def called(context: Context, number: int, text: str = TEXT, tool: str = "log") -> None:
    call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": {"path": f"{number}.py"}}
    await context.add(AssistantMessage((call,)), ToolMessage(f"c{number}", tool, text))
    await context.messages()


async def filled(context: Context) -> None:
    """Two results, of which the first was evicted."""
    await context.add(UserMessage("go"))
    await called(context, 1)
    await called(context, 2)
    await called(context, 3)
    assert evicted(context) == ["c1", "c2"]


def evicted(context: Context) -> list[str]:
    return [item.id for item in context.items if item.offloaded]


def item_of(context: Context, item_id: str) -> ContextItem:
    return next(item for item in context.items if item.id == item_id)


async def replied(context: Context, times: int) -> None:
    for _ in range(times):
        await context.add(UserMessage("and"))
        await context.messages()
        await context.add(AssistantMessage("on"))


async def test_what_was_restored_is_in_the_context_as_it_entered() -> None:
    session = Session()
    async with session.context() as context:
        await filled(context)
        before = context.token_count
        await context.request(cache=False)  # what was serialised before must not be sent again
        placeholder = item_of(context, "c1")
        item = await context.restore("c1", reason="the user asks for it")
        assert item is item_of(context, "c1")
        assert item.message == ToolMessage("c1", "log", TEXT)
        assert (item.offloaded, item.destroyed, item.offload_path) == (False, False, None)
        assert context.token_count == before - placeholder.token_count + CharsCounter().count(TEXT)
        (record,) = [one for one in await context.fs.history() if isinstance(one, Restored)]
        wanted = Restored(item_id="c1", reason="the user asks for it", token_count=item.token_count)
        assert record == replace(wanted, at=record.at, after_call=3)
        assert record.at > 0
        assert not context.plan()
        assert next(m for m in await context.messages() if isinstance(m, ToolMessage)).content == TEXT
        held, sent = context.items, await context.request(cache=False)
    async with session.context() as again:
        assert again.items == held
        assert not again.plan()
        assert await again.request(cache=False) == sent


async def test_the_file_system_of_a_live_context_leaves_restoring_to_it() -> None:
    session = Session()
    async with session.context() as context:
        await filled(context)
        lines = len(await context.fs.history())
        with pytest.raises(
            NotRestorable, match=r"c1 cannot be restored: a context is open .*: use its own restore\(\)"
        ):
            await context.fs.restore("c1")
        assert len(await context.fs.history()) == lines
        await context.restore("c1")
        assert evicted(context) == ["c2"]
        assert not context.plan()
    async with ContextFileSystem(ID, root_path="/sessions", store=session.store.peer()) as fs:
        await fs.restore("c2")  # there is no live context: the next one finds it
    async with session.context() as again:
        assert evicted(again) == []


@pytest.mark.parametrize("resumed", [False, True])
async def test_keep_recent_evicts_it_again_after_some_replies_by_the_same_placeholder(resumed: bool) -> None:
    session = Session()
    context = session.context()
    await context.open()
    await filled(context)
    placeholder = item_of(context, "c1").message.content
    await context.restore("c1")
    await replied(context, RESTORED_REPLIES - 1)
    if resumed:
        await context.close()
        context = session.context()
        await context.open()
    assert not context.plan()
    await replied(context, 1)
    assert [step.item_id for step in context.plan().offloads] == ["c1"]
    await context.messages()
    assert evicted(context) == ["c1", "c2"]
    if not resumed:
        assert item_of(context, "c1").message.content == placeholder
    await context.restore("c1")  # as often as it is wanted
    assert not context.plan()
    await context.close()


async def test_what_was_evicted_eagerly_leaves_again_by_its_short_placeholder() -> None:
    session = Session(eager=Materializer(settings=Materialize(max_inline_chars=1_000)))
    async with session.context() as context:
        await context.add(UserMessage("go"))
        await called(context, 1)
        long = item_of(context, "c1").token_count
        await context.restore("c1")
        await called(context, 2)
        await replied(context, RESTORED_REPLIES)
        await context.messages()
        assert item_of(context, "c1").offloaded
        assert item_of(context, "c1").token_count < long


@pytest.mark.not_measured
@pytest.mark.parametrize("resumed", [False, True])
async def test_it_is_not_evicted_by_its_price_meanwhile(resumed: bool) -> None:
    eager = EvictionParameters(max_loss=1000.0, read_back_weight=0.0)
    session = Session(keep_recent={}, pricing=pricing_on(lambda: 0.0, parameters=eager))
    context = session.context()
    await context.open()
    await context.add(UserMessage("go"))
    await called(context, 1)
    await replied(context, 3)
    await context.messages()
    assert evicted(context) == ["c1"]
    await context.restore("c1")
    if resumed:
        await context.close()
        context = session.context()
        await context.open()
    await replied(context, RESTORED_REPLIES - 1)
    assert evicted(context) == []
    await replied(context, 3)
    assert evicted(context) == ["c1"]
    await context.close()


async def test_a_tool_with_a_rule_of_its_own_is_not_priced_when_it_may_be_evicted_again() -> None:
    session = Session(pricing="auto")
    async with session.context() as context:
        await filled(context)
        await context.restore("c1")
        await replied(context, RESTORED_REPLIES)
        (step,) = context.plan().offloads
        assert step.reason == "log keeps its last 1 (setting: keep_recent)"


BUDGET = Window(window_tokens=6_000, reply_tokens=1_000)


async def test_the_guard_of_the_window_takes_everything_else_first() -> None:
    session = Session(window=None)
    async with session.context() as context:
        await filled(context)
        await context.restore("c1")
    async with session.context(window=BUDGET) as context:
        for number in range(4, 12):
            await called(context, number, "short " * 300, "other")
        assert not item_of(context, "c1").offloaded
        assert "c2" not in [item.id for item in context.items]  # it went into an archive
        await context.set_system_prompt("x" * 17_000)  # nothing else is left that would make room
        await context.messages()
        assert "c1" not in [item.id for item in context.items if not item.offloaded]


async def test_what_stands_whole_in_the_context_stays_as_it_is() -> None:
    async with Session().context() as context:
        await filled(context)
        before = context.items
        assert await context.restore("c3") is item_of(context, "c3")
        assert context.items == before
        assert not [one for one in await context.fs.history() if isinstance(one, Restored)]


async def test_what_cannot_come_back_is_refused_and_nothing_changes() -> None:
    session = Session(window=BUDGET)
    async with session.context() as context:
        await filled(context)
        for number in range(4, 12):
            await called(context, number, "short " * 300, "other")
        assert context.fs.state.archived["c2"]
        source = ContentRange(item_id="c0", path="/sessions/c0", first_line=3, last_line=90)
        for number in (12, 13):
            call = {"type": "tool_use", "id": f"c{number}", "name": "log", "input": {}}
            result = ToolMessage(f"c{number}", "log", TEXT)
            await context.add(AssistantMessage((call,)), result, sources={f"c{number}": source})
        await replied(context, 1)
        assert item_of(context, "c12").destroyed
        before = context.items
        for item_id, error, why in (
            ("never", UnknownItem, "never"),
            ("c12", NotRestorable, "it only repeats lines 3-90 of c0"),
        ):
            with pytest.raises(error, match=why):
                await context.restore(item_id)
        assert context.items == before
    with pytest.raises(SessionClosed):
        await context.restore("c1")
    async with ContextFileSystem(ID, root_path="/sessions", store=session.store.peer()) as fs:
        size = len(await fs.history())
        for item_id, error in (("never", UnknownItem), ("c2", NotRestorable), ("msg_001", NotRestorable)):
            with pytest.raises(error):
                await fs.restore(item_id)
        assert len(await fs.history()) == size


async def test_stored_arguments_come_back_with_their_reply() -> None:
    parameters = EvictionParameters(max_loss=1000.0, read_back_weight=0.0)
    pricing = pricing_on(lambda: 0.0, parameters=parameters)
    async with Session(keep_recent={}, pricing=pricing).context() as context:
        await context.add(UserMessage("go"))
        call = {"type": "tool_use", "id": "c1", "name": "Write", "input": {"text": TEXT}}
        await context.add(AssistantMessage((call,)), ToolMessage("c1", "Write", "ok"))
        await replied(context, 5)
        assert "c1.input" in context.fs.state.stored
        assert context.items[1].trimmed
        reply = await context.restore("c1.input")
        assert reply is context.items[1]
        assert (reply.message, reply.trimmed) == (AssistantMessage((call,)), ())


@pytest.mark.parametrize("damage", [bytes.upper, lambda data: b""], ids=["changed", "empty"])
async def test_a_damaged_content_stays_out(damage: Callable[[bytes], bytes]) -> None:
    session = Session()
    async with session.context() as context:
        await filled(context)
        before = context.items
        name = context.fs.state.stored["c1"].name
        session.store.disk.files[name] = damage(session.store.disk.files[name])
        with pytest.raises(CorruptContent):
            await context.restore("c1")
        assert context.items == before


async def test_what_cannot_be_recorded_stays_out() -> None:
    class Full(MemoryStore):
        full = False

        def commit(self, files: Any, log: Any) -> None:
            if self.full:
                raise WriteFailed("journal.jsonl", "no space left on device")
            super().commit(files, log)

    store = Full(ID)
    fs = ContextFileSystem(ID, root_path="/sessions", store=store)
    async with Context(fs, counter=CharsCounter(), keep_recent={"log": 1}, window=None, pricing=None) as context:
        await filled(context)
        before = context.items
        store.full = True
        with pytest.raises(WriteFailed):
            await context.restore("c1")
        assert context.items == before
        store.full = False
        await context.restore("c1")
        assert evicted(context) == ["c2"]


@pytest.mark.parametrize("pricing", [None, "auto"])
async def test_a_reply_that_was_evicted_to_fit_comes_back(pricing: Any) -> None:
    session = Session(keep_recent={}, pricing=pricing, window=Window(window_tokens=2_000, reply_tokens=500))
    async with session.context() as context:
        await context.add(UserMessage("go"), AssistantMessage("word " * 2_000), UserMessage("and"))
        await context.messages()
        (reply,) = [item for item in context.items if item.offloaded]
        assert (await context.restore(reply.id)).message.content == "word " * 2_000


async def test_explain_says_that_it_was_restored() -> None:
    session = Session()
    async with session.context() as context:
        await filled(context)
        await context.restore("c1")
        await replied(context, 2)
        explanation = await explain(context.fs)
        (item,) = [one for one in explanation.items if one.item_id == "c1"]
        assert (item.place, item.why) == ("context", f"stays: it was restored, {RESTORED_REPLIES - 2} more replies")
        assert not explanation.next


def test_a_hold_ends_after_so_many_replies() -> None:
    holds = Holds()
    holds.restored("a")
    holds.restored("b", replies_since=RESTORED_REPLIES - 1)
    holds.restored("c", replies_since=RESTORED_REPLIES)
    holds.restored("d")
    holds.left(["d", "never"])
    assert list(holds) == ["a", "b"]
    assert holds.replied() == ["b"]
    assert ("a" in holds, "b" in holds) == (True, False)
    for _ in range(RESTORED_REPLIES - 2):
        assert holds.replied() == []
    assert holds.replied() == ["a"]


def test_only_what_was_pinned_in_the_context_is_unpinned_there() -> None:
    holds = Holds()
    holds.pinned("a")
    assert (holds.unpinned("a"), holds.unpinned("a"), "a" in holds) == (True, False, False)


def test_a_record_of_an_older_version_counts_as_when_the_item_entered() -> None:
    item = make_item("call_1", ToolMessage("call_1", "Read", TEXT), 900)
    gone = Replaced(item_id="call_1", content="gone", token_count=3, path="x", destroyed=True, reason="due")
    state = fold(SessionState(), [ItemAdded(item=item), stored_record(), gone, Restored(item_id="call_1")])
    assert state.items["call_1"] == item.with_content("")
    assert state.replies_since_restored() == {"call_1": 0}
    fold(state, [ItemAdded(item=make_item("m", AssistantMessage("on")))])
    assert state.replies_since_restored() == {"call_1": 1}
    assert fold(state, [gone]).replies_since_restored() == {}
    recounted = fold(state, [replace(Restored(item_id="call_1"), token_count=7)])
    assert recounted.items["call_1"].token_count == 7


@pytest.mark.parametrize("pricing", [None, "auto"])
async def test_a_question_that_was_evicted_to_fit_comes_back(pricing: Any) -> None:
    session = Session(keep_recent={}, pricing=pricing, window=Window(window_tokens=2_000, reply_tokens=500))
    async with session.context() as context:
        await context.add(UserMessage("word " * 2_000), AssistantMessage("ok"), UserMessage("and"))
        await context.messages()
        assert evicted(context) == ["msg_001"]
        assert (await context.restore("msg_001")).message == UserMessage("word " * 2_000)
        assert evicted(context) == []


async def test_what_was_restored_and_then_pinned_stays_in_a_resumed_session_too() -> None:
    session = Session(pricing=pricing_on(lambda: 0.0))
    async with session.context() as context:
        await filled(context)
        (evicted_id, *_) = evicted(context)
        await context.pin(evicted_id)
    async with session.context(keep_recent=None) as context:
        await replied(context, RESTORED_REPLIES + 2)
        pinned = item_of(context, evicted_id)
        assert (pinned.pinned, pinned.destroyed) == (True, False)
        decided = {decision.item_id: decision.why for decision in context.decisions()}
        assert decided.get(evicted_id, Why.PINNED) is Why.PINNED
