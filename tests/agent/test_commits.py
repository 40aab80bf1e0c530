"""How many commits an exchange is, what is durable when, and which call a tool answers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.context import History
from ctxfs.errors import ConfigError, SessionLocked, ToolDefinitionError, ToolError
from ctxfs.messages import ENVELOPE, TEXT, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.messages import AssistantMessage
from ctxfs.session import ContextFileSystem
from ctxfs.session.records import (
    CallMade,
    EvictionSet,
    ItemAdded,
    Record,
    Replaced,
    SessionStarted,
    ToolsDefined,
    WriterOpened,
)
from ctxfs.session.shared import SharedFileSystem
from ctxfs.session.timeline.reading import past_request
from ctxfs.stores import ObjectSessions
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from ctxfs.tools import RunningCall, Tool, running_call
from session_items import user_message
from storage.buckets import MemoryBucket

pytestmark = pytest.mark.anyio


def segments(bucket: MemoryBucket) -> int:
    """How many commits there are: each is one segment."""
    return sum("/s/0000" in key for key in bucket.objects)


def sessions(bucket: MemoryBucket) -> ObjectSessions:
    return ObjectSessions(bucket, url="s3://tests", ttl_s=0)


async def stored(bucket: MemoryBucket) -> Sequence[Record]:
    """What another machine finds."""
    async with ContextFileSystem("s", root_path=sessions(bucket), read_only=True) as fs:
        return await fs.history()


def kinds(records: Sequence[Record]) -> list[str]:
    """The messages and bills among the records, in order."""
    return [
        record.item.item_type if isinstance(record, ItemAdded) else "bill"
        for record in records
        if isinstance(record, ItemAdded | CallMade)
    ]


def looking(found: list[Sequence[Record]], bucket: MemoryBucket, *, read_only: bool, size: int = 10) -> Tool:
    """A tool that notes what is durable while it runs."""

    @tool("Look", read_only=read_only, ephemeral=1)
    async def look() -> str:
        found.append(await stored(bucket))
        return "word " * size

    return look


def sent_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request's body is recorded."""
    return {key: body[key] for key in ("messages", "system", "tools") if key in body}


TURNS: list[Turn] = [[ToolCall("look", {})], "done"]


@pytest.mark.parametrize(("read_only", "commits"), [(True, 3), (False, 4)])
async def test_a_query_with_one_tool_call_is_few_commits(read_only: bool, commits: int) -> None:
    bucket, found = MemoryBucket(), list[Sequence[Record]]()
    config = AgentConfig(
        offload_root_path=sessions(bucket), session_id="s", tools=[looking(found, bucket, read_only=read_only)]
    )
    async with Agent(ScriptedModel(TURNS), config) as agent:
        before = segments(bucket)
        assert await agent.query("Go") == "done"
        assert segments(bucket) - before == commits
        assert agent.context.unrecorded == ()
    question, call = ["user_message"], ["assistant_message", "bill"]
    assert kinds(found[0]) == (question if read_only else question + call)
    assert kinds(await stored(bucket)) == [*question, *call, "tool_result", *call]


async def test_what_is_evicted_goes_with_the_result_that_it_makes_room_for() -> None:
    bucket, found = MemoryBucket(), list[Sequence[Record]]()
    look = looking(found, bucket, read_only=True, size=3_000)
    config = AgentConfig(offload_root_path=sessions(bucket), session_id="s", tools=[look], pricing=None)
    async with Agent(ScriptedModel(TURNS * 2), config) as agent:
        await agent.query("Go")
        before = segments(bucket)
        await agent.query("Again")
        assert segments(bucket) - before == 3
    records = await stored(bucket)
    assert [record.reason for record in records if isinstance(record, Replaced)]
    assert len({record.change for record in records if isinstance(record, Replaced)}) == 1


