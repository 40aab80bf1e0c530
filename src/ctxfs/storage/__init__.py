"""Where sessions are stored: the store protocol, and the local disk."""

from ctxfs.storage.base import GrowingStore, LeaseStore, NewFile, RewritingStore, SharedStore, Store
from ctxfs.storage.local import Durability, LocalStore
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.port import FileKind, FileStat, FileSystem, OsFileSystem
from ctxfs.storage.sessions import SessionFound, SessionStores
from ctxfs.storage.stores import stores_at

__all__ = [
    "Durability",
    "FileKind",
    "FileStat",
    "FileSystem",
    "GrowingStore",
    "LeaseStore",
    "LocalSessions",
    "LocalStore",
    "NewFile",
    "OsFileSystem",
    "RewritingStore",
    "SessionFound",
    "SessionStores",
    "SharedStore",
    "Store",
    "stores_at",
]
