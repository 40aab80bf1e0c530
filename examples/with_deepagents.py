"""A deep agent whose large and old results go to a session, and come back when the model asks for them.

    pip install 'ctxfs[deepagents]'
    python examples/with_deepagents.py

LangChain's fake model plays a script, so it needs no key. With a real one only ``model`` changes.
"""

import tempfile
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from ctxfs.adapters.deepagents import CtxfsMiddleware
from ctxfs.context import Histories


class ScriptedModel(GenericFakeChatModel):
    """A script in the model's place."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """The script says which tools are called."""
        return self


def service_log(service: str, requests: int) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(requests))


def call(number: int, name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])


script = [
    call(1, "service_log", service="api", requests=3500),  # large enough for the offloader of Deep Agents
    call(2, "service_log", service="billing", requests=1000),
    call(3, "service_log", service="mail", requests=1000),
    call(4, "grep", pattern="request 1234 ", path="/large_tool_results", output_mode="content"),
    call(5, "context_grep", ref="call_2", pattern="request 567 "),
    AIMessage("Both were served."),
]

with Histories(tempfile.mkdtemp()) as histories:
    middleware = CtxfsMiddleware(histories)
    agent = create_deep_agent(
        model=ScriptedModel(messages=iter(script)),
        tools=[service_log],
        middleware=[middleware],
        backend=middleware.backend(),
        checkpointer=InMemorySaver(),
    )
    question: Any = {"messages": [{"role": "user", "content": "Were API request 1234 and billing request 567 served?"}]}
    state = agent.invoke(question, {"configurable": {"thread_id": "user/1"}})
    for message in state["messages"][-5:]:
        if message.text:
            print(f"{message.type}: {message.text[:120]}")
