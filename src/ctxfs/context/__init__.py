"""One shell with two doors: ``Context`` for a history of our own, ``History`` for a framework's.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import OTHER_NAMES, lazy

if TYPE_CHECKING:
    from ctxfs.context.context import Context
    from ctxfs.context.history.history import History
    from ctxfs.context.history.parts import Edits, HostCache, Part
    from ctxfs.context.history.pool import Histories
    from ctxfs.context.requests import MessagesRequest

__all__ = [
    "Context",
    "Edits",
    "Histories",
    "History",
    "HostCache",
    "MessagesRequest",
    "Part",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.context.context": ("Context",),
        "ctxfs.context.history.history": ("History",),
        "ctxfs.context.history.parts": (
            "Edits",
            "HostCache",
            "Part",
        ),
        "ctxfs.context.history.pool": ("Histories",),
        "ctxfs.context.requests": ("MessagesRequest",),
    },
    elsewhere={
        "ctxfs.eviction": ("Evicted", "OffloadPolicy", "SelectiveCompaction", "Strategy", "Window"),
        "ctxfs.messages": ("ContextItem", "ItemType", "ToolMessage"),
        "ctxfs.session": ("ContextFileSystem",),
    },
    renamed=OTHER_NAMES,
)
