"""The state of a session: what the records of its journal add up to. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from ctxfs.content.stored import Stored
from ctxfs.errors import NotRestorable, UnknownItem
from ctxfs.items import ContextItem, ItemType
from ctxfs.session.names import short_name
from ctxfs.session.records import (
    CallMade,
    Closed,
    Decided,
    EvictionSet,
    ItemAdded,
    PartsNoted,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    WriterOpened,
)

__all__ = ["OffloadStats", "SessionState", "fold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStats:
    """How many items were evicted eagerly (before they were sent), and how many characters that saved."""

    count: int = 0
    saved_chars: int = 0

    @property
    def mean_saved_chars(self) -> float:
        """The saved characters on average; 0 when nothing left."""
        return self.saved_chars / self.count if self.count else 0.0


@dataclass(slots=True)
class SessionState:
    """What a session is, as far as its journal says.

    ``items`` are those in the context, in order; the content of those in ``content_stored`` is in their files and empty
    here. ``stored`` is every content that is durable, ``archived`` the archive of each item that left in one, ``ids``
    every id ever given out, ``eviction`` the rules in force, ``paths`` where the session lay, ``eager_stats`` what
    items saved that left the moment they came in. ``replies`` counts the replies of the model, ``restored`` is how many
    there were when an item of the context was restored. ``decisions`` are those about a history that a framework owns,
    ``noted_tokens`` and ``noted_sources`` what is known of its parts.
    """

    items: dict[str, ContextItem] = field(default_factory=dict)
    content_stored: set[str] = field(default_factory=set)
    stored: dict[str, Stored] = field(default_factory=dict)
    by_name: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    archived: dict[str, str] = field(default_factory=dict)
    calls: list[CallMade] = field(default_factory=list)
    replies: int = 0
    restored: dict[str, int] = field(default_factory=dict)
    eviction: EvictionSet | None = None
    decisions: list[Decided] = field(default_factory=list)
    noted_tokens: dict[str, int] = field(default_factory=dict)
    noted_sources: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    eager_stats: OffloadStats = OffloadStats()
    epoch: int = 0
    layout: str | None = None
    closed: bool = False
    _by_short_name: dict[str, str | None] = field(default_factory=dict)
    _shortened: int = 0

    def find_short(self, name: str) -> str | None:
        """The id of what is stored under a short name; None for an unknown name, and for one that two ids have."""
        for item_id in islice(self.stored, self._shortened, None):  # what was stored since a name was last looked up
            short = short_name(item_id)
            self._by_short_name[short] = None if short in self._by_short_name else item_id
        self._shortened = len(self.stored)
        return self._by_short_name.get(name)

    def apply(self, record: Record) -> None:
        """Take one record in. A record about an item that is not there changes nothing: its line may be damaged."""
        match record:
            case SessionStarted():
                self.layout = record.layout
            case WriterOpened():
                self.epoch = record.epoch
                self.paths.add(record.path)
                self.closed = False
            case EvictionSet():
                self.eviction = record
            case ItemAdded():
                self._add(record)
            case Stored():
                self.stored[record.item_id] = record
                self.by_name[record.name] = record.item_id
                self.ids.add(record.item_id)
            case Replaced():
                self._replace(record)
            case Restored():
                self._restore(record)
            case Removed():
                self._remove(record)
            case CallMade():
                self.calls.append(record)
            case Decided() | PartsNoted():
                self._learn(record)
            case Closed():
                self.closed = True

    def _add(self, record: ItemAdded) -> None:
        item = record.item
        if item.item_type is ItemType.COMPACTION_SUMMARY:  # until 0.1.0 it was recorded like an item that was offloaded
            item = replace(item, offloaded=False, destroyed=False)
        self.ids.add(item.id)
        self.replies += item.item_type is ItemType.ASSISTANT_MESSAGE
        if record.content_stored:
            self.content_stored.add(item.id)
        if record.before is None or record.before not in self.items:
            self.items[item.id] = item
            return
        entries = list(self.items.items())
        position = next(index for index, (item_id, _) in enumerate(entries) if item_id == record.before)
        self.items = dict([*entries[:position], (item.id, item), *entries[position:]])

    def _learn(self, record: Decided | PartsNoted) -> None:
        """Take in what concerns a history that a framework owns."""
        if isinstance(record, Decided):
            self.decisions.append(record)
            return
        self.noted_tokens.update(record.tokens)
        for sha256, (item_id, first_line, last_line) in record.sources.items():
            self.noted_sources[sha256] = (item_id, first_line, last_line)

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
        self.content_stored.discard(item.id)
        self.restored.pop(item.id, None)
        if record.placeholder is not None:
            item = replace(item, placeholder=record.placeholder, placeholder_tokens=record.placeholder_tokens)
        self.items[item.id] = item.offloaded_to(
            record.path, record.content, record.token_count, destroyed=record.destroyed, trimmed=record.trimmed
        )

    def _restore(self, record: Restored) -> None:
        item = self.items.get(record.item_id)
        if item is None or item.id not in self.stored:
            return
        self.content_stored.add(item.id)
        self.restored[item.id] = self.replies
        back = item.restored("")
        self.items[item.id] = back if record.token_count is None else replace(back, token_count=record.token_count)

    def check_restorable(self, item_id: str) -> None:
        """Raise ``NotRestorable`` or ``UnknownItem`` unless the item is in the context and its content is stored."""
        item, stored = self.items.get(item_id), self.stored.get(item_id)
        if item is not None and stored is not None:
            return
        if item is not None and item.destroyed and item.source is not None:
            lines = f"lines {item.source.first_line}-{item.source.last_line} of {item.source.item_id}"
            raise NotRestorable(item_id, f"it only repeats {lines}: restore that item, or read the lines again")
        if item is not None:
            raise NotRestorable(item_id, "its content is not stored by itself: it is in the context")
        if (archive := self.archived.get(item_id)) is not None:
            raise NotRestorable(item_id, f"its message is in the archive {archive}: read it there")
        if stored is not None:
            raise NotRestorable(item_id, f"it is not a message of the context: read {stored.name}")
        raise UnknownItem(item_id)

    def replies_since_restored(self) -> dict[str, int]:
        """For each item of the context that was restored, how often the model has replied since."""
        return {item_id: self.replies - before for item_id, before in self.restored.items()}


def fold(state: SessionState, records: Iterable[Record]) -> SessionState:
    """Take ``records`` into ``state``, in order, and return it."""
    for record in records:
        state.apply(record)
    return state
