"""ctxfs keeps an LLM agent inside its context window without losing a byte.

Content that is too large, too old or no longer worth its price is moved to a file, and a placeholder says where it is
and how to read it. Everything can be read back: by the model with its tools, and by you with the API and the command
line.

The names are imported when they are first used, so that ``import ctxfs`` alone takes a few milliseconds.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import OTHER_NAMES, lazy
from ctxfs.version import __version__

if TYPE_CHECKING:
    from ctxfs.agent import Agent, AgentConfig
    from ctxfs.context import Context, ContextFileSystem, ContextItem, ItemType, OffloadPolicy
    from ctxfs.errors import CtxfsError
    from ctxfs.history import Edits, History, Part
    from ctxfs.tools import tool

__all__ = [
    "Agent",
    "AgentConfig",
    "Context",
    "ContextFileSystem",
    "ContextItem",
    "CtxfsError",
    "Edits",
    "History",
    "ItemType",
    "OffloadPolicy",
    "Part",
    "__version__",
    "tool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.agent": ("Agent", "AgentConfig"),
        "ctxfs.context": ("Context", "ContextFileSystem", "ContextItem", "ItemType", "OffloadPolicy"),
        "ctxfs.errors": ("CtxfsError",),
        "ctxfs.history": ("Edits", "History", "Part"),
        "ctxfs.tools": ("tool",),
    },
    elsewhere={
        "ctxfs.context": ("Budget", "Rule", "SelectiveCompaction", "Strategy", "Window"),
        "ctxfs.economics": ("EvictionParameters", "EvictionPricing"),
        "ctxfs.llm": ("AssistantMessage", "ChatAnthropic", "ChatOpenAI", "SystemMessage", "ToolMessage", "UserMessage"),
        "ctxfs.materialize": ("Materialize", "Materializer"),
        "ctxfs.models": ("Prices",),
        "ctxfs.telemetry": ("Telemetry",),
        "ctxfs.testing": ("ScriptedModel",),
        "ctxfs.tools": ("Bash", "Tool", "ToolResult"),
        "ctxfs.workspace": ("ToolResultOffload",),
    },
    renamed=OTHER_NAMES,
)
