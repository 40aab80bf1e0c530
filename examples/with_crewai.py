"""CrewAI: a hook before each call of a model replaces what is due in an agent's messages.

    pip install ctxfs crewai
    python examples/with_crewai.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import os
import tempfile
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent
from crewai.hooks import before_llm_call
from crewai.tools import BaseTool, tool
from crewai.utilities.pydantic_schema_utils import create_model_from_schema
from pydantic import Field

from ctxfs import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer

SCRIPT = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
history = History("thread-1", root_path=tempfile.mkdtemp(), model="gpt-5")


class ReadTool(BaseTool):
    """One of the tools of a history; by them, the hook finds the history of an agent."""

    history: Any = Field(exclude=True)  # a checkpoint of CrewAI writes its tools as JSON

    def __init__(self, history: History, one: Any) -> None:
        schema = create_model_from_schema(dict(one.input_schema))
        super().__init__(name=one.name, description=one.description, args_schema=schema, history=history)

    def _run(self, **given: Any) -> Any:
        given = {name: value for name, value in given.items() if value is not None}
        return self.history.run_tool(self.name, given).content


@before_llm_call
def rewrite(context: Any) -> None:
    """Replace what is due: hooks hold for all agents of the process."""
    for history in [one.history for one in context.agent.tools if isinstance(one, ReadTool)][:1]:
        body = {
            "messages": context.messages,
            "tools": [{"function": {"name": one.name}} for one in context.agent.tools],
        }
        context.messages[:] = history.chat(body, branch=context.agent.role)["messages"]
    print(f"{len(str(context.messages)):7,} characters are sent")


@tool("service_log")
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


with ChatCompletionsServer([*SCRIPT, [ToolCall("context_list", {})], "Every request was served."]) as server, history:
    operator = Agent(
        role="Operator",
        goal="Keep the services running",
        backstory="You read logs.",
        llm=LLM(model="openai/gpt-5", base_url=server.url, api_key="any"),
        tools=[service_log, *(ReadTool(history, one) for one in history.tools)],
    )
    print(operator.kickoff("Is everything all right?").raw)
