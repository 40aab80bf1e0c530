"""A context through a longer life: closed and opened again, a disk that fails in between, and plans that add up."""

import errno
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxfs import Agent, AgentConfig, tool
from ctxfs.context import Context, History
from ctxfs.errors import ConfigError, SessionClosed, Unrecorded
from ctxfs.eviction.events import Evicted, RecordFailed
from ctxfs.eviction.offload_plan import Plan, Trim
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.timeline.costs import account
from ctxfs.storage import MemoryStore
from ctxfs.storage.local import LocalStore
from ctxfs.testing import ScriptedModel
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.testing.scripted import Turn
from failing_fs import FailingFileSystem, as_port

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

LONG = "a line of a long result\n" * 400


def calls(*names: str, first: int) -> AssistantMessage:
    return AssistantMessage(
        tuple(
            {"type": "tool_use", "id": f"c{n}", "name": name, "input": {"text": "long " * 300}}
            for n, name in enumerate(names, start=first)
        )
    )


def told(context: Context) -> dict[str, Any]:
    """Everything that says how large the context is and what leaves it next."""
    return {
        "items": context.items,
        "tokens": (context.token_count, sum(item.token_count for item in context.items)),
        "plan": context.plan(),
        "verdicts": context.decisions(),
        "open": context.open_calls,
        "calibration": context.calibration,
        "unrecorded": context.unrecorded,
        "saved": context.eager_stats,
    }


async def test_a_closed_context_that_is_opened_again_is_like_a_new_one(tmp_path: Path) -> None:
    def make(session_id: str | None) -> Context:
        economy = pricing_on(lambda: 1e9)
        return Context(
            session_id,
            root_path=tmp_path,
            keep_recent={"Read": 2},
            pricing=economy,
            window=None,
            counter=CharsCounter(),
        )

    context = make(None)
    async with context:
        await context.set_system_prompt("Be brief.")
        await context.add(UserMessage("go"))
        for number in range(4):
            tokens = context.counted_tokens * 3 // 2
            name = "Read" if number < 2 else "Bash"
            await context.messages()
            usage = Usage(input_tokens=tokens)
            await context.add(calls(name, first=number), ToolMessage(f"c{number}", name, LONG), usage=usage, model="m")
    for _ in range(2):
        async with context:
            again = told(context)
        async with make(context.session_id) as new:
            assert again == told(new)
    assert again["tokens"][0] == again["tokens"][1]


async def test_a_closed_agent_goes_on_where_it_was(tmp_path: Path) -> None:
    @tool("Print much", ephemeral=2)
    def much() -> str:
        return LONG

    turns: list[Turn] = [[ToolCall("much", {})], [ToolCall("much", {})], "one", [ToolCall("much", {})], "two"]
    agent = Agent(ScriptedModel(turns), AgentConfig(tools=[much], offload_root_path=tmp_path))
    async with agent:
        assert await agent.query("first") == "one"
        before = told(agent.context)
    async with agent:
        assert told(agent.context) == before
        assert await agent.query("second") == "two"
        offloaded = [item.id for item in agent.context.items if item.offloaded]
        assert offloaded == ["call_001"]
        assert agent.context.token_count == sum(item.token_count for item in agent.context.items)


async def test_a_system_prompt_that_could_not_be_written_takes_the_old_ones_place_all_the_same(tmp_path: Path) -> None:
    disk = FailingFileSystem(lambda number, name: name in {"write", "pwrite"}, errno.ENOSPC)
    disk.armed = False
    events: list[Any] = []
    fs = ContextFileSystem("s", root_path=tmp_path, store=LocalStore(tmp_path, "s", fs=as_port(disk)))
    async with Context(fs, counter=CharsCounter(), on_event=events.append) as context:
        await context.set_system_prompt("old")
        await context.add(UserMessage("hi"))
        disk.armed = True
        await context.set_system_prompt("never written")
        await context.set_system_prompt("new")
        assert [type(event) for event in events] == [RecordFailed, RecordFailed]
        assert [m.content for m in await context.messages() if isinstance(m, SystemMessage)] == ["new"]
        assert [item.message.content for item in await fs.items()] == ["old", "hi"]
        disk.armed = False
        await context.add(AssistantMessage("hello"))
        assert context.unrecorded == ()
        items = context.items
    assert [item.message.content for item in items] == ["hi", "new", "hello"]
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as again:
        assert again.items == items


def ids(plan: Plan) -> list[str]:
    """What leaves by a plan: results by their own ids, arguments by those of their files."""
    return [step.stored.id if isinstance(step, Trim) else step.item_id for step in plan.offloads]


