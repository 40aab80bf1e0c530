"""The adapter of Google's ADK, with a model of its interface."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import BaseModel, Field

from ctxfs.adapters.google_adk import CtxfsPlugin
from ctxfs.context import Histories, History, HostCache, Part
from ctxfs.errors import ConfigError
from ctxfs.messages import ToolCall
from ctxfs.testing import GeminiServer
from frameworks import flow
from frameworks.conformance import AdapterConformance, text_of, with_text


class ScriptedModel(BaseLlm):
    """Says what the flow's model says, or what ``moves`` say, and keeps what it got."""

    with_ids: bool = False
    moves: list[Any]
    requests: list[list[str]]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        contents = llm_request.contents
        parts = [part.model_dump(mode="json", exclude_none=True) for content in contents for part in content.parts]
        self.requests.append([json.dumps(part, sort_keys=True) for part in parts])
        question = contents[-1].parts[-1].text or ""
        move = self.moves.pop(0) if self.moves else flow.next_move(question, results_in(contents))
        move = move(contents) if callable(move) else move
        if isinstance(move, str):
            part = types.Part(text=move)
        else:
            part = types.Part(
                function_call=types.FunctionCall(id=move[2] if self.with_ids else None, name=move[0], args=move[1])
            )
        used = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=1000, cached_content_token_count=400, candidates_token_count=10
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=used)


class ModelWithIds(ScriptedModel):
    """Gives its calls ids; those that ADK gives itself are not in requests."""

    with_ids: bool = True


def results_in(contents: Any) -> list[str]:
    found = [part.function_response for content in contents for part in content.parts if part.function_response]
    return [str(response.response.get("result") or response.response.get("error")) for response in found]


def service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


class Plugged:
    """A runner with a plug-in; what it keeps are the session's events."""

    model_class: type[ScriptedModel] = ScriptedModel
    at_source = False

    def __init__(self, root: Path, kept: InMemorySessionService | None) -> None:
        self.model = self.model_class(model="scripted", moves=[], requests=[])
        self.history = self.opened(root)
        self.ctxfs = CtxfsPlugin(self.history, at_source=self.at_source)
        self.sessions = kept or InMemorySessionService()
        agent = LlmAgent(name="reader", model=self.model, tools=[service_log])
        app = App(name="app", root_agent=agent, plugins=self.plugins())
        self.runner = Runner(app=app, session_service=self.sessions)

    def opened(self, root: Path) -> Any:
        return History("thread-1", root_path=root, **flow.SETTINGS)

    def plugins(self) -> list[Any]:
        return [self.ctxfs]

    @property
    def requests(self) -> list[list[str]]:
        return self.model.requests

    def ask(self, question: str) -> str:
        return asyncio.run(self.run(question))

    async def run(self, question: str) -> str:
        given: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": "s"}
        if await self.sessions.get_session(**given) is None:
            await self.sessions.create_session(**given)
        said = ""
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in self.runner.run_async(user_id="u", session_id="s", new_message=message):
            if event.content and event.content.parts and event.content.parts[0].text:
                said = event.content.parts[0].text
        return said

    def kept(self) -> InMemorySessionService:
        return self.sessions

    def close(self) -> None:
        asyncio.run(self.runner.close())


class WithIds(Plugged):
    """The same, with a model that gives calls ids."""

    model_class = ModelWithIds


class OfMany(Plugged):
    """The session is found by the session's id."""

    def opened(self, root: Path) -> Any:
        return Histories(root, **flow.SETTINGS)


class AtSource(Plugged):
    """Results are replaced where they are made, where there are ids, and have none on the wire."""

    at_source = True


def events(sessions: InMemorySessionService) -> list[types.Content]:
    session = asyncio.run(sessions.get_session(app_name="app", user_id="u", session_id="s"))
    assert session is not None
    return [event.content for event in session.events if event.content]


