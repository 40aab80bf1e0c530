"""The complete workflow of "Context FileSystem 上下文卸载功能", and what an agent must survive."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.agent import ChatAnthropic, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.agent.config import Redact
from ctxfs.errors import (
    AgentBusy,
    ConfigError,
    ReplyIncomplete,
    SessionClosed,
    SessionError,
    TurnLimitReached,
)
from ctxfs.eviction import Evicted, Offloaded
from ctxfs.messages import TextDelta, ToolCall
from ctxfs.messages.messages import ToolMessage, text_of
from ctxfs.messages.names import Layout
from ctxfs.testing import Cut, MessagesServer, ScriptedModel
from ctxfs.testing.invariants import check
from ctxfs.testing.scripted import Turn
from ctxfs.tools import Materialize

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

LINES = 300


def big(name: str) -> str:
    return "\n".join(f"{name} line {n}: the quick brown fox jumps over the lazy dog" for n in range(1, LINES + 1))


@tool("Read a file", ephemeral=2)
async def read_file(path: str) -> str:
    return big(path)


def reads(*paths: str) -> list[ToolCall]:
    return [ToolCall("read_file", {"path": path}) for path in paths]


def agent_with(root: Path, turns: Sequence[Turn], **settings: object) -> Agent:
    settings = {"tools": [read_file], "offload_root_path": root, **settings}
    return Agent(ScriptedModel(turns), AgentConfig(**settings))  # type: ignore[arg-type]


class Waiting:
    """A tool that says when it runs and waits until it may end."""

    def __init__(self) -> None:
        self.started, self.go_on = anyio.Event(), anyio.Event()
        self.tool = tool("Wait", name="wait")(self._wait)

    async def _wait(self) -> str:
        self.started.set()
        await self.go_on.wait()
        return "ok"


async def test_the_specs_example(tmp_path: Path) -> None:
    turns = [step for n in range(1, 5) for step in (reads(f"file{n}.txt"), f"read {n}")]
    async with agent_with(tmp_path, turns, offload_token_threshold=1000) as agent:
        for n in range(1, 5):
            assert await agent.query(f"Read file{n}.txt") == f"read {n}"
            left = [i.tool_name for i in agent.context.items if i.offloaded]
            assert len(left) == max(0, n - 2)
        offloaded = [item for item in agent.context.items if item.offloaded]
        for number, item in enumerate(offloaded, start=1):
            assert item.destroyed
            assert item.item_type == "tool_result"
            assert item.token_count < item.content_tokens
            assert item.offload_path is not None
            path = Path(item.offload_path)
            assert path.is_absolute()
            assert path == tmp_path / agent.session_id / "tool_result" / "read_file" / f"{item.id}.json"
            envelope = json.loads(await anyio.Path(path).read_text())
            assert list(envelope) == ["schema_version", "item_id", "item_type", "offloaded_at", "metadata", "content"]
            assert envelope["schema_version"] == "1.0"
            assert envelope["metadata"]["tool_name"] == "read_file"
            assert envelope["content"] == big(f"file{number}.txt")
            assert item.message.content.startswith(  # type: ignore[union-attr]
                f"[Content offloaded]\nPath: {path}\nUse Read tool to view details."
            )
        index = json.loads((tmp_path / agent.session_id / "index.json").read_text())
        assert index


@pytest.mark.service
async def test_the_specs_example_through_the_real_sdk(tmp_path: Path) -> None:
    turns: list[Turn] = [step for n in range(1, 5) for step in (reads(f"file{n}.txt"), f"read {n}")]
    config = AgentConfig(tools=[read_file], offload_root_path=tmp_path, offload_token_threshold=1000)
    async with MessagesServer(turns) as server:
        agent = Agent(llm=ChatAnthropic(base_url=server.url, api_key="test"), config=config)
        for n in range(1, 5):
            assert await agent.query(f"Read file{n}.txt") == f"read {n}"
        left = [item for item in agent.context.items if item.offloaded]
        assert [await agent.context.fs.load(item.id) for item in left] == [big("file1.txt"), big("file2.txt")]
        await agent.close()
    assert server.refusals == []
    last = json.dumps(server.requests[-1]["messages"])
    assert last.count("[Content offloaded]") == 2
    assert "file3.txt line 300:" in last
    assert all(call.usage.cache_read_input_tokens for call in agent.context.fs.state.calls[1:])


async def test_four_parallel_results_are_all_seen_once(tmp_path: Path) -> None:
    model = ScriptedModel([reads("a", "b", "c", "d"), reads("e"), "done"])
    async with Agent(
        model, AgentConfig(tools=[read_file], offload_root_path=tmp_path, ephemeral_keep_recent=1)
    ) as agent:
        await agent.query("go")
    seen, later = (json.dumps(request["messages"]) for request in model.requests[1:])
    assert seen.count("line 300:") == 4
    assert "[Content offloaded]" not in seen
    assert later.count("[Content offloaded]") == 4
    assert later.count("line 250:") == 1


async def test_events_in_order(tmp_path: Path) -> None:
    async with agent_with(tmp_path, [reads("a", "b"), reads("c"), "done"], ephemeral_keep_recent=1) as agent:
        events = [event async for event in agent.stream("go")]
    kinds = [type(event) for event in events if not isinstance(event, TextDelta)]
    assert kinds == [
        UsageReported, ToolStarted, ToolStarted, ToolEnded, ToolEnded,
        UsageReported, ToolStarted, ToolEnded,
        Offloaded, Evicted, Offloaded, Evicted, UsageReported, Done,
    ]  # fmt: skip
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.stop_reason, done.turns) == ("done", "end_turn", 3)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "done"


@pytest.mark.parametrize("settings", [{"materialize": Materialize()}, {"pricing": "auto"}, {"pricing": None}])
async def test_the_end_of_a_tool_shows_what_the_model_will_see_and_the_whole(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    @tool("Print lines")
    def lines(n: int) -> str:
        return "".join(f"line {i} of a long output\n" for i in range(n))

    model = ScriptedModel([[ToolCall("lines", {"n": 900}), ToolCall("lines", {"n": 2})], "done"])
    async with Agent(model, AgentConfig(tools=[lines], offload_root_path=tmp_path, **settings)) as agent:
        ended = [event async for event in agent.stream("go") if isinstance(event, ToolEnded)]
    sent = [block["content"] for block in model.requests[1]["messages"][-1]["content"]]
    assert [text_of(event.result.content) for event in ended] == sent
    assert [event.whole.content.count("\n") for event in ended if isinstance(event.whole.content, str)] == [900, 2]
    assert (ended[0].result == ended[0].whole) == ("materialize" not in settings)
    assert ended[1].result == ended[1].whole


async def test_small_results_leave_too_but_never_for_a_larger_placeholder(tmp_path: Path) -> None:
    @tool("Say yes", ephemeral=1)
    def yes(n: int) -> str:
        return f"yes {n}" if n % 2 else "a middling answer " * 40

    turns: list[Turn] = [[ToolCall("yes", {"n": n})] for n in range(4)]
    async with agent_with(tmp_path, [*turns, "done"], tools=[yes]) as agent:
        await agent.query("go")
        results = [item for item in agent.context.items if item.tool_name == "yes"]
    assert [item.destroyed for item in results] == [True, False, True, False]


async def test_offload_switched_off_keeps_everything(tmp_path: Path) -> None:
    turns: list[Turn] = [reads("a"), reads("b"), reads("c"), "done"]
    async with agent_with(tmp_path, turns, offload_enabled=False) as agent:
        await agent.query("go")
        assert not any(item.destroyed for item in agent.context.items)


async def test_a_tool_that_raises_an_unknown_tool_and_bad_arguments_are_told_to_the_model(tmp_path: Path) -> None:
    @tool("Fail")
    def fail() -> str:
        raise OSError("the disk is on fire")

    calls = [ToolCall("fail", {}), ToolCall("nosuch", {}), ToolCall("read_file", {"file": 1})]
    model = ScriptedModel([calls, "done"])
    async with Agent(model, AgentConfig(tools=[fail, read_file], offload_root_path=tmp_path)) as agent:
        await agent.query("go")
    results = model.requests[1]["messages"][-1]["content"]
    assert [result["is_error"] for result in results] == [True, True, True]
    texts = [json.dumps(result["content"]) for result in results]
    assert "OSError: the disk is on fire" in texts[0]
    assert "nosuch" in texts[1]
    assert "read_file" in texts[1]
    assert "path" in texts[2]


@pytest.mark.parametrize("value", [b"x", float("nan"), {2024: 1}, [10**5000]])
async def test_content_that_cannot_be_recorded_is_told_to_the_model_and_the_session_goes_on(
    tmp_path: Path, value: object
) -> None:
    @tool("Look")
    async def look() -> list[dict[str, object]]:
        return [{"type": "text", "text": "rows", "raw": value}]

    turns: list[Turn] = [[ToolCall("look", {})], "done", "more"]
    async with agent_with(tmp_path, turns, tools=[look]) as agent:
        assert (await agent.query("one"), await agent.query("two")) == ("done", "more")
        assert agent.context.unrecorded == ()
        result = agent.context.items[2].message
        assert isinstance(result, ToolMessage)
        assert result.is_error
        assert "content[0]['raw']" in str(result.content)
        session_id, messages = agent.session_id, [item.message for item in agent.context.items]
    async with agent_with(tmp_path, [], session_id=session_id) as resumed:
        assert [item.message for item in resumed.context.items] == messages


async def test_results_stand_in_call_order_however_long_they_take(tmp_path: Path) -> None:
    finished: list[str] = []
    gates = {name: anyio.Event() for name in "ab"}
    gates["b"].set()

    @tool("Wait")
    async def wait(name: str) -> str:
        await gates[name].wait()
        finished.append(name)
        gates["a"].set()
        return name

    calls = [ToolCall("wait", {"name": "a"}), ToolCall("wait", {"name": "b"})]
    model = ScriptedModel([calls, "done"])
    async with Agent(model, AgentConfig(tools=[wait], offload_root_path=tmp_path)) as agent:
        await agent.query("go")
    assert finished == ["b", "a"]
    assert [b["content"] for b in model.requests[1]["messages"][-1]["content"]] == ["a", "b"]


async def test_a_second_query_at_the_same_time_is_refused(tmp_path: Path) -> None:
    waiting = Waiting()
    agent = agent_with(tmp_path, [[ToolCall("wait", {})], "done"], tools=[waiting.tool])
    async with agent, anyio.create_task_group() as group:
        group.start_soon(agent.query, "first")
        await waiting.started.wait()
        with pytest.raises(AgentBusy):
            await agent.query("second")
        waiting.go_on.set()


async def test_cancelled_tools_leave_a_valid_transcript_and_keep_what_had_finished(tmp_path: Path) -> None:
    started = anyio.Event()

    @tool("Never")
    async def never() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    model = ScriptedModel([[ToolCall("read_file", {"path": "a"}), ToolCall("never", {})], "done"])
    async with Agent(model, AgentConfig(tools=[read_file, never], offload_root_path=tmp_path)) as agent:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(agent.query, "go")
                await started.wait()
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert agent.context.open_calls == ()
        done, interrupted = [i.message for i in agent.context.items if i.item_type == "tool_result"]
        assert done.content == big("a")
        assert interrupted.is_error  # type: ignore[union-attr]
        assert "It may have run" in interrupted.content
        assert await agent.query("go on") == "done"
    for request in model.requests:
        check(request)


async def test_closing_an_agent_ends_its_query_and_the_calls_are_answered_when_the_session_goes_on(
    tmp_path: Path,
) -> None:
    model, waiting = ScriptedModel([[ToolCall("wait", {})], "again"]), Waiting()
    agent = Agent(model, AgentConfig(tools=[waiting.tool], offload_root_path=tmp_path))
    ended: list[Exception] = []

    async def query() -> None:
        try:
            await agent.query("first")
        except SessionError as error:
            ended.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(query)
        await waiting.started.wait()
        await agent.close()
        waiting.go_on.set()
    assert [type(error) for error in ended] == [SessionClosed]
    assert await agent.query("second") == "again"
    check(model.requests[1])
    await agent.close()
    resumed = ScriptedModel(["done"])
    config = AgentConfig(offload_root_path=tmp_path, session_id=agent.session_id)
    async with Agent(resumed, config) as again:
        assert await again.query("go on") == "done"
    check(resumed.requests[0])
    assert '"content": "ok"' in json.dumps(resumed.requests[0])  # the tool had ended after the close


async def test_closing_an_agent_records_the_calls_that_have_ended(tmp_path: Path) -> None:
    waiting = Waiting()

    @tool("Pay")
    async def pay() -> str:
        return "paid"

    calls = [ToolCall("wait", {}), ToolCall("pay", {})]
    agent = Agent(ScriptedModel([calls]), AgentConfig(tools=[waiting.tool, pay], offload_root_path=tmp_path))

    async def query() -> None:
        with pytest.raises(SessionClosed):
            await agent.query("first")

    async with anyio.create_task_group() as group:
        group.start_soon(query)
        await waiting.started.wait()
        await anyio.wait_all_tasks_blocked()
        await agent.close()
        model = ScriptedModel(["done"])
        config = AgentConfig(offload_root_path=tmp_path, session_id=agent.session_id)
        async with Agent(model, config) as next_one:
            assert await next_one.query("go on") == "done"
            messages = [item.message for item in next_one.context.items]
        waiting.go_on.set()
    check(model.requests[0])
    results = {each.tool_name: str(each.content) for each in messages if isinstance(each, ToolMessage)}
    assert results["pay"] == "paid"
    assert "It may have run" in results["wait"]


async def test_a_tool_that_ends_while_its_agent_closes_breaks_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, add, added = Waiting(), Context.add, list[int]()

    @tool("Pay")
    async def pay() -> str:
        return "paid"

    async def slow_add(context: Context, *messages: Any, **settings: Any) -> Any:
        if isinstance(messages[0], ToolMessage):
            added.append(len(messages))
            waiting.go_on.set()
            for _ in range(50):  # the query goes on meanwhile
                await anyio.lowlevel.checkpoint()
        return await add(context, *messages, **settings)

    monkeypatch.setattr(Context, "add", slow_add)
    model = ScriptedModel([[ToolCall("wait", {}), ToolCall("pay", {})], "done"])
    agent = Agent(model, AgentConfig(tools=[waiting.tool, pay], offload_root_path=tmp_path))

    async def query() -> None:
        with suppress(SessionClosed):
            await agent.query("first")

    async with anyio.create_task_group() as group:
        group.start_soon(query)
        await waiting.started.wait()
        await anyio.wait_all_tasks_blocked()
        await agent.close()
    assert added[0] == 1
    async with agent:
        results = [item.message for item in agent.context.items if isinstance(item.message, ToolMessage)]
        assert sorted(str(each.content) for each in results) == ["ok", "paid"]


async def test_a_reopened_agent_answers_no_call_of_another_reply(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, [[ToolCall("read_file", {"path": "a"}, id="call_0")], "yes", "done"])
    assert await agent.query("first") == "yes"
    await agent.close()
    async with Context(agent.session_id, root_path=tmp_path) as other:
        await other.add(
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "read_file", "input": {}}]},
        )
    async with agent:
        assert "It may have run" in str(agent.context.items[-1].message.content)
        assert await agent.query("go on") == "done"


async def test_closing_an_agent_hides_no_cancellation_and_no_error_of_a_callback(tmp_path: Path) -> None:
    waiting = Waiting()
    settings: dict[str, Any] = {"tools": [waiting.tool], "offload_root_path": tmp_path}
    agent = Agent(ScriptedModel([[ToolCall("wait", {})]]), AgentConfig(**settings))
    async with anyio.create_task_group() as group:
        group.start_soon(agent.query, "go")
        await waiting.started.wait()
        await agent.close()
        group.cancel_scope.cancel()

    async def closing(call: ToolCall) -> bool:
        await closed.close()
        raise RuntimeError("no answer")

    closed = Agent(ScriptedModel([[ToolCall("wait", {})]]), AgentConfig(**settings, approve=closing))
    with pytest.raises(RuntimeError, match="no answer"):
        await closed.query("go")


async def test_the_turn_limit_is_an_error_and_the_next_query_goes_on(tmp_path: Path) -> None:
    async with agent_with(tmp_path, [reads("a"), reads("b"), "done"], max_turns=2) as agent:
        with pytest.raises(TurnLimitReached):
            await agent.query("go")
        assert await agent.query("go on") == "done"


async def test_approval(tmp_path: Path) -> None:
    async def approve(call: ToolCall) -> bool | str:
        return True if call.arguments["path"] == "good" else "not that file"

    model = ScriptedModel([reads("good", "bad"), "done"])
    async with Agent(model, AgentConfig(tools=[read_file], offload_root_path=tmp_path, approve=approve)) as agent:
        await agent.query("go")
    good, bad = model.requests[1]["messages"][-1]["content"]
    assert "is_error" not in good
    assert "not that file" in json.dumps(bad)


async def test_an_error_without_a_text_is_a_result_too(tmp_path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    @tool("Fail")
    def fail() -> str:
        raise Mute

    model = ScriptedModel([[ToolCall("fail", {})], "done"])
    async with Agent(model, AgentConfig(tools=[fail], offload_root_path=tmp_path)) as agent:
        await agent.query("go")
    assert "Mute: its text cannot be shown: __str__ raised ZeroDivisionError" in json.dumps(model.requests[1])


SECRET = "sk-verysecret"


async def test_redaction_comes_before_everything_else(tmp_path: Path) -> None:
    @tool("Leak", ephemeral=1)
    def leak(fail: bool) -> str:
        if fail:
            raise ValueError(SECRET)
        return f"{SECRET} " * 5000

    def redact(call: ToolCall, content: object) -> str:
        return str(content).replace(SECRET, "[redacted]")

    calls = [[ToolCall("leak", {"fail": fail})] for fail in (False, True, False)]
    model = ScriptedModel([*calls, "done"])
    async with Agent(
        model, AgentConfig(tools=[leak], offload_root_path=tmp_path, redact=redact, layout=Layout("envelope", 0))
    ) as agent:
        events = [event async for event in agent.stream("go")]
    assert SECRET not in json.dumps(model.requests)
    assert not any(SECRET in repr(event) for event in events)
    for path in (tmp_path / agent.session_id).rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text()


def paying(redact: Redact, root: Path) -> Agent:
    """An agent whose tool changes something, and returns a secret with it."""

    @tool("Pay an invoice")
    async def pay() -> str:
        return f"paid with {SECRET}"

    config = AgentConfig(tools=[pay], offload_root_path=root, redact=redact)
    return Agent(ScriptedModel([[ToolCall("pay", {})], "done"]), config)


def is_clean(agent: Agent, root: Path) -> bool:
    """Whether the secret is not in the session."""
    return all(SECRET not in path.read_text() for path in (root / agent.session_id).rglob("*") if path.is_file())


async def test_a_result_that_was_being_redacted_when_the_query_was_cancelled_is_kept(tmp_path: Path) -> None:
    begun: list[object] = []

    async def redact(call: ToolCall, content: object) -> str:
        begun.append(content)
        if len(begun) == 1:
            scope.cancel()
            await anyio.sleep_forever()
        return str(content).replace(SECRET, "…")

    async with paying(redact, tmp_path) as agent:
        with anyio.CancelScope() as scope:
            await agent.query("go")
        assert agent.context.items[-1].message.content == "paid with …"
        assert is_clean(agent, tmp_path)
        assert await agent.query("again") == "done"


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_result_that_is_being_redacted_when_the_agent_closes_is_waited_for(
    hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def redact(call: ToolCall, content: object) -> str:
        begun.set()
        await go_on.wait()
        return str(content).replace(SECRET, "…")

    async def query() -> None:
        with pytest.raises(SessionClosed):
            await agent.query("go")

    if hangs:
        monkeypatch.setattr("ctxfs.agent.runner._REDACT_S", 0.01)
    agent = paying(redact, tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(query)
        await begun.wait()
        if hangs:
            await agent.close()
        else:
            group.start_soon(agent.close)
            await anyio.wait_all_tasks_blocked()
        go_on.set()
    async with Context(agent.session_id, root_path=tmp_path) as left:
        result = str(left.items[-1].message.content)
        assert ("has ended, but its result is not available" in result) if hangs else (result == "paid with …")
    assert is_clean(agent, tmp_path)


async def test_an_agent_that_closes_itself_in_redact_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxfs.agent.runner._ASK_S", None)  # waiting at all is an error

    async def redact(call: ToolCall, content: object) -> str:
        await agent.close()
        return str(content).replace(SECRET, "…")

    agent = paying(redact, tmp_path)
    with pytest.raises(SessionClosed):
        await agent.query("go")
    async with Context(agent.session_id, root_path=tmp_path) as left:
        assert "has ended, but its result is not available" in str(left.items[-1].message.content)
    assert is_clean(agent, tmp_path)


@pytest.mark.parametrize("then", ["hangs", "fails"])
async def test_a_result_that_cannot_be_redacted_after_a_cancellation_says_that_its_call_ended(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ctxfs.agent.runner._REDACT_S", 0.01)
    begun: list[object] = []

    async def redact(call: ToolCall, content: object) -> str:
        begun.append(content)
        scope.cancel()
        if len(begun) > 1 and then == "fails":
            raise RuntimeError(SECRET)
        await anyio.sleep_forever()
        raise AssertionError

    async with paying(redact, tmp_path) as agent:
        with anyio.CancelScope() as scope:
            await agent.query("go")
        assert "has ended" in str(agent.context.items[-1].message.content)
        assert is_clean(agent, tmp_path)
        assert await agent.query("again") == "done"
    assert len(begun) == 2
    assert ("redact raised RuntimeError" in caplog.text) == (then == "fails")
    assert SECRET not in caplog.text


async def test_a_result_that_redact_fails_for_says_that_its_call_ended(tmp_path: Path) -> None:
    def redact(call: ToolCall, content: object) -> str:
        raise RuntimeError("no model")

    async with paying(redact, tmp_path) as agent:
        with pytest.raises(RuntimeError, match="no model"):
            await agent.query("go")
        assert "has ended" in str(agent.context.items[-1].message.content)
        assert is_clean(agent, tmp_path)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio's tasks are cancelled by scopes only
async def test_a_cancellation_of_redacts_own_costs_one_result_and_hides_no_interrupt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    @tool("Press Ctrl-C")
    async def stop() -> str:
        await anyio.wait_all_tasks_blocked()
        raise KeyboardInterrupt

    @tool("Pay")
    async def pay(invoice: str) -> str:
        return f"paid {invoice}"

    async def redact(call: ToolCall, content: object) -> str:
        begun.append(str(content))
        if begun.count(str(content)) == 1:
            await anyio.sleep_forever()
        if content == "paid 1":
            other = asyncio.create_task(asyncio.sleep(3600))
            other.cancel()
            await other
        return f"redacted {content}"

    calls = [ToolCall("pay", {"invoice": number}) for number in "12"] + [ToolCall("stop", {})]
    config = AgentConfig(tools=[pay, stop], offload_root_path=tmp_path, redact=redact)
    async with Agent(ScriptedModel([calls, "done"]), config) as agent:
        with pytest.raises(KeyboardInterrupt):
            await agent.query("go")
        first, second, _ = [str(item.message.content) for item in agent.context.items[-3:]]
    assert "has ended" in first
    assert second == "redacted paid 2"
    assert "redact raised CancelledError" in caplog.text


async def test_an_exit_of_redact_takes_no_place_of_the_interrupt_before_it(tmp_path: Path) -> None:
    begun: list[str] = []

    @tool("Press Ctrl-C")
    async def stop() -> str:
        await anyio.wait_all_tasks_blocked()
        raise KeyboardInterrupt

    @tool("Pay")
    async def pay() -> str:
        return "paid"

    async def redact(call: ToolCall, content: object) -> str:
        begun.append(str(content))
        if len(begun) == 1:
            await anyio.sleep_forever()
        raise SystemExit

    config = AgentConfig(tools=[pay, stop], offload_root_path=tmp_path, redact=redact)
    async with Agent(ScriptedModel([[ToolCall("pay", {}), ToolCall("stop", {})], "done"]), config) as agent:
        with pytest.raises(KeyboardInterrupt):
            await agent.query("go")
        assert "has ended" in str(agent.context.items[-2].message.content)
    assert begun == ["paid", "paid"]


async def test_a_result_whose_redaction_hangs_costs_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    @tool("Pay")
    async def pay(invoice: str) -> str:
        return f"paid {invoice}"

    async def redact(call: ToolCall, content: object) -> str:
        begun.append(str(content))
        if len(begun) == 2:
            scope.cancel()
        if len(begun) <= 2 or content == "paid 1":
            await anyio.sleep_forever()
        return f"redacted {content}"

    monkeypatch.setattr("ctxfs.agent.runner._REDACT_S", 0.01)
    calls = [ToolCall("pay", {"invoice": number}, id=f"id_{number}") for number in "12"]
    config = AgentConfig(tools=[pay], offload_root_path=tmp_path, redact=redact)
    async with Agent(ScriptedModel([calls, "done"]), config) as agent:
        with anyio.CancelScope() as scope:
            await agent.query("go")
        first, second = [str(item.message.content) for item in agent.context.items[-2:]]
    assert "has ended" in first
    assert second == "redacted paid 2"
    lost = [record.getMessage() for record in caplog.records if "is lost" in record.getMessage()]
    assert [("id_1" in line, "did not end" in line, "paid 1" in line) for line in lost] == [(True, True, False)]


@pytest.mark.parametrize("name", ["pay", "no_such_tool"])
async def test_a_call_that_did_not_run_is_not_said_to_have_changed_something(name: str, tmp_path: Path) -> None:
    @tool("Pay")
    async def pay() -> str:
        raise AssertionError

    def redact(call: ToolCall, content: object) -> str:
        raise RuntimeError("no model")

    config = AgentConfig(tools=[pay], offload_root_path=tmp_path, redact=redact, approve=lambda _: False)
    async with Agent(ScriptedModel([[ToolCall(name, {})], "done"]), config) as agent:
        with pytest.raises(RuntimeError, match="no model"):
            await agent.query("go")
        assert str(agent.context.items[-1].message.content).startswith("This call was not run.")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_callback_that_does_not_answer_leaves_a_valid_transcript(is_cancelled: bool, tmp_path: Path) -> None:
    waiting = Waiting()
    asked = anyio.Event()

    async def approve(call: ToolCall) -> bool:
        if call.name == "wait":
            return True
        await waiting.started.wait()
        asked.set()
        if is_cancelled:
            await anyio.sleep_forever()
        raise RuntimeError("no answer")

    calls = [ToolCall("wait", {}), ToolCall("read_file", {"path": "a"})]
    tools = [waiting.tool, read_file]
    async with agent_with(tmp_path, [calls, "done"], approve=approve, tools=tools) as agent:
        if is_cancelled:
            async with anyio.create_task_group() as group:
                group.start_soon(agent.query, "go")
                await asked.wait()
                group.cancel_scope.cancel()
        else:
            with pytest.raises(RuntimeError, match="no answer"):
                await agent.query("go")
        assert agent.context.open_calls == ()
        begun, not_begun = [str(item.message.content) for item in agent.context.items[-2:]]
        assert "It may have run" in begun
        assert not_begun.endswith("it did not run.")
        assert await agent.query("again") == "done"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_cut_answer_is_an_error_that_keeps_what_came(tmp_path: Path, reason: str) -> None:
    model = ScriptedModel([Cut("half an ans", reason), "whole"])
    async with Agent(model, AgentConfig(offload_root_path=tmp_path)) as agent:
        with pytest.raises(ReplyIncomplete, match="max_tokens") as caught:
            await agent.query("go")
        assert caught.value.stop_reason == reason
        assert agent.context.items[-1].message.content  # what came is kept
        assert await agent.query("go on") == "whole"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_cut_reply_with_tool_calls_is_answered_with_an_error(tmp_path: Path, reason: str) -> None:
    model = ScriptedModel([Cut(reads("a"), reason), "done"])
    async with Agent(model, AgentConfig(tools=[read_file], offload_root_path=tmp_path)) as agent:
        assert await agent.query("go") == "done"
    (result,) = model.requests[1]["messages"][-1]["content"]
    assert result["is_error"]
    assert "cut" in json.dumps(result["content"])


async def test_skill_prompts_are_items_of_their_own_type(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    async with Agent(model, AgentConfig(offload_root_path=tmp_path, system_prompt="Be brief.")) as agent:
        item = await agent.add_skill_prompt("review", "How to review code …")
        await agent.query("go")
        kinds = [i.item_type for i in agent.context.items]
    assert (item.item_type, item.label) == ("skill_prompt", "review")
    assert kinds == ["system_prompt", "skill_prompt", "user_message", "assistant_message"]
    assert "How to review code" in json.dumps(model.requests[0]["messages"])
    assert "Be brief." in json.dumps(model.requests[0]["system"])


async def test_resume_goes_on_where_the_session_stood(tmp_path: Path) -> None:
    async with agent_with(tmp_path, [reads("a"), reads("b"), reads("c"), "first"], system_prompt="S") as agent:
        await agent.query("go")
        before = agent.context.items
    model = ScriptedModel([reads("d"), "second"])
    config = AgentConfig(tools=[read_file], offload_root_path=tmp_path, session_id=agent.session_id, system_prompt="S")
    async with Agent(model, config) as resumed:
        assert resumed.context.items == before
        assert await resumed.query("go on") == "second"
        left = [item for item in resumed.context.items if item.offloaded]
    assert len(left) == 2
    check(model.requests[0])


async def test_an_agent_that_is_never_closed_loses_nothing_and_an_open_call_is_answered(tmp_path: Path) -> None:
    """As after a kill: the first agent's lock is dropped with its process, so here the session is copied."""
    agent = agent_with(tmp_path / "a", [reads("a", "b"), "unused"])
    await agent.open()
    await agent.context.add(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read_file", "input": {}}]},
    )
    before = agent.context.items
    copy = tmp_path / "b" / agent.session_id
    copy.mkdir(parents=True, mode=0o700)
    for source in (tmp_path / "a" / agent.session_id).rglob("*"):
        target = copy / source.relative_to(tmp_path / "a" / agent.session_id)
        if source.is_dir():
            target.mkdir(mode=0o700)
        else:
            target.write_bytes(source.read_bytes())
            target.chmod(0o600)
    model = ScriptedModel(["done"])
    resumed = Agent(model, AgentConfig(offload_root_path=tmp_path / "b", session_id=agent.session_id))
    await resumed.open()
    assert [i.message for i in resumed.context.items[:-1]] == [i.message for i in before]
    assert resumed.context.items[-1].message.is_error  # type: ignore[union-attr]
    assert await resumed.query("go on") == "done"
    check(model.requests[0])
    await resumed.close()
    await agent.close()


