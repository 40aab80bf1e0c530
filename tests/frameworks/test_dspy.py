"""The page's functions in an agent of DSPy, with Chat Completions on loopback: results are replaced at the source."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or an import of LiteLLM asks the network

import dspy

from ctxfs.context import History
from ctxfs.testing import ChatCompletionsServer
from ctxfs.tools import Materialize
from frameworks import flow

PAGE = flow.run_page(flow.page_of("dspy"), "dspy")


def turn(body: dict[str, Any]) -> str:
    """The scripted model, in DSPy's format: the results are observations in the last message."""
    text = body["messages"][-1]["content"]
    question, _, trajectory = text.partition("[[ ## trajectory ## ]]")
    results = re.split(r"\[\[ ## observation_\d+ ## \]\]\n", trajectory)[1:]
    results = [result.partition("\n\n[[ ## ")[0] for result in results]
    move = flow.next_move(flow.THANKS if flow.THANKS in question else "", results[:4])
    if "next_tool_name" not in json.dumps(body["messages"]):
        assert isinstance(move, str)
        return written(reasoning="The log says it.", answer=move)
    if isinstance(move, str):
        return written(next_thought="I have it.", next_tool_name="finish", next_tool_args="{}")
    return written(next_thought="I look.", next_tool_name=move.name, next_tool_args=json.dumps(move.arguments))


def written(**fields: str) -> str:
    return "\n\n".join([*(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()), "[[ ## completed ## ]]"])


def service_log(n: int) -> str:
    """Read a log."""
    return flow.service_log(n)


def called(agent: Any, question: str) -> str:
    return str(agent(question=question).answer)


def awaited(agent: Any, question: str) -> str:
    return str(asyncio.run(agent.acall(question=question)).answer)


@pytest.mark.parametrize("ask", [called, awaited])
def test_the_flow_at_the_source(ask: Callable[[Any, str], str], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"root_path": tmp_path, "model": "gpt-5", "materialize": Materialize()}
    with ChatCompletionsServer([turn] * 12) as server:
        for question, answer in ((flow.QUESTION, flow.NEEDLE), (flow.THANKS, flow.WELCOME)):
            with History("thread-1", **settings) as PAGE["history"]:  # the second one is a new process
                tools = [PAGE["at_source"](service_log), *map(PAGE["read_tool"], PAGE["history"].tools)]
                lm = dspy.LM("openai/gpt-5", api_base=server.url, api_key="any", cache=False, num_retries=0)
                with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
                    assert answer in ask(dspy.ReAct("question -> answer", tools=tools), question)
    assert server.refusals == []
    sent = [request["messages"][-1]["content"] for request in server.requests]
    assert not any(flow.service_log(n) in text for text in sent for n in (1, 2, 3))
    assert sum(flow.NEEDLE in text for text in sent) == 2, "only once it was read"
    stored = [path.read_bytes() for path in (tmp_path / "thread-1").rglob("*") if path.is_file()]
    assert [stored.count(flow.service_log(n).encode()) for n in (1, 2, 3)] == [1, 1, 1], "once, for both questions"
