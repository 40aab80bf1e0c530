"""One reading of a session's journal: the life of each item, the requests, and what changed between them. Pure.

Whether an item left the context, and whether it came back, is decided here and nowhere else. Whoever wants to know
something about a journal's past follows a ``Lives``, and takes from it what it needs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ctxfs.eviction.economics.plans import needs_no_rewrite
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.names import safe_name
from ctxfs.session.records import CallMade, Decided, ItemAdded, Record, Removed, Replaced, RequestSent, Restored
from ctxfs.session.state import SessionState
from ctxfs.session.timeline.changes import Call, ItemChange, What, change_id


@dataclass(slots=True, kw_only=True)
class Life:
    """What became of one item. Sizes are in tokens of the session's counter.

    Attributes:
        item_id: its id.
        entered: the call that first carried it, or whose reply it is; the first is 1.
        tokens: the size of its content.
        left: the change by which its content, or a part of it, left; None: it is in the context whole.
        back: the change by which it last came back; None: it never did.
        archive: the archive that holds it; None: it is in none.
        removed: the item as it was when it left as a whole; None: it is in the context.

    """

    item_id: str
    entered: int
    tokens: int
    left: ItemChange | None = None
    back: ItemChange | None = None
    archive: str | None = None
    removed: ContextItem | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one record of the journal did. ``call``: the model call that it marks; None: it marks none."""

    changes: Sequence[ItemChange] = ()
    call: Call | None = None


