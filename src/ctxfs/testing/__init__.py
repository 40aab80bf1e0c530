"""What ctxfs ships for tests: scripted models, model servers on loopback, a store in memory, Hypothesis strategies.

``ctxfs.testing.strategies`` needs the package ``hypothesis`` and is loaded only when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxfs.llm.messages import ToolCall
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.testing.scripted import Cut, ScriptedModel

if TYPE_CHECKING:
    from ctxfs.testing.chat_server import ChatCompletionsServer
    from ctxfs.testing.server import Broken, Failure, MessagesServer

__all__ = [
    "Broken",
    "ChatCompletionsServer",
    "Cut",
    "Failure",
    "MemoryDisk",
    "MemoryStore",
    "MessagesServer",
    "PromptCache",
    "ScriptedModel",
    "ToolCall",
]

_LAZY = {
    "Broken": "ctxfs.testing.server",
    "ChatCompletionsServer": "ctxfs.testing.chat_server",
    "Failure": "ctxfs.testing.server",
    "MessagesServer": "ctxfs.testing.server",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
