"""A store of one's own that can do what each must, and nothing else: it removes nothing for good, and has no leases."""

from ctxfs.storage.base import Store

__all__ = ["PlainStore"]


class PlainStore:
    """A ``Store`` with the methods of that protocol only, done by another one."""

    def __init__(self, store: Store) -> None:
        self.open = store.open
        self.close = store.close
        self.commit = store.commit
        self.replace = store.replace
        self.read = store.read
        self.size = store.size
        self.names = store.names
        self.delete = store.delete
        self.read_log = store.read_log
        self.truncate_log = store.truncate_log
