"""Where sessions live: the store protocol, local disk and memory."""

from ctxfs.storage.base import GrowingStore, LeaseStore, NewFile, Store
from ctxfs.storage.local import Durability, LocalStore
from ctxfs.storage.port import FileKind, FileStat, FileSystem, OsFileSystem

__all__ = [
    "Durability",
    "FileKind",
    "FileStat",
    "FileSystem",
    "GrowingStore",
    "LeaseStore",
    "LocalStore",
    "NewFile",
    "OsFileSystem",
    "Store",
]
