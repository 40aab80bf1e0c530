"""Messages, the interface of chat models, and two of them: ``ChatAnthropic`` and ``ChatOpenAI``.

The two are imported when they are first used, their SDKs when they are first called.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy
from ctxfs.llm.base import (
    ChatModel,
    ChatUsage,
    MessagesUsage,
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
    SdkModel,
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
    "ChatUsage",
    "Content",
    "LegacyToolCalls",
    "Message",
    "MessageLike",
    "MessagesUsage",
    "ModelEvent",
    "ModelRequest",
    "Reply",
    "RetryPolicy",
    "Retrying",
    "SdkModel",
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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.llm.anthropic": ("ChatAnthropic",),
        "ctxfs.llm.openai": ("ChatOpenAI",),
        "ctxfs.llm.retry": ("RetryPolicy",),
    },
)
