"""What leaves the context, when, at what price, and what the model sees instead. Pure.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import OTHER_NAMES, lazy

if TYPE_CHECKING:
    from ctxfs.eviction.budget import BilledChange, Calibration
    from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
    from ctxfs.eviction.economics.economy import EvictionPricing
    from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
    from ctxfs.eviction.economics.plans import EvictionDecision, Why
    from ctxfs.eviction.events import (
        Compacted,
        ContentReadBack,
        ContentRestored,
        Evicted,
        Offloaded,
        OffloadFailed,
        RecordFailed,
        SummaryFailed,
    )
    from ctxfs.eviction.offload_plan import Archive, EagerOffload, EagerPolicy, Offload, Plan
    from ctxfs.eviction.policy import OffloadPolicy
    from ctxfs.eviction.window import Window

__all__ = [
    "Archive",
    "BilledChange",
    "Calibration",
    "Compacted",
    "ContentReadBack",
    "ContentRestored",
    "EagerOffload",
    "EagerPolicy",
    "Evicted",
    "EvictionDecision",
    "EvictionParameters",
    "EvictionPricing",
    "ItemKind",
    "Offload",
    "OffloadFailed",
    "OffloadPolicy",
    "Offloaded",
    "Plan",
    "RecordFailed",
    "SelectiveCompaction",
    "Strategy",
    "SummaryFailed",
    "Why",
    "Window",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.eviction.budget": (
            "BilledChange",
            "Calibration",
        ),
        "ctxfs.eviction.compaction": (
            "SelectiveCompaction",
            "Strategy",
        ),
        "ctxfs.eviction.economics.economy": ("EvictionPricing",),
        "ctxfs.eviction.economics.parameters": (
            "EvictionParameters",
            "ItemKind",
        ),
        "ctxfs.eviction.economics.plans": (
            "EvictionDecision",
            "Why",
        ),
        "ctxfs.eviction.events": (
            "Compacted",
            "ContentReadBack",
            "ContentRestored",
            "Evicted",
            "OffloadFailed",
            "Offloaded",
            "RecordFailed",
            "SummaryFailed",
        ),
        "ctxfs.eviction.offload_plan": (
            "Archive",
            "EagerOffload",
            "EagerPolicy",
            "Offload",
            "Plan",
        ),
        "ctxfs.eviction.policy": ("OffloadPolicy",),
        "ctxfs.eviction.window": ("Window",),
    },
    renamed=OTHER_NAMES,
)
