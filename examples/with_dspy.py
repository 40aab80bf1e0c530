"""DSPy: large results are replaced where they are made, and the model reads back what it needs.

    pip install ctxfs dspy
    python examples/with_dspy.py

It talks to Chat Completions on loopback, so it needs no key. With the real API, leave out ``api_base``.
"""

import json
import tempfile
from collections.abc import Callable
from functools import wraps
from typing import Any

import dspy

from ctxfs import History
from ctxfs.testing import ChatCompletionsServer


def turn(name: str, **arguments: Any) -> str:
    """What the scripted model says to call a tool."""
    fields = {"next_thought": "I look.", "next_tool_name": name, "next_tool_args": json.dumps(arguments)}
    return "\n\n".join(f"[[ ## {field} ## ]]\n{value}" for field, value in fields.items())


SCRIPT = [turn("service_log", service=name) for name in ("api", "billing", "mail")]
SCRIPT += [turn("context_list"), turn("finish")]
SCRIPT += ["[[ ## reasoning ## ]]\nI saw all.\n\n[[ ## answer ## ]]\nEvery request was served."]
history = History("thread-1", root_path=tempfile.mkdtemp(), model="gpt-5")


def at_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose large results are stored; the model gets what it needs to read them."""

    @wraps(function)
    def run(*args: Any, **given: Any) -> Any:
        return history.arrive(str(function(*args, **given)), tool=function.__name__)

    return run


def read_tool(tool: Any) -> dspy.Tool:
    """One of ``history.tools``."""

    def run(**given: Any) -> Any:
        return history.run_tool(tool.name, given).content

    return dspy.Tool(run, name=tool.name, desc=tool.description, args=dict(tool.input_schema["properties"]))


@at_source
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


with ChatCompletionsServer(SCRIPT) as server, history:
    lm = dspy.LM("openai/gpt-5", api_base=server.url, api_key="any", cache=False)
    agent = dspy.ReAct("question -> answer", tools=[service_log, *(read_tool(tool) for tool in history.tools)])
    with dspy.context(lm=lm):
        print(agent(question="Is everything all right?").answer)
    for request in server.requests:
        print(f"{len(request['messages'][-1]['content']):7,} characters are sent")
