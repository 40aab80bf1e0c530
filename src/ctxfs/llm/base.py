"""What a chat model is to ctxfs: a request value in, a stream of events out."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ctxfs.llm.messages import AssistantMessage, Message

__all__ = [
    "CUT",
    "ChatModel",
    "ModelEvent",
    "ModelRequest",
    "Reply",
    "Retrying",
    "TextDelta",
    "ThinkingDelta",
    "ToolSchema",
    "Usage",
]

CUT = frozenset({"max_tokens", "model_context_window_exceeded"})
"""The stop reasons of a reply that is not whole: it reached its own limit, or the end of the model's window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as the model sees it; ``input_schema`` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one model call needs. A system prompt, if any, is the first message.

    ``max_tokens`` bounds the reply; None leaves it to the model's own default. ``breakpoints``: after how many of the
    messages the prompt is worth caching, for providers that have to be told; None leaves it to the serializer.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_tokens: int | None = None
    breakpoints: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Billed tokens of one call. The three input counts are disjoint, as in the Anthropic Messages API."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_input_tokens(self) -> int:
        """The whole prompt: what was cached, what was written to the cache, and the rest."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the reply's thinking."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """The call failed and is made again after ``delay_s`` seconds; deltas of this reply so far are void."""

    attempt: int
    delay_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The finished reply, always the last event of a stream. ``stop_reason`` is the Messages API's."""

    message: AssistantMessage
    usage: Usage
    stop_reason: str
    model: str


ModelEvent = TextDelta | ThinkingDelta | Retrying | Reply


class ChatModel(Protocol):
    """A model that streams one reply to one request.

    ``stream`` is an async generator: whoever stops early closes it (``contextlib.aclosing``). It raises the
    ``ModelError`` family only, mapped in one place per provider. It is not guaranteed that any delta comes before the
    reply.
    """

    @property
    def model(self) -> str:
        """The model's name as the provider knows it."""

    def check(self) -> None:
        """Raise ``MissingApiKey`` (or ``ConfigError``) when a call could not even be tried."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send ``request``; yield deltas, then exactly one ``Reply``."""

    async def close(self) -> None:
        """Release connections; idempotent."""