async def test_one_commit_a_turn() -> None:
    bucket, found = MemoryBucket(), list[Sequence[Record]]()
    look = looking(found, bucket, read_only=False)
    config = AgentConfig(offload_root_path=sessions(bucket), session_id="s", tools=[look], one_commit_a_turn=True)
    async with Agent(ScriptedModel(TURNS), config) as agent:
        before = segments(bucket)
        await agent.query("Go")
        assert segments(bucket) - before == 1
    assert kinds(found[0]) == []
    everything = ["user_message", "assistant_message", "bill", "tool_result", "assistant_message", "bill"]
    assert kinds(await stored(bucket)) == everything


@pytest.mark.parametrize("status_tokens", [0, 200])
async def test_with_one_commit_a_turn_each_request_is_recorded_as_it_was_sent(status_tokens: int) -> None:
    """Evictions, which are commits, and what each request alone carries included."""
    bucket, model = MemoryBucket(), ScriptedModel(TURNS * 3)
    config = AgentConfig(
        offload_root_path=sessions(bucket),
        session_id="s",
        tools=[looking([], bucket, read_only=True, size=3_000)],
        pricing=None,
        one_commit_a_turn=True,
        status_tokens=status_tokens,
    )
    async with Agent(model, config) as agent:
        for _ in range(3):
            await agent.query("Go")
    async with ContextFileSystem("s", root_path=sessions(bucket), read_only=True) as fs:
        past = [await past_request(fs, number) for number in range(1, 7)]
        records = await fs.history()
    assert [request.body(cache=False) for request in past] == [sent_of(body) for body in model.requests]
    assert {request.not_recorded for request in past} == {()}
    assert all(request.sent_at and request.usage and request.breakpoints for request in past)
    assert len([record for record in records if isinstance(record, ToolsDefined)]) == 1
    assert [record.reason for record in records if isinstance(record, Replaced)]


async def test_a_status_behind_messages_that_wait_is_recorded_with_their_request() -> None:
    async with Context("s", root_path=sessions(MemoryBucket()), one_commit_a_turn=True) as context:
        await context.add(UserMessage("Go"))
        assert context.unrecorded
        for status in ("first try", "second try"):
            await context.messages()
            context.carries(status)
        await context.add(AssistantMessage("done"))
        assert context.unrecorded == ()
        assert (await context.request_at(1)).status == "second try"
        assert (await context.request_at(2)).status == ""


async def test_a_request_with_an_item_that_was_replaced_before_it_was_recorded_is_unknown() -> None:
    async with Context("s", root_path=sessions(MemoryBucket()), one_commit_a_turn=True) as context:
        await context.set_system_prompt("Be brief.")
        await context.add(UserMessage("Go"))
        await context.messages()
        await context.add(AssistantMessage(({"type": "tool_use", "id": "c1", "name": "look", "input": {}},)))
        await context.add(ToolMessage("c1", "look", "found"))
        await context.set_system_prompt("Be long.")
        sent = await context.messages()
        await context.add(AssistantMessage("done"))
        assert (await context.request_at(1)).sent_at is None
        assert (await context.request_at(2)).sent_at is not None
        assert (await context.request_at(2)).messages == sent


@pytest.mark.both_loops
async def test_a_cancelled_query_is_recorded_whole(tmp_path: Path) -> None:
    started = anyio.Event()

    @tool("Wait", read_only=True)
    async def wait() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    config = AgentConfig(offload_root_path=tmp_path, session_id="s", tools=[wait], one_commit_a_turn=True)
    async with Agent(ScriptedModel([[ToolCall("wait", {})]]), config) as agent:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.query, "Go")
            await started.wait()
            assert len(agent.context.unrecorded) == 2
            group.cancel_scope.cancel()
        assert agent.context.unrecorded == ()
        assert len(agent.context.fs.state.items) == 3


