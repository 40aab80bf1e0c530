"""Messages, what a chat model is, and the models: ``ChatAnthropic`` and ``ChatOpenAI``.

The two are loaded when they are first asked for, their SDKs when they are first called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxfs.llm.base import (
    ChatModel,
    ModelEvent,
    ModelRequest,
    Reply,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolSchema,
    Usage,
    UsageLike,
)
from ctxfs.llm.legacy import LegacyToolCalls
from ctxfs.llm.messages import (
    AssistantMessage,
    Block,
    Content,
    Message,
    MessageLike,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ctxfs.llm.overflow import too_long

if TYPE_CHECKING:
    from ctxfs.llm.anthropic import ChatAnthropic
    from ctxfs.llm.openai import ChatOpenAI
    from ctxfs.llm.retry import RetryPolicy

__all__ = [
    "AssistantMessage",
    "Block",
    "ChatAnthropic",
    "ChatModel",
    "ChatOpenAI",
    "Content",
    "LegacyToolCalls",
    "Message",
    "MessageLike",
    "ModelEvent",
    "ModelRequest",
    "Reply",
    "RetryPolicy",
    "Retrying",
    "SystemMessage",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolMessage",
    "ToolSchema",
    "Usage",
    "UsageLike",
    "UserMessage",
    "too_long",
]

_LAZY = {
    "ChatAnthropic": "ctxfs.llm.anthropic",
    "ChatOpenAI": "ctxfs.llm.openai",
    "RetryPolicy": "ctxfs.llm.retry",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
