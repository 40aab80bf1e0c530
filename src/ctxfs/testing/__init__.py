"""Scripted models, servers that refuse what providers refuse, and conformance suites.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.testing.chat_server import ChatCompletionsServer
    from ctxfs.testing.gemini_server import GeminiServer
    from ctxfs.testing.loopback import Answer
    from ctxfs.testing.responses_server import ResponsesServer
    from ctxfs.testing.scripted import Cut, ScriptedModel
    from ctxfs.testing.server import Broken, Failure, MessagesServer

__all__ = [
    "Answer",
    "Broken",
    "ChatCompletionsServer",
    "Cut",
    "Failure",
    "GeminiServer",
    "MessagesServer",
    "ResponsesServer",
    "ScriptedModel",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.testing.chat_server": ("ChatCompletionsServer",),
        "ctxfs.testing.gemini_server": ("GeminiServer",),
        "ctxfs.testing.loopback": ("Answer",),
        "ctxfs.testing.responses_server": ("ResponsesServer",),
        "ctxfs.testing.scripted": (
            "Cut",
            "ScriptedModel",
        ),
        "ctxfs.testing.server": (
            "Broken",
            "Failure",
            "MessagesServer",
        ),
    },
)