async def test_messages_that_need_not_be_durable_yet_go_with_the_next_request() -> None:
    bucket = MemoryBucket()
    async with Context("s", root_path=sessions(bucket)) as context:
        before = segments(bucket)
        await context.add(UserMessage("Go"), durable=False)
        assert segments(bucket) == before
        assert context.unrecorded == tuple(item.id for item in context.items)
        await context.messages()
        assert segments(bucket) == before + 1
        assert context.unrecorded == ()
        reply = AssistantMessage(({"type": "tool_use", "id": "c1", "name": "look", "input": {}},))
        await context.add(reply, durable=False)
        await context.add(ToolMessage("c1", "look", "found"), durable=False)
        await context.record()
        assert segments(bucket) == before + 2
        await context.record()
        assert segments(bucket) == before + 2


async def test_an_eviction_that_cannot_be_stored_does_not_hold_back_what_came_in(tmp_path: Path) -> None:
    (tmp_path / "s" / "tool_result").mkdir(parents=True)
    async with Context("s", root_path=tmp_path, keep_recent={"look": 1}, window=None, pricing=None) as context:
        await context.add(UserMessage("Go"))
        for number in (1, 2):
            call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
            await context.add(AssistantMessage((call,)), durable=False)
            if number == 2:  # a directory stands where the first result would go
                name = context.items[2].name
                (tmp_path / "s" / name).mkdir(parents=True)
            await context.add(ToolMessage(f"c{number}", "look", f"{number} " * 500), durable=False)
            await context.messages()
        assert context.unrecorded == ()
        assert not any(item.offloaded for item in context.items)


async def test_an_eviction_that_cannot_be_stored_does_not_hold_back_the_others(tmp_path: Path) -> None:
    (tmp_path / "s" / "tool_result").mkdir(parents=True)
    async with Context("s", root_path=tmp_path, keep_recent={"look": 1}, window=None, pricing=None) as context:
        await context.add(UserMessage("Go"), durable=False)
        for number in (1, 2, 3):
            call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
            await context.add(AssistantMessage((call,)), durable=False)
            await context.add(ToolMessage(f"c{number}", "look", f"{number} " * 500), durable=False)
        (tmp_path / "s" / context.items[2].name).mkdir(parents=True)  # where the first result would go
        await context.evict()
        assert context.unrecorded == ()
        assert [item.id for item in context.items if item.offloaded] == ["c2"]


async def test_a_tool_knows_which_call_it_answers() -> None:
    calls: list[RunningCall] = []

    @tool("Charge a card")
    async def charge() -> str:
        calls.append(running_call())
        return "done"

    @tool("Charge a card, in a thread")
    def charge_slowly() -> str:
        calls.append(running_call())
        return "done"

    bucket = MemoryBucket()
    both = [ToolCall("charge", {}, id="c1"), ToolCall("charge_slowly", {}, id="c2")]
    config = AgentConfig(offload_root_path=sessions(bucket), session_id="s", tools=[charge, charge_slowly])
    for _ in range(2):
        async with Agent(ScriptedModel([both, "done"]), config) as agent:
            await agent.query("Go")
    assert sorted(call.call_id for call in calls) == ["c1", "c1", "c2", "c2"]
    assert len({call.idempotency_key for call in calls}) == 4, "the provider's ids are the same in both replies"
    assert all(call.idempotency_key == f"s/{call.reply_id}/{call.call_id}" for call in calls)
    epochs = [call.epoch for call in calls]
    assert 0 < epochs[0] == epochs[1] < epochs[2] == epochs[3]


async def test_a_call_outside_of_an_agent() -> None:
    @tool("Name the call")
    def name() -> str:
        return running_call().idempotency_key

    with pytest.raises(ToolError, match="no tool call"):
        running_call()
    with pytest.raises(ToolError, match="call_id"):
        await name.run({})
    assert (await name.run({}, call_id="c1")).content == "c1"
    assert (await name.run({}, call=RunningCall(call_id="c1", session_id="s"))).content == "s/c1"
    with pytest.raises(ToolError, match="not both"):
        await name.run({}, call_id="c1", call=RunningCall(call_id="c1"))


