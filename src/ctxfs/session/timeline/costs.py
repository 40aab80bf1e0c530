"""What a session's journal says about its evictions: why, when, what they saved, and what they cost. Pure.

Figures are estimated from token counts, as in the planner: a call reads the prefix that the last one left in the
cache, and writes the rest; changing an item writes everything after it again. Where a bill says that a call had no
prompt cache, what it did not have to read would have cost the full price. Sizes are in tokens as ctxfs counts them;
costs are in tokens as the provider bills them, where the bills show how many these are. What the provider billed is in
``calls``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ctxfs.messages.items import ContentRange
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from ctxfs.session.records import CallMade, Record
from ctxfs.session.timeline.cached import Billed, Cached, cached, is_whole, units_by_model
from ctxfs.session.timeline.changes import Call, ItemChange
from ctxfs.session.timeline.lives import Lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Contents that left the context together and are not back: items, or arguments of a reply's calls. In tokens.

    ``after_call``: the model's replies before it. ``sent``: a request had carried them. ``archive``: the item that
    holds their content, when they left as a whole. ``tokens_after``: what the context has in their place now. A
    placeholder that was shortened later is no departure of its own; ``shortened_because``: why it was; "": it was not.
    """

    item_ids: tuple[str, ...]
    reason: str
    after_call: int
    tokens_before: int
    tokens_after: int
    sent: bool
    archive: str | None = None
    shortened_because: str = ""

    @property
    def tokens_freed(self) -> int:
        """How much smaller the context got."""
        return self.tokens_before - self.tokens_after


