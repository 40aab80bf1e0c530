"""The adapter of Pydantic AI, with its own function model."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import MCPServerTool, WebSearchTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.usage import RequestUsage

from ctxfs.adapters.pydantic_ai import CtxfsCapability, _host_cache_of
from ctxfs.context import Histories, History, HostCache, Part
from ctxfs.errors import ConfigError
from frameworks import flow
from frameworks.conformance import AdapterConformance, text_of, with_text

KEEPS_ORIGINALS = hasattr(AbstractCapability, "prepare_model_request")
"""Whether what a capability replaces in a request is kept out of the messages."""


def said(message: ModelMessage) -> list[str]:
    return [f"{part.part_kind}: {getattr(part, 'content', getattr(part, 'args', ''))}" for part in message.parts]


def results_in(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


class PydanticAgent:
    """An agent with a capability; what it keeps is ``all_messages_json``."""

    at_source = False

    def __init__(self, root: Path, kept: bytes | None) -> None:
        self.requests: list[list[str]] = []
        self.history = self.opened(root)
        self.messages = ModelMessagesTypeAdapter.validate_json(kept) if kept else []
        model = FunctionModel(self.reply, stream_function=self.stream)
        self.agent = Agent(model, capabilities=self.capabilities())
        self.agent.tool_plain(flow.service_log)

    def capabilities(self) -> list[Any]:
        return [CtxfsCapability(self.history, at_source=self.at_source)]

    def opened(self, root: Path) -> Any:
        return History("thread-1", root_path=root, **flow.SETTINGS)

    def move(self, messages: list[ModelMessage]) -> flow.Call | str:
        self.requests.append([text for message in messages for text in said(message)])
        questions = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
        return flow.next_move(str(questions[-1]) if questions else "", [str(p.content) for p in results_in(messages)])

    def reply(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        move = self.move(messages)
        if isinstance(move, str):
            return ModelResponse([TextPart(move)])
        return ModelResponse([ToolCallPart(move.name, move.arguments, move.id)])

    async def stream(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        move = self.move(messages)
        if isinstance(move, str):
            yield move
        else:
            part = ToolCallPart(move.name, move.arguments)
            yield {0: DeltaToolCall(move.name, part.args_as_json_str(), tool_call_id=move.id)}

    def ask(self, question: str) -> str:
        result = self.agent.run_sync(question, message_history=self.messages)
        self.messages = result.all_messages()
        return result.output

    def kept(self) -> bytes:
        return ModelMessagesTypeAdapter.dump_json(self.messages)

    def close(self) -> None:
        self.history.close()


class Streaming(PydanticAgent):
    """The same, streamed."""

    def ask(self, question: str) -> str:
        async def run() -> str:
            async with self.agent.run_stream(question, message_history=self.messages) as result:
                output = await result.get_output()
                self.messages = result.all_messages()
                return output

        return asyncio.run(run())


class OfMany(PydanticAgent):
    """The session is found by the conversation's id, which the messages carry."""

    def opened(self, root: Path) -> Any:
        return Histories(root, **flow.SETTINGS)


class AtSource(PydanticAgent):
    """Results are replaced where they are made."""

    at_source = True


@pytest.mark.parametrize("agent", [PydanticAgent, Streaming, OfMany])
def test_the_flow_on_the_wire(agent: Any, tmp_path: Path) -> None:
    played = flow.play(agent, tmp_path)
    assert (flow.service_log(1).encode() in played.kept.replace(b"\\n", b"\n")) is KEEPS_ORIGINALS
    assert len(list(tmp_path.iterdir())) == 1, "one session"


def test_the_flow_at_the_source(tmp_path: Path) -> None:
    flow.play_at_source(AtSource, tmp_path)


def test_what_was_billed_is_recorded(tmp_path: Path) -> None:
    agent = PydanticAgent(tmp_path, None)
    agent.ask(flow.QUESTION)
    agent.close()
    assert min(flow.billed_tokens(tmp_path)) > 0


def test_data_and_values_with_metadata_are_replaced_at_the_source(tmp_path: Path) -> None:
    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if results_in(messages):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(name, {}, f"c_{name}") for name in ("data", "rich", "picture", "small")])

    agent = Agent(
        FunctionModel(reply), capabilities=[CtxfsCapability(History("t", root_path=tmp_path), at_source=True)]
    )

    @agent.tool_plain
    def data() -> dict[str, Any]:
        return {"lines": flow.service_log(1).splitlines()}

    @agent.tool_plain
    def rich() -> Any:
        return ToolReturn(flow.service_log(2), metadata={"kept": True})

    @agent.tool_plain
    def picture() -> Any:
        return [flow.service_log(3), BinaryContent(b"\x89PNG", media_type="image/png")]

    @agent.tool_plain
    def small() -> dict[str, int]:
        return {"n": 1}

    found = {part.tool_name: part for part in results_in(agent.run_sync("go").all_messages())}
    assert str(found["data"].content).startswith("[Output stored in full: data, call c_data]")
    assert str(found["rich"].content).startswith("[Output stored in full: rich, call c_rich]")
    assert found["rich"].metadata == {"kept": True}
    with_image: Any = found["picture"].content
    assert with_image[0] == flow.service_log(3)
    assert found["small"].content == {"n": 1}


