"""The context of a session: items, what leaves them, and where it goes."""

from ctxfs.context.context import Context
from ctxfs.context.events import ContextEvent, Evicted, Offloaded, OffloadFailed, RecordFailed
from ctxfs.context.fs import ContextFileSystem
from ctxfs.context.items import ContentRange, ContextItem, ItemType
from ctxfs.context.offload import OffloadPolicy
from ctxfs.context.plan import Offload, Plan

__all__ = [
    "ContentRange",
    "Context",
    "ContextEvent",
    "ContextFileSystem",
    "ContextItem",
    "Evicted",
    "ItemType",
    "Offload",
    "OffloadFailed",
    "OffloadPolicy",
    "Offloaded",
    "Plan",
    "RecordFailed",
]
