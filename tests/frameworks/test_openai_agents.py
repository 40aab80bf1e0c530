"""The adapter of the OpenAI Agents SDK, with a model of the SDK's interface."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    HostedMCPTool,
    ModelResponse,
    OpenAIProvider,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    WebSearchTool,
    function_tool,
)
from agents.mcp import MCPServerStdio
from agents.models.interface import Model
from agents.run import CallModelData, ModelInputData
from mcp.types import Tool as MCPTool
from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.web_search_tool import Filters
from pydantic import BaseModel

from ctxfs.adapters.openai_agents import CtxfsFilter
from ctxfs.context import Histories, History, Part
from ctxfs.errors import ConfigError
from ctxfs.messages import ToolCall
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import ResponsesServer
from frameworks import flow, one_line
from frameworks.conformance import AdapterConformance, text_of, with_text


class ScriptedModel(Model):
    """Says what the flow's model says, or what ``moves`` say, and keeps what it got."""

    def __init__(self, *moves: Any) -> None:
        self.moves = list(moves)
        self.requests: list[list[str]] = []

    def outputs(self, items: list[Any]) -> list[Any]:
        self.requests.append([json.dumps(item, sort_keys=True) for item in items])
        user = [items[-1]["content"]] if items[-1].get("role") == "user" else []
        move = self.moves.pop(0) if self.moves else flow.next_move(str(user[-1]) if user else "", results_in(items))
        if callable(move):
            move = move(items)
        if isinstance(move, str):
            text = ResponseOutputText(text=move, type="output_text", annotations=[])
            return [ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])]
        name, arguments, call_id = move
        given = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return [ResponseFunctionToolCall(call_id=call_id, name=name, arguments=given, type="function_call")]

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 - its name
        usage = Usage(requests=1, input_tokens=1000, output_tokens=10, total_tokens=1010)
        return ModelResponse(output=self.outputs(input), usage=usage, response_id="r")

    async def stream_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002 - its name
        response = Response(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=self.outputs(input),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)


def results_in(items: list[Any]) -> list[str]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


@function_tool
def service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


def config(ctxfs: CtxfsFilter) -> RunConfig:
    return RunConfig(call_model_input_filter=ctxfs, tracing_disabled=True)


class FilteredAgent:
    """An agent with a filter and a session; what it keeps are the session's items."""

    def __init__(self, root: Path, kept: list[Any] | None) -> None:
        self.model = ScriptedModel()
        self.history = History("thread-1", root_path=root, **flow.SETTINGS)
        self.ctxfs = CtxfsFilter(self.history)
        self.agent = Agent(name="reader", model=self.model, tools=[self.logs(), *self.ctxfs.tools])
        self.session = SQLiteSession("s")
        asyncio.run(self.session.add_items(kept or []))

    def logs(self) -> Any:
        return service_log

    @property
    def requests(self) -> list[list[str]]:
        return self.model.requests

    def ask(self, question: str) -> str:
        return asyncio.run(self.run(question))

    async def run(self, question: str) -> str:
        run = Runner.run(
            self.agent, question, session=self.session, hooks=self.ctxfs, max_turns=20, run_config=self.config()
        )
        return str((await run).final_output)

    def config(self) -> RunConfig:
        return config(self.ctxfs)

    def kept(self) -> list[Any]:
        return asyncio.run(self.session.get_items())

    def close(self) -> None:
        self.history.close()
        self.session.close()


class Streamed(FilteredAgent):
    """The same, streamed."""

    async def run(self, question: str) -> str:
        result = Runner.run_streamed(self.agent, question, session=self.session, run_config=config(self.ctxfs))
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


class Sync(FilteredAgent):
    """The same, with ``run_sync``."""

    def ask(self, question: str) -> str:
        result = Runner.run_sync(self.agent, question, session=self.session, run_config=config(self.ctxfs))
        return str(result.final_output)


class AtSource(FilteredAgent):
    """Results are replaced where they are made."""

    def logs(self) -> Any:
        return function_tool(flow.service_log, name_override=flow.TOOL, tool_output_guardrails=[self.ctxfs.at_source])


@pytest.mark.parametrize("agent", [FilteredAgent, Streamed, Sync])
def test_the_flow_on_the_wire(agent: Any, tmp_path: Path) -> None:
    played = flow.play(agent, tmp_path)
    assert results_in(played.kept)[0] == flow.service_log(1), "the session keeps the original"


