"""What stays whatever else is evicted: one rule for everything that evicts. Pure.

What is pinned (``ContextItem.pinned``) stays for good. How long does a content stay that was restored?

It stays until the model has replied ``RESTORED_REPLIES`` times. Only the last resort of the window's guard evicts it
before, when the prompt could not be sent otherwise. Then it may be evicted like any other: by keep-recent at once, if
enough newer results of its tool are there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ctxfs.items import ContextItem, ItemType

__all__ = ["NO_PINS", "RESTORED_REPLIES", "Holds", "Pins"]

RESTORED_REPLIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is pinned as it comes in: results of ``tools``, by name, and what the user says."""

    tools: frozenset[str] = frozenset()
    user_messages: bool = False

    def holds(self, item: ContextItem) -> bool:
        """Whether ``item``, which comes in, is pinned."""
        if item.item_type is ItemType.USER_MESSAGE:
            return self.user_messages
        return item.tool_name is not None and item.tool_name in self.tools


NO_PINS = Pins()


class Holds:
    """The ids of the items that stay because they were restored, kept up in place."""

    def __init__(self) -> None:
        self._replies_left: dict[str, int] = {}

    def restored(self, item_id: str, *, replies_since: int = 0) -> None:
        """The item was restored ``replies_since`` replies of the model ago; too long ago, and it is not held."""
        if replies_since < RESTORED_REPLIES:
            self._replies_left[item_id] = RESTORED_REPLIES - replies_since

    def left(self, item_ids: Iterable[str]) -> None:
        """These items were evicted or moved."""
        for item_id in item_ids:
            self._replies_left.pop(item_id, None)

    def replied(self) -> list[str]:
        """The model has replied; returns the ids of the items that may be evicted again."""
        if not self._replies_left:
            return []
        self._replies_left = {item_id: left - 1 for item_id, left in self._replies_left.items()}
        free = [item_id for item_id, left in self._replies_left.items() if not left]
        self.left(free)
        return free

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._replies_left

    def __iter__(self) -> Iterator[str]:
        return iter(self._replies_left)
