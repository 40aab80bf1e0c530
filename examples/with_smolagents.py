"""An agent of smolagents, with a class around its model: parts in, edits out.

    pip install ctxfs smolagents
    python examples/with_smolagents.py

A script replaces the model, so it needs no key.
"""

import tempfile
from dataclasses import replace
from typing import Any

from smolagents import ChatMessage, MessageRole, Model, Tool, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction
from smolagents.monitoring import LogLevel

from ctxfs import History, Part

KINDS = {MessageRole.ASSISTANT: "reply", MessageRole.TOOL_CALL: "reply", MessageRole.TOOL_RESPONSE: "result"}
LABEL = "Observation:\n"


class CtxfsModel(Model):
    """Any model of smolagents; what is due in its messages is replaced before each call."""

    def __init__(self, model: Model, history: History) -> None:
        super().__init__(model_id=model.model_id)
        self.model, self.history = model, history

    def generate(self, messages: list[ChatMessage], *args: Any, **settings: Any) -> ChatMessage:
        """Ask the model, with the edits of the history in copies of its messages."""
        edits = self.history.rewrite([part for n, message in enumerate(messages) for part in parts_of(message, n)])
        sent = [edited(message, edits[n]) if n in edits else message for n, message in enumerate(messages)]
        reply = self.model.generate(sent, *args, **settings)
        if (usage := reply.token_usage) is not None:
            self.history.replied({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})
        return reply


def parts_of(message: ChatMessage, n: int) -> list[Part]:
    content = message.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not blocks or any(block["type"] != "text" for block in blocks):
        return []  # images stay
    text = "".join(block["text"] for block in blocks).removeprefix(LABEL)
    kind: Any = KINDS.get(message.role, "user")
    return [Part(kind, text, n, tool="observation", stays=message.role == MessageRole.SYSTEM)]


def edited(message: ChatMessage, new: Any) -> ChatMessage:
    label = LABEL if message.role == MessageRole.TOOL_RESPONSE else ""
    return replace(message, content=[{"type": "text", "text": label + new}])


class ReadTool(Tool):
    """One of ``history.tools``, for ``tools=[…, *(ReadTool(history, tool) for tool in history.tools)]``."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, history: History, tool: Any) -> None:
        self.history, self.name, self.description = history, tool.name, tool.description
        needed = tool.input_schema.get("required", ())
        self.inputs = {
            name: {
                "type": field.get("type", "any"),
                "description": field.get("description", ""),
                "nullable": name not in needed,
            }
            for name, field in tool.input_schema["properties"].items()
        }
        super().__init__()

    def forward(self, **given: Any) -> Any:
        """Read."""
        return self.history.run_tool(self.name, given).content


class ScriptedModel(Model):
    """A script in the model's place; it prints how much it is sent."""

    def __init__(self, turns: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__(model_id="script")
        self.turns = iter(turns)

    def generate(self, messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        """The next turn."""
        print(f"{len(str([message.content for message in messages[1:]])):7,} characters are sent")
        name, arguments = next(self.turns)
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        calls = [ChatMessageToolCall(function=function, id=f"call_{name}", type="function")]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


@tool
def service_log(service: str) -> str:
    """Look up the log of a service.

    Args:
        service: its name
    """
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


script: list[tuple[str, dict[str, Any]]] = [("service_log", {"service": name}) for name in ("api", "billing", "mail")]
script += [("context_list", {}), ("final_answer", {"answer": "Every request was served."})]
with History(root_path=tempfile.mkdtemp()) as session:
    agent = ToolCallingAgent(
        model=CtxfsModel(ScriptedModel(script), session),
        tools=[service_log, *(ReadTool(session, one) for one in session.tools)],
        verbosity_level=LogLevel.OFF,
    )
    print(agent.run("Is everything all right?"))