def test_the_flow_at_the_source(tmp_path: Path) -> None:
    flow.play_at_source(AtSource, tmp_path)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_one_line_brings_the_tools_too(is_streamed: bool, tmp_path: Path) -> None:
    """The transport in the SDK's client: the agent has the tools of the program alone."""

    def ask(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
        async def run() -> tuple[str, Any]:
            client = AsyncOpenAI(
                api_key="any", base_url=url, http_client=httpx2.AsyncClient(transport=transport), max_retries=0
            )
            session = SQLiteSession("s")
            await session.add_items(kept or [])
            agent = Agent(name="reader", model=one_line.MODEL, tools=[service_log])
            provider = OpenAIProvider(openai_client=client)
            settings = RunConfig(model_provider=provider, tracing_disabled=True)
            if is_streamed:
                streamed = Runner.run_streamed(agent, question, session=session, run_config=settings)
                async for _ in streamed.stream_events():
                    pass
                said = streamed.final_output
            else:
                said = (await Runner.run(agent, question, session=session, run_config=settings)).final_output
            items = await session.get_items()
            session.close()
            return str(said), items

        return asyncio.run(run())

    with one_line.responses_server() as server:
        one_line.play(ask, server, tmp_path)


def test_what_was_billed_is_recorded(tmp_path: Path) -> None:
    agent = FilteredAgent(tmp_path, None)
    agent.ask(flow.QUESTION)
    agent.close()
    assert flow.billed_tokens(tmp_path) == [1000] * 5


def test_an_agent_goes_on_after_a_handoff(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path, **flow.SETTINGS) as history:
        ctxfs = CtxfsFilter(history)
        second = Agent(name="second", model=ScriptedModel(), tools=[service_log, *ctxfs.tools])
        moves = [*((flow.TOOL, {"n": n}, f"call_{n}") for n in (1, 2)), ("transfer_to_second", {}, "call_h")]
        first = Agent(name="first", model=ScriptedModel(*moves), tools=[service_log], handoffs=[second])
        second.model.moves = [  # type: ignore[union-attr]
            (flow.TOOL, {"n": 3}, "call_3"),
            lambda items: ("context_grep", {"ref": "call_1", "pattern": "WARNING"}, "call_4"),
            lambda items: results_in(items)[-1],
        ]
        result = asyncio.run(Runner.run(first, flow.QUESTION, run_config=config(ctxfs)))
    assert flow.NEEDLE in result.final_output


@pytest.mark.parametrize("server", [{"previous_response_id": "resp_1"}, {"conversation_id": "conv_1"}])
def test_a_history_that_the_server_holds_is_refused(server: dict[str, Any], tmp_path: Path) -> None:
    ctxfs = CtxfsFilter(History("t", root_path=tmp_path))
    agent = Agent(name="a", model=ScriptedModel(), tools=[service_log])
    with pytest.raises(ConfigError, match="the server holds this history"):
        asyncio.run(Runner.run(agent, flow.QUESTION, run_config=config(ctxfs), **server))


def test_items_that_do_not_change_stay_the_same_objects(tmp_path: Path) -> None:
    items: list[Any] = [{"role": "user", "content": "Go."}, {"type": "reasoning", "id": "r", "summary": []}]
    for n in (1, 2):
        items.append({"type": "function_call", "call_id": f"c{n}", "name": flow.TOOL, "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": flow.service_log(n)})
    ctxfs = CtxfsFilter(History("t", root_path=tmp_path, **flow.SETTINGS))
    given = CallModelData(ModelInputData(items, "Be brief."), Agent(name="a"), None)
    sent = asyncio.run(ctxfs(given))
    assert sent.instructions == "Be brief."
    assert [new is old for new, old in zip(sent.input, items, strict=True)] == [True, True, True, False, True, True]
    assert items[3]["output"] == flow.service_log(1)


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path) as history:
        ctxfs = CtxfsFilter(history)
        given: list[Any] = ["{no json", '{"pattern": 5}', '{"ref": "nothing", "pattern": "x"}']
        moves = [("context_grep", arguments, f"c{n}") for n, arguments in enumerate(given)]
        model = ScriptedModel(*moves, lambda items: "\n\n".join(results_in(items)))
        result = asyncio.run(
            Runner.run(Agent(name="a", model=model, tools=[*ctxfs.tools]), "Go.", run_config=config(ctxfs))
        )
    assert "Error: Expecting property name" in result.final_output
    assert "pattern" in result.final_output
    assert "no item 'nothing' in this session" in result.final_output


class Answer(BaseModel):
    """What an agent answers."""

    line_that_says_so: str
    how_sure: float


