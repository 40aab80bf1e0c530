"""LangGraph without ``create_agent``: the transport is in the client of its model, and answers the reading.

    pip install ctxfs langgraph langchain-openai
    python examples/with_langgraph.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import tempfile
from typing import Any

import httpx2
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import SecretStr

from ctxfs import History
from ctxfs.adapters.transport import history_transport
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer

SCRIPT = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]


@tool
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


with (
    ChatCompletionsServer([*SCRIPT, [ToolCall("context_list", {})], "Every request was served."]) as server,
    History("thread-1", root_path=tempfile.mkdtemp(), model="gpt-5") as history,
):
    transport = history_transport(history, reading_turns=8)
    client = httpx2.Client(transport=transport)
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("any"), base_url=server.url, http_client=client)
    bound = model.bind_tools([service_log])

    def ask(state: MessagesState) -> dict[str, Any]:
        """Ask the model."""
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([service_log]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    state = graph.compile().invoke({"messages": [{"role": "user", "content": "Is everything all right?"}]})
    print(state["messages"][-1].text)
    print("\n".join(transport.savings.lines()))
