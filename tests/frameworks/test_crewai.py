"""The page's hook in an agent of CrewAI, with Chat Completions on loopback."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"  # or its import asks the network
os.environ["CREWAI_TRACING_ENABLED"] = "false"

from crewai import LLM, Agent, Crew, Task
from crewai.events import crewai_event_bus
from crewai.hooks import clear_all_hooks
from crewai.tools import tool

from ctxfs.context import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer
from frameworks import flow, one_line


@pytest.fixture(autouse=True)
def page() -> Iterator[dict[str, Any]]:
    """The names that the page defines; its hooks hold for the process, so that each test has its own."""
    yield flow.run_page(flow.page_of("crewai"), "crewai")
    clear_all_hooks()


@tool("service_log")
def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def turn(body: dict[str, Any]) -> Any:
    """The scripted model; the user's question is CrewAI's task."""
    *before, last = body["messages"]
    return one_line.chat_turn({"messages": [*before, {**last, "content": task_of(last["content"])}]})


def task_of(content: str) -> str:
    return content.removeprefix("\nCurrent Task: ")


@pytest.fixture
def server() -> Iterator[ChatCompletionsServer]:
    with ChatCompletionsServer([turn] * 12) as running:
        yield running
    assert running.refusals == []


def operator(page: dict[str, Any], history: History, url: str) -> Agent:
    llm = LLM(model="openai/gpt-5", base_url=url, api_key="any")
    tools = [service_log, *page["reading_tools"](history)]
    return Agent(role="Operator", goal="Keep it running", backstory="An operator", llm=llm, tools=tools)


class KickedOff:
    """An agent whose messages are kept by the program."""

    def __init__(self, page: dict[str, Any], server: ChatCompletionsServer, root: Path, kept: Any) -> None:
        self.history = History("thread-1", root_path=root, model="gpt-5", **flow.SETTINGS)
        self._agent = operator(page, self.history, server.url)
        self._messages = kept or []
        self._server = server
        self._first = len(server.requests)

    @property
    def requests(self) -> list[list[str]]:
        sent = [body["messages"] for body in self._server.requests[self._first :]]
        return [[json.dumps(one, sort_keys=True) for one in messages if one["role"] != "system"] for messages in sent]

    def ask(self, question: str) -> str:
        reply: Any = self._agent.kickoff([*self._messages, {"role": "user", "content": question}])
        self._messages = [message for message in reply.messages if message["role"] != "system"]
        return str(reply.raw)

    def kept(self) -> Any:
        return self._messages

    def close(self) -> None:
        crewai_event_bus.flush()
        self.history.close()


def test_the_flow_on_the_wire(page: dict[str, Any], server: ChatCompletionsServer, tmp_path: Path) -> None:
    flow.play(lambda root, kept: KickedOff(page, server, root, kept), tmp_path)
    billed = flow.billed_tokens(tmp_path)
    assert len(billed) == 6
    assert min(billed) > 0


def test_a_crew(page: dict[str, Any], server: ChatCompletionsServer, tmp_path: Path) -> None:
    """Each agent of a crew is a branch of the session."""
    with History("thread-1", root_path=tmp_path, model="gpt-5", **flow.SETTINGS) as history:
        agent = operator(page, history, server.url)
        task = Task(description=flow.QUESTION, expected_output="a number", agent=agent)
        assert flow.NEEDLE in str(Crew(agents=[agent], tasks=[task], tracing=False).kickoff())
        crewai_event_bus.flush()
    assert json.dumps(server.requests[3]["messages"]).count("[Content offloaded]") == 2
    assert len(flow.billed_tokens(tmp_path)) == 5


def test_a_checkpoint_has_the_tools_without_their_history(page: dict[str, Any], tmp_path: Path) -> None:
    """A checkpoint is the crew as JSON; CrewAI cannot write functions, so that there are our tools alone."""
    llm = LLM(model="openai/gpt-5", base_url="http://127.0.0.1:1", api_key="any")
    with History("thread-1", root_path=tmp_path, model="gpt-5") as history:
        tools = page["reading_tools"](history)
        agent = Agent(role="Operator", goal="Keep it running", backstory="An operator", llm=llm, tools=tools)
        task = Task(description=flow.QUESTION, expected_output="a number", agent=agent)
        written = Crew(agents=[agent], tasks=[task], tracing=False).model_dump_json()
    assert '"history"' not in written
    assert all(f'"name":"{tool.name}"' in written for tool in history.tools)


def test_two_crews_of_a_process_have_their_own_histories(
    page: dict[str, Any], server: ChatCompletionsServer, tmp_path: Path
) -> None:
    """Hooks hold for the process: each finds the history of its agent, also where two agents have the same role."""
    answers: dict[str, str] = {}

    def run_crew(name: str) -> None:
        with History("thread-1", root_path=tmp_path / name, model="gpt-5", **flow.SETTINGS) as history:
            agent = operator(page, history, server.url)
            task = Task(description=flow.QUESTION, expected_output="a number", agent=agent)
            answers[name] = str(Crew(agents=[agent], tasks=[task], tracing=False).kickoff())
            crewai_event_bus.flush()

    crews = [threading.Thread(target=run_crew, args=(name,)) for name in ("one", "two")]
    for crew in crews:
        crew.start()
    for crew in crews:
        crew.join()
    assert all(flow.NEEDLE in answers[name] for name in ("one", "two"))
    for name in ("one", "two"):
        bodies = [json.dumps(body) for body in server.requests]
        of_this = [body for body in bodies if f"/{name}/" in body]
        assert max(body.count("[Content offloaded]") for body in of_this) == 2
        other = "two" if name == "one" else "one"
        assert not [body for body in of_this if f"/{other}/" in body], "a crew got a placeholder of the other's history"
        assert len(flow.billed_tokens(tmp_path / name)) == 5


def test_an_agent_without_the_reading_tools_is_left_alone(page: dict[str, Any]) -> None:
    with ChatCompletionsServer(
        [[ToolCall("service_log", {"n": 0})], [ToolCall("service_log", {"n": 1})], "done"]
    ) as server:
        llm = LLM(model="openai/gpt-5", base_url=server.url, api_key="any")
        agent = Agent(role="Operator", goal="Keep it running", backstory="An operator", llm=llm, tools=[service_log])
        agent.kickoff(flow.QUESTION)
        crewai_event_bus.flush()
    assert len(server.requests) == 3
    assert not page["histories"]
    assert flow.service_log(0) in [message.get("content") for message in server.requests[2]["messages"]]