class Served(MCPServerStdio):
    """A server with one tool, which notes how often it is asked for its tools."""

    asked = 0

    async def list_tools(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        tool = {"name": "read_file", "description": "Read a file. " * 400, "inputSchema": {"type": "object"}}
        return [MCPTool.model_validate(tool)]


def test_all_that_a_request_holds_besides_its_items_is_counted(tmp_path: Path, seen: flow.Seen) -> None:
    """The prompt, the tools, hosted ones and those of MCP servers, hand-overs, and the schema of the answer."""
    server = Served({"command": sys.executable, "args": ["-c", "never started"]}, name="files")
    with History(root_path=tmp_path) as history:
        ctxfs = CtxfsFilter(history)
        plain: Any = Agent(name="plain", instructions=flow.LONG_PROMPT, tools=[*ctxfs.tools])
        other: Any = Agent(name="other", handoff_description="It knows the logs. " * 400)
        domains = [f"logs-{n}.example.org" for n in range(200)]
        mcp: Any = {"type": "mcp", "server_label": "issues", "server_description": "The issues of this project. " * 400}
        interpreter: Any = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"] * 400}}
        hosted = [
            WebSearchTool(filters=Filters(allowed_domains=domains)),
            CodeInterpreterTool(interpreter),
            HostedMCPTool(mcp),
        ]
        full = plain.clone(
            name="full", mcp_servers=[server], handoffs=[other], output_type=Answer, tools=[*plain.tools, *hosted]
        )

        def overhead(agent: Any) -> int:
            given = CallModelData(ModelInputData([{"role": "user", "content": "Go."}], flow.LONG_PROMPT), agent, None)
            asyncio.run(ctxfs(given))
            return seen.last.beside

        few = overhead(plain)
        seen.check_overhead(history)
        many = [overhead(full) for _ in range(2)]
    count = default_counter().count
    added = count("Read a file. " * 400) + count("It knows the logs. " * 400) + count("line_that_says_so how_sure")
    hosted_ones = json.dumps([domains, interpreter], separators=(",", ":"))
    added += count(hosted_ones) + count("The issues of this project. " * 400)
    assert many[0] == many[1]
    assert added <= many[0] - few < 1.2 * added + 300
    assert server.asked == 1, "not at each call"


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsFilter(Histories(tmp_path))  # type: ignore[arg-type]


class TestConformance(AdapterConformance):
    """Each call of a model shows the items of the session."""

    def message(self, part: Part) -> Any:
        content: Any = part.content
        if part.stays:
            return {"role": "system", "content": text_of(part)}
        if part.kind == "call":
            arguments = json.dumps(content)
            return {"type": "function_call", "call_id": part.id, "name": part.tool, "arguments": arguments}
        if part.kind == "result":
            output = (
                content if isinstance(content, str) else [{"type": "input_text", "text": b["text"]} for b in content]
            )
            return {"type": "function_call_output", "call_id": part.id, "output": output}
        kind = "output_text" if part.kind == "reply" else "input_text"
        role = "assistant" if part.kind == "reply" else "user"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text_of(part) or "(thinking)"}]}

    def sent(self, history: History, messages: list[Any], branch: str) -> Any:
        calls = {item["call_id"] for item in messages if item.get("type") == "function_call"}
        results = [item["call_id"] for item in messages if item.get("type") == "function_call_output"]
        lost: list[Any] = []  # of a result whose call is gone the filter says that a server holds it
        if results and results[-1] not in calls:
            lost = [{"type": "function_call", "call_id": results[-1], "name": "lost", "arguments": "{}"}]
        given = CallModelData(ModelInputData([*lost, *messages], None), Agent(name=branch), None)
        return asyncio.run(CtxfsFilter(history)(given)).input[len(lost) :]

    def content(self, part: Part, message: Any) -> Any:
        if part.kind == "call":
            return json.loads(message["arguments"])
        if part.kind == "result":
            return message["output"]
        return with_text(part, message["content"][0]["text"])


@pytest.mark.parametrize("how", ["handed over", "as a tool"])
def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen, how: str
) -> None:
    def turn(body: dict[str, Any]) -> Any:
        helps = body["instructions"] == flow.HELPER_PROMPT
        calls = {item["call_id"]: item["name"] for item in body["input"] if item.get("type") == "function_call"}
        results = [name for name in calls.values() if name == flow.TOOL or not helps]
        over = flow.Call("transfer_to_helper" if how == "handed over" else "ask_helper", {"input": "Go."}, "over_1")
        move = flow.shared_move(over, results, helps=helps)
        return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]

    async def run(url: str) -> str:
        ctxfs = CtxfsFilter(history)
        client = AsyncOpenAI(api_key="any", base_url=url, max_retries=0)
        settings = RunConfig(
            model_provider=OpenAIProvider(openai_client=client), call_model_input_filter=ctxfs, tracing_disabled=True
        )
        tools: list[Any] = [service_log, *ctxfs.tools]
        helper: Any = Agent(name="helper", model=one_line.MODEL, instructions=flow.HELPER_PROMPT, tools=tools)
        given: Any = {"handoffs": [helper]}
        if how == "as a tool":
            given = {"tools": [*tools, helper.as_tool("ask_helper", "Ask another agent.", run_config=settings)]}
        main = Agent(name="main", model=one_line.MODEL, instructions=flow.LONG_PROMPT, **given)
        return str((await Runner.run(main, flow.QUESTION, run_config=settings)).final_output)

    with (
        ResponsesServer([turn] * 40, **flow.window_of_server()) as server,
        History(root_path=tmp_path, **flow.SHARED) as history,
    ):
        for _ in range(2):
            assert asyncio.run(run(server.url)) == flow.THANKS
    assert server.refusals == []
    seen.check_subagent([flow.beside_in(body) for body in server.requests])
