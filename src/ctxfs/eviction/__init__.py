"""What leaves the context, when, at what price, and what the model sees instead. Pure.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.eviction.budget import Budget, Calibration
    from ctxfs.eviction.compaction import ArchiveSlot, Rule, SelectiveCompaction, Strategy
    from ctxfs.eviction.eager import EagerOffload, EagerPolicy
    from ctxfs.eviction.economics.belief import Billed
    from ctxfs.eviction.economics.economy import CacheTerms, EvictionPricing
    from ctxfs.eviction.economics.features import ItemKind
    from ctxfs.eviction.economics.held import Candidate, Chain, Held, ItemBlock
    from ctxfs.eviction.economics.ledger import Ledger, OpenReadBacks
    from ctxfs.eviction.economics.outlook import decisions
    from ctxfs.eviction.economics.parameters import EvictionParameters
    from ctxfs.eviction.economics.planner import plan
    from ctxfs.eviction.economics.plans import EconomicPlan, Eviction, EvictionDecision, Why
    from ctxfs.eviction.events import (
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
    from ctxfs.eviction.offload_plan import Archive, Offload, Plan, Trim
    from ctxfs.eviction.policy import OffloadPolicy
    from ctxfs.eviction.window import Window

__all__ = [
    "Archive",
    "ArchiveSlot",
    "Billed",
    "Budget",
    "CacheTerms",
    "Calibration",
    "Candidate",
    "Chain",
    "Compacted",
    "ContentReadBack",
    "ContentRestored",
    "ContextEvent",
    "EagerOffload",
    "EagerPolicy",
    "EconomicPlan",
    "Evicted",
    "Eviction",
    "EvictionDecision",
    "EvictionParameters",
    "EvictionPricing",
    "Held",
    "ItemBlock",
    "ItemKind",
    "Ledger",
    "Offload",
    "OffloadFailed",
    "OffloadPolicy",
    "Offloaded",
    "OpenReadBacks",
    "Plan",
    "RecordFailed",
    "Rule",
    "SelectiveCompaction",
    "Strategy",
    "SummaryFailed",
    "Trim",
    "Why",
    "Window",
    "decisions",
    "plan",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.eviction.budget": (
            "Budget",
            "Calibration",
        ),
        "ctxfs.eviction.compaction": (
            "ArchiveSlot",
            "Rule",
            "SelectiveCompaction",
            "Strategy",
        ),
        "ctxfs.eviction.eager": (
            "EagerOffload",
            "EagerPolicy",
        ),
        "ctxfs.eviction.economics.belief": ("Billed",),
        "ctxfs.eviction.economics.economy": (
            "CacheTerms",
            "EvictionPricing",
        ),
        "ctxfs.eviction.economics.features": ("ItemKind",),
        "ctxfs.eviction.economics.held": (
            "Candidate",
            "Chain",
            "Held",
            "ItemBlock",
        ),
        "ctxfs.eviction.economics.ledger": (
            "Ledger",
            "OpenReadBacks",
        ),
        "ctxfs.eviction.economics.outlook": ("decisions",),
        "ctxfs.eviction.economics.parameters": ("EvictionParameters",),
        "ctxfs.eviction.economics.planner": ("plan",),
        "ctxfs.eviction.economics.plans": (
            "EconomicPlan",
            "Eviction",
            "EvictionDecision",
            "Why",
        ),
        "ctxfs.eviction.events": (
            "Compacted",
            "ContentReadBack",
            "ContentRestored",
            "ContextEvent",
            "Evicted",
            "OffloadFailed",
            "Offloaded",
            "RecordFailed",
            "SummaryFailed",
        ),
        "ctxfs.eviction.offload_plan": (
            "Archive",
            "Offload",
            "Plan",
            "Trim",
        ),
        "ctxfs.eviction.policy": ("OffloadPolicy",),
        "ctxfs.eviction.window": ("Window",),
    },
)
