"""What the page shows of one call: the request as it was sent, its bill, and what changed before and after it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.session.timeline.changes import Changes, ItemChange
from ctxfs.session.timeline.timeline import PastRequest, Timeline, Walk
from ctxfs.view.activity import Activity, Call, Event, EventKind, ItemLife

ROWS_SHOWN = 120
"""How many items of a request are shown, the last ones, unless all are requested."""
CHANGES_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """An item of a request. Sizes in tokens.

    Args:
        item_id: its id.
        item_type: what it is.
        title: what it is, in one line. Not trusted.
        tokens: its size in this request.
        content_tokens: the size of its content.
        is_placeholder: its placeholder was sent.
        is_new: no request before this one carried it.
        is_evicted_now: it was evicted between the request before this one and this one.
    """

    item_id: str
    item_type: ItemType
    title: str
    tokens: int
    content_tokens: int
    is_placeholder: bool
    is_new: bool
    is_evicted_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """What happened to an item between two requests (``change``), and the item's title, which is not trusted."""

    change: ItemChange
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeList:
    """What changed from one request to the next. Sizes in tokens.

    Args:
        changes: all of it.
        rows: the first changes.
        tokens_before: the earlier request.
        tokens_after: the later request; None: not known, as a framework owns the messages and has not sent it yet.
        rewritten_tokens: the tokens that the prompt cache had to take in again for the later request.
    """

    changes: Changes
    rows: Sequence[ChangeRow]
    tokens_before: int
    tokens_after: int | None
    rewritten_tokens: int

    @property
    def more(self) -> int:
        """How many changes are not among the rows."""
        return len(self.changes.items) - len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPanel:
    """One call.

    Args:
        call: its figures.
        previous: the call before it; None: it is the first one.
        following: the call after it; None: it is the last one.
        request: the request, and what is not known of it.
        rows: its last items, or all of them.
        hidden: how many items before these are not shown.
        since: what changed since the request before; None: it is the first one.
        until: what changed up to the next request, which may not have been sent yet.
        missed: the cache miss of this call; None: there was none.
    """

    call: Call
    previous: int | None
    following: int | None
    request: PastRequest
    rows: Sequence[RequestRow]
    hidden: int
    since: ChangeList | None
    until: ChangeList
    missed: Event | None = None

    @property
    def is_partial(self) -> bool:
        """Whether a framework owns the messages: the rows are then only items of which a placeholder was sent."""
        return not self.request.items

    @property
    def has_placeholders(self) -> bool:
        """Whether a placeholder is among the rows."""
        return any(row.is_placeholder for row in self.rows)

    @property
    def has_evicted_now(self) -> bool:
        """Whether an item among the rows was evicted just before this request."""
        return any(row.is_evicted_now for row in self.rows)


def call_panel(activity: Activity, timeline: Timeline, number: int, *, shows_all: bool = False) -> CallPanel | None:
    """The call ``number``, or the nearest one that exists; None: there is no call.

    ``shows_all``: all items of the request are listed.
    """
    last = min(len(activity.calls), len(timeline.calls))
    if not last:
        return None
    number = min(max(1, number), last)
    walk = timeline.walk()
    since = _changes(activity, timeline, number - 1, walk) if number > 1 else None
    request = timeline.request(number, state=timeline.state_at(number, walk=walk))
    rows = _rows(request.items, activity.items, number) if request.items else _replaced(activity.items, number)
    hidden = 0 if shows_all else max(0, len(rows) - ROWS_SHOWN)
    missed = (e for e in activity.events if e.call == number and e.kind is EventKind.CACHE_MISSED)
    return CallPanel(
        call=activity.calls[number - 1],
        previous=number - 1 or None,
        following=number + 1 if number < last else None,
        request=request,
        rows=rows[hidden:],
        hidden=hidden,
        since=since,
        until=_changes(activity, timeline, number, walk),
        missed=next(missed, None),
    )


def _changes(activity: Activity, timeline: Timeline, number: int, walk: Walk) -> ChangeList:
    """What changed from the request of call ``number`` to the next request."""
    changes = timeline.changes(number, walk=walk)
    later = activity.calls[number] if number < len(activity.calls) else None
    is_partial = not changes.tokens_before
    return ChangeList(
        changes=changes,
        rows=[_change(change, activity.items) for change in changes.items[:CHANGES_SHOWN]],
        tokens_before=activity.calls[number - 1].tokens if is_partial else changes.tokens_before,
        tokens_after=(None if later is None else later.tokens) if is_partial else changes.tokens_after,
        rewritten_tokens=(0 if later is None else later.rewritten) if is_partial else changes.rewritten_tokens,
    )


def _rows(items: Sequence[ContextItem], lives: Mapping[str, ItemLife], number: int) -> Sequence[RequestRow]:
    return [_row(item, lives, number) for item in items]


def _replaced(lives: Mapping[str, ItemLife], number: int) -> Sequence[RequestRow]:
    """For a history that a framework owns: the items that were evicted before the call."""
    return [
        RequestRow(
            item_id=life.item_id,
            item_type=life.item_type,
            title=life.title,
            tokens=life.left.tokens_after,
            content_tokens=life.left.tokens_before,
            is_placeholder=True,
            is_new=life.left.call == number,
            is_evicted_now=life.left.call == number,
        )
        for life in lives.values()
        if life.left is not None and life.left.call <= number
    ]


def _row(item: ContextItem, lives: Mapping[str, ItemLife], number: int) -> RequestRow:
    life = lives.get(item.id)
    is_placeholder = item.destroyed and item.item_type is ItemType.TOOL_RESULT
    came = None if life is None else life.call + (item.item_type is ItemType.ASSISTANT_MESSAGE)
    return RequestRow(
        item_id=item.id,
        item_type=item.item_type,
        title=item.id if life is None else life.title,
        tokens=item.token_count,
        content_tokens=item.content_tokens,
        is_placeholder=is_placeholder,
        is_new=came == number,
        is_evicted_now=is_placeholder
        and life is not None
        and any(e.call == number and e.is_eviction for e in life.events),
    )


def _change(change: ItemChange, lives: Mapping[str, ItemLife]) -> ChangeRow:
    life = lives.get(change.item_id)
    return ChangeRow(change=change, title=change.item_id if life is None else life.title)