@example(turns=[[], [], ["Bash"], ["Bash"] * 3, [], ["Read"]], keep={}, waits=[1, 1, 1, 1, 400, 1, 1, 1])
@given(
    turns=st.lists(st.lists(st.sampled_from(["Read", "Bash", "Write"]), max_size=3), min_size=1, max_size=8),
    keep=st.dictionaries(st.sampled_from(["Read", "Bash", "Write"]), st.integers(1, 2)),
    waits=st.lists(st.sampled_from([1, 400, 10_000]), min_size=8, max_size=8),
)
async def test_nothing_leaves_twice_whatever_rules_there_are(
    turns: list[list[str]], keep: dict[str, int], waits: list[int]
) -> None:
    now, left, shortened = [0.0], Counter[str](), Counter[str]()  # a long placeholder gives way to a short one once
    fs = ContextFileSystem("s", store=MemoryStore("s"))
    economy = pricing_on(lambda: now[0])
    unsent: list[str] = []  # what leaves when it is added
    async with Context(
        fs,
        keep_recent=keep,
        pricing=economy,
        counter=CharsCounter(),
        on_event=lambda event: unsent.append(event.item_id) if isinstance(event, Evicted) else None,
    ) as context:
        number = 0
        for names, wait in zip(turns, waits, strict=False):
            question: Message = UserMessage("go on")
            reply = calls(*names, first=number) if names else AssistantMessage("ok")
            results = [ToolMessage(f"c{n}", name, LONG) for n, name in enumerate(names, start=number)]
            unsent.clear()
            long = {item.id for item in context.items if item.can_shrink}
            await context.add(question, reply, *results)  # what is due leaves in the same commit
            left.update(unsent)
            shortened.update(long.intersection(unsent))
            number += len(names)
            now[0] += wait
            plan, tokens = context.plan(), context.token_count
            shortened.update(item.id for item in context.items if item.can_shrink and item.id in ids(plan))
            assert max(Counter(ids(plan)).values(), default=0) <= 1
            assert plan.tokens_freed < tokens
            await context.messages()
            assert context.token_count == tokens - plan.tokens_freed == sum(i.token_count for i in context.items)
            left.update(ids(plan))
            kept = Counter(i.tool_name for i in context.items if i.tool_name and not i.offloaded)
            seen = Counter(names)
            assert all(kept[name] <= n + seen[name] for name, n in keep.items())
        assert all(count == 1 + shortened[item_id] and shortened[item_id] <= 1 for item_id, count in left.items())
        departures = account(await fs.history()).departures
        assert sum(len(d.item_ids) for d in departures) == len(left)  # each counts once


async def test_what_keep_recent_governs_leaves_by_no_other_rule(tmp_path: Path) -> None:
    now = [0.0]
    economy = pricing_on(lambda: now[0])
    context = Context(root_path=tmp_path, keep_recent={"Read": 1}, pricing=economy, counter=CharsCounter())
    async with context:
        for number in range(5):
            await context.add(UserMessage("go"), calls("Read", first=number), ToolMessage(f"c{number}", "Read", LONG))
        await context.add(AssistantMessage("ok"))
        now[0] = 1e6  # the cache is cold: all that pays leaves
        results = [step for step in context.plan().offloads if not isinstance(step, Trim)]
        assert [step.reason for step in results] == ["Read keeps its last 1 (setting: keep_recent)"] * 4


# Over files that somebody else opened ---------------------------------------------------------------------------------


async def test_a_context_over_open_files_resumes_the_session(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        await context.add(UserMessage("hi"), AssistantMessage("hello"))
        items = context.items
    fs = ContextFileSystem("s", root_path=tmp_path)
    await fs.open()
    again = Context(fs, counter=CharsCounter())
    again.tools = []
    with pytest.raises(SessionClosed, match="open"):
        await again.add(UserMessage("too early"))
    async with again:
        assert again.items == items
        await again.add(UserMessage("more"))
        expected = again.items
    assert not fs.is_open
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as last:
        assert last.items == expected


async def test_open_files_have_one_context(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        await context.add(UserMessage("hi"))
        other = Context(context.fs, counter=CharsCounter())
        with pytest.raises(ConfigError, match="has a context"):
            await other.open()
        with pytest.raises(SessionClosed):
            await other.add(UserMessage("not in here"))
        await other.close()
        await context.add(AssistantMessage("hello"))
        items = context.items
    async with other:
        assert other.items == items


async def test_a_context_over_open_files_of_a_history_is_refused(tmp_path: Path) -> None:
    async with History("s", root_path=tmp_path) as history:
        await history.aarrive(LONG * 10, tool="Read", call_id="c1")
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        recorded = await fs.history()
        with pytest.raises(ConfigError, match="History"):
            await Context(fs).open()
        assert fs.is_open
        assert await fs.history() == recorded


async def test_a_context_over_files_for_reading_only_is_refused(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        await context.add(UserMessage("hi"))
    fs = ContextFileSystem("s", root_path=tmp_path, read_only=True)
    with pytest.raises(ConfigError, match="reading only"):
        Context(fs)


async def test_files_that_somebody_opened_again_are_resumed_before_anything_is_added(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        await context.add(UserMessage("hi"))
        await context.fs.close()
        async with Context("s", root_path=tmp_path, counter=CharsCounter()) as other:
            await other.add(AssistantMessage("hello"))
        await context.fs.open()
        with pytest.raises(SessionClosed):
            await context.add(UserMessage("more"))
        await context.open()
        await context.add(UserMessage("more"))
        assert [item.message.content for item in context.items] == ["hi", "hello", "more"]


async def test_what_was_not_recorded_is_told_where_somebody_opened_the_files_again(tmp_path: Path) -> None:
    context = Context("s", root_path=tmp_path, counter=CharsCounter())
    await context.open()
    await context.add(UserMessage("hi"), durable=False)
    await context.fs.close()
    await context.fs.open()
    with pytest.raises(Unrecorded):
        await context.close()
    assert not context.fs.is_open


async def test_closing_closes_files_that_were_open_before(tmp_path: Path) -> None:
    fs = ContextFileSystem("s", root_path=tmp_path)
    await fs.open()
    await Context(fs).close()
    assert not fs.is_open