class ReadBack(NamedTuple):
    """Lines of a content that the model read again, with their tokens, after so many replies."""

    source: ContentRange
    tokens: int
    after_call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A session's evictions and what became of them.

    ``departures``: what is out of the context. ``requests``: the requests that the model replied to. ``read_backs`` are
    the lines that the model came back for, with their tokens. ``calls`` are the billed ones. ``is_elsewhere``: somebody
    else owns the messages, so read-backs are not recorded. Costs are in units of one uncached input token as it is
    billed: see ``units_by_model``.
    """

    departures: tuple[Departure, ...] = ()
    requests: tuple[Call, ...] = ()
    read_backs: tuple[ReadBack, ...] = ()
    calls: tuple[CallMade, ...] = ()
    is_elsewhere: bool = False
    _units: Sequence[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of_model = units_by_model(self.turns)
        last = self.model
        units = [of_model.get(call.model or last, 1.0) for call in self.requests]
        object.__setattr__(self, "_units", units)

    @property
    def replies(self) -> int:
        """How often the model replied."""
        return len(self.requests)

    @property
    def turns(self) -> tuple[CallMade, ...]:
        """The calls on the context itself: all but those for summaries."""
        return tuple(call for call in self.calls if not call.summary)

    @property
    def model(self) -> str:
        """The model of the last call on the context; empty: no call was billed."""
        return self.turns[-1].model if self.turns else ""

    def request_tokens(self, context_tokens: int) -> int:
        """What a request would take now, by our own count, with ``context_tokens`` of messages.

        It has what the last request had beside its messages, such as the definitions of tools. Where a framework owns
        the messages (0 tokens of them), it is the last request.
        """
        last = next((call for call in reversed(self.requests) if call.bill and call.bill.counted_tokens), None)
        if last is None or last.bill is None:
            return context_tokens
        return (context_tokens or last.tokens) + max(0, last.bill.counted_tokens - last.tokens)

    def calls_since(self, departure: Departure) -> int:
        """The replies since then: so many calls did without its tokens."""
        return self.replies - departure.after_call

    def too_long_from(self, window_tokens: int) -> int | None:
        """The first call whose request would not have fitted the window without eviction; None: all would have."""
        for call, unit in zip(self.requests, self.units, strict=True):
            billed = 0 if call.usage is None else call.usage.total_input_tokens
            # A bill has what is not counted, too.
            prompt = billed if is_whole(call.tokens, billed) else round(unit * call.tokens)
            if prompt + round(unit * call.evicted) > window_tokens:
                return call.number
        return None

    @property
    def units(self) -> Sequence[float]:
        """Of each request, how many tokens its model bills for a counted one: see ``billed_per_counted``."""
        return self._units

    def saved(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> float:
        """What the calls did not have to read from the cache, or to write when it was never sent or had expired.

        A call without a cache did not have to read it at the full price: see ``cached``.

        ``window_tokens``: the largest prompt; None means no limit. From the first call that would not have fitted it
        without eviction, there is no session to compare with: nothing is counted from there on, here and below.
        """
        return sum(self.saved_by_call(rates, window_tokens=window_tokens), 0.0)

    def saved_by_call(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> Sequence[float]:
        """The same for each call that is counted, in order."""
        saved: list[float] = []
        rows = zip(self.requests, self.token_prices(rates), self.written_again_prices(rates), strict=True)
        for call, price, unsent_price in rows:
            saved.append(price * call.evicted + unsent_price * call.unsent)
        return saved[: self._counted(window_tokens)]

    def rewriting(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> float:
        """What rewriting cost above reading from a warm cache."""
        return sum(self.rewriting_by_call(rates)[: self._counted(window_tokens)], 0.0)

    def rewriting_by_call(self, rates: Rates) -> Sequence[float]:
        """The same for each request, in order."""
        prices = self.written_again_prices(rates)
        return [price * call.rewritten for call, price in zip(self.requests, prices, strict=True)]

    def reading_back(self, rates: Rates = ANTHROPIC_RATES, *, window_tokens: int | None = None) -> float:
        """What writing the lines that were read back cost; the calls that asked for them are not in it."""
        counted = self._counted(window_tokens)
        units = self.units
        tokens = 0.0
        for back in self.read_backs:
            if counted is not None and back.after_call >= counted:
                continue
            unit = 1.0
            if units:
                next_call = min(back.after_call, len(units) - 1)  # the last one, where no request had the lines yet
                unit = units[next_call]
            tokens += back.tokens * unit
        return rates.write * tokens

    def has_cache(self) -> Sequence[bool]:
        """Of each request, whether a warm prompt cache may have held what was sent before."""
        return [held is Cached.READ for held in self._cached()]

    def token_prices(self, rates: Rates) -> Sequence[float]:
        """What a counted token that had been sent before would have cost in each request, by what the cache held."""
        prices = {Cached.READ: rates.read, Cached.WRITTEN: rates.write, Cached.NEVER: 1.0}
        return [unit * prices[held] for unit, held in zip(self.units, self._cached(), strict=True)]

    def written_again_prices(self, rates: Rates) -> Sequence[float]:
        """What writing a counted token cost in each request above reading it; 0.0 where it had no warm cache."""
        more = rates.write - rates.read
        return [unit * more if has_cache else 0.0 for unit, has_cache in zip(self.units, self.has_cache(), strict=True)]

    def rewritten(self) -> Sequence[int]:
        """The tokens that the cache had to take in again with each request; 0 where it had none."""
        return [call.rewritten if is_read else 0 for call, is_read in zip(self.requests, self.has_cache(), strict=True)]

    def _cached(self) -> list[Cached]:
        return cached([Billed(call.usage, call.rewritten > 0) for call in self.requests])

    def _counted(self, window_tokens: int | None) -> int | None:
        """How many calls would have fitted the window; None: all."""
        if window_tokens is None:
            return None
        too_long = self.too_long_from(window_tokens)
        return None if too_long is None else too_long - 1


def account(records: Iterable[Record]) -> Account:
    """Read a session's journal from its first record on."""
    return account_of(Lives().take_all(records))


