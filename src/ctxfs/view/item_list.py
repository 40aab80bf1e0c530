"""The list of a session's items: the ones that match, sorted, a page at a time. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.view.activity import ItemLife

ITEMS_A_PAGE = 200

ORDERS: Mapping[str, Callable[[ItemLife], Any]] = {
    "call": lambda life: life.call,
    "size": lambda life: -(life.tokens or 0),
    "read backs": lambda life: -life.read_backs,
    "repeated": lambda life: -len(life.repeated),
}
"""How the list can be sorted: in the order of the calls, or the largest number first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemList:
    """A page of the list.

    Args:
        rows: the items.
        total: how many items match.
        first: the place of the first row, from 0.
        matching: the text that was searched for.
        order: a key of ``ORDERS``.
    """

    rows: Sequence[ItemLife]
    total: int
    first: int
    matching: str
    order: str

    @property
    def previous_first(self) -> int | None:
        """Where the page before begins; None: this is the first one."""
        return max(0, self.first - ITEMS_A_PAGE) if self.first else None

    @property
    def next_first(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        end = self.first + len(self.rows)
        return end if end < self.total else None


def item_list(
    lives: Iterable[ItemLife], *, matching: str = "", order: str = "call", first: int = 0, only_left: bool = False
) -> ItemList:
    """The items with ``matching`` in their id, title or type, from the place ``first`` on.

    ``only_left``: only those that are no longer in the context.

    An unknown ``order`` counts as "call".
    """
    wanted = matching.casefold()
    order = order if order in ORDERS else "call"
    found = [life for life in lives if _matches(life, wanted) and (life.left is not None or not only_left)]
    found.sort(key=ORDERS[order])
    rows = found[first : first + ITEMS_A_PAGE]
    return ItemList(rows=rows, total=len(found), first=first, matching=matching, order=order)


def _matches(life: ItemLife, wanted: str) -> bool:
    return any(wanted in text.casefold() for text in (life.item_id, life.title, life.item_type.replace("_", " ")))
