"""The context of a session: its items, what is evicted from it, and where that goes."""

from ctxfs.context.context import Context
from ctxfs.context.requests import MessagesRequest
from ctxfs.events import (
    Compacted,
    ContentReadBack,
    ContentRestored,
    ContextEvent,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
)
from ctxfs.eviction.budget import Budget, Calibration
from ctxfs.eviction.compaction import ArchiveSlot, Rule, SelectiveCompaction, Strategy
from ctxfs.eviction.eager import EagerOffload, EagerPolicy
from ctxfs.eviction.plan import Archive, Offload, Plan, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.items import ContentRange, ContextItem, ItemType
from ctxfs.lazy import OTHER_NAMES, lazy
from ctxfs.session.damaged import DamagedContent
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import Damage
from ctxfs.session.recovery import Recovery
from ctxfs.session.state import OffloadStats

__all__ = [
    "Archive",
    "ArchiveSlot",
    "Budget",
    "Calibration",
    "Compacted",
    "ContentRange",
    "ContentReadBack",
    "ContentRestored",
    "Context",
    "ContextEvent",
    "ContextFileSystem",
    "ContextItem",
    "Damage",
    "DamagedContent",
    "EagerOffload",
    "EagerPolicy",
    "Evicted",
    "ItemType",
    "MessagesRequest",
    "Offload",
    "OffloadFailed",
    "OffloadPolicy",
    "OffloadStats",
    "Offloaded",
    "Plan",
    "RecordFailed",
    "Recovery",
    "Rule",
    "SelectiveCompaction",
    "Strategy",
    "SummaryFailed",
    "Trim",
    "Window",
]

__getattr__, __dir__ = lazy(
    __name__,
    {},
    elsewhere={"ctxfs.llm": ("ToolMessage",)},
    renamed=OTHER_NAMES,
)