def account_of(lives: Lives) -> Account:
    """The account of a journal that was read."""
    return Account(
        departures=departures_in(lives.changes),
        requests=tuple(lives.calls),
        read_backs=tuple(
            ReadBack(change.source, change.tokens_after, change.after_call)
            for change in lives.changes
            if change.what == "added" and change.source is not None
        ),
        calls=tuple(lives.state.calls),
        is_elsewhere=lives.is_elsewhere,
    )


def departures_in(changes: Iterable[ItemChange]) -> tuple[Departure, ...]:
    """The departures among changes, from the first on, whose contents are not back."""
    found = _Departures()
    for change in changes:
        found.take(change)
    return tuple(draft.departure() for draft in found.drafts.values())


@dataclass(slots=True)
class _Draft:
    """A departure so far. ``item_ids`` are in order; ``change`` is the one by which the first of them left."""

    change: ItemChange
    item_ids: dict[str, None]
    tokens_before: int
    tokens_after: int
    sent: bool
    shortened_because: str = ""

    @property
    def freed(self) -> int:
        return self.tokens_before - self.tokens_after

    def departure(self) -> Departure:
        return Departure(
            item_ids=tuple(self.item_ids),
            reason=self.change.reason,
            after_call=self.change.after_call,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
            sent=self.sent,
            archive=self.change.archive,
            shortened_because=self.shortened_because,
        )


class _Departures:
    """Departures by a key each, and the keys of those that each item is part of."""

    def __init__(self) -> None:
        self.drafts: dict[tuple[str, int], _Draft] = {}
        self._own: dict[str, list[tuple[str, int]]] = {}
        self._archived: dict[str, tuple[str, int]] = {}
        self._sizes: dict[str, int] = {}  # of each item, as it entered

    def take(self, change: ItemChange) -> None:
        match change.what:
            case "added":
                self._sizes[change.item_id] = change.tokens_after
            case "evicted" | "trimmed":
                self._evict(change)
            case "shortened":
                self._resize(change, because=change.reason)
            case "archived":
                self._archive(change)
            case "restored":
                self._restore(change)

    def _evict(self, change: ItemChange) -> None:
        key = (change.item_id, change.place)
        self._own.setdefault(change.item_id, []).append(key)
        contents = dict.fromkeys(change.contents)
        self.drafts[key] = _Draft(change, contents, change.tokens_before, change.tokens_after, change.sent)

    def _archive(self, change: ItemChange) -> None:
        """Items that left for one archive are one departure."""
        key = (change.archive or "", change.place)
        self._archived[change.item_id] = key
        draft = self.drafts.get(key)
        if draft is None:
            tokens_after = self._sizes.get(change.archive or "", 0)
            self.drafts[key] = _Draft(change, {change.item_id: None}, change.tokens_before, tokens_after, change.sent)
            return
        draft.item_ids[change.item_id] = None
        draft.tokens_before += change.tokens_before
        draft.sent = draft.sent or change.sent

    def _restore(self, change: ItemChange) -> None:
        key = self._archived.pop(change.item_id, None)
        if key is not None:
            self._unarchive(key, change)
        elif change.is_out:
            self._resize(change)
        else:
            for own in self._own.pop(change.item_id, []):
                del self.drafts[own]

    def _unarchive(self, key: tuple[str, int], change: ItemChange) -> None:
        draft = self.drafts[key]
        draft.item_ids.pop(change.item_id)
        draft.tokens_before -= change.tokens_after
        if not draft.item_ids:
            del self.drafts[key]

    def _resize(self, change: ItemChange, because: str = "") -> None:
        """Another placeholder is in the place of an item, or a part of what left of it is back: the last part first."""
        keys = self._own.get(change.item_id, [])
        grown = change.tokens_after - change.tokens_before
        while keys:
            last = self.drafts[keys[-1]]
            if grown < last.freed:
                last.tokens_after += grown
                last.shortened_because = because
                return
            grown -= last.freed
            del self.drafts[keys.pop()]
