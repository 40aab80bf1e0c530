"""The state of a session: the fold of its journal's records. Pure.

It says as well who has the session's messages: a context, which records them here, or a program that keeps them
itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Literal

from ctxfs.errors import ConfigError, ContentGone, NotRestorable, UnknownItem
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage
from ctxfs.messages.names import short_name
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import (
    CallMade,
    Closed,
    ContentRemoved,
    Decided,
    EvictionSet,
    ItemAdded,
    NoteWritten,
    PartsNoted,
    Pinned,
    Record,
    Removed,
    Replaced,
    RequestSent,
    Restored,
    SessionStarted,
    SessionTagged,
    Shadowed,
    ToolsDefined,
    Undone,
    WriterOpened,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStats:
    """How many items were evicted eagerly (before they were sent), and how many characters that saved."""

    count: int = 0
    saved_chars: int = 0

    @property
    def mean_saved_chars(self) -> float:
        """The saved characters on average; 0 if nothing was evicted eagerly."""
        return self.saved_chars / self.count if self.count else 0.0


Past = ItemAdded | Replaced | Restored | Removed | Pinned | RequestSent | CallMade | Stored
"""What the planner learns from: ``Stored`` of arguments only, and no ``CallMade`` of a summary."""


@dataclass(slots=True)
class SessionState:
    """The state of a session, as far as its journal says.

    ``items`` are those in the context, in order; the content of those in ``content_stored`` is in their files and empty
    here. ``stored`` is every content that is durable, ``archived`` the archive of each item that left in one, ``ids``
    every id ever allocated, ``eviction`` the rules in force, ``paths`` every place where the session was opened,
    ``eager_stats`` what eager offloads saved. ``replies`` counts the replies of the model, ``restored`` is how many
    there were when an item of the context was restored. ``decisions`` are those about a history that a framework owns,
    ``places`` about how many calls came before each content of it, ``noted_tokens`` and ``noted_sources`` what is known
    of its parts. ``tools`` are the definitions that requests carried, by SHA-256, ``request`` the last request.
    ``removed`` are the tombstones of contents that were removed on purpose, by item id; ``tags`` are the session's,
    ``notes`` the model's, by number. ``shadowed``: what was compared beside the real requests.

    ``past`` are the records of items and calls so far, in order, from which a resumed session learns what the planner
    knew: without the contents of what was evicted or removed, but for the calls of replies.

    ``changes`` is the number of the last change, that is, of items that were evicted together. Records without a number
    that follow each other are one change. ``undone`` are the numbers of the changes that were undone.
    """

    items: dict[str, ContextItem] = field(default_factory=dict)
    content_stored: set[str] = field(default_factory=set)
    stored: dict[str, Stored] = field(default_factory=dict)
    removed: dict[str, ContentRemoved] = field(default_factory=dict)
    by_name: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    archived: dict[str, str] = field(default_factory=dict)
    calls: list[CallMade] = field(default_factory=list)
    replies: int = 0
    restored: dict[str, int] = field(default_factory=dict)
    eviction: EvictionSet | None = None
    decisions: list[Decided] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    noted_tokens: dict[str, int] = field(default_factory=dict)
    noted_sources: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    shadowed: list[Shadowed] = field(default_factory=list)
    tools: dict[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    request: RequestSent | None = None
    past: list[Past] = field(default_factory=list)
    changes: int = 0
    undone: set[int] = field(default_factory=set)
    tags: tuple[str, ...] = ()
    paths: set[str] = field(default_factory=set)
    eager_stats: OffloadStats = OffloadStats()
    epoch: int = 0
    layout: str | None = None
    closed: bool = False
    _by_short_name: dict[str, str | None] = field(default_factory=dict)
    _short_names_of: int = 0  # how many of ``stored`` are in ``_by_short_name``
    _in_change: bool = False
    _entered: dict[str, int] = field(default_factory=dict)  # where in ``past`` an item entered

    @property
    def has_messages(self) -> bool:
        """Whether messages were ever recorded here, even if all of them have left the context."""
        return bool(self._entered)

    @property
    def is_elsewhere(self) -> bool:
        """Whether somebody else has the messages (see ``History``): here are only bills and decisions about them."""
        noted = bool(self.decisions or self.calls or self.noted_tokens or self.noted_sources)
        return noted and not self._entered

    def become(self, other: "SessionState") -> None:
        """Be what ``other`` is: for whoever holds this state, which may be half folded."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def find_short(self, name: str) -> str | None:
        """The id of the content that is or was stored under a short name; None if the name is unknown or ambiguous."""
        if not self._short_names_of:
            self._by_short_name = {short_name(item_id): item_id for item_id in self.removed}
        for item_id in islice(self.stored, self._short_names_of, None):  # stored since a name was last looked up
            short = short_name(item_id)
            is_ambiguous = self._by_short_name.get(short, item_id) != item_id
            self._by_short_name[short] = None if is_ambiguous else item_id
        self._short_names_of = len(self.stored)
        return self._by_short_name.get(name)

    def apply(self, record: Record) -> None:  # noqa: C901, PLR0912 - one branch for each kind of record
        """Take in one record. A record about an unknown item changes nothing: the line of that item may be damaged."""
        self._note(record)
        match record:
            case SessionStarted():
                self.layout = record.layout
            case WriterOpened():
                self.epoch = record.epoch
                self.paths.add(record.path)
                self.closed = False
            case SessionTagged():
                self.tags = record.tags
            case Closed():
                self.closed = True
            case EvictionSet():
                self.eviction = record
            case ItemAdded():
                self._add(record)
            case Removed():
                self._remove(record)
            case Replaced():
                self._replace(record)
            case Restored():
                self._restore(record)
            case Undone():
                self.undone.add(record.change)
            case Pinned():
                self._pin(record)
            case Stored():
                self.stored[record.item_id] = record
                self.removed.pop(record.item_id, None)
                self._never_again(record)
            case ContentRemoved():
                self._remove_content(record)
                self._never_again(record)
            case ToolsDefined():
                self.tools[record.sha256] = record.tools
            case RequestSent():
                self.request = record
            case CallMade():
                self.calls.append(record)
            case Decided():
                self.decisions.append(record)
                self.places.setdefault(record.item_id, len(self.calls) - record.replies_since)
            case PartsNoted():
                self._note_parts(record)
            case NoteWritten():
                self._write_note(record)
            case Shadowed():
                self.shadowed.append(record)

    def _note(self, record: Record) -> None:
        """Count changes, and keep what the planner learns from, without contents that left the context."""
        change = self.change_of(record)
        self.changes = max(self.changes, change)
        self._in_change = change > 0
        match record:
            case ItemAdded():
                self._entered[record.item.id] = len(self.past)
                self.past.append(record)
            case Replaced():
                self._empty(record.item_id)
                self.past.append(record)
            case Removed():
                for item_id in record.item_ids:
                    self._empty(item_id)
                self.past.append(record)
            case Restored() | Pinned() | RequestSent():
                self.past.append(record)
            case CallMade(summary=False) | Stored(item_type=ItemType.TOOL_INPUT):
                self.past.append(record)

    def _empty(self, item_id: str) -> None:
        """Drop the content of an item from ``past``; a reply stays, for its calls."""
        place = self._entered.get(item_id)
        if place is None:
            return
        entered = self.past[place]
        if not isinstance(entered, ItemAdded) or isinstance(entered.item.message, AssistantMessage):
            return
        if entered.item.message.content:  # one whose content is in a file has none here
            self.past[place] = replace(entered, item=entered.item.with_content(""))

    def _never_again(self, record: Stored | ContentRemoved) -> None:
        """Note the name and the id of a content, which are never allocated again."""
        self.by_name[record.name] = record.item_id
        self.ids.add(record.item_id)

    def _remove_content(self, record: ContentRemoved) -> None:
        self.stored.pop(record.item_id, None)
        self.removed[record.item_id] = record
        item = self.items.get(record.item_id)
        if record.erased and item is not None and not item.offloaded:
            self.content_stored.add(item.id)  # loading it raises ContentGone
        # The names are found again from `removed` and `stored`, whose order has changed.
        self._by_short_name = {}
        self._short_names_of = 0

    def _pin(self, record: Pinned) -> None:
        for item_id in record.item_ids:
            item = self.items.get(item_id)
            if item is not None:
                self.items[item_id] = replace(item, pinned=record.pinned)

    def _note_parts(self, record: PartsNoted) -> None:
        self.noted_tokens.update(record.tokens)
        for sha256, (item_id, first_line, last_line) in record.sources.items():
            self.noted_sources[sha256] = (item_id, first_line, last_line)

    def _write_note(self, record: NoteWritten) -> None:
        """Keep a note of the model; one without text is removed."""
        if record.text:
            self.notes[record.number] = record.text
        else:
            self.notes.pop(record.number, None)

    def change_of(self, record: Record) -> int:
        """The number of the change that ``record``, the next one, belongs to; 0: it does not evict anything."""
        if not isinstance(record, Replaced | Removed) or not evicts(record):
            return 0
        return record.change or self.changes + (not self._in_change)

    def _add(self, record: ItemAdded) -> None:
        item = record.item
        self.ids.add(item.id)
        self.replies += record.is_reply
        if record.returned:
            self.archived.pop(item.id, None)
            self.restored[item.id] = self.replies
        if record.content_stored:
            self.content_stored.add(item.id)
        if record.before is None or record.before not in self.items:
            self.items[item.id] = item
            return
        entries = list(self.items.items())
        position = next(index for index, (item_id, _) in enumerate(entries) if item_id == record.before)
        self.items = dict([*entries[:position], (item.id, item), *entries[position:]])

    def _remove(self, record: Removed) -> None:
        for item_id in record.item_ids:
            self.items.pop(item_id, None)
            self.restored.pop(item_id, None)
            self.content_stored.discard(item_id)
            if record.archive is not None:
                self.archived[item_id] = record.archive

    def _replace(self, record: Replaced) -> None:
        if record.saved_chars is not None:
            saved = self.eager_stats
            self.eager_stats = OffloadStats(count=saved.count + 1, saved_chars=saved.saved_chars + record.saved_chars)
        item = self.items.get(record.item_id)
        if item is None:
            return
        later = None
        if record.placeholder is not None:
            later = (record.placeholder, record.placeholder_tokens)
        self.content_stored.discard(item.id)
        self.restored.pop(item.id, None)
        self.items[item.id] = item.offloaded_to(
            record.path,
            record.content,
            record.token_count,
            destroyed=record.destroyed,
            trimmed=record.trimmed,
            later=later,
        )
        if record.change < 0:
            self.restored[item.id] = self.replies

    def _restore(self, record: Restored) -> None:
        item = self.items.get(record.item_id)
        if item is None or item.id not in self.stored:
            return
        self.content_stored.add(item.id)
        self.restored[item.id] = self.replies
        back = item.restored("")
        if record.token_count is not None:
            back = replace(back, token_count=record.token_count)
        self.items[item.id] = back

    def check_restorable(self, item_id: str) -> None:
        """Raise ``NotRestorable`` or ``UnknownItem`` unless the item is in the context and its content is stored."""
        item = self.items.get(item_id)
        stored = self.stored.get(item_id)
        if item is not None and stored is not None:
            return
        gone = self.removed.get(item_id)
        if gone is not None:
            raise ContentGone(item_id, str(gone))
        if item is not None and item.destroyed and item.source is not None:
            lines = f"lines {item.source.first_line}-{item.source.last_line} of {item.source.item_id}"
            raise NotRestorable(item_id, f"it only repeats {lines}: restore that item, or read the lines again")
        if item is not None:
            raise NotRestorable(item_id, "its content is not stored by itself: it is in the context")
        archive = self.archived.get(item_id)
        if archive is not None:
            raise NotRestorable(item_id, f"its message is in the archive {archive}: read it there")
        if stored is not None:
            raise NotRestorable(item_id, f"it is not a message of the context: read {stored.name}")
        raise UnknownItem(item_id)

    def replies_since_restored(self) -> dict[str, int]:
        """For each item of the context that was restored, how often the model has replied since."""
        return {item_id: self.replies - before for item_id, before in self.restored.items()}