def test_settings_that_are_no_flags() -> None:
    with pytest.raises(ToolDefinitionError, match="read_only"):
        tool("Look", read_only=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one_commit_a_turn"):
        AgentConfig(one_commit_a_turn=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one_commit_a_turn"):
        Context(one_commit_a_turn=None)  # type: ignore[arg-type]


async def test_each_bill_stands_behind_its_reply() -> None:
    bucket = MemoryBucket()
    async with Context("s", root_path=sessions(bucket)) as context:
        await context.add(UserMessage("Go"), durable=False)
        for text in ("first", "second"):
            usage = {"input_tokens": len(text), "output_tokens": 1}
            await context.add(AssistantMessage(text), usage=usage, model="m", durable=False)
            await context.add(UserMessage("Go on"), durable=False)
        await context.record()
    call = ["assistant_message", "bill", "user_message"]
    assert kinds(await stored(bucket)) == ["user_message", *call, *call]


async def test_opening_a_session_in_a_store_is_one_commit() -> None:
    """What opening records is durable with the first change; one that was killed before has nothing to lose."""
    bucket = MemoryBucket()
    killed = Context("s", root_path=sessions(bucket))
    await killed.open()
    assert segments(bucket) == 1
    assert killed.fs.state.eviction is not None
    assert await stored(bucket) == ()
    async with Context("s", root_path=sessions(bucket)) as context:
        assert context.fs.recovery.clean
        assert segments(bucket) == 2
        await context.add(UserMessage("Go"))
        assert segments(bucket) == 3
    first = (await stored(bucket))[:4]
    assert [type(record) for record in first] == [SessionStarted, WriterOpened, EvictionSet, ItemAdded]
    with pytest.raises(SessionLocked):
        await killed.add(UserMessage("Go"))


@pytest.mark.both_loops
async def test_two_that_open_a_new_session_record_its_beginning_once() -> None:
    bucket = MemoryBucket()
    both = [SharedFileSystem("s", root_path=sessions(bucket), layout=layout) for layout in (ENVELOPE, TEXT)]
    for fs in both:
        await fs.open()
        await fs.release()
    for fs, name in zip(both, ("first", "second"), strict=True):
        await fs.acquire()
        await fs.writer.add([user_message(fs, name)])
        await fs.release()
    records = await stored(bucket)
    assert [record.layout for record in records if isinstance(record, SessionStarted)] == ["envelope"]
    assert [record.epoch for record in records if isinstance(record, WriterOpened)] == [1, 5]
    for fs in both:
        await fs.close()


def writes(bucket: MemoryBucket) -> int:
    """How many requests so far are billed as writes."""
    return sum(kind in ("create", "put") for kind, _ in bucket.requests)


async def test_a_short_session_is_few_writes() -> None:
    bucket, steps = MemoryBucket(), []
    config = AgentConfig(
        offload_root_path=sessions(bucket), session_id="s", tools=[looking([], bucket, read_only=True)]
    )
    for _ in range(2):
        async with Agent(ScriptedModel(TURNS), config) as agent:
            steps.append(writes(bucket))
            await agent.query("Go")
            steps.append(writes(bucket))
        steps.append(writes(bucket))
    opening, query, closing, *again = [after - before for before, after in pairwise([0, *steps])]
    assert (opening, query, closing) == (2, 3, 1), "the first writer also writes the session's name"
    assert again == [2, 3, 2], "a mark for listings; and a chunk, since more than eight segments have none"


def test_a_framework_s_history_writes_twice_for_what_it_decides() -> None:
    """Once to take the session, and once to record and release it; nothing where nothing is new."""
    bucket = MemoryBucket()
    history = History("s", root_path=sessions(bucket), window=20_000)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
    counts = []
    for number in range(4):
        call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"word {number} " * 9_000}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        for _ in range(2):
            before = segments(bucket)
            history.messages({"messages": messages})
            counts.append(segments(bucket) - before)
    history.close()
    assert counts[1:] == [0, 2, 0, 2, 0, 2, 0]
