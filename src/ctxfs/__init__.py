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
    from ctxfs.context import Context, Edits, History, Part
    from ctxfs.errors import CtxfsError
    from ctxfs.eviction import OffloadPolicy
    from ctxfs.messages import ContextItem, ItemType
    from ctxfs.session import ContextFileSystem
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
        "ctxfs.context": ("Context", "Edits", "History", "Part"),
        "ctxfs.errors": ("CtxfsError",),
        "ctxfs.eviction": ("OffloadPolicy",),
        "ctxfs.messages": ("ContextItem", "ItemType"),
        "ctxfs.session": ("ContextFileSystem",),
        "ctxfs.tools": ("tool",),
    },
    elsewhere={
        "ctxfs.agent": ("ChatAnthropic", "ChatOpenAI", "Telemetry"),
        "ctxfs.eviction": (
            "EvictionParameters",
            "EvictionPricing",
            "SelectiveCompaction",
            "Strategy",
            "Window",
        ),
        "ctxfs.messages": ("AssistantMessage", "Prices", "SystemMessage", "ToolMessage", "UserMessage"),
        "ctxfs.testing": ("ScriptedModel",),
        "ctxfs.tools": ("Bash", "Materialize", "Materializer", "Tool", "ToolResult", "ToolResultOffload"),
    },
    renamed=OTHER_NAMES,
)
