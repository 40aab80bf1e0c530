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
        UsageLike,
    )
    from ctxfs.messages.items import ContentRange, ContextItem, ItemType
    from ctxfs.messages.legacy import LegacyToolCalls
    from ctxfs.messages.messages import (
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
    from ctxfs.messages.models.known import ModelInfo, UnknownModel, known_model
    from ctxfs.messages.models.prices import CacheTtl, Prices
    from ctxfs.messages.names import ENVELOPE, TEXT, Layout, NameAllocator
    from ctxfs.messages.overflow import too_long
    from ctxfs.messages.rates import ANTHROPIC_RATES, Rates, bill_usd
    from ctxfs.messages.tokens import CharsCounter, O200kCounter, TokenCounter, default_counter, load_counter

__all__ = [
    "ANTHROPIC_RATES",
    "ENVELOPE",
    "TEXT",
    "AssistantMessage",
    "Block",
    "CacheTtl",
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
    "MessageLike",
    "MessagesUsage",
    "ModelEvent",
    "ModelInfo",
    "ModelRequest",
    "NameAllocator",
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
    "UsageLike",
    "UserMessage",
    "bill_usd",
    "default_counter",
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
            "UsageLike",
        ),
        "ctxfs.messages.items": (
            "ContentRange",
            "ContextItem",
            "ItemType",
        ),
        "ctxfs.messages.legacy": ("LegacyToolCalls",),
        "ctxfs.messages.messages": (
            "AssistantMessage",
            "Block",
            "Content",
            "Message",
            "MessageLike",
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
        "ctxfs.messages.models.prices": (
            "CacheTtl",
            "Prices",
        ),
        "ctxfs.messages.names": (
            "ENVELOPE",
            "Layout",
            "NameAllocator",
            "TEXT",
        ),
        "ctxfs.messages.overflow": ("too_long",),
        "ctxfs.messages.rates": (
            "ANTHROPIC_RATES",
            "Rates",
            "bill_usd",
        ),
        "ctxfs.messages.tokens": (
            "CharsCounter",
            "O200kCounter",
            "TokenCounter",
            "default_counter",
            "load_counter",
        ),
    },
)
