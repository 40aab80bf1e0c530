"""What a session takes in is refused without a trace, or is the same after it was opened again."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic.types
import anyio
import openai.types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contents import ANY_TEXT, CONTENTS
from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, ContextItem, tool
from ctxfs.errors import (
    ConfigError,
    CtxfsError,
    InvalidRecord,
    InvalidReply,
    StorageError,
    ToolError,
    TranscriptError,
    Unrecorded,
)
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.messages import CharsCounter, ContentRange, ModelEvent, ModelRequest, Reply, TokenCounter, ToolCall, Usage
from ctxfs.messages.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.journal import scan
from ctxfs.storage.local import LocalStore
from ctxfs.storage.memory import MemoryStore
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Tool, ToolResult
from failing_fs import FailingFileSystem, as_port
from session_items import forged_line, user_message

ROOT = Path("/root-of-sessions")
LONG = "a line of a long result\n" * 800
COUNTER = CharsCounter(4)

# Anything that a caller could hand in by mistake.
NUMBERS = [0, 1, -1, 2**70, 1.0, 1.5, float("nan"), float("inf"), Decimal(1)]
DATA = [(), (1,), [], [None], {}, {"a": (1,)}, {1: 2}, {"type": "text"}, object(), SimpleNamespace(a=1)]
ODD = st.sampled_from([None, True, False, "", "x", "\ud83d\ude00", "\ud800", b"x", *NUMBERS, *DATA])
NAMES = st.sampled_from(["c1", "c2", "Read", "", "\ud83d\ude00", "../x", "C1", "\ud800"])
BLOCKS: list[Any] = [
    anthropic.types.TextBlock(type="text", text="from the SDK"),
    anthropic.types.ToolUseBlock(type="tool_use", id="c1", name="Read", input={"path": "a"}),
]
SDK_REPLY = anthropic.types.Message(
    id="m", type="message", role="assistant", content=BLOCKS, model="claude", stop_reason="tool_use",
    stop_sequence=None, usage=anthropic.types.Usage(input_tokens=3, output_tokens=4),
)  # fmt: skip
CALL = st.builds(lambda i, name: {"type": "tool_use", "id": i, "name": name, "input": {"path": LONG}}, NAMES, NAMES)
SOURCES = st.builds(
    lambda i, path: ContentRange(item_id=i, path=path, first_line=1, last_line=2), NAMES, NAMES
) | ODD  # fmt: skip
REPLIES = st.one_of(
    st.builds(AssistantMessage, st.lists(CALL | ODD, max_size=3).map(tuple) | CONTENTS | ODD),
    st.builds(lambda blocks: {"role": "assistant", "content": blocks}, st.lists(CALL, max_size=2) | ODD),
    st.sampled_from([SDK_REPLY, SDK_REPLY.to_dict(), {"role": "assistant", "content": BLOCKS}]),
    st.just({"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}),
)
RESULTS = st.builds(
    ToolMessage,
    tool_call_id=st.just("c1") | NAMES | ODD,
    tool_name=st.just("Read") | ODD,
    content=CONTENTS | ODD | st.just(LONG),
    is_error=st.booleans() | ODD,
    offloaded=st.booleans() | ODD,
    offload_path=st.none() | ODD,
) | st.builds(
    lambda i, content, flag: {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": i, "content": content, "is_error": flag}],
    },
    NAMES | ODD,
    CONTENTS | ODD,
    st.booleans() | ODD,
)
RESULT_FIELDS = st.sampled_from(["tool_call_id", "tool_name", "content", "is_error", "offloaded", "offload_path"])
NEARLY_RESULTS = st.builds(
    lambda name, value: ToolMessage(**{"tool_call_id": "c1", "tool_name": "Read", "content": "x", name: value}),
    RESULT_FIELDS,
    ODD,
)
OTHERS = st.one_of(
    st.builds(UserMessage, CONTENTS | ODD),
    st.builds(SystemMessage, CONTENTS | ODD),
    st.builds(lambda content: {"role": "user", "content": content}, CONTENTS.map(list) | ODD),
    ODD,
)
COUNTS = st.integers(0, 9) | ODD
FIELDS = st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens", "prompt_tokens"])
USAGES = (
    st.dictionaries(FIELDS, COUNTS, max_size=3)
    | st.builds(SimpleNamespace, input_tokens=COUNTS, output_tokens=COUNTS)
    | ODD
)

QUESTION = {"role": "user", "content": "go"}
OPEN_CALLS = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": i, "name": "Read", "input": {}} for i in ("c1", "c2", "c1")],
}

Step = Callable[[Context], Awaitable[object]]


def add(messages: list[Any], sources: Any, usage: Any, model: Any) -> Step:
    return lambda context: context.add(*messages, sources=sources, usage=usage, model=model)


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        add,
        st.lists(REPLIES | RESULTS | OTHERS, min_size=1, max_size=2),
        st.none() | st.dictionaries(NAMES, SOURCES, max_size=2),
        st.none() | USAGES,
        st.none() | ODD,
    ),
    st.builds(add, NEARLY_RESULTS.map(lambda result: [result]), st.none(), st.none(), st.none()),
    st.builds(lambda name, text: lambda context: context.add_skill_prompt(name, text), NAMES | ODD, ANY_TEXT | ODD),
    st.builds(lambda content: lambda context: context.set_system_prompt(content), CONTENTS | ODD),
    st.builds(lambda text: lambda context: context.answer_open_calls(text), ANY_TEXT | ODD),
    st.just(lambda context: context.evict()),
)


def session(store: MemoryStore, counter: TokenCounter = COUNTER) -> Context:
    fs = ContextFileSystem("session_1", root_path=ROOT, store=store, clock=lambda: 1.0)
    return Context(fs, counter=counter, pricing=EvictionPricing(), keep_recent={"Read": 1})


async def trace(context: Context, store: MemoryStore) -> object:
    """All that a refused message could have changed."""
    return context.items, context.unrecorded, context.open_calls, store.read_log(), store.names()


async def play(steps: list[Step]) -> None:
    store, control = MemoryStore(), MemoryStore()
    async with session(store) as context, session(control) as clean:
        for one in (context, clean):
            await one.add(QUESTION, OPEN_CALLS)
        for step in steps:
            before = await trace(context, store)
            try:
                await step(context)
            except CtxfsError:
                assert await trace(context, store) == before
            else:
                await step(clean)
        # Ids, names and placeholders too are as if what was refused had never come.
        assert context.items == clean.items
        held, calls = context.items, list(context.fs.state.calls)
    async with session(store) as again:
        assert again.fs.recovery.clean
        assert (again.items, again.fs.state.calls) == (held, calls)


@given(st.lists(STEPS, max_size=6))
def test_what_is_taken_in_is_there_again_and_what_is_refused_leaves_no_trace(steps: list[Step]) -> None:
    anyio.run(play, steps)


class Odd:
    """A model that calls a tool and then answers, and reports what it is given as its usage and its name."""

    def __init__(self, usage: Any, model: Any, content: Any) -> None:
        self.model = "odd"
        self._replies = [content, ({"type": "text", "text": "Done."},)]
        self._usage, self._model = usage, model

    def check(self) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is open."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        content = self._replies.pop(0) if self._replies else "Done."
        message = AssistantMessage(content)
        yield Reply(message=message, usage=self._usage, stop_reason="end_turn", model=self._model)


def result_tool(value: Any, is_error: Any, source: Any) -> Tool:
    async def lookup() -> object:
        return ToolResult(value, is_error=is_error, source=source) if is_error != 0 else value

    return tool("Look something up", name="Read")(lookup)


async def converse(root: str, model: Odd, result: Tool) -> None:
    config = AgentConfig(tools=[result], offload_root_path=root, session_id="s")
    async with Agent(model, config) as agent:
        for question in ("first", "second"):
            with suppress(CtxfsError):
                await agent.query(question)
        held, unrecorded = agent.context.items, agent.context.unrecorded
    assert unrecorded == ()
    async with Context("s", root_path=root) as again:
        assert again.fs.recovery.clean
        assert again.items == held


@given(
    st.builds(Odd, USAGES, st.just("m") | ODD, st.lists(CALL | ODD, max_size=2).map(tuple) | CONTENTS | ODD),
    st.builds(result_tool, CONTENTS | ODD, st.booleans() | ODD, st.none() | SOURCES),
)
def test_what_a_model_and_a_tool_hand_in_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, model: Odd, result: Tool
) -> None:
    anyio.run(converse, str(tmp_path_factory.mktemp("root")), model, result)


# One by one ----------------------------------------------------------------------------------------------------------

CALL_C1 = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Read", "input": {}}]}
ANSWER: dict[str, Any] = {"tool_call_id": "c1", "tool_name": "Read", "content": ""}
BESIDE = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}


def refused(error: type[CtxfsError], match: str, step: Callable[[Any], Awaitable[object]]) -> Any:
    return pytest.param(error, match, step, id=match)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "match", "step"),
    [
        refused(InvalidReply, "input_tokens", lambda c: c.add(CALL_C1, usage={"input_tokens": -1})),
        refused(InvalidReply, "model is", lambda c: c.add(CALL_C1, usage=Usage(), model=5)),
        refused(
            InvalidReply, "no message here is one", lambda c: c.add({"role": "user", "content": "x"}, usage=Usage())
        ),
        refused(ConfigError, "error is 'too long'", lambda c: c.refused("too long")),
        refused(TranscriptError, "ContentRange", lambda c: c.add(CALL_C1, ToolMessage(**ANSWER), sources={"c1": "x"})),
        refused(TranscriptError, "is_error", lambda c: c.add(CALL_C1, ToolMessage(**{**ANSWER, "is_error": 1}))),
        refused(TranscriptError, "tool_name", lambda c: c.add(CALL_C1, ToolMessage(**{**ANSWER, "tool_name": None}))),
        refused(TranscriptError, "of type tool_use", lambda c: c.add(BESIDE)),
        refused(TranscriptError, "not a message", lambda c: c.add(SimpleNamespace(content="x"))),
        refused(TranscriptError, "skill's name", lambda c: c.add_skill_prompt(None, "x")),
        refused(TranscriptError, "content is a text", lambda c: c.add_skill_prompt("x", 5)),
        refused(TranscriptError, "skill's name is blank", lambda c: c.add_skill_prompt("", "x")),
        refused(TranscriptError, "skill's text is blank", lambda c: c.add_skill_prompt("x", " \n")),
        refused(TranscriptError, "blocks, not 5", lambda c: c.set_system_prompt(5)),
    ],
)
async def test_what_could_not_be_read_back_is_refused_before_it_enters(
    error: type[CtxfsError], match: str, step: Step
) -> None:
    store = MemoryStore()
    async with session(store) as context:
        await context.add(QUESTION)
        before = await trace(context, store)
        with pytest.raises(error, match=match):
            await step(context)
        assert await trace(context, store) == before
        assert [item.id for item in await context.add(CALL_C1)] == ["msg_002"]


@pytest.mark.anyio
async def test_answers_to_open_calls_are_texts() -> None:
    async with session(MemoryStore()) as context:
        await context.add(QUESTION, CALL_C1)
        with pytest.raises(TranscriptError, match="content"):
            await context.answer_open_calls(None)  # type: ignore[arg-type]
        await context.answer_open_calls("interrupted")
        assert context.open_calls == ()


@pytest.mark.anyio
async def test_a_reply_is_not_the_first_message() -> None:
    """Opening the session again would take the question for lost."""
    async with session(MemoryStore()) as context:
        await context.set_system_prompt("Be brief.")
        with pytest.raises(TranscriptError, match="reply comes first"):
            await context.add({"role": "assistant", "content": "Hello!"})
        await context.add(QUESTION, {"role": "assistant", "content": "Hello!"})


@pytest.mark.anyio
@pytest.mark.parametrize("reply", [SDK_REPLY, SDK_REPLY.to_dict(), {"role": "assistant", "content": SDK_REPLY.content}])
async def test_a_reply_of_the_sdk_is_taken_as_it_is(reply: Any) -> None:
    store = MemoryStore()
    async with session(store) as context:
        await context.add(QUESTION)
        (item,) = await context.add(reply, usage=SDK_REPLY.usage, model=SDK_REPLY.model)
        assert item.message.content == tuple(block.to_dict() for block in SDK_REPLY.content)
        (call,) = context.fs.state.calls
    assert (call.usage, call.model) == (Usage(input_tokens=3, output_tokens=4), "claude")
    async with session(store) as again:
        assert (again.items[-1], again.fs.state.calls) == (item, [call])


@pytest.mark.anyio
async def test_the_usage_of_openais_sdk_is_taken_too() -> None:
    chat = openai.types.CompletionUsage(prompt_tokens=9, completion_tokens=2, total_tokens=11)
    async with session(MemoryStore()) as context:
        await context.add(QUESTION)
        await context.add({"role": "assistant", "content": "Hi."}, usage=chat)
        assert [call.usage for call in context.fs.state.calls] == [Usage(input_tokens=9, output_tokens=2)]


class Halves:
    """A counter that counts half tokens while ``halves`` is set."""

    halves = False

    def count(self, text: str) -> int:
        return len(text) / 2 if self.halves else COUNTER.count(text)  # type: ignore[return-value]


@pytest.mark.anyio
async def test_an_item_that_could_not_be_recorded_does_not_enter() -> None:
    store, counter = MemoryStore(), Halves()
    context = session(store, counter)
    async with context:
        await context.add(QUESTION)
        before = await trace(context, store)
        counter.halves = True
        with pytest.raises(InvalidRecord, match="token_count"):
            await context.add({"role": "user", "content": "abc"})
        assert await trace(context, store) == before
        counter.halves = False
        await context.add({"role": "user", "content": "abc"})


# Accounting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usage", [{"input_tokens": 1.5}, {"input_tokens": -1}, {"input_tokens": "1"}, [], None])
def test_a_damaged_account_of_a_call_does_not_take_a_message_with_it(usage: object) -> None:
    message = {"role": "user", "content": "kept"}
    item = {"id": "a", "item_type": "user_message", "name": "a.json", "token_count": 1, "content_tokens": 1}
    line = forged_line(
        1,
        {"type": "item_added", "item": {**item, "message": message}},
        {"type": "call_made", "number": 1, "usage": usage, "model": "m"},
    )
    found = scan(line)
    assert [type(record).__name__ for record in found.records] == ["ItemAdded"]
    assert ["what a call cost is not readable" in damage.reason for damage in found.damages] == [True]
    assert found.last_seq == 1


def test_other_records_of_a_commit_are_there_together_or_not_at_all() -> None:
    line = forged_line(1, {"type": "closed", "closed_at": 1.0}, {"type": "removed", "item_ids": "no list", "reason": 5})
    found = scan(line)
    assert (found.records, len(found.damages)) == ((), 1)


# Writing that no retry can help --------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_closing_with_items_that_could_not_be_written_says_so_and_releases_the_session(tmp_path: Path) -> None:
    full = FailingFileSystem(lambda number, name: name in ("write", "link"))
    full.armed = False
    store = partial(LocalStore, tmp_path, "session_1")
    context = Context(ContextFileSystem("session_1", root_path=tmp_path, store=store(fs=as_port(full))))
    await context.open()
    await context.add(QUESTION)
    full.armed = True
    await context.add({"role": "user", "content": "lost?"})
    assert context.unrecorded == ("msg_002",)
    with pytest.raises(Unrecorded, match="msg_002") as raised:
        await context.close()
    assert (raised.value.items, isinstance(raised.value.__cause__, StorageError)) == (("msg_002",), True)
    assert [item.message.content for item in context.items] == ["go", "lost?"]
    await context.close()
    async with Context("session_1", root_path=tmp_path) as again:
        assert [item.id for item in again.items] == ["msg_001"]


@pytest.mark.anyio
async def test_an_error_that_no_retry_can_help_is_raised_at_once(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        (good,), log = [user_message(fs, "good")], tmp_path / "session_1" / "journal.jsonl"
        size = log.stat().st_size
        for bad in (replace(good, token_count=1.5), replace(good, label=5)):  # type: ignore[arg-type]
            with pytest.raises(InvalidRecord):
                await fs.writer.add([bad])
        with pytest.raises(InvalidRecord):
            await fs.writer.remove([5], reason="not an id")  # type: ignore[list-item]
        assert log.stat().st_size == size
        await fs.writer.add([good])


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_one_callers_bad_record_is_not_anothers(tmp_path: Path) -> None:
    failed: list[str] = []
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        items = [user_message(fs, f"message {number}") for number in range(6)]
        items[3] = replace(items[3], token_count=1.5)  # type: ignore[arg-type]

        async def record(item: ContextItem) -> None:
            try:
                await fs.writer.add([item])
            except InvalidRecord:
                failed.append(item.id)

        async with anyio.create_task_group() as tasks:
            for item in items:
                tasks.start_soon(record, item)
        assert failed == [items[3].id]
        assert {item.id for item in await fs.items()} == {item.id for item in items} - set(failed)


@pytest.mark.anyio
async def test_two_lone_surrogates_side_by_side_stay_two(tmp_path: Path) -> None:
    """JSON's escapes would join them; the line has them as they are."""
    pair = "\ud83d\ude00"
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        item = replace(user_message(fs, "x"), label=pair)
        await fs.writer.add([item])
        await fs.writer.record_call(Usage(), pair)
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        assert fs.recovery.clean
        assert ([one.label for one in await fs.items()], fs.state.calls[0].model) == ([pair], pair)


