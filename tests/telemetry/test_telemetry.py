"""What OpenTelemetry is told, through its SDK's own exporters in memory."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.agent import Telemetry
from ctxfs.agent.telemetry import names
from ctxfs.context import History, Part
from ctxfs.errors import ConfigError, InvalidReply, OutcomeUnknown, SessionLocked, StorageError, WriteFailed
from ctxfs.eviction.events import Compacted, ContextEvent, Evicted, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.messages import ModelRequest, ToolCall, UserMessage
from ctxfs.messages.base import Usage
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import ObjectStore
from ctxfs.testing import Failure, MessagesServer, ScriptedModel
from storage.buckets import Fate, MemoryBucket

pytestmark = pytest.mark.anyio

CHAPTER = "It was a dark and stormy night.\n" * 400


@tool("Read a chapter", ephemeral=1)
async def chapter(n: int) -> str:
    if n == 9:
        raise ValueError("there is no chapter 9")
    return f"Chapter {n}\n{CHAPTER}"


class Collected:
    """What the SDK exported."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])

    def telemetry(self, *, content: bool = False) -> Telemetry:
        return Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, content=content)

    def spans(self, start: str = "") -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(start)]

    def points(self, name: str) -> list[Any]:
        data: Any = self._metrics.get_metrics_data()
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return [point for metric in found for point in metric.data.data_points]


@pytest.fixture
def collected() -> Collected:
    return Collected()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def query(collected: Collected, root: Path, turns: Any, *, content: bool = False) -> Agent:
    settings: Any = {"tools": [chapter], "offload_root_path": root, "session_id": "s1", "pricing": None}
    config = AgentConfig(telemetry=collected.telemetry(content=content), **settings)
    async with Agent(ScriptedModel(turns), config) as agent:
        assert await agent.query("How is the weather?") == "Stormy."
    return agent


async def test_the_troubles_of_stores_are_counted_once_for_the_whole_process(collected: Collected) -> None:
    """A retry, an unknown outcome and a session that another writer took, of a store that no telemetry was given."""
    store_metrics = (names.STORE_RETRIES, names.STORE_UNKNOWN, names.STORE_LOST)
    for _ in range(3):
        collected.telemetry()

    def counts() -> list[int]:
        points = [collected.points(name) for name in store_metrics]
        assert [len(found) for found in points] == [1, 1, 1], (
            "one provider reads them once, however many agents there are"
        )
        return [found[0].value for found in points]

    before = counts()
    fates: list[Fate] = ["answer lost"]
    bucket = MemoryBucket(lambda _: fates.pop() if fates else "done")
    first, second = [ThreadedStore(ObjectStore(bucket, "s", ttl_s=0, give_up_s=5)) for _ in range(2)]
    await first.open(create=True, write=True)
    await second.open(create=True, write=True)
    with pytest.raises(SessionLocked):
        await first.commit([], lambda: b"x\n")
    silent = ThreadedStore(ObjectStore(bucket, "s", ttl_s=0, give_up_s=0))
    await silent.open(create=True, write=True)
    bucket.fate = lambda _: "lost"
    with pytest.raises(OutcomeUnknown):
        await silent.commit([], lambda: b"x\n")
    assert [after - now for after, now in zip(counts(), before, strict=True)] == [1, 1, 1]


async def test_a_run_has_spans_for_calls_and_tools_and_events_with_their_figures(
    collected: Collected, tmp_path: Path
) -> None:
    path = f"{tmp_path}/s1/tool_result/chapter/call_001.json"
    read = ToolCall("Read", {"file_path": path, "limit": 2})
    turns = [[ToolCall("chapter", {"n": n})] for n in (1, 2)]
    await query(collected, tmp_path, [*turns, [read], [ToolCall("chapter", {"n": 9})], "Stormy."])
    calls = [attributes(span) for span in collected.spans("chat scripted")]
    assert len(calls) == 5
    assert [call[names.COMPACTED] for call in calls] == [False, False, True, True, True]
    assert all(call[names.CONVERSATION] == "s1" and call[names.OPERATION] == "chat" for call in calls)
    assert all(call[names.SESSION_PATH] == f"{tmp_path}/s1" for call in calls)
    assert all(call[names.INPUT_TOKENS] > 0 and call[names.OUTPUT_TOKENS] > 0 for call in calls)
    assert [call[names.FINISH_REASONS] for call in calls] == [*[("tool_use",)] * 4, ("end_turn",)]
    tools = [(attributes(span)[names.TOOL_NAME], span.status.is_ok) for span in collected.spans("execute_tool")]
    assert tools == [("chapter", True), ("chapter", True), ("Read", True), ("chapter", False)]
    evictions = [attributes(span) for span in collected.spans(names.EVICT)]
    assert [one[names.ITEM] for one in evictions] == ["call_001", "call_002"]
    evicted = evictions[0]
    assert (evicted[names.ITEM], evicted[names.CONTENT_REF], evicted[names.TOOL_NAME]) == ("call_001", path, "chapter")
    assert evicted[names.TOKENS_BEFORE] > 2_000
    assert evicted[names.TOKENS_AFTER] < 500
    sizes = {one[names.CONTENT_REF]: one[names.SIZE] for one in map(attributes, collected.spans(names.OFFLOAD))}
    assert set(sizes.values()) == {len(f"Chapter 1\n{CHAPTER}")}
    assert path in sizes
    (back,) = [attributes(span) for span in collected.spans(names.READ_BACK)]
    assert (back[names.ITEM], back[names.FIRST_LINE], back[names.LAST_LINE]) == ("call_001", 1, 2)
    assert "stormy" not in repr([attributes(span) for span in collected.spans()]), "of contents only where they are"
    (size,) = collected.points(names.STORED_SIZE)
    assert size.value == sum(sizes.values())
    (freed,) = collected.points(names.FREED_TOKENS)
    assert freed.value == sum(one[names.TOKENS_BEFORE] - one[names.TOKENS_AFTER] for one in evictions)
    assert sum(point.count for point in collected.points(names.CONTEXT_TOKENS)) == 5
    assert {point.attributes[names.TOKEN_TYPE] for point in collected.points(names.TOKEN_USAGE)} == {"input", "output"}
    assert sum(point.count for point in collected.points(names.OPERATION_DURATION)) == 5


