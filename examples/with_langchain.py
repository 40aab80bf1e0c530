"""A LangChain agent, with one more line: ``middleware=[CtxfsMiddleware(histories)]``.

    pip install 'ctxfs[langchain]'
    python examples/with_langchain.py

LangChain's fake model plays a script, so it needs no key. With a real one only ``model`` changes.
"""

import tempfile
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from ctxfs.adapters.langchain import CtxfsMiddleware
from ctxfs.context import Histories


class ScriptedModel(GenericFakeChatModel):
    """A script in the model's place; it prints how much it is sent."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """The script says which tools are called."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **settings: Any) -> ChatResult:
        print(f"{sum(len(message.text) for message in messages):7,} characters are sent")
        return super()._generate(messages, *args, **settings)


def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


def call(number: int, name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])


names = ["api", "billing", "mail"]
script = [call(number, "service_log", service=name) for number, name in enumerate(names, 1)]
script += [call(4, "context_grep", ref="call_1", pattern="request 1234 "), AIMessage("Every request was served.")]

with Histories(tempfile.mkdtemp()) as histories:
    agent = create_agent(
        model=ScriptedModel(messages=iter(script)),
        tools=[service_log],
        middleware=[CtxfsMiddleware(histories)],
        checkpointer=InMemorySaver(),
    )
    question: Any = {"messages": [{"role": "user", "content": "Was request 1234 of the API served?"}]}
    state = agent.invoke(question, {"configurable": {"thread_id": "user/1"}})
    print(f"{sum(len(message.text) for message in state['messages']):7,} characters are in the state, as they were")
    print(state["messages"][-2].text)
    print(state["messages"][-1].text)
