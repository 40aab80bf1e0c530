"""A session's journal by call: what its context held at each call of the model, and what changed in between. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from ctxfs.checks import require_kind
from ctxfs.errors import UnknownCall
from ctxfs.items import ContextItem
from ctxfs.session.records import CallMade, ItemAdded, Record, RequestSent
from ctxfs.session.state import SessionState, fold
from ctxfs.timeline.calls import Call, CallCounter
from ctxfs.timeline.changes import Changes, ItemChange, changes_by, rewritten_tokens
from ctxfs.timeline.request import MESSAGES_ELSEWHERE, PastRequest

__all__ = ["Timeline", "Walk"]

_NOT_SENT = ("the tools that were sent along", "the cache breakpoints", "when it was sent")


class Walk:
    """The states of a session along its journal: a step forward costs only the records in between."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._place, self._state = 0, SessionState()

    def to(self, place: int) -> SessionState:
        """The state after this many records. The next step changes it; a step back starts from the beginning."""
        if place < self._place:
            self._place, self._state = 0, SessionState()
        fold(self._state, self._records[self._place : place])
        self._place = place
        return self._state


class Timeline:
    """What the records of a session's journal say about each call of the model; ``read_timeline`` reads them."""

    # A call is one of three cases:
    # - its request was recorded, and its reply is an item: the request is the context before that record;
    # - only its reply was recorded, as in 0.1.0: the request is the context before the reply;
    # - only its bill was recorded: a framework owns the history, and the messages are not known.

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = tuple(records)
        self._calls: list[Call] = []
        self._changes: list[tuple[int, ItemChange]] = []
        self._sent: tuple[int, RequestSent] | None = None
        self._counter = CallCounter()
        state = SessionState()
        for place, record in enumerate(self._records):
            self._take(place, record, state)
            state.apply(record)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of the model on the context, in order."""
        return tuple(self._calls)

    def history(self, item_id: str | None = None) -> tuple[ItemChange, ...]:
        """Everything that happened to the item, in order; None: to all items. Empty if the item is not known."""
        return tuple(change for _, change in self._changes if item_id in (None, change.item_id))

    def state_at(self, call: int | None = None, *, walk: Walk | None = None) -> SessionState:
        """The state of the session when the request of ``call`` was sent; None: at the end of the journal.

        Raises ``UnknownCall``.
        """
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
        number = len(self._calls) + 1 if call is None else call
        items = tuple(state.items.values())
        if number > len(self._calls):
            is_elsewhere = not items and bool(self._calls) and self._calls[-1].reply_id is None
            return PastRequest(call=number, items=items, not_recorded=(MESSAGES_ELSEWHERE,) if is_elsewhere else ())
        made = self._calls[number - 1]
        missing = _NOT_SENT if made.sent is None else () if made.sent.tools in state.tools else _NOT_SENT[:1]
        return PastRequest(
            call=number,
            items=items,
            tools=None if made.sent is None else state.tools.get(made.sent.tools),
            breakpoints=None if made.sent is None else made.sent.breakpoints,
            status="" if made.sent is None else made.sent.status,
            sent_at=made.sent_at,
            replied_at=made.replied_at,
            model=made.model,
            usage=made.usage,
            reply_id=made.reply_id,
            not_recorded=missing if made.reply_id is not None else (MESSAGES_ELSEWHERE, *missing),
        )

    def changes(self, first: int, last: int | None = None, *, walk: Walk | None = None) -> Changes:
        """What changed from the request of call ``first`` to that of ``last``; None: of the call after ``first``.

        The number after the last call means the next request, as the context stands. Raises ``UnknownCall``.
        """
        last = first + 1 if last is None else last
        start, end = sorted((self._end(first), self._end(last)))
        walk = walk or self.walk()
        before = tuple(walk.to(start).items.values())
        after = tuple(walk.to(end).items.values())
        kept = sum(1 for _ in takewhile(lambda pair: _same(*pair), zip(before, after, strict=False)))
        known = {item.id for item in before}
        call = next((call for call in self._calls if call.number == max(first, last)), None)
        return Changes(
            first=min(first, last),
            last=max(first, last),
            items=tuple(change for place, change in self._changes if start <= place < end),
            tokens_before=_tokens(before),
            tokens_after=_tokens(after),
            first_changed=before[kept].id if kept < len(before) else None,
            kept_tokens=_tokens(after[:kept]),
            rewritten_tokens=rewritten_tokens(after, kept, known),
            new_tokens=_tokens([item for item in after if item.id not in known]),
            usage=None if call is None else call.usage,
        )

    def _take(self, place: int, record: Record, state: SessionState) -> None:
        number, calls = state.change_of(record), self._counter.calls
        counted = self._counter.take(record)
        self._changes += [(place, one) for one in changes_by(record, state, number=number, after_call=calls)]
        match record:
            case RequestSent():
                self._sent = (place, record)
            case ItemAdded() if counted:
                end, sent = self._sent or (place, None)
                self._sent = None
                self._calls.append(Call(number=calls + 1, end=end, reply_id=record.item.id, sent=sent))
            case CallMade() if counted:
                self._calls.append(Call(number=calls + 1, end=place, bill=record))
            case CallMade(summary=False) if self._calls and self._calls[-1].bill is None:
                self._calls[-1] = replace(self._calls[-1], bill=record)

    def _end(self, call: int | None) -> int:
        """How many records are before the request of ``call``."""
        if call is None:
            return len(self._records)
        require_kind("call", call, int, "a number from 1")
        if not 1 <= call <= len(self._calls) + 1:
            raise UnknownCall(call, len(self._calls))
        return self._calls[call - 1].end if call <= len(self._calls) else len(self._records)


def _same(before: ContextItem, after: ContextItem) -> bool:
    """Whether the model sees the same text; a content that was never replaced does not change, wherever it is."""
    if before.id != after.id:
        return False
    whole = not (before.destroyed or before.trimmed or after.destroyed or after.trimmed)
    return whole or before.message == after.message


def _tokens(items: Sequence[ContextItem]) -> int:
    return sum(item.token_count for item in items)
