"""What the planner says: which items are evicted and why, and why others stay. Values."""

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Why an item is evicted, or why it stays. A session's journal holds these texts."""

    SEEN = (
        "evicted: keeping it would cost more than reading it back if needed; "
        "only the last reply followed it, so hardly anything had to be cached again"
    )
    BATCH = (
        "evicted: keeping it would cost more than reading it back if needed, "
        "and had cost as much by then as caching again what follows it"
    )
    STEP = (
        "evicted: every token of a longer request costs more, and staying below that length pays for caching again "
        "what follows it"
    )
    EXPIRED = (
        "evicted: keeping it would cost more than reading it back if needed; "
        "the prompt cache held nothing that follows it, so nothing had to be cached again"
    )
    NEW = "stays: the model has not seen it yet"
    PINNED = "stays: another rule decides when it is evicted"
    YOUNG = "stays: it may be needed again soon, and reading it back would cost more than keeping it"
    WAITING = "stays: worth evicting, but keeping it has not cost as much yet as caching again what follows it"


def needs_no_rewrite(reason: str) -> bool:
    """Whether an eviction with this reason in a journal cost no rewrite, since the cache was cold."""
    return reason == Why.EXPIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionDecision:
    """What the planner decides about one item now.

    ``rent``: the cost per call of keeping it. ``risk``: the cost per call of its absence. ``ripe_in_calls``: in how
    many calls its rent will be above its risk if nothing else happens; 0 if it is.
    """

    item_id: str
    tokens: int
    age_calls: float
    rent: float
    risk: float
    ripe_in_calls: float
    why: Why
