"""Pydantic AI with one more line: ``capabilities=[CtxfsCapability(history)]``.

    pip install 'ctxfs[pydantic_ai]'
    python examples/with_pydantic_ai.py

The model is Pydantic AI's own function model, so it needs no key.
"""

import tempfile

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ctxfs import History
from ctxfs.adapters.pydantic_ai import CtxfsCapability

SERVICES = ("api", "billing", "mail")


def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    sent = sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts)
    print(f"{sent:7} characters in the prompt")
    asked = len(messages) // 2
    if asked < len(SERVICES):
        return ModelResponse([ToolCallPart("service_log", {"service": SERVICES[asked]})])
    return ModelResponse([TextPart("Every request was served.")])


with History("thread-1", root_path=tempfile.mkdtemp()) as history:
    agent = Agent(FunctionModel(model), tools=[service_log], capabilities=[CtxfsCapability(history)])
    print(agent.run_sync("Is everything all right?").output)
