"""The adapter of LangChain's agents, with LangChain's own fake model."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel, Field

from ctxfs.adapters.langchain import CtxfsMiddleware
from ctxfs.context import Histories, History, HostCache, Part
from ctxfs.errors import ConfigError
from ctxfs.testing import MessagesServer
from ctxfs.testing.history_conformance import HistoryConformance
from frameworks import flow
from frameworks.langchain_model import (
    CONFIG,
    Awaited,
    GraphAgent,
    ScriptedModel,
    anthropic_model,
    anthropic_server,
    results_in,
    service_log,
    text_of,
)


class LangChainAgent(GraphAgent):
    """An agent of LangChain's, with the middleware."""

    def make(self, *, at_source: bool) -> Any:
        return create_agent(
            self.model,
            tools=[service_log],
            middleware=[CtxfsMiddleware(self.histories, at_source=at_source)],
            checkpointer=self.saver,
        )


class AsyncAgent(LangChainAgent, Awaited):
    """Awaited."""


class StreamedAgent(LangChainAgent):
    """Streamed."""

    def ask(self, question: str) -> str:
        *_, last = self.graph.stream({"messages": [HumanMessage(question)]}, CONFIG, stream_mode="values")
        return text_of(last)


@pytest.mark.parametrize("agent", [LangChainAgent, AsyncAgent, StreamedAgent])
def test_the_flow_on_the_wire(agent: Callable[..., LangChainAgent], tmp_path: Path) -> None:
    played = flow.play(agent, tmp_path)
    assert flow.NEEDLE in str(next(iter(played.kept.list(CONFIG))).checkpoint), "the state keeps the original"
    assert flow.billed_tokens(tmp_path) == [100] * 6


@pytest.mark.parametrize("agent", [LangChainAgent, AsyncAgent])
def test_the_flow_at_the_source(agent: Callable[..., LangChainAgent], tmp_path: Path) -> None:
    played = flow.play_at_source(lambda root, kept: agent(root, kept, at_source=True), tmp_path)
    assert len(str(next(iter(played.kept.list(CONFIG))).checkpoint)) < len(flow.service_log(1)), (
        "less than one of the three"
    )


class Answer(BaseModel):
    """What an agent answers."""

    line_that_says_so: str = Field(description="The whole line, as it is in the log. " * 200)


@pytest.mark.parametrize(
    ("beside", "added"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["a.b"] * 400}]}, 1000),
        ({"tools": [{"google_search": {"exclude_domains": ["a.b"] * 400}}]}, 1000),
        ({"tools": [{"type": "mcp", "server_label": "issues", "server_description": "Issues. " * 400}]}, 800),
        ({"response_format": ToolStrategy(Answer)}, 1600),
        ({"response_format": ProviderStrategy(Answer.model_json_schema())}, 1600),
        ({"response_format": AutoStrategy(Answer)}, 1600),
    ],
)
def test_hosted_tools_and_the_schema_of_the_answer_are_counted(
    beside: dict[str, Any], added: int, tmp_path: Path, seen: flow.Seen
) -> None:
    def overhead(**given: Any) -> int:
        request: Any = ModelRequest(
            model=cast("Any", None), messages=[HumanMessage("Go.")], state={"messages": []}, **given
        )
        middleware.wrap_model_call(request, lambda _: ModelResponse(result=[]))
        return seen.last.beside

    with History(root_path=tmp_path) as history:
        middleware = CtxfsMiddleware(history)
        own: Any = {"system_message": SystemMessage(flow.LONG_PROMPT), "tools": list(middleware.tools)}
        call: Any = RunnableLambda(lambda _: overhead(**own))
        few = call.invoke(None)
        seen.check_overhead(history)
        tools = [*own["tools"], *beside.get("tools", ())]
        call = RunnableLambda(lambda _: overhead(**own | beside | {"tools": tools}))
        assert added <= call.invoke(None) - few < 2 * added


