"""The context of a session: items, what leaves them, and where it goes."""

from ctxfs.context.budget import Budget
from ctxfs.context.compaction import Rule, SelectiveCompaction, Strategy
from ctxfs.context.context import Context, MessagesRequest
from ctxfs.context.damaged import DamagedContent
from ctxfs.context.events import (
    Compacted,
    ContextEvent,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
)
from ctxfs.context.fs import ContextFileSystem
from ctxfs.context.items import ContentRange, ContextItem, ItemType
from ctxfs.context.journal import Damage
from ctxfs.context.offload import OffloadPolicy
from ctxfs.context.plan import Archive, Offload, Plan
from ctxfs.context.recovery import Recovery
from ctxfs.context.window import Window

__all__ = [
    "Archive",
    "Budget",
    "Compacted",
    "ContentRange",
    "Context",
    "ContextEvent",
    "ContextFileSystem",
    "ContextItem",
    "Damage",
    "DamagedContent",
    "Evicted",
    "ItemType",
    "MessagesRequest",
    "Offload",
    "OffloadFailed",
    "OffloadPolicy",
    "Offloaded",
    "Plan",
    "RecordFailed",
    "Recovery",
    "Rule",
    "SelectiveCompaction",
    "Strategy",
    "SummaryFailed",
    "Window",
]
