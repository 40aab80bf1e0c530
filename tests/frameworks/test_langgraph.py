"""LangGraph without ``create_agent``: a graph of one's own, with the transport in its model's client."""

from pathlib import Path
from typing import Any

import httpx2
from langchain_core.messages import AnyMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import SecretStr

from frameworks import flow, one_line


@tool
def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def ask(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
    model: Any = ChatOpenAI(
        model=one_line.MODEL,
        api_key=SecretStr("any"),
        base_url=url,
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )
    bound = model.bind_tools([service_log])

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_node("tools", ToolNode([service_log]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    before: list[AnyMessage] = messages_from_dict(kept or [])  # type: ignore[assignment]
    state = builder.compile().invoke({"messages": [*before, {"role": "user", "content": question}]})
    return str(state["messages"][-1].text), messages_to_dict(state["messages"])


def test_the_flow(tmp_path: Path) -> None:
    with one_line.chat_server() as server:
        one_line.play(ask, server, tmp_path)