def test_time_travel_sends_the_same_bytes(tmp_path: Path) -> None:
    agent = LangChainAgent(tmp_path, None)
    agent.ask(flow.QUESTION)
    agent.close()
    again = LangChainAgent(tmp_path, agent.kept())
    past = [one for one in again.graph.get_state_history(CONFIG) if one.next == ("model",)]
    assert flow.NEEDLE in text_of(again.graph.invoke(None, past[2].config))
    again.close()
    first = again.requests[0]
    assert first == agent.requests[3][: len(first)], "what was replaced later stays replaced, by the same bytes"
    assert len(first) == len(agent.requests[2])


def test_threads_at_once_have_sessions_of_their_own(tmp_path: Path) -> None:
    agent = AsyncAgent(tmp_path, None)

    async def ask(thread: str) -> str:
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        return text_of(await agent.graph.ainvoke({"messages": [HumanMessage(flow.QUESTION)]}, config))

    async def ask_all() -> list[str]:
        return await asyncio.gather(*(ask(f"thread/{n}") for n in range(4)))

    assert all(flow.NEEDLE in answer for answer in asyncio.run(ask_all()))
    agent.close()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_subgraph_shares_the_session_and_has_a_branch_of_its_own(tmp_path: Path, seen: flow.Seen) -> None:
    histories, model = Histories(tmp_path, **flow.SETTINGS), ScriptedModel(messages=iter(()), requests=[])
    middleware = CtxfsMiddleware(histories)
    helper: Any = create_agent(model, tools=[service_log], middleware=[middleware])
    graph: Any = StateGraph(MessagesState).add_node("helper", helper).add_edge(START, "helper")
    compiled = graph.compile(checkpointer=InMemorySaver())
    state = compiled.invoke({"messages": [HumanMessage(flow.QUESTION)]}, CONFIG)
    assert flow.NEEDLE in text_of(state)
    assert {one.branch.partition("|")[0] for one in seen.requests} == {"helper"}
    histories.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_needs_a_thread_id(tmp_path: Path) -> None:
    model = ScriptedModel(messages=iter(()), requests=[])
    given: Any = {"messages": [HumanMessage(flow.THANKS)]}
    with Histories(tmp_path) as histories:
        agent: Any = create_agent(model, middleware=[CtxfsMiddleware(histories)])
        with pytest.raises(ConfigError, match="this run has no thread id"):
            agent.invoke(given)
        assert not list(tmp_path.iterdir())
    with History("mine", root_path=tmp_path) as history:
        agent = create_agent(model, middleware=[CtxfsMiddleware(history)])
        assert text_of(agent.invoke(given)) == flow.WELCOME
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_model_is_told_what_is_wrong_with_its_call(tmp_path: Path) -> None:
    class Wrong(ScriptedModel):
        def move(self, question: str, results: Sequence[str]) -> flow.Call | str:
            calls = [{"ref": "unknown", "pattern": "x"}, {"ref": "unknown"}]
            return flow.Call("context_grep", calls[len(results)], f"c{len(results)}") if len(results) < 2 else "Done."

    with History(root_path=tmp_path) as history:
        agent: Any = create_agent(Wrong(messages=iter(()), requests=[]), middleware=[CtxfsMiddleware(history)])
        unknown, invalid = results_in(agent.invoke({"messages": [HumanMessage("Go on.")]}))
    assert (unknown.status, invalid.status) == ("error", "error")
    assert "no item 'unknown' in this session" in str(unknown.content)
    assert "pattern" in str(invalid.content)


class TestConformance(HistoryConformance):
    """Calls beside the content, and calls that the content repeats, as models of Anthropic and OpenAI give them."""

    seeds = 3

    def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
        middleware = CtxfsMiddleware(history)
        messages = [_message(part) for part in parts]
        seen: list[list[Any]] = []

        def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            seen.append(request.messages)
            return ModelResponse(result=[])

        request: Any = ModelRequest(model=cast("Any", None), messages=messages, state={"messages": []})
        config: RunnableConfig = {"configurable": {"checkpoint_ns": f"{branch}:1|model:2"}}
        call: Any = RunnableLambda(lambda _: middleware.wrap_model_call(request, handler))
        call.invoke(None, config)
        for old, new in zip(messages, seen[0], strict=True):
            assert old is new or (old.id, old.name) == (new.id, new.name)
        return [_content(part, message) for part, message in zip(parts, seen[0], strict=True)]


