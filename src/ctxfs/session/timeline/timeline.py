"""A session's journal by call: what its context held at each call of the model, and what changed in between. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ctxfs.errors import UnknownCall
from ctxfs.errors.checks import require_kind
from ctxfs.messages.items import ContextItem
from ctxfs.session.records import Record
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.calls import Call
from ctxfs.session.timeline.changes import Changes, ItemChange, rewritten_tokens
from ctxfs.session.timeline.lives import Lives
from ctxfs.session.timeline.request import MESSAGES_ELSEWHERE, PastRequest

_TOOLS = "the tools that were sent along"
_NOT_SENT = (_TOOLS, "the cache breakpoints", "when it was sent")
"""What is not known of a request without a record."""


class Walk:
    """The states of a session along its journal: a step forward costs only the records in between."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._place = 0
        self._state = SessionState()

    def to(self, place: int) -> SessionState:
        """The state after this many records. The next step changes it; a step back starts from the beginning."""
        if place < self._place:
            self._place = 0
            self._state = SessionState()
        fold(self._state, self._records[self._place : place])
        self._place = place
        return self._state


class Timeline:
    """What the records of a session's journal say about each call of the model; ``read_timeline`` reads them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = tuple(records)
        self._lives = Lives().take_all(self._records)
        self._places = [change.place for change in self._lives.changes]

    @property
    def lives(self) -> Lives:
        """What the records add up to, and what became of each item; not to be changed."""
        return self._lives

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of the model on the context, in order."""
        return tuple(self._lives.calls)

    def history(self, item_id: str | None = None) -> tuple[ItemChange, ...]:
        """Everything that happened to the item, in order; None: to all items. Empty if the item is not known."""
        return tuple(change for change in self._lives.changes if item_id in (None, change.item_id))

    def state_at(self, call: int | None = None, *, walk: Walk | None = None) -> SessionState:
        """The state of the session when the request of ``call`` was sent; None: at the end of the journal.

        Raises ``UnknownCall``.
        """
        if call is None and walk is None:
            return self._lives.state
        return (walk or self.walk()).to(self._end(call))

    def records_before(self, call: int | None = None) -> tuple[Record, ...]:
        """The records of the journal before the request of ``call``; None: all. Raises ``UnknownCall``."""
        return self._records[: self._end(call)]

    def walk(self) -> Walk:
        """A ``Walk``, which makes the ``changes`` of several nearby calls cheaper."""
        return Walk(self._records)

    def request(self, call: int | None = None, *, state: SessionState | None = None) -> PastRequest:
        """The request of ``call``; None: the next one, as the context stands. Contents in files are left empty.

        ``state``: the result of ``state_at``, if it is known. Raises ``UnknownCall``.
        """
        state = self.state_at(call) if state is None else state
        calls = self._lives.calls
        number = len(calls) + 1 if call is None else call
        items = tuple(state.items.values())
        missing: list[str] = []
        if number > len(calls):
            if not items and calls and calls[-1].reply_id is None:
                missing.append(MESSAGES_ELSEWHERE)
            return PastRequest(call=number, items=items, not_recorded=tuple(missing))
        made = calls[number - 1]
        if made.reply_id is None:
            missing.append(MESSAGES_ELSEWHERE)
        sent = made.sent
        if sent is None:
            missing += _NOT_SENT
        elif sent.tools not in state.tools:
            missing.append(_TOOLS)
        return PastRequest(
            call=number,
            items=items,
            tools=None if sent is None else state.tools.get(sent.tools),
            breakpoints=None if sent is None else sent.breakpoints,
            status="" if sent is None else sent.status,
            sent_at=made.sent_at,
            replied_at=made.replied_at,
            model=made.model,
            usage=made.usage,
            reply_id=made.reply_id,
            not_recorded=tuple(missing),
        )

    def changes(self, first: int, last: int | None = None, *, walk: Walk | None = None) -> Changes:
        """What changed from the request of call ``first`` to that of ``last``; None: of the call after ``first``.

        The number after the last call means the next request, as the context stands. Raises ``UnknownCall``.
        """
        if last is None:
            last = first + 1
        first_end = self._end(first)
        last_end = self._end(last)
        if last < first:
            first, last = last, first
            first_end, last_end = last_end, first_end
        walk = walk or self.walk()
        before = tuple(walk.to(first_end).items.values())
        after = tuple(walk.to(last_end).items.values())
        kept = 0
        for old, new in zip(before, after, strict=False):
            if not _same(old, new):
                break
            kept += 1
        known = {item.id for item in before}
        changes = self._lives.changes[bisect_left(self._places, first_end) : bisect_left(self._places, last_end)]
        calls = self._lives.calls
        return Changes(
            first=first,
            last=last,
            items=tuple(changes),
            tokens_before=_tokens(before),
            tokens_after=_tokens(after),
            first_changed=before[kept].id if kept < len(before) else None,
            kept_tokens=_tokens(after[:kept]),
            rewritten_tokens=rewritten_tokens(after, kept, known),
            new_tokens=_tokens([item for item in after if item.id not in known]),
            usage=calls[last - 1].usage if last <= len(calls) else None,
        )

    def _end(self, call: int | None) -> int:
        """How many records are before the request of ``call``."""
        if call is None:
            return len(self._records)
        require_kind("call", call, int, "a number from 1")
        if not 1 <= call <= len(self._lives.calls) + 1:
            raise UnknownCall(call, len(self._lives.calls))
        if call > len(self._lives.calls):
            return len(self._records)
        return self._lives.calls[call - 1].end


def _same(before: ContextItem, after: ContextItem) -> bool:
    """Whether the model sees the same text; a content that was never replaced does not change, wherever it is."""
    if before.id != after.id:
        return False
    whole = not (before.destroyed or before.trimmed or after.destroyed or after.trimmed)
    return whole or before.message == after.message


def _tokens(items: Sequence[ContextItem]) -> int:
    return sum(item.token_count for item in items)