async def test_content_is_sent_where_it_is_asked_for(collected: Collected, tmp_path: Path) -> None:
    await query(collected, tmp_path, [[ToolCall("chapter", {"n": 1})], "Stormy."], content=True)
    first, last = (attributes(span) for span in collected.spans("chat"))
    assert json.loads(first[names.INPUT_MESSAGES])[-1]["parts"] == [{"type": "text", "content": "How is the weather?"}]
    asked = json.loads(first[names.OUTPUT_MESSAGES])[0]
    assert (asked["finish_reason"], asked["parts"][-1]["name"]) == ("tool_use", "chapter")
    roles = [message["role"] for message in json.loads(last[names.INPUT_MESSAGES])]
    assert roles[-3:] == ["user", "assistant", "tool"]
    (ran,) = (attributes(span) for span in collected.spans("execute_tool"))
    assert json.loads(ran[names.TOOL_ARGUMENTS]) == {"n": 1}
    assert ran[names.TOOL_RESULT].startswith("Chapter 1\n")


@pytest.mark.service
async def test_a_call_that_fails_is_an_error_and_its_retries_are_events(collected: Collected, tmp_path: Path) -> None:
    from ctxfs.agent import ChatAnthropic
    from ctxfs.errors import InvalidRequest

    refused = Failure(status=400, kind="invalid_request_error", message="no")
    async with MessagesServer([Failure.overloaded(), "fine", refused]) as server:
        session = collected.telemetry().session("s")
        model = session.model(ChatAnthropic("claude-sonnet-5-5", api_key="k", base_url=server.url))
        model.check()
        request = ModelRequest(messages=(UserMessage("q"),))
        assert [event async for event in model.stream(request)][-1].message.text == "fine"  # type: ignore[union-attr]
        with pytest.raises(InvalidRequest):
            [event async for event in model.stream(request)]
        await model.close()
    first, second = collected.spans("chat claude-sonnet-5-5")
    assert [event.name for event in first.events] == [names.RETRY]
    assert attributes(first)[names.PROVIDER] == "anthropic"
    assert attributes(first)[names.COST] > 0
    assert (second.status.is_ok, attributes(second)[names.ERROR_TYPE]) == (False, "InvalidRequest")
    (cost,) = collected.points(names.COST)
    assert cost.value == attributes(first)[names.COST]


async def test_a_history_tells_of_the_span_that_is_current(collected: Collected, tmp_path: Path) -> None:
    telemetry = collected.telemetry().session("thread-1")
    settings: Any = {"keep_recent": {"t": 1}, "on_event": telemetry.observe}
    parts = [Part("call", {}, 0, "c1", "t"), Part("result", CHAPTER, 1, "c1", "t"), Part("reply", "ok", 2)]
    parts += [Part("call", {}, 3, "c2", "t"), Part("result", "short", 4, "c2", "t"), Part("reply", "ok", 5)]
    async with History("s", root_path=tmp_path, **settings) as history:
        with telemetry.run("operator"):
            edits = await history.arewrite(parts)
            path = str(edits[1]).splitlines()[1].removeprefix("Path: ")
            await history.arun_tool("Read", {"file_path": path, "limit": 1})
            telemetry.replied(
                Usage(input_tokens=100, cache_read_input_tokens=300, output_tokens=5), "claude-sonnet-5-5"
            )
        with pytest.raises(InvalidReply):
            telemetry.replied({"input_tokens": "many"}, "m")
    (run,) = collected.spans()
    assert run.name == "invoke_agent operator"
    assert [event.name for event in run.events] == [names.OFFLOAD, names.EVICT, names.READ_BACK]
    (rate,) = collected.points(names.CACHE_RATE)
    assert rate.sum == 0.75
    (stored,) = collected.points(names.STORED_SIZE)
    assert stored.value == len(CHAPTER)