def _message(part: Part) -> Any:
    if part.stays:
        return SystemMessage(cast("Any", part.content))
    if part.kind == "result":
        return ToolMessage(cast("Any", part.content), tool_call_id=part.id, name=part.tool)
    if part.kind != "call":
        return (AIMessage if part.kind == "reply" else HumanMessage)(cast("Any", part.content))
    args = dict(cast("Any", part.content))
    repeated: list[list[Any]] = [
        [],
        [{"type": "tool_use", "id": part.id, "name": part.tool, "input": args}],
        [{"type": "function_call", "call_id": part.id, "name": part.tool, "arguments": json.dumps(args)}],
    ]
    content = repeated[crc32(part.id.encode()) % 3]
    return AIMessage(content or "", tool_calls=[{"name": part.tool, "args": args, "id": part.id}])


def _content(part: Part, message: Any) -> Any:
    if part.kind != "call" or part.stays:
        return message.content
    args = message.tool_calls[0]["args"]
    for block in message.content:
        assert args == (block["input"] if block["type"] == "tool_use" else json.loads(block["arguments"]))
    return args


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsMiddleware(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", ["5m", "1h"])
@pytest.mark.parametrize("how", ["sync", "async", "model", "after"])
def test_what_the_model_is_told_about_the_prompt_cache_is_seen(
    tmp_path: Path, seen: flow.Seen, how: str, ttl: Any
) -> None:
    given: Any = {"model": "claude-sonnet-5-5", "api_key": "any", "max_tokens": 99}
    if how == "model":
        given["model_kwargs"] = {"cache_control": {"type": "ephemeral", "ttl": ttl}}
    with MessagesServer(["Done."]) as server, History(root_path=tmp_path) as history:
        model = ChatAnthropic(base_url=server.url, **given)
        marking = [] if how == "model" else [AnthropicPromptCachingMiddleware(ttl=ttl)]
        own: list[Any] = [CtxfsMiddleware(history)]
        agent: Any = create_agent(model, middleware=[*own, *marking] if how == "after" else [*marking, *own])
        asked = {"messages": [HumanMessage("Go on.")]}
        said = asyncio.run(agent.ainvoke(asked)) if how == "async" else agent.invoke(asked)
        assert text_of(said) == "Done."
        expected = HostCache() if how == "after" else HostCache(at_end=True, ttl=ttl)
        assert seen.last.host == expected, "a middleware is told what those before it in the list did"
    assert server.requests[0]["cache_control"]["ttl"] == ttl


def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen
) -> None:
    with (
        anthropic_server(flow.Call("ask_helper", {}, "ask_1")) as server,
        Histories(tmp_path, **flow.SHARED) as histories,
    ):
        model, middleware = anthropic_model(server), CtxfsMiddleware(histories)
        helper: Any = create_agent(
            model, tools=[service_log], middleware=[middleware], system_prompt=flow.HELPER_PROMPT, name="helper"
        )

        @tool
        def ask_helper() -> str:
            """Ask another agent."""
            return text_of(helper.invoke({"messages": [HumanMessage(flow.QUESTION)]}))

        main: Any = create_agent(
            model, tools=[ask_helper, service_log], middleware=[middleware], system_prompt=flow.LONG_PROMPT, name="main"
        )
        for _ in range(2):
            assert text_of(main.invoke({"messages": [HumanMessage(flow.QUESTION)]}, CONFIG)) == flow.THANKS
    seen.check_subagent([flow.beside_in(body) for body in server.requests])
    assert len(list(tmp_path.iterdir())) == 1
