"""The events of a running agent, in order: the model's deltas, its tool calls, evictions, and the end."""

from dataclasses import dataclass

from ctxfs.eviction.events import ContextEvent
from ctxfs.messages.base import Retrying, TextDelta, ThinkingDelta, Usage
from ctxfs.messages.messages import ToolCall
from ctxfs.tools.base import ToolResult


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The model called a tool; the calls of one reply run side by side."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A call has its result; emitted in call order, once all calls of the reply have ended.

    ``result`` is what the next request carries: a placeholder, if the result was evicted before it was ever sent (only
    keeping the context inside its window may reduce it further). ``whole`` is all that the tool returned.
    """

    call: ToolCall
    result: ToolResult
    whole: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported:
    """What the provider billed for one model call, and the size of the context now, by our own count (tokens)."""

    usage: Usage
    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The final answer, always the last event. ``stop_reason`` is the Messages API's."""

    text: str
    stop_reason: str
    turns: int


AgentEvent = TextDelta | ThinkingDelta | Retrying | ToolStarted | ToolEnded | ContextEvent | UsageReported | Done
