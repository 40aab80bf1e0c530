"""What happened to the items of a context, as values. Pure."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.session.records import CallMade, RequestSent


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the model on the context; calls for summaries are not among them.

    Attributes:
        number: its number, from 1.
        end: how many records the journal had when the request was sent.
        reply_id: the item of the reply; None where a framework owns the history.
        sent: the record of the request; None: the session was written by a version that did not record it.
        bill: the record of what was billed; None: nothing was recorded.
        tokens: the request, by our own count.
        evicted: the tokens that evictions kept out of the request; without any, it would have had ``tokens`` + these.
        unsent: of these, what would have been in a request for the first time.
        rewritten: the tokens that the last request had too, behind the first change, so that the cache writes them
            again.
        kept: the tokens before that change, which the cache may still hold; None: nothing is written again.

    """

    number: int
    end: int
    reply_id: str | None = None
    sent: RequestSent | None = None
    bill: CallMade | None = None
    tokens: int = 0
    evicted: int = 0
    unsent: int = 0
    rewritten: int = 0
    kept: int | None = None

    @property
    def sent_at(self) -> float | None:
        """When the request was sent, in seconds since the epoch; None: not recorded."""
        return None if self.sent is None else self.sent.sent_at

    @property
    def replied_at(self) -> float | None:
        """When the reply came, in seconds since the epoch; None: not recorded."""
        return None if self.bill is None else self.bill.made_at or None

    @property
    def model(self) -> str:
        """The model that replied; "" if it is not recorded."""
        return "" if self.bill is None else self.bill.model

    @property
    def usage(self) -> Usage | None:
        """What the provider billed; None: not recorded."""
        return None if self.bill is None else self.bill.usage


What = Literal["added", "evicted", "shortened", "trimmed", "archived", "removed", "restored"]
"""What happened to an item; see ``ItemChange``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """One thing that happened to one item of a context. Sizes are in tokens of the session's counter.

    ``what``: it was "added", "evicted" (a placeholder took the place of its content), "shortened" (a shorter
    placeholder took the place of the first one), "trimmed" (large arguments of its calls were evicted), "archived"
    (removed as a whole, and now in ``archive``), "removed" (as a whole), or "restored" (it is back).

    ``tokens_before`` and ``tokens_after`` are its size in the context, 0 while it is not there. ``reason``: why, as a
    sentence for people; "" if none is recorded. ``change`` is the id by which an eviction, a compaction or a summary
    can be undone: all items that were evicted together have the same one; None for anything else. ``after_call``: how
    many replies the model had given. ``at`` is in seconds since the epoch; None: not recorded.

    ``sent``: a request had carried the item before. ``is_out``: afterwards its content, or a part of it, is not in the
    context. ``contents``: the ids of the contents that it happened to: the item's own, or, when arguments were evicted,
    those under which they are stored. ``source``: the stored lines that the item repeats. ``place``: how many records
    the journal has before the one of this change.
    """

    item_id: str
    item_type: ItemType
    tool_name: str | None
    what: What
    tokens_before: int
    tokens_after: int
    after_call: int
    reason: str = ""
    change: str | None = None
    at: float | None = None
    archive: str | None = None
    sent: bool = False
    is_out: bool = False
    contents: tuple[str, ...] = ()
    source: ContentRange | None = None
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed from the request of the call ``first`` to the request of the call ``last``. Sizes are in tokens.

    Attributes:
        items: what happened to items in between, in order.
        tokens_before: the context in the first request.
        tokens_after: the context in the last request.
        first_changed: the first item of the first request that the last one does not carry as it was; None: the last
            one begins with all of the first, unchanged.
        kept_tokens: the tokens before that item in both; a prompt cache that has not expired still holds them.
        rewritten_tokens: the tokens that the first request carried too, but after the first change, so that the cache
            had to write them again.
        new_tokens: the tokens that the first request did not carry.
        usage: what the provider billed for the last call; None: not recorded, or there is no such call yet.

    """

    first: int
    last: int
    items: tuple[ItemChange, ...]
    tokens_before: int
    tokens_after: int
    first_changed: str | None
    kept_tokens: int
    rewritten_tokens: int
    new_tokens: int
    usage: Usage | None = None


def change_id(number: int) -> str:
    """The id of a change, by its number in the journal."""
    return f"change_{number}"


def rewritten_tokens(items: Sequence[ContextItem], first_changed: int, known: Container[str]) -> int:
    """The tokens of a request that the prompt cache writes again: those of ``known`` items from a change on.

    ``first_changed``: the position of the change in ``items``. Other items are new, and would be written anyway.
    """
    return sum(item.token_count for item in items[first_changed:] if item.id in known)
