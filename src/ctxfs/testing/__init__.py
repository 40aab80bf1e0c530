"""What ctxfs ships for tests: scripted models, model servers on loopback, a store in memory, Hypothesis strategies.

``ctxfs.testing.strategies`` needs the package ``hypothesis`` and is imported only when it is used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy
from ctxfs.llm.messages import ToolCall
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.testing.scripted import Cut, ScriptedModel

if TYPE_CHECKING:
    from ctxfs.testing.chat_server import ChatCompletionsServer
    from ctxfs.testing.loopback import Answer
    from ctxfs.testing.responses_server import ResponsesServer
    from ctxfs.testing.server import Broken, Failure, MessagesServer

__all__ = [
    "Answer",
    "Broken",
    "ChatCompletionsServer",
    "Cut",
    "Failure",
    "MemoryDisk",
    "MemoryStore",
    "MessagesServer",
    "PromptCache",
    "ResponsesServer",
    "ScriptedModel",
    "ToolCall",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.testing.chat_server": ("ChatCompletionsServer",),
        "ctxfs.testing.loopback": ("Answer",),
        "ctxfs.testing.responses_server": ("ResponsesServer",),
        "ctxfs.testing.server": ("Broken", "Failure", "MessagesServer"),
    },
)