# Tools and callbacks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "value"), [("is_error", "no"), ("is_error", 1), ("source", "a file"), ("source", 5)])
def test_a_tools_result_is_checked_where_it_is_made(field: str, value: Any) -> None:
    with pytest.raises(ToolError, match=field):
        ToolResult("x", **{field: value})
    assert ToolResult("x", is_error=None) == ToolResult("x")  # type: ignore[arg-type]


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_redaction_that_gives_no_content_loses_no_other_result(tmp_path: Path) -> None:
    turns: list[Any] = [[ToolCall("fast", {}), ToolCall("slow", {})], "Done."]

    @tool("Fast", name="fast")
    async def fast() -> str:
        return "fast result"

    @tool("Slow", name="slow")
    async def slow() -> str:
        await anyio.wait_all_tasks_blocked()
        return "slow result"

    def redact(call: ToolCall, content: Any) -> Any:
        return content if call.name == "fast" else None

    config = AgentConfig(tools=[fast, slow], offload_root_path=tmp_path, redact=redact)
    async with Agent(ScriptedModel(turns), config) as agent:
        with pytest.raises(ConfigError, match="redact returned"):
            await agent.query("go")
        texts = [item.message.content for item in agent.context.items if isinstance(item.message, ToolMessage)]
        assert texts[0] == "fast result"
        assert "slow result" not in texts
        assert await agent.query("go on") == "Done."
