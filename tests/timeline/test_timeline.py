"""What was in a context at each call: exactly what was sent, also in sessions of 0.1.0, and what changed in between."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.context.context import Context
from ctxfs.errors import ConfigError, UnknownCall
from ctxfs.eviction import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import CallMade, Decided, ItemAdded, RequestSent, ToolsDefined
from ctxfs.session.timeline.costs import account
from ctxfs.session.timeline.reading import past_request, read_timeline
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage import MemoryStore
from ctxfs.testing import ScriptedModel
from ctxfs.tools.decorator import tool
from session_items import make_item

pytestmark = pytest.mark.anyio

ID = "session_20260101_000000_aaaaaa"
OLD = Path(__file__).parent / "session_0_1_0"


@tool("Read a log.", ephemeral=1)
async def log(n: int) -> str:
    return f"line of log {n}\n" * 120


def call(n: int) -> list[ToolCall]:
    return [ToolCall(id=f"call_{n}", name="log", arguments={"n": n})]


def said(body: dict[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("messages", "system", "tools") if key in body}


async def played(root: Path, model: ScriptedModel, *queries: str) -> None:
    config = AgentConfig(
        session_id=ID,
        offload_root_path=root,
        tools=[log],
        system_prompt="Be brief.",
        window=Window(window_tokens=2400, reply_tokens=200),
    )
    async with Agent(model, config) as agent:
        for query in queries:
            await agent.query(query)


async def test_every_request_is_what_the_model_got_over_evictions_a_summary_and_a_restart(tmp_path: Path) -> None:
    """Bodies of calls for summaries are the ones without tools."""
    first = ScriptedModel([call(1), call(2), call(3), "Three logs.", "And so on. " * 90])
    await played(tmp_path, first, "Read the logs.", "And then? " * 300)
    second = ScriptedModel(["A summary.", call(4), "Fine."])
    await played(tmp_path, second, "Once more.")
    sent = [said(body) for body in (*first.requests, *second.requests) if "tools" in body]
    async with ContextFileSystem(ID, root_path=tmp_path, read_only=True) as fs:
        timeline = await read_timeline(fs)
        past = [await past_request(fs, one.number, timeline=timeline) for one in timeline.calls]
    assert [request.body(cache=False) for request in past] == sent
    assert len(sent) == 7
    assert [request.not_recorded for request in past] == [()] * len(sent)
    assert {one.what for one in timeline.history()} == {"added", "evicted", "archived"}
    assert all(request.sent_at <= request.replied_at for request in past if request.sent_at and request.replied_at)
    assert all(request.usage and request.model == "scripted" for request in past)
    tools = [record for record in await _records(tmp_path) if isinstance(record, ToolsDefined)]
    assert len(tools) == 1


async def _records(root: Path) -> Sequence[Any]:
    async with ContextFileSystem(ID, root_path=root, read_only=True) as fs:
        return await fs.history()


async def test_a_walk_through_the_calls_sees_at_each_what_a_look_at_it_alone_sees(tmp_path: Path) -> None:
    await played(tmp_path, ScriptedModel([call(n) for n in range(1, 7)] + ["Done."]), "Go")
    async with ContextFileSystem(ID, root_path=tmp_path, read_only=True) as fs:
        timeline = await read_timeline(fs)
    walk = timeline.walk()
    for number in (2, 3, 6, 6, 1, 4):
        assert timeline.changes(number, walk=walk) == timeline.changes(number)
        assert timeline.state_at(number, walk=walk).items == timeline.state_at(number).items


async def test_the_cache_breakpoints_are_the_ones_that_were_given_out() -> None:
    async with context() as ctx:
        sent = []
        for n in range(3):
            await ctx.add(UserMessage(f"question {n}"))
            sent.append(await ctx.request())
            await ctx.add(AssistantMessage(f"answer {n}"))
        assert [(await ctx.request_at(n)).body() for n in (1, 2, 3)] == sent


async def test_a_session_of_0_1_0_shows_its_requests_and_says_what_it_did_not_record(tmp_path: Path) -> None:
    """The session was written by that version; beside it is what its model got."""
    shutil.copytree(OLD, tmp_path / ID)
    sent = json.loads(OLD.with_name("requests_0_1_0.json").read_text())
    async with ContextFileSystem(ID, root_path=tmp_path, read_only=True) as fs:
        timeline = await read_timeline(fs)
        past = [await past_request(fs, one.number) for one in timeline.calls]
    turns = [body for body in sent if "system" in body]
    assert [request.body(cache=False) for request in past] == turns
    assert len(turns) == 7
    wanted = ("the tools that were sent along", "the cache breakpoints", "when it was sent")
    assert {request.not_recorded for request in past} == {wanted}
    left = [one for one in timeline.history() if one.change]
    assert [(one.item_id, one.change, one.after_call) for one in left[:3]] == [
        ("call_1", "change_1", 2),
        ("call_2", "change_2", 3),
        ("call_3", "change_3", 5),
    ]
    assert {one.change for one in left if one.what == "archived"} == {"change_4", "change_5"}
    assert {one.at for one in left} == {None}


def context(store: MemoryStore | None = None, **settings: Any) -> Context:
    fs = ContextFileSystem(ID, root_path="/sessions", store=store or MemoryStore(ID), clock=lambda: 1000.0)
    defaults: dict[str, Any] = {"keep_recent": {"log": 1}, "window": None, "pricing": None}
    return Context(fs, counter=CharsCounter(), **{**defaults, **settings})


async def turn(ctx: Context, n: int, text: str = "a line of the log\n" * 200) -> None:
    await ctx.messages()
    block = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"n": n}}
    usage = Usage(input_tokens=n, output_tokens=1)
    await ctx.add(AssistantMessage((block,)), ToolMessage(f"c{n}", "log", text), usage=usage, model="m")


async def test_the_changes_from_one_call_to_the_next_say_what_left_and_what_the_cache_writes_again() -> None:
    async with context() as ctx:
        await ctx.add(UserMessage("go"))
        for n in (1, 2, 3):
            await turn(ctx, n)
        grown = await ctx.changes(1)
        assert grown.first_changed is None
        assert (grown.kept_tokens, grown.rewritten_tokens) == (grown.tokens_before, 0)
        assert grown.new_tokens == grown.tokens_after - grown.tokens_before
        assert [one.what for one in grown.items] == ["added", "added"]
        assert grown.usage == Usage(input_tokens=2, output_tokens=1)
        changed = await ctx.changes(2)
        (left,) = [one for one in changed.items if one.change]
        assert (left.item_id, left.what, left.change, left.after_call) == ("c1", "evicted", "change_1", 2)
        assert (left.at, left.tool_name) == (1000.0, "log")
        assert left.tokens_before > left.tokens_after > 0
        assert "keeps its last" in left.reason
        assert changed.first_changed == "c1"
        # request 2 was: go, reply 1, c1; so only c1 itself is written again, as a placeholder
        assert changed.rewritten_tokens == left.tokens_after
        both = await ctx.changes(3, 1)
        assert (both.first, both.last) == (1, 3)
        assert len(both.items) == len(grown.items) + len(changed.items)


async def test_what_was_restored_is_a_change_and_the_request_before_it_stays_as_it_was() -> None:
    async with context() as ctx:
        await ctx.add(UserMessage("go"))
        for n in (1, 2, 3):
            await turn(ctx, n)
        await ctx.messages()
        await ctx.restore("c1", reason="it is needed")
        after = await ctx.changes(3, 4)
        back = after.items[-1]
        assert (back.item_id, back.what, back.reason, back.change) == ("c1", "restored", "it is needed", None)
        assert (
            back.tokens_after
            == back.tokens_before
            + (await ctx.changes(2)).items[-1].tokens_before
            - (await ctx.changes(2)).items[-1].tokens_after
        )
        third = await ctx.request_at(3)
        assert next(item for item in third.items if item.id == "c1").destroyed
        now = await ctx.request_at(4)
        assert now.items == ctx.items
        assert now.reply_id is None
        assert now.tools is None
        assert now.token_count == ctx.token_count


async def test_what_changed_while_the_model_was_asked_is_not_in_its_request() -> None:
    async with context() as ctx:
        await ctx.add(UserMessage("go"))
        for n in (1, 2, 3):
            await turn(ctx, n)
        sent = await ctx.messages()
        await ctx.restore("c1")
        await ctx.add(AssistantMessage("fine"))
        past = await ctx.request_at(4)
        assert past.messages == sent
        assert (past.reply_id, past.sent_at) == (ctx.items[-1].id, 1000.0)


async def test_a_request_that_was_made_twice_is_the_last_one() -> None:
    async with context() as ctx:
        await ctx.add(UserMessage("go"))
        await ctx.messages()
        await ctx.add(UserMessage("now"))
        sent = await ctx.messages()
        await ctx.add(AssistantMessage("fine"))
        assert (await ctx.request_at(1)).messages == sent
        assert [type(record) for record in await ctx.fs.history()].count(RequestSent) == 2


async def test_tools_are_recorded_once_and_again_when_they_change() -> None:
    store = MemoryStore(ID)
    own: dict[str, Any] = {"name": "log", "description": "Read a log.", "input_schema": {"type": "object"}}
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with context(store) as ctx:
        assert ctx.tools is None
        ctx.tools = [own]
        await ctx.add(UserMessage("go"))
        await turn(ctx, 1)
        await turn(ctx, 2)
        ctx.tools = [own, search]
        await turn(ctx, 3)
    async with context(store.peer()) as ctx:
        ctx.tools = [own]
        await turn(ctx, 4)
        ctx.tools = []
        await turn(ctx, 5)
        ctx.tools = None
        await turn(ctx, 6)
        assert [(await ctx.request_at(n)).tools for n in range(1, 7)] == [
            (own,), (own,), (own, search), (own,), (), None,
        ]  # fmt: skip
        assert (await ctx.request_at(3)).body()["tools"] == [own, search]
        assert "tools" not in (await ctx.request_at(5)).body()
        assert (await ctx.request_at(6)).not_recorded == ("the tools that were sent along",)
        with pytest.raises(ConfigError, match="tools"):
            ctx.tools = [{"name": object()}]


async def test_a_call_that_was_never_made_is_refused_with_the_number_of_calls() -> None:
    async with context() as ctx:
        await ctx.add(UserMessage("go"))
        await turn(ctx, 1)
        for wrong in (0, 3, -1):
            with pytest.raises(UnknownCall, match="from 1 to 2") as refused:
                await ctx.request_at(wrong)
            assert (refused.value.call, refused.value.calls) == (wrong, 1)
        with pytest.raises(ConfigError, match="call"):
            await ctx.request_at("1")  # type: ignore[arg-type]


async def test_a_removed_system_prompt_is_a_change_that_has_no_id() -> None:
    async with context() as ctx:
        await ctx.set_system_prompt("one")
        await ctx.add(UserMessage("go"))
        await turn(ctx, 1)
        await ctx.set_system_prompt("two")
        changed = await ctx.changes(1)
        removed = next(one for one in changed.items if one.what == "removed")
        assert (removed.item_type, removed.change, removed.tokens_after) == (ItemType.SYSTEM_PROMPT, None, 0)
        assert changed.first_changed == removed.item_id
        assert changed.kept_tokens == 0


def test_in_a_history_of_a_framework_the_decisions_are_known_and_the_messages_are_not() -> None:
    decided = Decided(
        kind="result", call_id="c1", sha256="0", item_id="c1", content="…", tokens_before=90, tokens=9, reason="it pays"
    )
    calls = [CallMade(number=n, usage=Usage(), model="m", made_at=float(n)) for n in (1, 2)]
    summary = CallMade(number=3, usage=Usage(), model="m", summary=True)
    timeline = Timeline([calls[0], decided, summary, calls[1]])
    assert [(one.number, one.reply_id, one.replied_at) for one in timeline.calls] == [(1, None, 1.0), (2, None, 2.0)]
    (left,) = timeline.changes(1).items
    assert (left.item_id, left.what, left.after_call, left.tokens_before, left.tokens_after) == (
        "c1",
        "evicted",
        1,
        90,
        9,
    )
    request = timeline.request(2)
    assert request.items == ()
    assert "your framework, program or loop keeps them" in request.not_recorded[0]
    assert timeline.request().not_recorded == request.not_recorded[:1]
    assert timeline.history("c1") == (left,)
    assert timeline.history("c2") == ()
    assert account([decided]).is_elsewhere
    assert account(calls).is_elsewhere
    assert not account([]).is_elsewhere
    assert not account([ItemAdded(item=make_item("msg_001", AssistantMessage("fine"))), *calls]).is_elsewhere


def test_a_second_bill_of_one_reply_is_not_a_call() -> None:
    added = ItemAdded(item=make_item("msg_002", AssistantMessage("fine")))
    bills = [CallMade(number=n, usage=Usage(input_tokens=n), model="m") for n in (1, 2)]
    (call,) = Timeline([added, *bills]).calls
    assert call.bill == bills[0]


def test_the_records_before_a_call() -> None:
    added = [ItemAdded(item=make_item(f"msg_00{n}", AssistantMessage("fine"))) for n in (1, 2)]
    bills = [CallMade(number=n, usage=Usage(input_tokens=n), model="m") for n in (1, 2)]
    records = (added[0], bills[0], added[1], bills[1])
    timeline = Timeline(records)
    assert timeline.records_before() == records
    assert len(timeline.records_before(2)) < len(records)
    with pytest.raises(UnknownCall):
        timeline.records_before(9)
