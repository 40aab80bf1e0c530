"""The page's model around a model of smolagents, with a scripted one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smolagents import ChatMessage, MessageRole, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction
from smolagents.monitoring import LogLevel, TokenUsage

from ctxfs.context import History
from frameworks import flow

PAGE = flow.run_page(flow.page_of("smolagents"), "smolagents")
LABEL = "Observation:\n"
SETTINGS: dict[str, Any] = {"keep_recent": {"observation": 1}, "preview_above_tokens": 20_000}


class ScriptedModel(Model):
    """Plays the flow; ``requests`` is what it was sent, the system prompt left out."""

    def __init__(self) -> None:
        super().__init__(model_id="scripted")
        self.requests: list[list[str]] = []

    def generate(self, messages: Sequence[Any], *_: Any, **__: Any) -> ChatMessage:
        shown = [message for message in messages if message.role != MessageRole.SYSTEM]
        self.requests.append([f"{message.role}: {_text(message)}" for message in shown])
        results = [_text(one).removeprefix(LABEL) for one in shown if one.role == MessageRole.TOOL_RESPONSE]
        question = flow.THANKS if flow.THANKS in _text(shown[-1]) else ""
        move = flow.next_move(question, results)
        call = flow.Call("final_answer", {"answer": move}, "call_0") if isinstance(move, str) else move
        function = ChatMessageToolCallFunction(name=call.name, arguments=call.arguments)
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content="",
            tool_calls=[ChatMessageToolCall(function=function, id=call.id, type="function")],
            token_usage=TokenUsage(input_tokens=100, output_tokens=5),
        )


def _text(message: Any) -> str:
    content = message.content
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content or ())


@tool
def service_log(n: int) -> str:
    """Look up a log.

    Args:
        n: its number
    """
    return flow.service_log(n)


class MemoryAgent:
    """An agent whose memory is what is kept."""

    def __init__(self, root: Path, kept: Any) -> None:
        self.history = History("thread-1", root_path=root, **SETTINGS)
        self.model = ScriptedModel()
        self.agent = ToolCallingAgent(
            model=self.wrapped(),
            tools=[service_log, *(PAGE["ReadTool"](self.history, tool) for tool in self.history.tools)],
            verbosity_level=LogLevel.OFF,
        )
        if kept is not None:
            self.agent.memory.steps = kept

    def wrapped(self) -> Any:
        return PAGE["CtxfsModel"](self.model, self.history)

    @property
    def requests(self) -> list[list[str]]:
        return self.model.requests

    def ask(self, question: str) -> str:
        return str(self.agent.run(question, reset=False))

    def kept(self) -> Any:
        return self.agent.memory.steps

    def close(self) -> None:
        self.history.close()


def test_the_flow_on_the_wire(tmp_path: Path) -> None:
    played = flow.play(MemoryAgent, tmp_path, breaks=[2, 3, 4])  # what is read back is an observation, too
    assert any(flow.NEEDLE in str(step.observations) for step in played.kept[1:2]), "the memory keeps the original"
    assert flow.billed_tokens(tmp_path) == [100] * 6
