"""LangChain's fake model, playing the flow, and what goes with it."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from ctxfs.context import Histories
from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer
from frameworks import flow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "user/1"}}


class ScriptedModel(GenericFakeChatModel):
    """LangChain's fake model, playing the flow; ``requests`` is what it was sent."""

    requests: list[list[str]]

    def bind_tools(self, tools: Any, **settings: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **settings: Any) -> ChatResult:
        self.requests.append([sent(message) for message in messages if not isinstance(message, SystemMessage)])
        results = [str(message.text) for message in messages if isinstance(message, ToolMessage)]
        question = messages[-1].text if isinstance(messages[-1], HumanMessage) else ""
        move = self.move(str(question), results)
        usage: Any = {
            "input_tokens": 100,
            "output_tokens": 5,
            "total_tokens": 105,
            "input_token_details": {"cache_read": 40},
        }
        if isinstance(move, str):
            reply = AIMessage(move, usage_metadata=usage)
        else:
            call = {"name": move.name, "args": move.arguments, "id": move.id}
            reply = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def move(self, question: str, results: Sequence[str]) -> flow.Call | str:
        return flow.next_move(question, results)


class GraphAgent:
    """An agent whose graph has a checkpointer, which is what is kept; ``make`` makes the graph."""

    def __init__(self, root: Path, kept: InMemorySaver | None, *, at_source: bool = False) -> None:
        self.histories = Histories(root, **flow.SETTINGS)
        self.saver = kept or InMemorySaver()
        self.model = ScriptedModel(messages=iter(()), requests=[])
        self.graph: Any = self.make(at_source=at_source)

    def make(self, *, at_source: bool) -> Any:
        raise NotImplementedError

    @property
    def requests(self) -> list[list[str]]:
        return self.model.requests

    def ask(self, question: str) -> str:
        return text_of(self.graph.invoke({"messages": [HumanMessage(question)]}, CONFIG))

    def kept(self) -> InMemorySaver:
        return self.saver

    def close(self) -> None:
        self.histories.close()


class Awaited(GraphAgent):
    """Awaited, each question in an event loop of its own."""

    def ask(self, question: str) -> str:
        return text_of(asyncio.run(self.graph.ainvoke({"messages": [HumanMessage(question)]}, CONFIG)))


def sent(message: BaseMessage) -> str:
    """What is sent of a message."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return json.dumps([message.type, message.content, *calls], sort_keys=True)


@tool
def service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


def text_of(state: dict[str, Any]) -> str:
    return str(state["messages"][-1].text)


def results_in(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


@contextmanager
def anthropic_server(hand_over: flow.Call) -> Iterator[MessagesServer]:
    """A Messages API that plays an agent which hands over to a helper; nothing may be refused."""

    def turn(body: dict[str, Any]) -> Any:
        blocks = [b for message in body["messages"] if isinstance(message["content"], list) for b in message["content"]]
        results = [block["type"] for block in blocks if block["type"] == "tool_result"]
        helps = flow.HELPER_PROMPT.strip() in json.dumps(body["system"])
        move = flow.shared_move(hand_over, results, helps=helps)
        return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]

    with MessagesServer([turn] * 40, **flow.window_of_server()) as server:
        yield server
    assert server.refusals == []


def anthropic_model(server: MessagesServer) -> Any:
    """LangChain's model of Anthropic's, on that server."""
    given: Any = {"model": "claude-sonnet-5-5", "api_key": "any", "max_tokens": 99}
    return ChatAnthropic(base_url=server.url, **given)