class Lives:
    """A journal so far, record by record from the first one on, as its session grows.

    Taking in a record costs what it changes, and a change of the prompt also costs the items behind it, once.

    Attributes:
        state: what the records add up to.
        lives: the life of each item by its id, in the order in which they entered the context.
        calls: the calls of the model on the context, in order; those for summaries are not among them.
        changes: what happened to items, in order.

    """

    # A call is one of two cases:
    # - the context has items: the reply is one of them, and its bill comes later;
    # - a framework owns the history: there are no items, and the bill stands for the call.

    def __init__(self) -> None:
        self.state = SessionState()
        self.lives: dict[str, Life] = {}
        self.calls: list[Call] = []
        self.changes: list[ItemChange] = []
        self._records = 0
        self._context = 0  # the tokens of all items of the context
        # What evictions keep out of the context, in tokens: context + evicted is its size had nothing been evicted.
        self._evicted = 0
        self._unsent = 0  # of these, what left since the last call, and no request had carried
        self._archives: dict[str, int] = {}  # the tokens of each archive in the context, counted in ``_evicted``
        self._entered: dict[str, int] = {}  # the calls before each item entered the context
        self._removed: dict[str, int] = {}  # the calls before each item left it as a whole
        self._changed: set[str] = set()  # the items at which the next request differs from the last
        self._rewritten = 0  # of a framework's history: what the next call writes to the cache again
        self._freed = 0
        self._sent: tuple[int, RequestSent] | None = None
        self._unbilled: list[int] = []  # the positions of the calls since the last bill
        self._bills: list[CallMade] = []  # the bills that followed each other, so far

    def take(self, record: Record) -> Step:
        """Take in the next record, and return what it did."""
        if self._bills and not isinstance(record, CallMade):
            self._bills = []
            self._unbilled = []
        match record:
            case ItemAdded():
                changes = self._add(record)
            case Replaced() | Restored():
                changes = self._replace(record)
            case Removed():
                changes = self._remove(record)
            case Decided():
                changes = [self._decide(record)]
            case _:
                changes = []
                self.state.apply(record)
        for change in changes:
            self._follow(change)
        self.changes += changes
        call = self._call_of(record)
        self._records += 1
        return Step(changes, call)

    def take_all(self, records: Iterable[Record]) -> "Lives":
        """Take in the next records; returns itself."""
        for record in records:
            self.take(record)
        return self

    # What records do to items ----------------------------------------------------------------------------------------

    def _add(self, record: ItemAdded) -> list[ItemChange]:
        item_id = record.item.id
        calls = len(self.calls)
        before = self.state.items.get(item_id)
        self.state.apply(record)
        item = self.state.items[item_id]
        self._context += item.token_count - (0 if before is None else before.token_count)
        is_back = record.returned and item_id in self.lives
        # An item that left and came back between two calls is known to the prompt cache.
        if not (is_back and self._removed.get(item_id) == calls):
            self._entered[item_id] = calls
        if is_back:
            self._evicted -= item.token_count
            self._changed.add(item_id)
        elif _is_out(item):  # it entered as a placeholder
            self._evicted += item.content_tokens - item.token_count
        if not is_back:
            self.lives.pop(item_id, None)  # so that its place is where it entered
            self.lives[item_id] = Life(item_id=item_id, entered=calls + 1, tokens=item.content_tokens)
        what: What = "restored" if record.returned else "added"
        return [self._change(item, what, (0, item.token_count), is_out=_is_out(item))]

    def _replace(self, record: Replaced | Restored) -> list[ItemChange]:
        old = self.state.items.get(record.item_id)
        number = self.state.change_of(record)
        self.state.apply(record)
        new = self.state.items.get(record.item_id)
        if old is None or new is None or new is old:
            return []
        what = _what_happened(record, old, new)
        contents: tuple[str, ...] = (old.id,)
        if not old.destroyed and not new.destroyed:
            contents = self._inputs(old, new)
        grown = new.token_count - old.token_count
        self._context += grown
        self._evicted -= grown
        sent = self._was_sent(old)
        if what == "restored":
            self._changed.add(old.id)
        else:
            self._unsent -= 0 if sent else grown
            if sent and not needs_no_rewrite(record.reason):
                self._changed.add(old.id)
        change = self._change(old, what, (old.token_count, new.token_count), is_out=_is_out(new))
        change_number = change_id(number) if number and what != "restored" else None
        return [
            replace(
                change,
                reason=record.reason,
                at=record.at or None,
                change=change_number,
                sent=sent,
                contents=contents,
            )
        ]

    def _remove(self, record: Removed) -> list[ItemChange]:
        going = [self.state.items[item_id] for item_id in record.item_ids if item_id in self.state.items]
        number = self.state.change_of(record)
        what: What = "removed" if record.archive is None else "archived"
        if going and not all(item.id in self._archives for item in going):
            self._changed.add(_follower(record.item_ids, self.state))
        changes = []
        for item in going:
            change = self._change(item, what, (item.token_count, 0), is_out=True)
            changes.append(
                replace(
                    change,
                    reason=record.reason,
                    at=record.at or None,
                    change=change_id(number) if number else None,
                    archive=record.archive,
                    sent=self._was_sent(item),
                )
            )
            self._removed[item.id] = len(self.calls)
        self._count_removed(record, going)
        self.state.apply(record)
        for item in going:
            self.lives[item.id].removed = item
        return changes

    def _count_removed(self, record: Removed, going: Sequence[ContextItem]) -> None:
        freed = sum(item.token_count for item in going)
        self._context -= freed
        if record.archive is None:
            # An archive leaves once all that it stood for is back. Anything else was not evicted: another item took
            # its place, or its call is lost.
            self._evicted += sum(self._archives.pop(item.id, 0) for item in going)
            return
        for item in going:
            self._archives.pop(item.id, None)
        archive = self.state.items.get(record.archive)
        if archive is not None and archive.id not in self._archives:
            self._archives[archive.id] = archive.token_count
            freed -= archive.token_count
        self._evicted += freed
        if going and not any(self._was_sent(item) for item in going):
            self._unsent += freed

    def _decide(self, record: Decided) -> ItemChange:
        """A part of a history that a framework owns; several before one call are one change, at the first of them."""
        self.state.apply(record)
        freed = record.tokens_before - record.tokens
        self._evicted += freed
        if not needs_no_rewrite(record.reason):
            self._rewritten = max(self._rewritten, record.tokens_rewritten)
        if record.sent:
            self._freed += freed
        else:
            self._unsent += freed
        calls = len(self.calls)
        if record.item_id not in self.lives:
            entered = max(1, calls + 1 - record.replies_since)
            self.lives[record.item_id] = Life(item_id=record.item_id, entered=entered, tokens=record.tokens_before)
        stored = self.state.stored.get(record.item_id)
        return ItemChange(
            item_id=record.item_id,
            item_type=ItemType.TOOL_RESULT if stored is None else stored.item_type,
            tool_name=record.tool or None,
            what="evicted",
            tokens_before=record.tokens_before,
            tokens_after=record.tokens,
            after_call=calls,
            reason=record.reason,
            sent=record.sent,
            is_out=True,
            contents=(record.item_id,),
            place=self._records,
        )

    def _change(self, item: ContextItem, what: What, tokens: tuple[int, int], *, is_out: bool) -> ItemChange:
        """``tokens``: before and after."""
        before, after = tokens
        return ItemChange(
            item_id=item.id,
            item_type=item.item_type,
            tool_name=item.tool_name,
            what=what,
            tokens_before=before,
            tokens_after=after,
            after_call=len(self.calls),
            is_out=is_out,
            contents=(item.id,),
            source=item.source,
            place=self._records,
        )

    def _follow(self, change: ItemChange) -> None:
        """Take the change into the life of its item."""
        life = self.lives[change.item_id]
        if change.what == "restored":
            life.back = change
        # A shorter placeholder, or an archive, does not make an item leave again. But a framework's history may have
        # several parts with one content, and each leaves by a decision of its own.
        is_part = change.what == "evicted" and change.item_id not in self.state.items
        if not change.is_out:
            life.left = None
        elif life.left is None or is_part:
            life.left = change
        if change.what == "archived":
            life.archive = change.archive
        elif change.what in ("restored", "added"):
            life.archive = None
            life.removed = None

    def _inputs(self, old: ContextItem, new: ContextItem) -> tuple[str, ...]:
        """The stored contents of the arguments that left or came back; the reply itself if none of them is stored."""
        moved = set(old.trimmed).symmetric_difference(new.trimmed)
        trimmed = new if new.trimmed else old  # its content is in the journal, block by block
        named = input_ids(trimmed.message.content, sorted(moved))
        return tuple(item_id for item_id in named if item_id in self.state.stored) or (old.id,)

    # Calls -----------------------------------------------------------------------------------------------------------

    def _was_sent(self, item: ContextItem) -> bool:
        """Whether the last request, or its reply, had the item."""
        return self._entered[item.id] < len(self.calls)

    def _call_of(self, record: Record) -> Call | None:
        match record:
            case RequestSent():
                self._sent = (self._records, record)
            case ItemAdded() if record.is_reply:
                return self._replied(record.item)
            case CallMade(summary=False):
                own = None if self.state.has_messages else self._billed_only(record)
                self._bill(record)
                return None if own is None else self.calls[-1]
        return None

    def _replied(self, reply: ContextItem) -> Call:
        # The request is the context before the record of the request; without one, before the reply.
        end, sent = self._sent or (self._records, None)
        self._sent = None
        rewritten, kept = self._written_again(reply)
        call = Call(
            number=len(self.calls) + 1,
            end=end,
            reply_id=reply.id,
            sent=sent,
            tokens=self._context - reply.token_count,
            evicted=self._evicted,
            unsent=self._unsent,
            rewritten=rewritten,
            kept=kept if rewritten else None,
        )
        self._called(call)
        return call

    @property
    def is_elsewhere(self) -> bool:
        """Whether somebody else owns the messages: no read-back is recorded, since its result is one of them."""
        return self.state.is_elsewhere

    def _billed_only(self, bill: CallMade) -> Call:
        """A call on a history that a framework owns: its reply is not here."""
        last = self.calls[-1].tokens if self.calls else 0
        kept = max(0, last - self._freed - self._rewritten) if self._rewritten else None
        call = Call(
            number=len(self.calls) + 1,
            end=self._records,
            tokens=bill.counted_tokens,
            evicted=self._evicted,
            unsent=self._unsent,
            rewritten=self._rewritten,
            kept=kept,
        )
        self._rewritten = 0
        self._freed = 0
        self._called(call)
        return call

    def _called(self, call: Call) -> None:
        self._changed.clear()
        self._unsent = 0
        self._unbilled.append(len(self.calls))
        self.calls.append(call)

    def _written_again(self, reply: ContextItem) -> tuple[int, int]:
        """The tokens that the last request had too, from the first change on, and those before it.

        They are found from the end, where most changes are.
        """
        sought = self._changed & self.state.items.keys()
        if not sought:
            return 0, 0
        again = 0
        behind = 0
        newest_first = reversed(self.state.items.values())
        while sought:
            item = next(newest_first)
            if item.id != reply.id:
                behind += item.token_count
                again += item.token_count if self._was_sent(item) else 0
            sought.discard(item.id)
        return again, self._context - reply.token_count - behind

    def _bill(self, bill: CallMade) -> None:
        """Bills that are recorded together follow all of their replies, in the same order."""
        self._bills.append(bill)
        for place, own in zip(self._unbilled[-len(self._bills) :], self._bills, strict=False):
            self.calls[place] = replace(self.calls[place], bill=own)


