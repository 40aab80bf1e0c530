"""What happened in a session, call by call, from its journal: sizes, bills, and the life of each item. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.session.records import Shadowed
from ctxfs.session.timeline.costs import Account
from ctxfs.session.timeline.effect import Paid


class Part(StrEnum):
    """A part of the context; the parts add up to all of it."""

    SYSTEM = "system"
    USER = "user"
    REPLIES = "replies"
    RESULTS = "results"
    PLACEHOLDERS = "placeholders"
    SUMMARY = "summary"
    OTHER = "not itemised"


class EventKind(StrEnum):
    """What happened to items, or to the prompt cache."""

    EVICTED = "evicted"
    SHORTENED = "shortened"
    COMPACTED = "compacted"
    READ_BACK = "read back"
    RESTORED = "restored"
    REMOVED = "removed"
    CACHE_MISSED = "cache missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened before the call ``call``; sizes in tokens.

    ``item_ids``: the items that it happened to. For a cache miss, ``tokens_before`` were in the cache according to the
    last bill, and ``tokens_after`` of them were read. ``lines``: the first and last line that were read back. ``sent``:
    for an eviction, whether a request had carried the items before.
    """

    call: int
    kind: EventKind
    item_ids: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    reason: str = ""
    lines: tuple[int, int] | None = None
    sent: bool = True

    @property
    def is_eviction(self) -> bool:
        """Whether the content of the items left the context."""
        return self.kind in (EventKind.EVICTED, EventKind.COMPACTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the model. Sizes in tokens.

    Args:
        number: from 1.
        tokens: the request, by our count.
        parts: the same by part; parts without a token are left out.
        rewritten: the tokens that the cache had to take in again because something before them had changed.
        kept: the tokens before that change; None: nothing that the last call had sent was changed.
        usage: what was billed; None: not recorded.
        model: the model that was billed; empty: not recorded.
        made_at: when the reply came, in seconds since the epoch; 0.0: not recorded.
        usd: what it cost; None: not known.
    """

    number: int
    tokens: int
    parts: Mapping[Part, int]
    rewritten: int = 0
    kept: int | None = None
    usage: Usage | None = None
    model: str = ""
    made_at: float = 0.0
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLife:
    """An item from its first request on. Sizes in tokens.

    Args:
        item_id: its id.
        item_type: what it is.
        tool: for a result, the tool's name; else empty.
        title: what it is, in one line: the call that gave a result, or the beginning of a text. Not trusted.
        tokens: the size of its content; None: not counted.
        call: the first call whose request has it; for a reply, the call that it answers.
        events: what happened to it, in order.
        left: the event by which its content left the context; ``tokens_after`` is what is there instead now. None: it
            is there.
        repeated: the calls before which the same tool was called with the same arguments, after the item was evicted.
    """

    item_id: str
    item_type: ItemType
    tool: str
    title: str
    tokens: int | None
    call: int
    events: tuple[Event, ...] = ()
    left: Event | None = None
    repeated: tuple[int, ...] = ()

    @property
    def read_backs(self) -> int:
        """How often lines of it were read again after it left the context."""
        return sum(event.kind is EventKind.READ_BACK for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRun:
    """What a shadow run found. ``after_call``: the last call that was recorded before it, which may be a later one."""

    after_call: int
    found: Shadowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A session so far: its calls, what happened between them, and its items in the order in which they came.

    ``usd``: what all calls cost, including those for summaries; None: no call was billed, or a price is not known.
    ``paid``: the prices of its models.
    """

    calls: tuple[Call, ...] = ()
    events: tuple[Event, ...] = ()
    items: Mapping[str, ItemLife] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    shadow_runs: tuple[ShadowRun, ...] = ()
    usd: float | None = None
    paid: Paid = field(default_factory=lambda: Paid(None, ttl_s=0.0), compare=False)

    @property
    def model(self) -> str:
        """The model of the last billed call; empty: none was recorded."""
        return next((call.model for call in reversed(self.calls) if call.model), "")