def test_all_kinds_of_parts_are_taken(tmp_path: Path) -> None:
    """Media, thinking, broken arguments, an error: they are counted, and stay the same objects."""
    image = BinaryContent(b"\x89PNG" * 10_000, media_type="image/png")
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart(["What is this?", image])]),
        ModelResponse([ThinkingPart("Hm. " * 2000, signature="s"), ToolCallPart("t", "{broken", "c1")]),
        ModelRequest([ToolReturnPart("t", ["Look:", image], "c1")]),
        ModelResponse([ToolCallPart("t", None, "c2")]),
        ModelRequest([ToolReturnPart("t", "No. " * 5000, "c2", outcome="failed")]),
        ModelResponse([ToolCallPart("t", "{}", "c3")]),
        ModelRequest([ToolReturnPart("t", flow.service_log(1), "c3")]),
        ModelResponse([ToolCallPart("t", "{}", "c4")]),
        ModelRequest([ToolReturnPart("t", {"text": flow.service_log(2)}, "c4")]),
        ModelResponse([ToolCallPart("t", "{}", "c5")]),
        ModelRequest([ToolReturnPart("t", "last", "c5")]),
        ModelResponse([TextPart("Yes.")]),
    ]
    seen: list[list[ModelMessage]] = []

    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse([TextPart("Fine.")])

    history = History("t", root_path=tmp_path, keep_recent={"t": 1})
    Agent(FunctionModel(reply), capabilities=[CtxfsCapability(history)]).run_sync("And?", message_history=messages)
    found = results_in(seen[0])
    assert [str(part.content)[:19] for part in found[2:4]] == ["[Content offloaded]"] * 2
    given = results_in(messages)
    assert [found[n].content for n in (0, 1, 4)] == [given[n].content for n in (0, 1, 4)]
    assert seen[0][0] == messages[0]
    assert seen[0][1] == messages[1]


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if not results_in(messages):
            bad, unknown = {"pattern": 5}, {"ref": "nothing", "pattern": "x"}
            return ModelResponse([ToolCallPart("context_grep", bad, "c1"), ToolCallPart("context_grep", unknown, "c2")])
        return ModelResponse([TextPart(" | ".join(str(part.content) for part in results_in(messages)))])

    capability = CtxfsCapability(History("t", root_path=tmp_path))
    told = Agent(FunctionModel(reply), capabilities=[capability]).run_sync("go").output
    assert "pattern" in told
    assert "no item 'nothing' in this session" in told


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsCapability(tmp_path)  # type: ignore[arg-type]


class TestConformance(AdapterConformance):
    """Each request shows the whole history, of which ``all_messages()`` keeps the originals."""

    def message(self, part: Part) -> Any:
        content: Any = part.content
        if part.kind == "call":
            return ModelResponse([ToolCallPart(part.tool, content, part.id)])
        if part.kind == "reply":
            said = [] if isinstance(content, str) else [block for block in content if block["type"] == "thinking"]
            text = text_of(part)
            return ModelResponse([*(ThinkingPart(b["thinking"]) for b in said), *([TextPart(text)] if text else [])])
        if part.kind == "user":
            return ModelRequest([SystemPromptPart(content) if part.stays else UserPromptPart(content)])
        outcome: Any = "failed" if part.stays else "success"
        return ModelRequest([ToolReturnPart(part.tool, content, part.id, outcome=outcome)])

    def sent(self, history: History, messages: list[Any], branch: str) -> Any:
        parameters = ModelRequestParameters()
        context: Any = SimpleNamespace(messages=messages, model_settings=None, model_request_parameters=parameters)
        capability: Any = CtxfsCapability(history)
        run: Any = SimpleNamespace(conversation_id="", agent=SimpleNamespace(name=branch))
        return asyncio.run(capability.prepare_model_request(run, context)).messages

    def content(self, part: Part, message: Any) -> Any:
        new = message.parts[-1]
        if part.kind == "call":
            return new.args
        return with_text(part, new.content) if part.kind == "reply" else new.content


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, HostCache()),
        ({"anthropic_cache": "1h"}, HostCache(at_end=True, ttl="1h")),
        ({"anthropic_cache_messages": True}, HostCache(at_end=True)),
        ({"anthropic_cache_messages": False}, HostCache()),
        ({"anthropic_cache_instructions": "1h"}, HostCache()),
        ({"bedrock_cache_messages": "5m"}, HostCache(at_end=True, ttl="5m")),
        ({"cache": "12h"}, HostCache(ttl="12h")),
    ],
)
def test_the_settings_of_the_prompt_cache_are_seen(
    tmp_path: Path, seen: flow.Seen, settings: Any, told: HostCache
) -> None:
    with History(root_path=tmp_path) as history:
        agent = Agent(TestModel(), capabilities=[CtxfsCapability(history)], model_settings=settings)
        agent.run_sync("Go on.")
        assert seen.last.host == told