def evicts(record: Replaced | Removed) -> bool:
    """Whether the record belongs to a change: something was evicted, and can come back."""
    if isinstance(record, Replaced):
        return record.change >= 0
    return record.archive is not None


def fold(state: SessionState, records: Iterable[Record]) -> SessionState:
    """Take ``records`` into ``state``, in order, and return it."""
    for record in records:
        state.apply(record)
    return state


Owner = Literal["Context", "History"]
"""Who opens a session to go on with its conversation."""


class OtherOwner(ConfigError):
    """The session cannot be continued here, since its messages are kept by another kind of program."""


def check_owner(session_id: str, state: SessionState, owner: Owner | None) -> None:
    """Raise ``OtherOwner`` if ``owner`` cannot go on with a session, since it would find none of its messages.

    None goes on with no conversation. A session that holds neither kind yet may become either. Where a context's
    messages stand beside a history's decisions or notes, as earlier versions let both write, both may go on; bills
    alone do not say that there was a history, since a context has them, too.
    """
    # A context would send an empty conversation, and a history would decide again about what the other one replaced.
    if owner == "Context" and state.is_elsewhere:
        raise OtherOwner(
            f"session {session_id!r} has no messages: a History, an adapter, a proxy or a plug-in wrote it, for a "
            f"program that keeps them itself. Continue it there, or as History({session_id!r}) with the same "
            "root_path; a Context or an Agent needs another session_id"
        )
    has_both = state.decisions or state.noted_tokens or state.noted_sources
    if owner == "History" and state.has_messages and not has_both:
        raise OtherOwner(
            f"session {session_id!r} has messages of its own, which a Context or an Agent wrote: continue it as "
            f"Context({session_id!r}) or with AgentConfig(session_id={session_id!r}); a History or an adapter needs "
            "another session_id"
        )
