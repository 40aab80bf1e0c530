"""Names and bytes: the local disk, and memory.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.storage.base import NewFile, RewritingStore, SharedStore, Store, check_name
    from ctxfs.storage.local import Durability, LocalStore
    from ctxfs.storage.local_sessions import LocalSessions
    from ctxfs.storage.memory import MemoryDisk, MemoryStore
    from ctxfs.storage.port import FileKind, FileStat, FileSystem
    from ctxfs.storage.sessions import SessionFound, SessionStores
    from ctxfs.storage.threaded import ThreadedStore
    from ctxfs.storage.urls import stores_at

__all__ = [
    "Durability",
    "FileKind",
    "FileStat",
    "FileSystem",
    "LocalSessions",
    "LocalStore",
    "MemoryDisk",
    "MemoryStore",
    "NewFile",
    "RewritingStore",
    "SessionFound",
    "SessionStores",
    "SharedStore",
    "Store",
    "ThreadedStore",
    "check_name",
    "stores_at",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.storage.base": (
            "NewFile",
            "RewritingStore",
            "SharedStore",
            "Store",
            "check_name",
        ),
        "ctxfs.storage.local": (
            "Durability",
            "LocalStore",
        ),
        "ctxfs.storage.local_sessions": ("LocalSessions",),
        "ctxfs.storage.memory": (
            "MemoryDisk",
            "MemoryStore",
        ),
        "ctxfs.storage.port": (
            "FileKind",
            "FileStat",
            "FileSystem",
        ),
        "ctxfs.storage.sessions": (
            "SessionFound",
            "SessionStores",
        ),
        "ctxfs.storage.threaded": ("ThreadedStore",),
        "ctxfs.storage.urls": ("stores_at",),
    },
)
