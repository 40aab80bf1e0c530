"""What a session's journal says about its evictions: why, when, what they saved, and what they cost. Pure.

Figures are estimated from token counts, as in the planner: a call reads the prefix that the last one left in the
cache, and writes the rest; changing an item writes everything after it again. What the provider billed is in ``calls``.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ctxfs.economics.planner import needs_no_rewrite
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.items import ContentRange, ContextItem, ItemType
from ctxfs.llm.messages import AssistantMessage
from ctxfs.session.names import safe_name
from ctxfs.session.records import CallMade, Decided, ItemAdded, Record, Removed, Replaced, Restored
from ctxfs.session.state import SessionState
from ctxfs.timeline.changes import rewritten_tokens

__all__ = ["Account", "Departure", "JournalAccount", "Rewrite", "account", "items_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Items that left the context together, or the arguments of a reply's calls. Sizes in tokens.

    ``after_call``: the model's replies before it. ``sent``: a request had carried them. ``archive``: the item that
    holds their content, when they left as a whole.
    """

    item_ids: tuple[str, ...]
    reason: str
    after_call: int
    tokens_before: int
    tokens_after: int
    sent: bool
    archive: str | None = None

    @property
    def tokens_freed(self) -> int:
        """How much smaller the context got."""
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What the call after ``after_call`` had to write again because something before it had changed; in tokens.

    ``kept``: what stands before the first change, which the cache may still hold.
    """

    after_call: int
    tokens: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A session's evictions and what became of them.

    ``read_backs`` are the lines that the model came back for, with their tokens. ``contexts``: what the request before
    each of its replies carried, in tokens. ``calls`` are the billed ones. Costs are in units of one uncached input
    token.
    """

    departures: tuple[Departure, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    read_backs: tuple[tuple[ContentRange, int], ...] = ()
    contexts: tuple[int, ...] = ()
    calls: tuple[CallMade, ...] = ()

    @property
    def replies(self) -> int:
        """How often the model replied."""
        return len(self.contexts)

    @property
    def turns(self) -> tuple[CallMade, ...]:
        """The calls on the context itself: all but those for summaries."""
        return tuple(call for call in self.calls if not call.summary)

    @property
    def model(self) -> str:
        """The model of the last call on the context; empty: no call was billed."""
        return self.turns[-1].model if self.turns else ""

    def calls_since(self, departure: Departure) -> int:
        """The replies since then: so many calls did without its tokens."""
        return self.replies - departure.after_call

    def saved(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> float:
        """What the calls did not have to read from the cache, or to write when it was never sent.

        ``window_tokens``: the largest prompt. Without eviction a context could not have grown beyond it, so a call
        saves at most the difference; None means no limit.
        """
        return sum(self.saved_by_call(rates, window_tokens=window_tokens), 0.0)

    def saved_by_call(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> Sequence[float]:
        """The same for each call, in order."""
        saved = []
        for context, (evicted, unwritten) in zip(self.contexts, self._evicted(), strict=True):
            room = evicted if window_tokens is None else max(0, window_tokens - context)
            saved.append(rates.read * min(evicted, room) + (rates.write - rates.read) * min(unwritten, room))
        return saved

    def unevicted_contexts(self) -> Sequence[int]:
        """What the request before each reply would have carried had nothing been evicted, in tokens."""
        return [context + evicted for context, (evicted, _) in zip(self.contexts, self._evicted(), strict=True)]

    def _evicted(self) -> Iterator[tuple[int, int]]:
        """For each call, the tokens that evictions had freed, and how many of them it would have been first to send."""
        evicted = 0
        departures = deque(sorted(self.departures, key=lambda d: d.after_call))
        for call in range(len(self.contexts)):
            unwritten = 0
            while departures and departures[0].after_call <= call:
                departure = departures.popleft()
                evicted += departure.tokens_freed
                unwritten += 0 if departure.sent else departure.tokens_freed
            yield evicted, unwritten

    def rewriting(self, rates: Rates = ANTHROPIC_RATES) -> float:
        """What rewriting cost above reading from a warm cache."""
        return (rates.write - rates.read) * sum(r.tokens for r in self.rewrites)

    def reading_back(self, rates: Rates = ANTHROPIC_RATES) -> float:
        """What writing the lines that were read back cost; the calls that asked for them are not in it."""
        return rates.write * sum(tokens for _, tokens in self.read_backs)


def account(records: Iterable[Record]) -> Account:
    """Read a session's journal from its first record on."""
    so_far = JournalAccount()
    for record in records:
        so_far.take(record)
    return so_far.account


class JournalAccount:
    """The account of a journal so far, record by record, as its session grows; ``state`` is what it adds up to.

    ``known`` are the items that the last request or its reply carried, ``changed`` those at which the next one differs.
    """

    def __init__(self) -> None:
        self.state = SessionState()
        self._departures: list[Departure] = []
        self._rewrites: list[Rewrite] = []
        self._read_backs: list[tuple[ContentRange, int]] = []
        self._contexts: list[int] = []
        self._tokens = 0
        self._known: set[str] = set()
        self._changed: set[str] = set()
        self._rewritten = 0
        self._freed = 0
        self._archives: set[str] = set()

    @property
    def replies(self) -> int:
        """The model's replies so far."""
        return len(self._contexts)

    @property
    def account(self) -> Account:
        """All so far."""
        return Account(
            departures=tuple(self._departures),
            rewrites=tuple(self._rewrites),
            read_backs=tuple(self._read_backs),
            contexts=tuple(self._contexts),
            calls=tuple(self.state.calls),
        )

    @property
    def contexts(self) -> Sequence[int]:
        """See ``Account.contexts``; a view that grows."""
        return self._contexts

    def take(self, record: Record) -> Departure | None:
        """Take in the next record; returns what leaves by it."""
        known = len(self._departures)
        match record:
            case Replaced(change=change) if change < 0:
                self._returned(record.item_id, record.token_count)
            case Replaced():
                self._replaced(record)
            case ItemAdded(returned=True):
                self._returned(record.item.id, record.item.token_count)
            case Removed():
                self._removed(record)
            case Decided():
                self._decided(record)
            case CallMade() if not self.state.items and not record.summary:
                self._called(record)
            case Restored():
                self._returned(record.item_id, 0)
        changed = items_in(record)
        before = self._tokens - self._tokens_of(changed)
        self.state.apply(record)
        if isinstance(record, ItemAdded) and not record.returned:
            self._added(record.item)
        self._tokens = before + self._tokens_of(changed)
        return self._departures[-1] if len(self._departures) > known else None

    def _tokens_of(self, item_ids: Iterable[str]) -> int:
        items = self.state.items
        return sum(items[i].token_count for i in item_ids if i in items)

    def _added(self, item: ContextItem) -> None:
        if item.source is not None:
            self._read_backs.append((item.source, item.content_tokens))
        if item.item_type is not ItemType.ASSISTANT_MESSAGE:
            return
        if self._changed and (rewrite := self._written_anew(item)).tokens:
            self._rewrites.append(rewrite)
        self._changed.clear()
        self._contexts.append(self._tokens)
        self._known = set(self.state.items)

    def _written_anew(self, reply: ContextItem) -> Rewrite:
        """What was known, from the first change on; found from the end, where most changes are."""
        sought = self._changed & self.state.items.keys()
        behind: list[ContextItem] = []
        items = reversed(self.state.items.values())
        while sought:
            behind.append(next(items))
            sought.discard(behind[-1].id)
        kept = self._tokens - sum(item.token_count for item in behind if item.id != reply.id)
        return Rewrite(after_call=self.replies, tokens=rewritten_tokens(behind, 0, self._known), kept=kept)

    def _replaced(self, record: Replaced) -> None:
        item = self.state.items.get(record.item_id)
        if item is None:
            return
        sent = item.id in self._known
        self._departures.append(
            Departure(
                item_ids=(self._what_left(item, record),),
                reason=record.reason,
                after_call=self.replies,
                tokens_before=item.token_count,
                tokens_after=record.token_count,
                sent=sent,
            )
        )
        if sent and not needs_no_rewrite(record.reason):
            self._changed.add(item.id)

    def _returned(self, item_id: str, tokens: int) -> None:
        """What had left is back, with so many ``tokens``: nothing is saved by it, and what follows is written again."""
        kept: list[Departure] = []
        for departure in self._departures:
            others = tuple(other for other in departure.item_ids if other != item_id)
            if others == departure.item_ids:
                kept.append(departure)
            elif others:
                kept.append(replace(departure, item_ids=others, tokens_before=departure.tokens_before - tokens))
        self._departures = kept
        self._changed.add(item_id)

    def _called(self, record: CallMade) -> None:
        """A call on a history that a framework owns: its replies are not here."""
        if self._rewritten:
            kept = max(0, (self._contexts[-1] if self._contexts else 0) - self._freed - self._rewritten)
            self._rewrites.append(Rewrite(after_call=self.replies, tokens=self._rewritten, kept=kept))
        self._rewritten = self._freed = 0
        self._contexts.append(record.counted_tokens)

    def _decided(self, record: Decided) -> None:
        """A part of such a history; several before one call are one change, at the first of them."""
        if not needs_no_rewrite(record.reason):
            self._rewritten = max(self._rewritten, record.tokens_rewritten)
        if record.sent:
            self._freed += record.tokens_before - record.tokens
        self._departures.append(
            Departure(
                item_ids=(record.item_id,),
                reason=record.reason,
                after_call=self.replies,
                tokens_before=record.tokens_before,
                tokens_after=record.tokens,
                sent=record.sent,
            )
        )

    def _what_left(self, item: ContextItem, record: Replaced) -> str:
        """The item, or the arguments of one of its calls."""
        blocks = [n for n in record.trimmed if n not in item.trimmed]
        if not blocks or not isinstance(item.message, AssistantMessage):
            return item.id
        call = item.message.content[blocks[0]]
        stored = safe_name(f"{call['id']}.input") if isinstance(call, dict) else ""
        return stored if stored in self.state.stored else item.id

    def _removed(self, record: Removed) -> None:
        going = [self.state.items[i] for i in record.item_ids if i in self.state.items]
        if not going or {item.id for item in going} <= self._archives:  # all that an archive stood for is back
            return
        if record.archive is not None:
            self._archives.add(record.archive)
        archive = self.state.items.get(record.archive or "")
        self._departures.append(
            Departure(
                item_ids=tuple(item.id for item in going),
                reason=record.reason,
                after_call=self.replies,
                tokens_before=sum(item.token_count for item in going),
                tokens_after=archive.token_count if archive is not None else 0,
                sent=any(item.id in self._known for item in going),
                archive=record.archive,
            )
        )
        self._changed |= self._behind(record.item_ids)

    def _behind(self, going: Collection[str]) -> set[str]:
        """The item that follows the first of ``going`` and stays, if there is one."""
        ids = list(self.state.items)
        first = next(n for n, item_id in enumerate(ids) if item_id in going)
        return {next((i for i in ids[first:] if i not in going), "")}


def items_in(record: Record) -> tuple[str, ...]:
    """The ids of the items of the context that a record adds, changes or removes."""
    match record:
        case ItemAdded():
            return (record.item.id,)
        case Replaced() | Restored():
            return (record.item_id,)
        case Removed():
            return record.item_ids
        case _:
            return ()