def test_the_instructions_and_the_tools_of_a_request_are_counted(tmp_path: Path, seen: flow.Seen) -> None:
    with History(root_path=tmp_path) as history:
        agent = Agent(TestModel(call_tools=[]), capabilities=[CtxfsCapability(history)], instructions=flow.LONG_PROMPT)
        agent.run_sync("Go on.")
        seen.check_overhead(history)


@pytest.mark.parametrize(
    ("parameters", "added"),
    [
        ({"native_tools": [WebSearchTool(blocked_domains=["a.b"] * 400)]}, 1000),
        ({"native_tools": [MCPServerTool(id="a", url="https://a.b", description="Issues. " * 400)]}, 800),
        ({"output_object": OutputObjectDefinition({"type": "string", "description": "A line. " * 400})}, 800),
    ],
)
def test_hosted_tools_and_the_schema_of_the_answer_are_counted(
    parameters: dict[str, Any], added: int, tmp_path: Path, seen: flow.Seen
) -> None:
    def overhead(**given: Any) -> int:
        request = SimpleNamespace(
            model=None,
            model_settings=None,
            messages=[ModelRequest([UserPromptPart("Go.")], instructions=flow.LONG_PROMPT)],
            model_request_parameters=ModelRequestParameters(**given),
        )
        asyncio.run(capability.prepare_model_request(context, request))
        return seen.last.beside

    context: Any = SimpleNamespace(conversation_id="", agent=None)
    with History(root_path=tmp_path) as history:
        capability = CtxfsCapability(history)
        assert added <= overhead(**parameters) - overhead() < 2 * added


def test_a_cache_point_in_the_last_prompt_is_seen(tmp_path: Path, seen: flow.Seen) -> None:
    with History(root_path=tmp_path) as history:
        agent = Agent(TestModel(), capabilities=[CtxfsCapability(history)])
        agent.run_sync(["Go on.", CachePoint(ttl="1h")])
        assert seen.last.host == HostCache(at_end=True, ttl="1h")


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        (True, HostCache(at_end=True)),
        ({}, HostCache(at_end=True)),
        ("1h", HostCache(at_end=True, ttl="1h")),
        ({"retention": "1h", "messages": False}, HostCache(ttl="1h")),
        (False, HostCache()),
    ],
)
def test_the_setting_that_all_models_share_marks_the_messages_of_anthropics(cache: Any, told: HostCache) -> None:
    model = SimpleNamespace(system="anthropic")
    request = SimpleNamespace(model=model, model_settings={"cache": cache}, messages=[])
    assert _host_cache_of(request) == told


def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen
) -> None:
    besides: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools = [[tool.name, tool.description, tool.parameters_json_schema] for tool in info.function_tools]
        prompt = [one.instructions for one in messages if isinstance(one, ModelRequest) and one.instructions][-1]
        besides.append(json.dumps([prompt, tools], separators=(",", ":")))
        results = [str(part.content) for part in results_in(messages)]
        over = flow.Call("ask_helper", {}, "ask_1")
        move = flow.shared_move(over, results, helps=flow.HELPER_PROMPT.strip() in prompt)
        sent = flow.counted_in_window(besides[-1], *(text for message in messages for text in said(message)))
        reply = [TextPart(move) if isinstance(move, str) else ToolCallPart(*move)]
        return ModelResponse(reply, usage=RequestUsage(input_tokens=sent))

    async def ask_helper() -> str:
        """Ask another agent."""
        return (await helper.run(flow.QUESTION)).output

    with History(root_path=tmp_path, **flow.SHARED) as history:
        capabilities: Any = [CtxfsCapability(history)]
        tools: Any = [ask_helper, flow.service_log]
        main = Agent(FunctionModel(reply), capabilities=capabilities, instructions=flow.LONG_PROMPT, tools=tools)
        helper = Agent(
            FunctionModel(reply), capabilities=capabilities, instructions=flow.HELPER_PROMPT, tools=[flow.service_log]
        )
        for _ in range(2):
            assert main.run_sync(flow.QUESTION).output == flow.THANKS
    seen.check_subagent(besides)