async def test_a_new_system_prompt_replaces_the_old_one(tmp_path: Path) -> None:
    async with agent_with(tmp_path, ["one"], system_prompt="old") as agent:
        await agent.query("go")
    model = ScriptedModel(["two"])
    config = AgentConfig(offload_root_path=tmp_path, session_id=agent.session_id, system_prompt="new")
    async with Agent(model, config) as resumed:
        await resumed.query("again")
    assert "old" not in json.dumps(model.requests[0]["system"])
    assert "new" in json.dumps(model.requests[0]["system"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("materialize", "Materialize"), ("bash", "Bash"), ("window", "Window"), ("pricing", "EvictionPricing")],
)
def test_a_setting_of_another_type_is_refused_before_anything_runs(name: str, kind: str) -> None:
    values: list[Any] = [True, {}, AgentConfig]
    for wrong in values:
        with pytest.raises(ConfigError, match=rf"{name} is .*: use .*{kind}\(...\).* or None"):
            AgentConfig(**{name: wrong})


async def test_plain_functions_and_repeated_tools_are_refused(tmp_path: Path) -> None:
    def plain() -> None: ...

    with pytest.raises(ConfigError, match="@tool"):
        AgentConfig(tools=[plain])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="two tools"):
        AgentConfig(tools=[read_file, read_file])
    for wrong in ({"status_tokens": -1}, {"ephemeral_keep_recent": 0}, {"max_turns": 0}):
        with pytest.raises(ConfigError):
            AgentConfig(**wrong)  # type: ignore[arg-type]
