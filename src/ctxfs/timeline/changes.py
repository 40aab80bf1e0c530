"""What happened to the items of a context, record by record of the journal. Pure."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ctxfs.content.stored import Stored
from ctxfs.items import ContextItem, ItemType
from ctxfs.llm.base import Usage
from ctxfs.session.records import Decided, ItemAdded, Record, Removed, Replaced, Restored
from ctxfs.session.state import SessionState

__all__ = ["Changes", "ItemChange", "What", "change_id", "changes_by", "rewritten_tokens"]

What = Literal["added", "evicted", "trimmed", "archived", "removed", "restored"]
"""What happened to an item; see ``ItemChange``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """One thing that happened to one item of a context. Sizes are in tokens of the session's counter.

    ``what``: it was "added", "evicted" (a placeholder took the place of its content), "trimmed" (large arguments of its
    calls were evicted), "archived" (removed as a whole, and now in ``archive``), "removed" (as a whole), or
    "restored" (it is back).

    ``tokens_before`` and ``tokens_after`` are its size in the context, 0 while it is not there. ``reason``: why, as a
    sentence for people; "" if none is recorded. ``change`` is the id by which an eviction, a compaction or a summary
    can be undone: all items that were evicted together have the same one; None for anything else. ``after_call``: how
    many replies the model had given. ``at`` is in seconds since the epoch; None: not recorded, as in sessions of 0.1.0.
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


def changes_by(record: Record, before: SessionState, *, number: int, after_call: int) -> Iterator[ItemChange]:
    """What ``record`` does to the items of a session that was in the state ``before``.

    ``number``: the number of the change, if it is one. ``after_call``: how many replies the model had given.
    """
    items = before.items
    match record:
        case ItemAdded(item=item):
            what: What = "restored" if record.returned else "added"
            yield _change(item, what, after_call, (0, item.token_count))
        case Replaced() if (old := items.get(record.item_id)) is not None:
            one = _change(old, _how(old, record), after_call, (old.token_count, record.token_count))
            yield _recorded(one, record, number)
        case Restored() if (old := items.get(record.item_id)) is not None and record.item_id in before.stored:
            after = old.content_tokens if record.token_count is None else record.token_count
            yield _recorded(_change(old, "restored", after_call, (old.token_count, after)), record)
        case Removed(archive=archive):
            left: What = "removed" if archive is None else "archived"
            for old in (items[item_id] for item_id in record.item_ids if item_id in items):
                one = _change(old, left, after_call, (old.token_count, 0))
                yield replace(_recorded(one, record, number), archive=archive)
        case Decided():
            yield _decided(record, before.stored.get(record.item_id), after_call)


def rewritten_tokens(items: Sequence[ContextItem], first_changed: int, known: Container[str]) -> int:
    """The tokens of a request that the prompt cache writes again: those of ``known`` items from a change on.

    ``first_changed``: the position of the change in ``items``. Other items are new, and would be written anyway.
    """
    return sum(item.token_count for item in items[first_changed:] if item.id in known)


def _how(item: ContextItem, record: Replaced) -> What:
    """How the record changes the item: if it is larger afterwards, it was restored."""
    if record.token_count > item.token_count:
        return "restored"
    return "evicted" if record.destroyed else "trimmed"


def _change(item: ContextItem, what: What, after_call: int, tokens: tuple[int, int]) -> ItemChange:
    """``tokens``: before and after."""
    return ItemChange(
        item_id=item.id,
        item_type=item.item_type,
        tool_name=item.tool_name,
        what=what,
        tokens_before=tokens[0],
        tokens_after=tokens[1],
        after_call=after_call,
    )


def _recorded(one: ItemChange, record: Replaced | Restored | Removed, number: int = 0) -> ItemChange:
    """``one``, with what the record says about it; ``number``: the number of the change, 0 for none."""
    change = change_id(number) if number and one.what != "restored" else None
    return replace(one, reason=record.reason, at=record.at or None, change=change)


def _decided(record: Decided, stored: Stored | None, after_call: int) -> ItemChange:
    """A part of a history that a framework owns."""
    return ItemChange(
        item_id=record.item_id,
        item_type=ItemType.TOOL_RESULT if stored is None else stored.item_type,
        tool_name=record.tool or None,
        what="evicted",
        tokens_before=record.tokens_before,
        tokens_after=record.tokens,
        after_call=after_call,
        reason=record.reason,
    )