async def test_a_restored_content_is_an_event(collected: Collected, tmp_path: Path) -> None:
    agent = await query(collected, tmp_path, [*([ToolCall("chapter", {"n": n})] for n in (1, 2)), "Stormy."])
    observe = collected.telemetry().session("s1").observe
    async with Context("s1", root_path=tmp_path, on_event=observe) as context:
        await context.restore("call_001", reason="look again")
    (restored,) = [attributes(span) for span in collected.spans(names.RESTORE)]
    assert (restored[names.ITEM], restored[names.REASON]) == ("call_001", "look again")
    assert restored[names.TOKENS] > 2_000
    assert agent.session_id == "s1"


@pytest.mark.parametrize(
    ("event", "name", "said"),
    [
        (Compacted(tokens_before=9, tokens_after=3, steps=("types", "summary")), names.COMPACT, ("types", "summary")),
        (OffloadFailed(item_id="a", error=WriteFailed("p", "full")), names.OFFLOAD_FAILED, "WriteFailed"),
        (RecordFailed(item_ids=("a",), error=StorageError("full")), names.RECORD_FAILED, "StorageError"),
        (SummaryFailed(reason="the model said nothing"), names.SUMMARY_FAILED, "the model said nothing"),
    ],
)
def test_every_event_has_a_name(collected: Collected, event: ContextEvent, name: str, said: Any) -> None:
    collected.telemetry().session().observe(event)
    (span,) = collected.spans()
    assert span.name == name
    assert said in attributes(span).values()


def test_without_an_sdk_nothing_happens(tmp_path: Path) -> None:
    session = Telemetry().session("s")
    session.observe(SummaryFailed(reason="no"))
    session.replied(Usage(input_tokens=1), "m")

    async def run() -> str:
        config = AgentConfig(tools=[chapter], offload_root_path=tmp_path, telemetry=Telemetry())
        async with Agent(ScriptedModel([[ToolCall("chapter", {"n": 1})], "Stormy."]), config) as agent:
            return await agent.query("How?")

    assert anyio.run(run) == "Stormy."


@pytest.mark.parametrize("make", [lambda: Telemetry(content=1), lambda: Telemetry().session(5)])  # type: ignore[arg-type]
def test_settings_of_another_type_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        make()


@pytest.mark.service
def test_without_the_package_it_says_what_to_install_and_the_agent_works() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from ctxfs import Agent, AgentConfig
from ctxfs.agent import Telemetry
from ctxfs.testing import ScriptedModel
Agent(ScriptedModel([]), AgentConfig())
try:
    Telemetry()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "opentelemetry-api is not installed: pip install 'ctxfs[otel]'\n"


async def test_a_name_or_an_id_that_a_model_made_up_is_no_longer_than_a_provider_takes(
    collected: Collected, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    made_up = "made up, " * 10_000
    telemetry = collected.telemetry()
    model = ScriptedModel(
        [[ToolCall(made_up, {}, id=made_up)], [ToolCall("chapter", {"n": 1}, id=f"{made_up}2")], "done"]
    )
    config = AgentConfig(tools=[chapter], telemetry=telemetry, offload_root_path=tmp_path, preview_above_tokens=1_000)
    async with Agent(model, config) as agent:
        assert await agent.query("q") == "done"
    evicted = Evicted(item_id="a", tool_name=made_up, path="p", tokens_before=9, tokens_after=1, reason="r")
    telemetry.session("s").observe(evicted)
    made_up_call, offloaded_call = collected.spans("execute_tool")
    assert len(made_up_call.name) == len("execute_tool ") + 128
    assert len(attributes(offloaded_call)[names.TOOL_CALL_ID]) == 128
    sent = "".join(span.to_json() for span in collected.spans())
    assert sent.count("made_up__") > 1
    assert made_up[:200] not in sent
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000
    (offloaded,) = (vars(record) for record in caplog.records if "biz_id" in vars(record))
    assert len(offloaded["biz_id"]) == 128


@pytest.mark.parametrize("content", [False, True])
async def test_the_text_of_an_error_is_sent_only_if_contents_are(
    collected: Collected, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, content: bool
) -> None:
    def redact(_: object, given: object) -> str:
        raise LookupError(f"cannot judge {given}")

    caplog.set_level(1)
    model = ScriptedModel([[ToolCall("chapter", {"n": 1})]])
    telemetry = collected.telemetry(content=content)
    config = AgentConfig(tools=[chapter], telemetry=telemetry, redact=redact, offload_root_path=tmp_path)
    async with Agent(model, config) as agent:
        with pytest.raises(LookupError):
            await agent.query("q")
        with pytest.raises(LookupError), telemetry.session("s").run():
            raise LookupError(CHAPTER)
    for span in (*collected.spans("execute_tool"), *collected.spans("invoke_agent")):
        assert span.attributes is not None
        assert span.attributes[names.ERROR_TYPE] == "LookupError"
    sent = "".join(span.to_json() for span in collected.spans())
    assert ("dark and stormy" in sent) is content
    assert "dark and stormy" not in caplog.text
