"""The records of a session's journal, as values; ``session.record_json`` has their JSON form.

Fields are only ever added, with a default. Paths inside the session are recorded as names relative to it, so that a
session can be moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content
from ctxfs.messages.names import safe_name
from ctxfs.session.content.stored import Stored

__all__ = [
    "Beside",
    "CallMade",
    "Closed",
    "ContentRemoved",
    "Decided",
    "EvictionSet",
    "ItemAdded",
    "NoteWritten",
    "PartsNoted",
    "Pinned",
    "Record",
    "Removed",
    "Replaced",
    "RequestSent",
    "Restored",
    "SessionStarted",
    "SessionTagged",
    "Shadowed",
    "ToolsDefined",
    "Undone",
    "UnknownRecord",
    "WriterOpened",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """The first record. ``started_at`` is in seconds since the epoch; ``rebuilt``: the journal before was lost.

    ``forked_from``: the session whose history this one shares, "" for none, up to the request of the call ``forked_at``
    (0: all of it).
    """

    session_id: str
    started_at: float
    layout: str = "envelope"
    rebuilt: bool = False
    forked_from: str = ""
    forked_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOpened:
    """A writer opened the session. ``epoch`` counts writers; ``path`` is where the session lay then."""

    epoch: int
    path: str
    opened_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSet:
    """The rules of eviction from here on.

    ``keep_recent``: how many results a tool keeps exactly, by tool name. ``parameters``: the numbers of the economic
    planner, None when nothing is evicted because it pays; ``rates`` (prices in uncached input tokens) and ``ttl_s`` are
    its inputs. ``window_tokens``: the largest prompt, None when the context has no limit or none is recorded.
    ``policy``: what may be evicted, None for the default. ``digest_tokens``: the longest digest of a placeholder;
    sessions that recorded none had 200. ``compresses``: large contents are compressed, so that only tools of ctxfs open
    them.
    """

    keep_recent: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] | None = None
    rates: Mapping[str, Any] = field(default_factory=dict)
    ttl_s: float = 0.0
    window_tokens: int | None = None
    policy: Mapping[str, Any] | None = None
    digest_tokens: int = 200
    compresses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded:
    """An item joined the context, before the item ``before`` (None: at the end).

    ``content_stored``: the item's content is in its file, and empty here. ``returned``: it was in the context before,
    and was removed from it as a whole.
    """

    item: ContextItem
    content_stored: bool = False
    before: str | None = None
    returned: bool = False

    @property
    def is_reply(self) -> bool:
        """Whether it is a new reply of the model."""
        return self.item.item_type is ItemType.ASSISTANT_MESSAGE and not self.returned


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """An item's content in the context is now ``content``: its placeholder, or a reply without its large arguments.

    ``path`` is the file of the original, None if only parts of it are in files. ``trimmed``: see ``ContextItem``.
    ``saved_chars``: how much shorter the item is, if it was evicted eagerly; None when it was evicted later.
    ``placeholder``: the shorter one that may replace it later, of ``placeholder_tokens``; None: the one that was
    recorded with the item, or there is none. ``at`` is when, in seconds since the epoch (0: not recorded),
    ``after_call`` how many replies the model had given (None: not recorded). ``change`` is the number of what was
    evicted together, by which it is undone; 0: it was not recorded, see ``SessionState.changes``; -1: nothing was
    evicted, but what had been is back.
    """

    item_id: str
    content: Content
    token_count: int
    path: str | None
    destroyed: bool
    reason: str
    trimmed: tuple[int, ...] = ()
    saved_chars: int | None = None
    placeholder: str | None = None
    placeholder_tokens: int = 0
    at: float = 0.0
    after_call: int | None = None
    change: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """An item's stored content is back in the context; it has ``token_count`` tokens (None: as when it entered).

    ``at`` and ``after_call``: see ``Replaced``.
    """

    item_id: str
    reason: str = ""
    token_count: int | None = None
    at: float = 0.0
    after_call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Items left the context; what was stored of them stays. ``archive``: the item whose content holds theirs.

    ``at``, ``after_call`` and ``change``: see ``Replaced``; without an archive there is no change to undo.
    """

    item_ids: tuple[str, ...]
    reason: str
    archive: str | None = None
    at: float = 0.0
    after_call: int | None = None
    change: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The change of this number is undone: the records of the same commit, before this one, say what that did.

    ``at`` and ``after_call``: see ``Replaced``.
    """

    change: int
    at: float = 0.0
    after_call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """No rule evicts these items of the context from here on; ``pinned`` False: rules may evict them again.

    ``at`` and ``after_call``: see ``Replaced``.
    """

    item_ids: tuple[str, ...]
    pinned: bool = True
    at: float = 0.0
    after_call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsDefined:
    """Definitions of tools that requests carry, as JSON data; ``sha256`` names them. Recorded once in a session.

    An accounting record, as ``RequestSent``: nothing in the session depends on it.
    """

    sha256: str
    tools: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent:
    """The context as it stands here was sent to the model, or was given out to be sent.

    It is written with the next change of the session, so the last one before a reply is the request that it answers.
    ``sent_at`` is in seconds since the epoch. ``breakpoints``: after how many of the messages a cache breakpoint was
    to be set. ``tools``: the ``ToolsDefined`` that went with it; "" if the tools are not known. ``status``: the text
    that followed the messages in this request only.
    """

    sent_at: float
    breakpoints: tuple[int, ...] = ()
    tools: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """The model was called on the context as it stood here. ``number`` counts from 1.

    An accounting record: nothing in the session depends on it.

    ``counted_tokens``: the prompt by our own count; 0 if it was not counted. ``made_at``: when the reply came, in
    seconds since the epoch; 0 if it is not known. ``summary``: a summary was requested, with a prompt of its own that
    says nothing about the context's size and leaves its prompt cache alone.
    """

    number: int
    usage: Usage
    model: str
    counted_tokens: int = 0
    made_at: float = 0.0
    summary: bool = False


Beside = ToolsDefined | RequestSent | CallMade
"""Accounting records that belong to an item: the call that gave it, or the request whose last item it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """In a history that a framework owns, ``content`` replaces one part from here on, whenever the part is shown.

    The part is known by its ``kind`` ("user", "reply", "call" or "result"), the ``call_id`` of its call ("" where it
    has none) and the ``sha256`` of its content. ``item_id``: the item that holds this content. ``content``: a text or
    blocks; for a call, its arguments. ``tokens_before`` and ``tokens`` count the part and its replacement. ``sent``:
    a request had carried the part. ``tokens_rewritten``: the tokens of the last request from the part on, which the
    next one writes to the prompt cache again; of decisions that are made together, the first one has them.
    ``replies_since``: how many replies the history had from the part on; 0: it was in no request.
    """

    kind: str
    call_id: str
    sha256: str
    item_id: str
    content: Content | Mapping[str, Any]
    tokens_before: int
    tokens: int
    reason: str
    tool: str = ""
    sent: bool = True
    tokens_rewritten: int = 0
    replies_since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsNoted:
    """What was found out about parts of such a history, so that it need not be found out again.

    ``tokens``: by the first 16 hexadecimal digits of a content's SHA-256. ``sources``: by the whole SHA-256, the stored
    lines that the content only repeats: the item, the first line and the last.
    """

    tokens: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRemoved:
    """A stored content was removed on purpose; this tombstone is durable before its file goes.

    ``removed_at`` is in seconds since the epoch, ``by`` the command or program that removed it, and ``reason`` why it
    could go. ``erased``: also from the journal and from archives. The rest says what it held, as ``Stored`` did.
    """

    item_id: str
    item_type: ItemType
    name: str
    tool_name: str
    size_bytes: int
    lines: int
    removed_at: float
    by: str
    reason: str
    erased: bool = False

    @classmethod
    def of(cls, stored: Stored, *, removed_at: float, by: str, reason: str) -> "ContentRemoved":
        """Return the tombstone of a content."""
        return cls(
            item_id=stored.item_id,
            item_type=stored.item_type,
            name=stored.name,
            tool_name=stored.tool_name or "",
            size_bytes=stored.size_bytes,
            lines=stored.lines,
            removed_at=removed_at,
            by=by,
            reason=reason,
        )

    def __str__(self) -> str:
        """Say what was removed, when, by whom and why, for people and models."""
        day = datetime.fromtimestamp(self.removed_at, UTC).date().isoformat()
        what = self.item_type.replace("_", " ")
        if self.tool_name:
            what += f" of {safe_name(self.tool_name)}"
        held = f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}, {self.size_bytes:,} bytes"
        return f"removed on {day} by {self.by} ({self.reason}); it held a {what} of {held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTagged:
    """The session has these tags from here on, and no other; see ``ctxfs.session``."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWritten:
    """The model's note ``number`` is now ``text``; an empty text removes it."""

    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadowed:
    """A request was also sent twice as it was given and once as rewritten, to compare what the model does next.

    An accounting record: nothing in the session depends on it.

    ``original``, ``again`` and ``rewritten``: the next actions in the three replies, a line each: the tool and its
    arguments, or the kind of the text; their beginnings, and empty once a content of the session was erased.
    ``is_noise``: the two replies to the original differ; ``differs``: the one to the rewritten request differs from the
    first of them; ``reads_back``: since it opens what was hidden. ``tools``: those whose contents were hidden; ``age``:
    how many replies the youngest of these is old. ``usd``: what the three cost by list prices; 0 also where these are
    not known. ``made_at`` is in seconds since the epoch.
    """

    original: str
    again: str
    rewritten: str
    is_noise: bool
    differs: bool
    reads_back: bool
    tools: tuple[str, ...]
    age: int
    model: str = ""
    usd: float = 0.0
    made_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The writer closed the session in order."""

    closed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRecord:
    """A record of a later version; it stays in the journal untouched."""

    data: Mapping[str, Any]


Record = (
    SessionStarted
    | WriterOpened
    | EvictionSet
    | ItemAdded
    | Stored
    | Replaced
    | Restored
    | Removed
    | Undone
    | Pinned
    | ToolsDefined
    | RequestSent
    | CallMade
    | Decided
    | PartsNoted
    | ContentRemoved
    | SessionTagged
    | NoteWritten
    | Shadowed
    | Closed
    | UnknownRecord
)
