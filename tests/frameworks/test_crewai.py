"""The page's hook in an agent of CrewAI, with Chat Completions on loopback."""

import json
import os
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
    page["history"] = history
    llm = LLM(model="openai/gpt-5", base_url=url, api_key="any")
    tools = [service_log, *(page["ReadTool"](one) for one in history.tools)]
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
