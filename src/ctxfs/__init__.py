"""ctxfs keeps an LLM agent inside its context window without losing a byte.

What is too large, too old or no longer worth its price leaves the context for a file; a placeholder says where it went
and how to read it; everything can be read back, by the model with its tools and by you with the API and the CLI.
"""

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
    "tool",
]
