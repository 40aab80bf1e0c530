"""What happened in a session, from its journal, record by record as it grows. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ctxfs.content.stored import Stored
from ctxfs.economics.paid import Paid
from ctxfs.items import ContextItem, ItemType
from ctxfs.jsontext import codec as json_codec
from ctxfs.llm.messages import AssistantMessage, ToolCall, ToolMessage, text_of
from ctxfs.models.prices import Prices
from ctxfs.redaction import Redaction
from ctxfs.replay.journal_costs import Departure, JournalAccount, items_in
from ctxfs.session.records import CallMade, EvictionSet, ItemAdded, Record, Restored
from ctxfs.session.state import SessionState
from ctxfs.view.activity import Activity, Call, Event, EventKind, ItemLife, Part

__all__ = ["ActivityBuilder"]

TITLE_CHARS = 120
"""The most characters of a title."""
TITLE_FROM_CHARS = 20_000
"""How many characters of a text are read to make a title, if nothing in it must be found first."""
LEAST_CACHED_TOKENS = 1_024
"""No provider caches a shorter prefix, so a shorter one that was not read is not a cache miss."""
MISSED_SHARE = 0.5
"""A call missed the cache if it read less than this share of what the cache held."""


_PARTS = {
    ItemType.SYSTEM_PROMPT: Part.SYSTEM,
    ItemType.SKILL_PROMPT: Part.SYSTEM,
    ItemType.USER_MESSAGE: Part.USER,
    ItemType.ASSISTANT_MESSAGE: Part.REPLIES,
    ItemType.TOOL_RESULT: Part.RESULTS,
    ItemType.TOOL_INPUT: Part.REPLIES,
    ItemType.COMPACTION_SUMMARY: Part.SUMMARY,
}


@dataclass(slots=True)
class _Draft:
    """An item's life as far as it is known. ``is_out``: its content is not in the context."""

    item_type: ItemType
    tool: str
    title: str
    tokens: int | None
    call: int
    signature: str = ""
    events: list[Event] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    is_out: bool = False

    def life(self, item_id: str) -> ItemLife:
        return ItemLife(
            item_id=item_id,
            item_type=self.item_type,
            tool=self.tool,
            title=self.title,
            tokens=self.tokens,
            call=self.call,
            events=tuple(self.events),
            repeated=tuple(self.repeated),
        )


