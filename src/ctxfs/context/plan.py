"""A plan: what is to leave the context, decided as a value before anything is done."""

from dataclasses import dataclass

__all__ = ["Offload", "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Replace an item's content by ``placeholder``, once it is durable in ``path`` (absolute). Sizes in tokens."""

    item_id: str
    path: str
    placeholder: str
    tokens_before: int
    tokens_after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to leave, oldest first; empty (false) when nothing is due."""

    offloads: tuple[Offload, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.offloads)

    @property
    def first_changed(self) -> str | None:
        """The oldest item that changes, None if none: what stands before it serialises to the same bytes as before."""
        return self.offloads[0].item_id if self.offloads else None

    @property
    def tokens_freed(self) -> int:
        """How much smaller the context gets, in tokens."""
        return sum(o.tokens_before - o.tokens_after for o in self.offloads)

    def explain(self) -> str:
        """Say for every item why it leaves and what that frees, one line each."""
        if not self.offloads:
            return "nothing leaves"
        lines = [f"{o.item_id}: {o.tokens_before:,} -> {o.tokens_after:,} tokens, {o.reason}" for o in self.offloads]
        return "\n".join([*lines, f"in all {self.tokens_freed:,} tokens leave, from {self.first_changed} on"])