@pytest.mark.parametrize("agent", [Plugged, WithIds, OfMany])
def test_the_flow_on_the_wire(agent: Any, tmp_path: Path) -> None:
    played = flow.play(agent, tmp_path)
    assert results_in(events(played.kept))[0] == flow.service_log(1), "the session keeps the original"
    assert len(list(tmp_path.iterdir())) == 1
    assert ('"id"' in "".join(played.before[-1])) is (agent is WithIds)


def test_the_flow_at_the_source(tmp_path: Path) -> None:
    played = flow.play_at_source(AtSource, tmp_path)
    assert results_in(events(played.kept))[0].startswith("[Output stored in full")


def test_what_was_billed_is_recorded(tmp_path: Path) -> None:
    agent = Plugged(tmp_path, None)
    agent.ask(flow.QUESTION)
    agent.close()
    assert flow.billed_tokens(tmp_path) == [1000] * 5


def test_all_kinds_of_parts_are_taken(tmp_path: Path) -> None:
    """Media, thoughts, errors are counted, and stay; data is replaced as its JSON. Nothing is changed in place."""
    image = types.Part(inline_data=types.Blob(data=b"\x89PNG", mime_type="image/png"))
    responses: list[Any] = [
        {"error": "No. " * 5000},
        {"status": "ok", "log": flow.service_log(1)},
        {"result": flow.service_log(2)},
        {"result": "last"},
    ]
    contents = [types.Content(role="user", parts=[types.Part(text="See."), image])]
    for n, response in enumerate(responses):
        call = types.Part(function_call=types.FunctionCall(name="t", args={"n": n}))
        thought = types.Part(text="Hm.", thought=True)
        contents.append(types.Content(role="model", parts=[thought, call]))
        part = types.Part(function_response=types.FunctionResponse(name="t", response=response))
        contents.append(types.Content(role="user", parts=[part]))
    contents.append(types.Content(role="model", parts=[types.Part(text="Yes.")]))
    contents.append(types.Content(role="user", parts=[types.Part(text="And?")]))
    before = [content.model_copy(deep=True) for content in contents]

    class Given:
        session = type("S", (), {"app_name": "a", "user_id": "u", "id": "s"})()
        agent_name = "reader"

    request = LlmRequest(contents=list(contents))
    with History("t", root_path=tmp_path, keep_recent={"t": 1}) as history:
        asyncio.run(CtxfsPlugin(history).before_model_callback(callback_context=Given(), llm_request=request))
    assert contents == before
    changed = [number for number, content in enumerate(request.contents) if content is not contents[number]]
    assert changed == [4, 6]
    for number in changed:
        assert results_in([request.contents[number]])[0].startswith("[Content offloaded]")


def test_two_agents_have_their_own_requests(tmp_path: Path) -> None:
    agent = Plugged(tmp_path, None)
    second = ScriptedModel(model="second", moves=[], requests=[])
    agent.model.moves = [(flow.TOOL, {"n": 1}, ""), ("transfer_to_agent", {"agent_name": "writer"}, "")]
    second.moves = [
        *((flow.TOOL, {"n": n}, "") for n in (2, 3)),
        lambda contents: flow.next_move("", results_in(contents)[-3:]),
        lambda contents: results_in(contents)[-1],
    ]
    writer = LlmAgent(name="writer", model=second, tools=[service_log])
    reader = LlmAgent(name="reader", model=agent.model, tools=[service_log], sub_agents=[writer])
    agent.runner = Runner(
        app=App(name="app", root_agent=reader, plugins=[agent.ctxfs]), session_service=InMemorySessionService()
    )
    agent.sessions = agent.runner.session_service  # type: ignore[assignment]
    agent.ask(flow.QUESTION)
    agent.close()
    marks = [
        ["[Content offloaded]" in "".join(request) for request in asked]
        for asked in (agent.model.requests, second.requests)
    ]
    assert marks == [[False, False], [False, False, True, True]], "the reader's result is a user's text to the writer"
    assert flow.broken_prefixes(agent.model.requests) == []
    assert flow.broken_prefixes(second.requests) == [2, 3], "only where a result of its own was replaced"


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    agent = Plugged(tmp_path, None)
    wrong = [("context_grep", {"pattern": 5}, ""), ("context_grep", {"ref": "nothing", "pattern": "x"}, "")]
    agent.model.moves = [*wrong, lambda contents: " ".join(results_in(contents))]
    told = agent.ask("Go.")
    agent.close()
    assert "pattern" in told
    assert "no item 'nothing' in this session" in told


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsPlugin(tmp_path)  # type: ignore[arg-type]


