"""Where sessions live: the store protocol, local disk and memory."""

from ctxfs.storage.base import GrowingStore, NewFile, Store
from ctxfs.storage.local import Durability, LocalStore
from ctxfs.storage.port import FileKind, FileStat, FileSystem, OsFileSystem

__all__ = [
    "Durability",
    "FileKind",
    "FileStat",
    "FileSystem",
    "GrowingStore",
    "LocalStore",
    "NewFile",
    "OsFileSystem",
    "Store",
]