def input_ids(content: object, places: Iterable[int]) -> Sequence[str]:
    """The ids by which the arguments of a reply's calls are stored: of the calls at ``places`` of its content.

    Places without a call are left out: an erased reply, or one whose content is in its file, has none.
    """
    if isinstance(content, str) or not isinstance(content, Sequence):
        return ()
    found = []
    for place in places:
        block = content[place] if place < len(content) else None
        if isinstance(block, dict) and "id" in block:
            found.append(safe_name(f"{block['id']}.input"))
    return found


def _is_out(item: ContextItem) -> bool:
    """Whether the content of an item of the context, or a part of it, is not there."""
    return item.destroyed or bool(item.trimmed)


def _what_happened(record: Replaced | Restored, old: ContextItem, new: ContextItem) -> What:
    if isinstance(record, Restored) or record.change < 0 or not _is_out(new):
        return "restored"
    if old.destroyed and new.destroyed:
        return "shortened"
    return "evicted" if new.destroyed else "trimmed"


def _follower(going: Collection[str], state: SessionState) -> str:
    """The item that follows the first of ``going`` and stays; "" if there is none."""
    gone = set(going)
    has_begun = False
    for item_id in state.items:
        if item_id in gone:
            has_begun = True
        elif has_begun:
            return item_id
    return ""
