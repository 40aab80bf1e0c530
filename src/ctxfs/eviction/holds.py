"""How long a content stays that was restored: one rule for everything that evicts. Pure.

It stays until the model has replied ``RESTORED_REPLIES`` times. Only the last resort of the window's guard evicts it
before, when the prompt could not be sent otherwise. Then it may be evicted like any other: by keep-recent at once, if
enough newer results of its tool are there.
"""

from collections.abc import Iterable, Iterator

__all__ = ["RESTORED_REPLIES", "Holds"]

RESTORED_REPLIES = 10


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
        self._replies_left = {item_id: left - 1 for item_id, left in self._replies_left.items()}
        free = [item_id for item_id, left in self._replies_left.items() if not left]
        self.left(free)
        return free

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._replies_left

    def __iter__(self) -> Iterator[str]:
        return iter(self._replies_left)
