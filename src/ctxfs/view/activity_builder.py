"""What happened in a session, from its journal, record by record as it grows. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, ToolCall, ToolMessage, text_of, title_of
from ctxfs.messages.models.prices import Prices
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import CallMade, EvictionSet, ItemAdded, Record, Shadowed
from ctxfs.session.redaction import Redaction
from ctxfs.session.state import SessionState
from ctxfs.session.timeline.changes import ItemChange, What
from ctxfs.session.timeline.costs import account_of
from ctxfs.session.timeline.effect import Paid
from ctxfs.session.timeline.lives import Lives, Step
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.view.activity import Activity, Call, Event, EventKind, ItemLife, Part, ShadowRun

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

_KINDS: Mapping[What, EventKind] = {
    "evicted": EventKind.EVICTED,
    "trimmed": EventKind.EVICTED,
    "shortened": EventKind.SHORTENED,
    "archived": EventKind.COMPACTED,
    "removed": EventKind.REMOVED,
    "restored": EventKind.RESTORED,
}


@dataclass(slots=True)
class _Draft:
    """An item's life as far as it is known."""

    item_type: ItemType
    tool: str
    title: str
    tokens: int | None
    call: int
    signature: str = ""
    events: list[Event] = field(default_factory=list)
    left: Event | None = None
    repeated: list[int] = field(default_factory=list)

    def life(self, item_id: str) -> ItemLife:
        return ItemLife(
            item_id=item_id,
            item_type=self.item_type,
            tool=self.tool,
            title=self.title,
            tokens=self.tokens,
            call=self.call,
            events=tuple(self.events),
            left=self.left,
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
        self._lives = Lives()
        self._calls: list[Call] = []
        self._bills: list[CallMade | None] = []  # of each call
        self._events: list[Event] = []
        self._items: dict[str, _Draft] = {}
        self._shadow_runs: list[ShadowRun] = []
        self._shown: dict[str, ItemLife] = {}  # what ``activity`` returned last of each
        self._touched: set[str] = set()  # the items to which something happened since
        self._parts = Counter[Part]()
        self._sizes: dict[str, tuple[Part, int]] = {}  # of each item of the context
        self._inputs: dict[str, list[str]] = {}  # by reply, the contents of its arguments that are out
        self._asked: dict[str, ToolCall] = {}
        self._by_signature: dict[str, list[str]] = {}

    @property
    def state(self) -> SessionState:
        """The state that the records add up to."""
        return self._lives.state

    @property
    def activity(self) -> Activity:
        """The session so far."""
        for item_id in self._touched:
            self._shown[item_id] = self._items[item_id].life(item_id)
        self._touched.clear()
        account = account_of(self._lives)
        return Activity(
            calls=tuple(self._calls),
            events=tuple(sorted([*self._events, *_misses(self._calls)], key=lambda event: event.call)),
            items=dict(self._shown),
            account=account,
            shadow_runs=tuple(self._shadow_runs),
            usd=self._prices.usd(account.calls) if account.calls else None,
            paid=self._prices,
        )

    def feed(self, records: Iterable[Record]) -> None:
        """Take in the next records of the journal."""
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        call = len(self._calls) + 1
        step = self._lives.take(record)
        match record:
            case ItemAdded(returned=False):
                self._added(record, call)
            case Stored():
                self._stored(record, call)
            case Shadowed():
                self._shadow_runs.append(ShadowRun(after_call=len(self._calls), found=record))
            case EvictionSet():
                self._prices = Paid(self._given, ttl_s=record.ttl_s)
        self._called(step)
        for _, changes in groupby(step.changes, key=lambda change: change.what):
            self._changed(list(changes))
        if isinstance(record, CallMade):
            self._billed()

    def _called(self, step: Step) -> None:
        """Note the call that the step marks, with the sizes before it, and then follow the sizes."""
        call = step.call
        if call is not None:
            parts = {part: self._parts[part] for part in Part if self._parts[part]}
            # Where a framework owns the history, nothing is known of the parts.
            shown = parts if call.reply_id is not None and parts else {Part.OTHER: call.tokens}
            self._bills.append(None)
            self._calls.append(
                Call(number=call.number, tokens=call.tokens, parts=shown, rewritten=call.rewritten, kept=call.kept)
            )
        for change in step.changes:
            part, tokens = self._sizes.pop(change.item_id, (Part.OTHER, 0))
            self._parts[part] -= tokens
            item = self.state.items.get(change.item_id)
            if item is not None:
                is_placeholder = item.destroyed and item.item_type is ItemType.TOOL_RESULT
                part = Part.PLACEHOLDERS if is_placeholder else _PARTS[item.item_type]
                self._sizes[item.id] = (part, item.token_count)
                self._parts[part] += item.token_count

    def _billed(self) -> None:
        """Take over the bills of the last calls."""
        for place in range(len(self._calls) - 1, -1, -1):
            bill = self._lives.calls[place].bill
            if bill is None or bill is self._bills[place]:
                return
            self._bills[place] = bill
            self._calls[place] = replace(
                self._calls[place],
                usage=bill.usage,
                model=bill.model,
                made_at=bill.made_at,
                usd=self._prices.usd([bill]),
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
        )
        self._shown.pop(item.id, None)  # so that its place is where it was added
        self._drafted(item.id, draft)
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
            if self._items[earlier].left is not None:
                self._items[earlier].repeated.append(draft.call)
                self._touched.add(earlier)
        same.append(item_id)

    def _title(self, item: ContextItem, asked: ToolCall | None) -> str:
        if asked is not None:
            return self._call_title(asked)
        text = title_of(self._beginning(item.label or text_of(item.message.content)))
        if not text and isinstance(item.message, AssistantMessage):
            text = title_of(f"calls {', '.join(map(self._call_title, item.message.tool_calls))}".removesuffix("calls "))
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
        return title_of(f"{tool}({self._beginning(', '.join(shown))})")

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
        draft = _Draft(item_type=stored.item_type, tool=stored.tool_name or "", title=title, tokens=None, call=call)
        self._drafted(stored.item_id, draft)

    def _drafted(self, item_id: str, draft: _Draft) -> None:
        self._items[item_id] = draft
        self._shown[item_id] = draft.life(item_id)

    def _changed(self, changes: Sequence[ItemChange]) -> None:
        """Note what happened to the items of one record: ``changes`` of one kind."""
        first = changes[0]
        if first.what == "added":
            for change in changes:
                if change.is_out:  # it entered as a placeholder
                    self._items[change.item_id].left = Event(call=change.after_call + 1, kind=EventKind.EVICTED)
                    self._touched.add(change.item_id)
            return
        tokens_after = sum(change.tokens_after for change in changes)
        if first.archive is not None:
            tokens_after = self._sizes.get(first.archive, (Part.OTHER, 0))[1]
        event = Event(
            call=first.after_call + 1,
            kind=_KINDS[first.what],
            item_ids=tuple(item_id for change in changes for item_id in change.contents),
            tokens_before=sum(change.tokens_before for change in changes),
            tokens_after=tokens_after,
            reason=first.reason,
            sent=any(change.sent for change in changes),
        )
        self._happened(event)
        for change in changes:
            self._follow(change, event)

    def _follow(self, change: ItemChange, event: Event) -> None:
        """Take over from a change whether the contents are in the context."""
        if change.what == "trimmed":
            self._inputs.setdefault(change.item_id, []).extend(change.contents)
        contents = [self._items[item_id] for item_id in change.contents if item_id in self._items]
        if not change.is_out:
            inputs = self._inputs.pop(change.item_id, [])
            for item_id in (change.item_id, *inputs):
                if item_id in self._items:
                    self._items[item_id].left = None
                    self._touched.add(item_id)
            return
        for draft in contents:
            if draft.tokens is None:
                whole = change.tokens_before
                draft.tokens = whole - change.tokens_after if change.what == "trimmed" else whole
            if change.what == "restored" and change.item_id not in change.contents:
                draft.left = None  # these arguments are back, and others of the same reply are not
            elif draft.left is None:
                draft.left = event
            else:
                draft.left = replace(draft.left, kind=_now(draft.left, event), tokens_after=change.tokens_after)

    def _happened(self, event: Event) -> None:
        self._events.append(event)
        for item_id in event.item_ids:
            if (draft := self._items.get(item_id)) is not None:
                draft.events.append(event)
                self._touched.add(item_id)


def _now(left: Event, event: Event) -> EventKind:
    """How an item that had left is out now: an archive holds it, once it left as a whole."""
    return event.kind if event.kind in (EventKind.COMPACTED, EventKind.REMOVED) else left.kind


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
