"""ctxfs keeps an LLM agent inside its context window without losing a byte.

What is too large, too old or no longer worth its price leaves the context for a file; a placeholder says where it went
and how to read it; everything can be read back, by the model with its tools and by you with the API and the CLI.

The names are loaded when they are first asked for: ``import ctxfs`` alone costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxfs.version import __version__

if TYPE_CHECKING:
    from ctxfs.agent import Agent, AgentConfig
    from ctxfs.context import Context, ContextFileSystem, ContextItem, ItemType, OffloadPolicy
    from ctxfs.errors import CtxfsError
    from ctxfs.tools import tool

__all__ = [
    "Agent",
    "AgentConfig",
    "Context",
    "ContextFileSystem",
    "ContextItem",
    "CtxfsError",
    "ItemType",
    "OffloadPolicy",
    "__version__",
    "tool",
]

_HOMES = {
    "Agent": "ctxfs.agent",
    "AgentConfig": "ctxfs.agent",
    "Context": "ctxfs.context",
    "ContextFileSystem": "ctxfs.context",
    "ContextItem": "ctxfs.context",
    "CtxfsError": "ctxfs.errors",
    "ItemType": "ctxfs.context",
    "OffloadPolicy": "ctxfs.context",
    "tool": "ctxfs.tools",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
