"""The context of a session: items, what leaves them, and where it goes."""

from ctxfs.context.context import Context, MessagesRequest
from ctxfs.events import Compacted, ContextEvent, Evicted, Offloaded, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.compaction import Rule, SelectiveCompaction, Strategy
from ctxfs.eviction.plan import Archive, Offload, Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.items import ContentRange, ContextItem, ItemType
from ctxfs.session.damaged import DamagedContent
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import Damage
from ctxfs.session.recovery import Recovery

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
