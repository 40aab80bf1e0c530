"""Messages and their content, tokens, wire formats, models and their prices.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.messages.base import (
        ChatModel,
        ChatUsage,
        GeminiUsage,
        MessagesUsage,
        ModelEvent,
        ModelRequest,
        Reply,
        Retrying,
        TextDelta,
        ThinkingDelta,
        ToolSchema,
        Usage,
    )
    from ctxfs.messages.items import ContentRange, ContextItem, ItemType
    from ctxfs.messages.legacy import LegacyToolCalls
    from ctxfs.messages.messages import (
        AssistantMessage,
        Content,
        Message,
        SdkModel,
        SystemMessage,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from ctxfs.messages.models.known import ModelInfo, UnknownModel, known_model
    from ctxfs.messages.models.prices import Prices
    from ctxfs.messages.names import ENVELOPE, TEXT, Layout
    from ctxfs.messages.overflow import too_long
    from ctxfs.messages.rates import Rates, bill_usd
    from ctxfs.messages.tokens import CharsCounter, O200kCounter, TokenCounter, load_counter

__all__ = [
    "ENVELOPE",
    "TEXT",
    "AssistantMessage",
    "CharsCounter",
    "ChatModel",
    "ChatUsage",
    "Content",
    "ContentRange",
    "ContextItem",
    "GeminiUsage",
    "ItemType",
    "Layout",
    "LegacyToolCalls",
    "Message",
    "MessagesUsage",
    "ModelEvent",
    "ModelInfo",
    "ModelRequest",
    "O200kCounter",
    "Prices",
    "Rates",
    "Reply",
    "Retrying",
    "SdkModel",
    "SystemMessage",
    "TextDelta",
    "ThinkingDelta",
    "TokenCounter",
    "ToolCall",
    "ToolMessage",
    "ToolSchema",
    "UnknownModel",
    "Usage",
    "UserMessage",
    "bill_usd",
    "known_model",
    "load_counter",
    "too_long",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.messages.base": (
            "ChatModel",
            "ChatUsage",
            "GeminiUsage",
            "MessagesUsage",
            "ModelEvent",
            "ModelRequest",
            "Reply",
            "Retrying",
            "TextDelta",
            "ThinkingDelta",
            "ToolSchema",
            "Usage",
        ),
        "ctxfs.messages.items": (
            "ContentRange",
            "ContextItem",
            "ItemType",
        ),
        "ctxfs.messages.legacy": ("LegacyToolCalls",),
        "ctxfs.messages.messages": (
            "AssistantMessage",
            "Content",
            "Message",
            "SdkModel",
            "SystemMessage",
            "ToolCall",
            "ToolMessage",
            "UserMessage",
        ),
        "ctxfs.messages.models.known": (
            "ModelInfo",
            "UnknownModel",
            "known_model",
        ),
        "ctxfs.messages.models.prices": ("Prices",),
        "ctxfs.messages.names": (
            "ENVELOPE",
            "Layout",
            "TEXT",
        ),
        "ctxfs.messages.overflow": ("too_long",),
        "ctxfs.messages.rates": (
            "Rates",
            "bill_usd",
        ),
        "ctxfs.messages.tokens": (
            "CharsCounter",
            "O200kCounter",
            "TokenCounter",
            "load_counter",
        ),
    },
)