class TestConformance(AdapterConformance):
    """Each request shows the contents that ADK makes of the session's events."""

    def message(self, part: Part) -> Any:
        content: Any = part.content
        if part.kind == "call":
            call = types.FunctionCall(id=part.id or None, name=part.tool, args=dict(content))
            return types.Content(role="model", parts=[types.Part(function_call=call)])
        if part.kind == "result":
            response: Any = {"error": content} if part.stays else {"result": content}
            result = types.FunctionResponse(id=part.id or None, name=part.tool, response=response)
            return types.Content(role="user", parts=[types.Part(function_response=result)])
        thought = "".join(str(b.get("thinking", "")) for b in ([] if isinstance(content, str) else content))
        parts = [types.Part(text=thought, thought=True)] if thought else []
        parts += [types.Part(text=text_of(part), thought=part.stays)] if text_of(part) else []
        return types.Content(role="model" if part.kind == "reply" else "user", parts=parts)

    def sent(self, history: History, messages: list[Any], branch: str) -> Any:
        request: Any = LlmRequest(contents=messages)
        request.contents = messages  # the same objects
        plugin: Any = CtxfsPlugin(history)
        session = SimpleNamespace(app_name="a", user_id="u", id="s")
        context = SimpleNamespace(agent_name=branch, session=session)
        asyncio.run(plugin.before_model_callback(callback_context=context, llm_request=request))
        return request.contents

    def content(self, part: Part, message: Any) -> Any:
        new = message.parts[-1]
        if part.kind == "call":
            return new.function_call.args
        return new.function_response.response["result"] if part.kind == "result" else with_text(part, new.text)


@pytest.mark.parametrize("cached", [False, True])
def test_the_context_cache_of_an_app_is_seen(tmp_path: Path, seen: flow.Seen, cached: bool) -> None:
    model = ScriptedModel(model="scripted", moves=["Done."], requests=[])
    with History(root_path=tmp_path) as history:
        app = App(
            name="app",
            root_agent=LlmAgent(name="reader", model=model),
            plugins=[CtxfsPlugin(history)],
            context_cache_config=ContextCacheConfig() if cached else None,
        )
        asked = types.Content(role="user", parts=[types.Part(text="Go on.")])

        async def run() -> None:
            sessions = InMemorySessionService()
            await sessions.create_session(app_name="app", user_id="u", session_id="s")
            runner = Runner(app=app, session_service=sessions)
            async for _ in runner.run_async(user_id="u", session_id="s", new_message=asked):
                pass

        asyncio.run(run())
        assert seen.last.host == HostCache(at_end=cached)


def test_a_request_for_json_without_tools_gets_none(tmp_path: Path) -> None:
    """Models refuse tools beside a schema."""

    class Number(BaseModel):
        n: int

    offered: list[list[str]] = []

    class Noting(ScriptedModel):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            offered.append(list(llm_request.tools_dict))
            async for reply in super().generate_content_async(llm_request, stream):
                yield reply

    agent = Plugged(tmp_path, None)
    for schema in (Number, None):
        model = Noting(model="scripted", moves=['{"n": 1}'], requests=[])
        one = LlmAgent(name="one", model=model, output_schema=schema)
        agent.runner = Runner(
            app=App(name="app", root_agent=one, plugins=[agent.ctxfs]), session_service=agent.sessions
        )
        agent.ask("Go.")
    names = [tool.name for tool in agent.history.tools]
    agent.close()
    assert offered == [[], names]


