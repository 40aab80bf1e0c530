"""Items that stay whatever else is evicted: one rule for everything that evicts. Pure.

Pinned items (``ContextItem.pinned``) stay for good. A restored content stays until the model has replied
``RESTORED_REPLIES`` times; only the last resort of the window's guard evicts it earlier, if the prompt could not be
sent otherwise. Then it may be evicted like any other: by keep-recent at once, if there are enough newer results of its
tool.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ctxfs.messages.items import ContextItem, ItemType

RESTORED_REPLIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is pinned as it comes in: results of ``tools``, by name, and messages of the user."""

    tools: frozenset[str] = frozenset()
    user_messages: bool = False

    def holds(self, item: ContextItem) -> bool:
        """Whether ``item``, which is new, is pinned."""
        if item.item_type is ItemType.USER_MESSAGE:
            return self.user_messages
        return item.tool_name is not None and item.tool_name in self.tools


NO_PINS = Pins()


class Holds:
    """The ids of the items that stay because they were restored, or pinned in the context, updated in place."""

    def __init__(self) -> None:
        self._replies_left: dict[str, int] = {}
        self._pinned: set[str] = set()

    def pinned(self, item_id: str) -> None:
        """Hold an item of the context for good."""
        self._replies_left.pop(item_id, None)
        self._pinned.add(item_id)

    def unpinned(self, item_id: str) -> bool:
        """Hold it no more; whether ``pinned`` held it."""
        was_held = item_id in self._pinned
        self._pinned.discard(item_id)
        return was_held

    def restored(self, item_id: str, *, replies_since: int = 0) -> None:
        """Hold an item that was restored ``replies_since`` model replies ago, unless that is too long ago."""
        if replies_since < RESTORED_REPLIES:
            self._replies_left[item_id] = RESTORED_REPLIES - replies_since

    def left(self, item_ids: Iterable[str]) -> None:
        """Note that these items were evicted or moved."""
        for item_id in item_ids:
            self._replies_left.pop(item_id, None)
            self._pinned.discard(item_id)

    def replied(self) -> list[str]:
        """Note a reply of the model; return the ids of the items that may be evicted again."""
        if not self._replies_left:
            return []
        self._replies_left = {item_id: left - 1 for item_id, left in self._replies_left.items()}
        free = [item_id for item_id, left in self._replies_left.items() if not left]
        self.left(free)
        return free

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._replies_left or item_id in self._pinned

    def __iter__(self) -> Iterator[str]:
        yield from self._replies_left
        yield from self._pinned
