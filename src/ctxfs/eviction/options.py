"""How an item may be evicted, besides by the placeholder that it carries."""

from dataclasses import dataclass

from ctxfs.eviction.plan import Trim

__all__ = ["NO_OPTIONS", "EvictionOptions"]


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """How an item may be evicted by its price, besides by the placeholder that it carries.

    ``trims`` are those of a reply. ``eager_placeholder`` is used for a result that is evicted before it is ever sent: a
    longer text, and its tokens; None if it must be sent first.
    """

    trims: tuple[Trim, ...] = ()
    eager_placeholder: tuple[str, int] | None = None


NO_OPTIONS = EvictionOptions()
"""By its placeholder alone."""