class Answer(BaseModel):
    """What an agent answers."""

    line_that_says_so: str = Field(description="The whole line, as it is in the log. " * 200)


@pytest.mark.parametrize(
    ("config", "added"),
    [
        ({"tools": [types.Tool(google_search=types.GoogleSearch(exclude_domains=["a.b"] * 400))]}, 1000),
        ({"response_schema": Answer}, 1600),
        ({"response_schema": list[Answer]}, 1600),
        ({"response_schema": types.Schema(type=types.Type.STRING, description="The whole line. " * 400)}, 1600),
    ],
)
def test_hosted_tools_and_the_schema_of_the_answer_are_counted(
    config: dict[str, Any], added: int, tmp_path: Path, seen: flow.Seen
) -> None:
    def overhead(**given: Any) -> int:
        contents = [types.Content(role="user", parts=[types.Part(text="Go.")])]
        request = LlmRequest(contents=contents, config=types.GenerateContentConfig(**given))
        asyncio.run(plugin.before_model_callback(callback_context=context, llm_request=request))
        return seen.last.beside

    session = SimpleNamespace(app_name="a", user_id="u", id="s")
    context: Any = SimpleNamespace(agent_name="reader", session=session)
    with History(root_path=tmp_path) as history:
        plugin = CtxfsPlugin(history)
        few = overhead(system_instruction=flow.LONG_PROMPT)
        seen.check_overhead(history)
        assert added <= overhead(system_instruction=flow.LONG_PROMPT, **config) - few < 2 * added


def test_the_instruction_and_the_tools_of_a_request_are_counted(tmp_path: Path, seen: flow.Seen) -> None:
    model = ScriptedModel(model="scripted", moves=["Done."], requests=[])
    with History(root_path=tmp_path) as history:
        plugin = CtxfsPlugin(history)
        agent = LlmAgent(name="reader", model=model, instruction=flow.LONG_PROMPT)
        asked = types.Content(role="user", parts=[types.Part(text="Go on.")])

        async def run() -> None:
            runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[plugin]))
            await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
            async for _ in runner.run_async(user_id="u", session_id="s", new_message=asked):
                pass
            seen.check_overhead(history)

        asyncio.run(run())


def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(body: dict[str, Any]) -> Any:
        parts = [part for content in body["contents"] for part in content["parts"]]
        helps = flow.HELPER_PROMPT.strip() in json.dumps(body["systemInstruction"])
        results = ["result" for part in parts if part.get("functionResponse", {}).get("name") == flow.TOOL]
        over = flow.Call("transfer_to_agent", {"agent_name": "helper"}, "")
        move = flow.shared_move(over, results, helps=helps)
        return move if isinstance(move, str) else [ToolCall(move.name, move.arguments)]

    with (
        GeminiServer([turn] * 40, **flow.window_of_server()) as server,
        History(root_path=tmp_path, **flow.SHARED) as history,
    ):
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_API_KEY", "any")
        helper = LlmAgent(name="helper", model="gemini-2.5-pro", instruction=flow.HELPER_PROMPT, tools=[service_log])
        main = LlmAgent(name="main", model="gemini-2.5-pro", instruction=flow.LONG_PROMPT, sub_agents=[helper])
        asked = types.Content(role="user", parts=[types.Part(text=flow.QUESTION)])

        async def run() -> list[Any]:
            runner = InMemoryRunner(app=App(name="app", root_agent=main, plugins=[CtxfsPlugin(history)]))
            await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
            return [one async for one in runner.run_async(user_id="u", session_id="s", new_message=asked)]

        for _ in range(2):
            assert asyncio.run(run())[-1].content.parts[0].text == flow.THANKS
    assert server.refusals == []
    seen.check_subagent([flow.beside_in(body) for body in server.requests])
    assert [one.branch for one in seen.requests] == ["main", *["helper"] * (flow.SHARED_LOGS + 1)] * 2