class ActivityBuilder:
    """Takes a journal's records, from the first one on, as the session grows.

    Args:
        prices: the prices of every model; None: list prices, where they are known.
        redaction: applied to the whole of a text before it is cut to a title; None: nothing is left out.
    """

    def __init__(self, prices: Prices | None = None, *, redaction: Redaction | None = None) -> None:
        self._redaction = redaction
        self._given = prices
        self._prices = Paid(prices, ttl_s=0.0)
        self._account = JournalAccount()
        self._calls: list[Call] = []
        self._events: list[Event] = []
        self._items: dict[str, _Draft] = {}
        self._parts = Counter[Part]()
        self._asked: dict[str, ToolCall] = {}
        self._by_signature: dict[str, list[str]] = {}
        self._unbilled: list[int] = []  # the calls since the last bill
        self._bills: list[CallMade] = []  # consecutive bills, so far

    @property
    def state(self) -> SessionState:
        """The state that the records add up to."""
        return self._account.state

    @property
    def activity(self) -> Activity:
        """The session so far."""
        account = self._account.account
        again = {rewrite.after_call: rewrite for rewrite in account.rewrites}
        calls = [
            call if (own := again.get(n)) is None else replace(call, rewritten=own.tokens, kept=own.kept)
            for n, call in enumerate(self._calls)
        ]
        return Activity(
            calls=tuple(calls),
            events=tuple(sorted([*self._events, *_misses(calls)], key=lambda event: event.call)),
            items={item_id: draft.life(item_id) for item_id, draft in self._items.items()},
            account=account,
            usd=self._prices.usd(account.calls) if account.calls else None,
            paid=self._prices,
        )

    def feed(self, records: Iterable[Record]) -> None:
        """Take in the next records of the journal."""
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        call = self._account.replies + 1
        if self._bills and not isinstance(record, CallMade):
            self._bills, self._unbilled = [], []
        match record:
            case ItemAdded():
                self._added(record, call)
            case Stored():
                self._stored(record, call)
            case Restored() if record.item_id in self.state.items:
                self._items[record.item_id].is_out = False
                self._happened(
                    Event(call=call, kind=EventKind.RESTORED, item_ids=(record.item_id,), reason=record.reason)
                )
            case EvictionSet():
                self._prices = Paid(self._given, ttl_s=record.ttl_s)
        if (departure := self._counted(record, call)) is not None:
            self._left(departure)
        if isinstance(record, CallMade) and not record.summary:
            self._billed(record)

    def _counted(self, record: Record, call: int) -> Departure | None:
        """Take the record into the account, and follow the sizes of the parts."""
        touched = items_in(record)
        is_reply = isinstance(record, ItemAdded) and record.item.item_type is ItemType.ASSISTANT_MESSAGE
        request = {part: self._parts[part] for part in Part if self._parts[part]} if is_reply else {}
        self._parts.subtract(self._parts_of(touched))
        departure = self._account.take(record)
        self._parts.update(self._parts_of(touched))
        if self._account.replies >= call:
            tokens = self._account.contexts[-1]
            self._unbilled.append(len(self._calls))
            self._calls.append(Call(number=call, tokens=tokens, parts=request or {Part.OTHER: tokens}))
        return departure

    def _parts_of(self, item_ids: Sequence[str]) -> Counter[Part]:
        sizes = Counter[Part]()
        for item_id in item_ids:
            if (item := self.state.items.get(item_id)) is not None:
                is_placeholder = item.destroyed and item.item_type is ItemType.TOOL_RESULT
                sizes[Part.PLACEHOLDERS if is_placeholder else _PARTS[item.item_type]] += item.token_count
        return sizes

    def _billed(self, bill: CallMade) -> None:
        """Bills that are recorded together follow all of their replies, in the same order."""
        self._bills.append(bill)
        for place, own in zip(self._unbilled[-len(self._bills) :], self._bills, strict=False):
            self._calls[place] = replace(
                self._calls[place], usage=own.usage, model=own.model, made_at=own.made_at, usd=self._prices.usd([own])
            )

    # Items -----------------------------------------------------------------------------------------------------------

    def _added(self, record: ItemAdded, call: int) -> None:
        item, message = record.item, record.item.message
        if isinstance(message, AssistantMessage):
            self._asked |= {asked.id: asked for asked in message.tool_calls}
        asked = self._asked.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        draft = _Draft(
            item_type=item.item_type,
            tool=item.tool_name or "",
            title=self._title(item, asked),
            tokens=item.content_tokens,
            call=call,
            is_out=item.destroyed,
        )
        self._items[item.id] = draft
        if item.source is not None:
            source = item.source
            lines = (source.first_line, source.last_line)
            back = Event(
                call=call,
                kind=EventKind.READ_BACK,
                item_ids=(source.item_id,),
                tokens_before=item.content_tokens,
                lines=lines,
            )
            self._happened(back)
        elif asked is not None:
            self._ran(item.id, draft, asked)

    def _ran(self, item_id: str, draft: _Draft, asked: ToolCall) -> None:
        """Note a tool's result; its call may repeat one whose result is no longer in the context."""
        draft.signature = f"{asked.name} {json_codec.dumps_text(dict(asked.arguments))}"
        same = self._by_signature.setdefault(draft.signature, [])
        for earlier in same:
            if self._items[earlier].is_out:
                self._items[earlier].repeated.append(draft.call)
        same.append(item_id)

    def _title(self, item: ContextItem, asked: ToolCall | None) -> str:
        if asked is not None:
            return self._call_title(asked)
        text = _one_line(self._beginning(item.label or text_of(item.message.content)))
        if not text and isinstance(item.message, AssistantMessage):
            text = _one_line(
                f"calls {', '.join(map(self._call_title, item.message.tool_calls))}".removesuffix("calls ")
            )
        return text or item.tool_name or item.item_type.replace("_", " ")  # a large content is not in the journal

    def _call_title(self, asked: ToolCall) -> str:
        """A tool call in one line, such as ``grep(pattern=def main, path=src)``; a long one is cut."""
        tool, arguments = asked.name, asked.arguments
        if self._redaction is not None:  # a match may be written otherwise in JSON
            tool = self._redaction.shown(tool)
            arguments = self._redaction.value(arguments)
        given = arguments.items()
        values = [(name, v if isinstance(v, str) else json_codec.dumps_text(v)) for name, v in given]
        shown = [value if len(values) == 1 else f"{name}={value}" for name, value in values]
        return _one_line(f"{tool}({self._beginning(', '.join(shown))})")

    def _beginning(self, text: str) -> str:
        """Enough of a text to make a title from it."""
        if self._redaction is not None:
            text = self._redaction.content(text)
        return text[:TITLE_FROM_CHARS]

    def _stored(self, stored: Stored, call: int) -> None:
        """Note a content stored by itself: arguments of a call, a part of a framework's history, an archive."""
        if stored.item_id in self._items:
            return
        asked = self._asked.get(stored.item_id.removesuffix(".input"))
        title = self._call_title(asked) if asked is not None else f"{stored.tool_name or ''} {stored.item_id}".strip()
        self._items[stored.item_id] = _Draft(
            item_type=stored.item_type, tool=stored.tool_name or "", title=title, tokens=None, call=call
        )

    def _left(self, departure: Departure) -> None:
        kind = EventKind.EVICTED if departure.archive is None else EventKind.COMPACTED
        self._happened(
            Event(
                call=departure.after_call + 1,
                kind=kind,
                item_ids=departure.item_ids,
                tokens_before=departure.tokens_before,
                tokens_after=departure.tokens_after,
                reason=departure.reason,
                sent=departure.sent,
            )
        )
        for item_id in departure.item_ids:
            if (draft := self._items.get(item_id)) is not None:
                draft.is_out = True
                draft.tokens = departure.tokens_before if draft.tokens is None else draft.tokens

    def _happened(self, event: Event) -> None:
        self._events.append(event)
        for item_id in event.item_ids:
            if (draft := self._items.get(item_id)) is not None:
                draft.events.append(event)


def _misses(calls: Sequence[Call]) -> Iterator[Event]:
    """The calls that read much less from the prompt cache than the call before left there, without a change in between.

    After a change, the cache is read up to some breakpoint before it: it counts as lost only if nothing is read.
    """
    for before, call in pairwise(calls):
        if before.usage is None or call.usage is None:
            continue
        cached = before.usage.cache_read_input_tokens + before.usage.cache_creation_input_tokens
        read = call.usage.cache_read_input_tokens
        if call.kept is not None:
            cached = cached * call.kept // max(1, before.tokens)
            if read or cached < 2 * LEAST_CACHED_TOKENS:
                continue
        if cached >= LEAST_CACHED_TOKENS and read < MISSED_SHARE * cached:
            yield Event(call=call.number, kind=EventKind.CACHE_MISSED, tokens_before=cached, tokens_after=read)


def _one_line(text: str) -> str:
    line = " ".join(text[: 4 * TITLE_CHARS].split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"
