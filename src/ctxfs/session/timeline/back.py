"""Bring back what left a context: the records for it, decided from the journal. Pure.

Nothing that was recorded is changed: records are added, and after them the context again holds what it held before.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ctxfs.errors import ContentGone, NotRestorable, UnknownItem
from ctxfs.eviction.compaction import with_exchanges
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage
from ctxfs.session.records import ItemAdded, Pinned, Record, Removed, Replaced, Restored, Undone
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.changes import change_id
from ctxfs.session.timeline.lives import input_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """The records that bring something back; falsy if it is there already.

    ``item_ids``: the items that come back, as a whole or with their content, in order. ``reads``: the items whose
    stored contents come back. ``tokens``: how much larger the context gets.
    ``change``: the id of the change that is undone, if any.
    """

    records: tuple[Record, ...] = ()
    item_ids: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    tokens: int = 0
    change: str | None = None

    def __bool__(self) -> bool:
        return bool(self.records)


def undone(records: Sequence[Record], change: str | None = None) -> Back:
    """The records that undo a change; None: the last one that is in force.

    Raises:
        NotRestorable: there is no such change, or none is left; it was undone already; or items that it evicted
            left as a whole with a later change.
        ContentGone: a content that it evicted has been removed on purpose.

    """
    now = fold(SessionState(), records)
    if change is not None:
        number = next((n for n in range(1, now.changes + 1) if change_id(n) == change), 0)
        if not number:
            raise NotRestorable(change, "there is no such change in this session", done="undone")
        if number in now.undone:
            raise NotRestorable(change, "it was undone already", done="undone")
        back = _undone(records, number, change)
        if not back.item_ids:  # all of it is back already: there is nothing to write
            return Back(change=change)
        return back
    for number in range(now.changes, 0, -1):
        if number not in now.undone:
            back = _undone(records, number, change_id(number))
            if back.item_ids:
                return back
    raise NotRestorable("the last change", "nothing that was evicted is left to bring back", done="undone")


def _undone(records: Sequence[Record], number: int, change: str) -> Back:
    parts = list(_parts(records, lambda _, of: of == number))  # empty if its lines of the journal are damaged
    draft = _Draft(records, what=change, done="undone", reason=f"{change} is undone")
    for record, before in reversed(parts):
        if isinstance(record, Removed):
            draft.unarchive(record, before, record.item_ids)
        elif record.item_id in before.items:
            draft.unreplace(before.items[record.item_id])
    return draft.back(Undone(change=number), change=change)


def restored(records: Sequence[Record], item_id: str, *, reason: str = "") -> Back:
    """The records that bring back an item's content, even if its message is in an archive.

    Arguments come back with their reply. From an archive, the whole exchange comes back: a reply and its results.

    Raises:
        UnknownItem: the session has no such item.
        NotRestorable: it is not a message, or it has no content of its own.

    """
    draft = _Draft(records, what=item_id, done="restored", reason=reason)
    _restore(records, item_id, draft)
    return draft.back()


def _restore(records: Sequence[Record], item_id: str, draft: "_Draft") -> None:
    state = draft.state
    if item_id in state.archived:
        parts = _parts(records, lambda one, _: isinstance(one, Removed) and item_id in one.item_ids)
        record, before = list(parts)[-1]  # an item may leave, come back, and leave again
        assert isinstance(record, Removed)
        gone = [before.items[one] for one in record.item_ids if one in before.items]
        draft.unarchive(record, before, with_exchanges(gone, [item_id]))
    item = state.items.get(item_id) or _reply_of(item_id, state)
    if item is None or (item.destroyed and not item.trimmed):
        state.check_restorable(item_id)
    if item is not None and (item.destroyed or item.trimmed):
        draft.unreplace(_as_entered(records, item.id))


def pinned(records: Sequence[Record], item_id: str) -> Back:
    """The records that pin an item: its content comes back first. Raises what ``restored`` raises."""
    draft = _Draft(records, what=item_id, done="restored", reason="it is pinned")
    reply = _reply_of(item_id, draft.state)  # of arguments, before they are back
    _restore(records, item_id, draft)
    back = draft.back()
    item = draft.state.items.get(item_id) or reply
    if item is None or item.pinned:
        return back
    return replace(back, records=(*back.records, Pinned(item_ids=(item.id,))))


def unpinned(records: Sequence[Record], item_id: str) -> Back:
    """The records that unpin an item. Raises ``UnknownItem`` unless it is in the context."""
    item = fold(SessionState(), records).items.get(item_id)
    if item is None:
        raise UnknownItem(item_id)
    records = (Pinned(item_ids=(item_id,), pinned=False),) if item.pinned else ()
    return Back(records=records)


class _Draft:
    """The records so far, and the session as it will be after them."""

    def __init__(self, records: Sequence[Record], *, what: str, done: str, reason: str) -> None:
        self.state = fold(SessionState(), records)
        self._tokens = _tokens(self.state)
        self._what = what
        self._done = done
        self._reason = reason
        self._records: list[Record] = []
        self._item_ids: dict[str, None] = {}
        self._reads: list[str] = []

    def back(self, *last: Record, change: str | None = None) -> Back:
        """All records, and ``last`` after them."""
        messages = (item for item in self.state.items.values() if item.item_type is not ItemType.SYSTEM_PROMPT)
        first = next(messages, None)
        if first is not None and first.item_type is ItemType.ASSISTANT_MESSAGE:
            raise self._refused("a reply would come first: bring back what it answers before it")
        self._check_contents()
        return Back(
            records=(*self._records, *last),
            item_ids=tuple(item_id for item_id in self.state.items if item_id in self._item_ids),
            reads=tuple(self._reads),
            tokens=_tokens(self.state) - self._tokens,
            change=change,
        )

    def _check_contents(self) -> None:
        """Raise ``ContentGone`` if an item that comes back has, or names, a content that was removed on purpose."""
        removed = self.state.removed
        back = [self.state.items[item_id] for item_id in self._item_ids if item_id in self.state.items]
        for item in back:
            named = [*input_ids(item.message.content, item.trimmed)]
            named.append(item.id if item.source is None else item.source.item_id)
            for item_id in named:
                if item_id in removed:
                    raise ContentGone(item_id, str(removed[item_id]))

    def unreplace(self, old: ContextItem) -> None:
        """Make an item of the context as ``old`` again; do nothing if it has that much, or more, already."""
        item = self.state.items.get(old.id)
        if item is None:
            left = self.state.archived.get(old.id)
            where = f"{old.id} is in the archive {left}: undo that first" if left else f"{old.id} was removed"
            raise self._refused(where)
        is_whole = not (item.destroyed or item.trimmed)
        has_as_much = old.destroyed and item.token_count >= old.token_count
        if is_whole or has_as_much:
            return
        self._item_ids[old.id] = None
        if old.id in self.state.stored and not (old.destroyed or old.trimmed):
            self._reads.append(old.id)
            self._do(Restored(item_id=old.id, reason=self._reason, token_count=old.token_count))
            return
        again = Replaced(
            item_id=old.id,
            content=old.message.content,
            token_count=old.token_count,
            path=old.offload_path,
            destroyed=old.destroyed,
            reason=self._reason,
            trimmed=old.trimmed,
            change=-1,
        )
        self._do(again)

    def unarchive(self, record: Removed, before: SessionState, item_ids: Collection[str]) -> None:
        """Put archived messages back where they were; the archive leaves the context once all are back."""
        state = self.state
        archived = [item_id for item_id in record.item_ids if item_id in before.items]
        going: dict[str, ContextItem] = {}
        for item_id in archived:
            if item_id in item_ids and item_id not in state.items:
                going[item_id] = before.items[item_id]
        if not going:
            return
        holder = _holder(record.archive, state)
        if self._done == "undone" and holder != record.archive:
            raise self._refused(f"its archive {record.archive} left after it: undo that first")
        for item, place in _places(going, list(before.items), state, holder):
            stored = item.id in before.content_stored
            self._item_ids[item.id] = None
            if stored:
                self._reads.append(item.id)
            self._do(ItemAdded(item=item, content_stored=stored, before=place, returned=True))
        all_back = all(item_id in state.items for item_id in archived)
        if all_back and record.archive in state.items:
            self._do(Removed(item_ids=(record.archive,), reason=self._reason))

    def _do(self, record: Record) -> None:
        self._records.append(record)
        self.state.apply(record)

    def _refused(self, reason: str) -> NotRestorable:
        return NotRestorable(self._what, reason, done=self._done)


def _holder(archive: str | None, state: SessionState) -> str | None:
    """The archive that holds the messages of ``archive`` and is in the context: itself, or one that it went into."""
    followed: set[str] = set()  # a damaged journal may say that two archives hold each other
    while archive is not None and archive not in state.items:
        if archive in followed:
            return None
        followed.add(archive)
        archive = state.archived.get(archive)
    return archive


def _places(
    going: Mapping[str, ContextItem], order: Sequence[str], state: SessionState, holder: str | None
) -> list[tuple[ContextItem, str | None]]:
    """Each item with the one that it is put before: the next in the old ``order`` that is there; None: at the end.

    If no item of the old order is after it, it is put right after ``holder``, the archive that replaces older messages.
    """
    place: str | None = None
    if holder is not None:
        ids = list(state.items)
        after = ids[ids.index(holder) + 1 :]
        place = after[0] if after else None
    found: list[tuple[ContextItem, str | None]] = []
    for item_id in reversed(order):
        if item_id in going:
            found.append((going[item_id], place))
        elif item_id in state.items and item_id != holder:
            place = item_id
    return found[::-1]


def _parts(
    records: Sequence[Record], wanted: Callable[[Removed | Replaced, int], bool]
) -> Iterator[tuple[Removed | Replaced, SessionState]]:
    """The records that evicted something and are ``wanted``, each with the state before it."""
    state = SessionState()
    for record in records:
        number = state.change_of(record)
        if number and isinstance(record, Removed | Replaced) and wanted(record, number):
            yield record, SessionState(items=dict(state.items), content_stored=set(state.content_stored))
        state.apply(record)


def _as_entered(records: Sequence[Record], item_id: str) -> ContextItem:
    """The item as it entered the context."""
    return next(one.item for one in records if isinstance(one, ItemAdded) and one.item.id == item_id)


def _reply_of(item_id: str, state: SessionState) -> ContextItem | None:
    """The reply whose call had the arguments that are stored as ``item_id``; None: it is not in the context."""
    for item in state.items.values():
        if isinstance(item.message, AssistantMessage) and item_id in input_ids(item.message.content, item.trimmed):
            return item
    return None


def _tokens(state: SessionState) -> int:
    return sum(item.token_count for item in state.items.values())
