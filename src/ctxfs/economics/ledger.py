"""What economic planning needs to know of a session, kept up as items come and go.

A ledger is an immutable value. It holds every item that could leave, in the order of the context, and between them only
the number of tokens that stay. A transition copies shallow tables once, however many steps it takes in; nothing is ever
recounted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from ctxfs.economics.belief import NO_BILL, Checked
from ctxfs.economics.held import NO_OUTCOME, Held, Outcome
from ctxfs.economics.leaving import walked, without
from ctxfs.economics.ledger_steps import Added, Billed, Candidate, Left, ReadBack, Replied, Step
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates

__all__ = [
    "ITEMS_PER_FILE",
    "Ledger",
]

ITEMS_PER_FILE: Final = 32
"""So many of a file's newest items count as worked on with it: what a call costs must not grow with the session."""


def _empty() -> MappingProxyType[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The state of one session, as the planner sees it.

    ``calls``: model calls made. ``total_tokens``: the context now. ``new_tokens``: its end that the provider does not
    hold: what no request has carried yet, from the last reply on, and what its cache lost. ``gone_tokens``: how much
    longer the rest would be without eviction, and ``gone_new_tokens``: how much longer the new end would be; what was
    read back is taken off, and what leaves by another rule is not counted. ``reply_tokens``: the last reply's, with
    which the context ends if ``reply_is_last``. ``is_detour``: the next request is there only for what is read back.
    ``spent``: what the calls would have cost without eviction; ``saved``: how much less they did cost, rewrites and
    read-backs counted in; ``read_back_cost``: what read-backs cost. ``cache_expires_at``: when the provider forgets
    the prefix, on the caller's clock; None means not before the next call. ``held``: by id, in the order of the
    context. ``memory``: what happened to the evicted items of each tool, by lesson. ``left``: by id, the lesson of each
    item that was evicted. ``by_path``: the newest held items of a file, oldest first. ``rewritten_tokens``: how much of
    what was sent the next request writes again, for what was evicted. ``misses``: how many of the last calls found less
    than half of what the cache was believed to hold.
    """

    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    rates: Rates = ANTHROPIC_RATES
    calls: int = 0
    total_tokens: int = 0
    new_tokens: int = 0
    gone_tokens: int = 0
    gone_new_tokens: int = 0
    reply_tokens: int = 0
    is_detour: bool = False
    spent: float = 0.0
    saved: float = 0.0
    read_back_cost: float = 0.0
    cache_expires_at: float | None = None
    held: MappingProxyType[str, Held] = field(default_factory=_empty)
    memory: MappingProxyType[str, Outcome] = field(default_factory=_empty)
    left: MappingProxyType[str, str] = field(default_factory=_empty)
    by_path: MappingProxyType[str, tuple[str, ...]] = field(default_factory=_empty)
    reply_is_last: bool = False
    rewritten_tokens: int = 0
    misses: int = 0

    def after(self, steps: Iterable[Step]) -> "Ledger":
        """Take ``steps`` in: the same as one by one, with one copy of the tables for all of them."""
        draft = _Draft.of(self)
        for step in steps:
            match step:
                case Added(parts):
                    draft.add(parts)
                case Replied():
                    draft.reply(step)
                case Left():
                    draft.evict(step)
                case _:
                    draft.read_back(step)
        return draft.ledger()

    def added(self, parts: Iterable[Candidate | int]) -> "Ledger":
        """Take in what the next request will carry, as ``Added`` does."""
        return self.after([Added(parts)])

    def replied(
        self,
        parts: Iterable[Candidate | int],
        *,
        paths: Collection[str] = (),
        changed_paths: Collection[str] = (),
        cache_expires_at: float | None = None,
        billed: Billed | None = None,
    ) -> "Ledger":
        """Take in a reply, as ``Replied`` does."""
        return self.after([Replied(parts, paths, changed_paths, cache_expires_at, billed)])

    def evicted(self, item_ids: Collection[str], *, cold: bool = False) -> "Ledger":
        """Replace these items by their placeholders, as ``Left`` does; ids that are not held change nothing."""
        return self if self.held.keys().isdisjoint(item_ids) else self.after([Left(item_ids, cold)])

    def resized(self, placeholder_tokens: Mapping[str, int]) -> "Ledger":
        """The same, with the exact sizes of these items' placeholders; ids that are not held change nothing.

        An item whose placeholder saves too little is no longer held: it stays.
        """
        sizes = {i: t for i, t in placeholder_tokens.items() if i in self.held and t != self.held[i].placeholder_tokens}
        if not sizes:
            return self
        held, stays = self.held.copy(), set[str]()
        for item_id, size in sizes.items():
            if self.parameters.could_leave(held[item_id].tokens, size):
                held[item_id] = held[item_id].resized(size, self.parameters, self.rates)
            else:
                stays.add(item_id)
        return replace(self, held=MappingProxyType(without(held, stays) if stays else held))

    def with_pinned(self, item_ids: Collection[str], pinned: bool) -> "Ledger":
        """The same, with these items pinned, or free again; ids that are not held change nothing."""
        held = self.held.copy()
        for item_id in held.keys() & frozenset(item_ids):
            held[item_id] = held[item_id].with_pinned(pinned, self.parameters, self.rates)
        return replace(self, held=MappingProxyType(held))

    def read_back(self, item_id: str, parts: Iterable[Candidate | int] = ()) -> "Ledger":
        """Take in what the model read back of an item, as ``ReadBack`` does."""
        return self.after([ReadBack(item_id, parts)])

    def rebuilt(self, parts: Iterable[Candidate | int], *, unchanged_tokens: int = 0) -> "Ledger":
        """The context was rewritten as ``parts``, behind its first ``unchanged_tokens``; all else is kept."""
        known = min(unchanged_tokens, self.total_tokens - self.new_tokens)
        empty = replace(
            self,
            total_tokens=0,
            new_tokens=0,
            gone_tokens=0,
            gone_new_tokens=0,
            reply_tokens=0,
            is_detour=False,
            reply_is_last=False,
            rewritten_tokens=0,
            held=_empty(),
            by_path=_empty(),
        )
        draft = _Draft.of(empty)
        draft.append(parts, arrived=self.calls - 1)
        draft.new_tokens -= known
        for item_id, h in draft.held.items():
            before = self.held.get(item_id)
            if before is not None and self.is_new(before):  # no request has carried it, wherever it stands now
                draft.held[item_id] = replace(h, arrived=before.arrived)
        return draft.ledger()

    def lost(self, tokens: int) -> "Ledger":
        """The same, once so many tokens at the end of what was sent are not in the provider's cache."""
        draft = _Draft.of(self)
        draft.lose(tokens)
        return draft.ledger()

    def going_on_from(self, before: "Ledger", *, unchanged_tokens: int) -> "Ledger":
        """The same context, which was that of ``before`` up to ``unchanged_tokens``: what that knew is known here."""
        known = min(unchanged_tokens, before.total_tokens - before.new_tokens)
        left = {item_id: lesson for item_id, lesson in before.left.items() if item_id not in self.held}
        return replace(
            self.lost(self.total_tokens - self.new_tokens - known),
            spent=before.spent,
            saved=before.saved,
            read_back_cost=before.read_back_cost,
            cache_expires_at=before.cache_expires_at,
            memory=before.memory,
            left=MappingProxyType(left),
            misses=before.misses,
        )

    def read_back_price(self, content_tokens: int | None = None) -> float:
        """What one read-back costs now: another call over the whole context, and a page.

        ``content_tokens``: the size of what is read back, which may be less than a page; None: a page of it.
        """
        p, rates = self.parameters, self.rates
        page = p.page_tokens if content_tokens is None else min(p.page_tokens, content_tokens)
        return rates.read * self.total_tokens + rates.output * p.read_back_output_tokens + rates.write * page

    @property
    def spent_then(self) -> float:
        """What the session will have cost without eviction once the next request is sent."""
        return self.spent + _next_request(self, self.rates)[0]

    @property
    def saved_then(self) -> float:
        """What the session will have saved once the next request is sent, if nothing more is evicted."""
        never, paid = _next_request(self, self.rates)
        return self.saved + never - paid

    def is_cold(self, now: float | None) -> bool:
        """Whether the provider holds nothing at the time ``now``, which is None where time has no say."""
        if now is not None and self.cache_expires_at is not None and now >= self.cache_expires_at:
            return True
        return self.calls > 0 and self.new_tokens >= self.total_tokens

    def is_new(self, held: Held) -> bool:
        """Whether no request has carried the item yet."""
        return held.arrived >= self.calls

    def newest_first(self) -> Iterator[Held]:
        """What is held, from the end of the context to its start."""
        return reversed(tuple(self.held.values()))


def _next_request(state: "Ledger | _Draft", rates: Rates) -> tuple[float, float]:
    """What the next request costs without eviction, and as the context is."""
    known, new = state.total_tokens - state.new_tokens, state.new_tokens
    at = rates.at(state.total_tokens)
    paid = at.read * known + at.write * new
    if state.is_detour:  # without eviction there would be neither this request nor the reply that asked for it
        return 0.0, paid + at.output * state.reply_tokens
    longer = rates.at(state.total_tokens + state.gone_tokens + state.gone_new_tokens)
    return longer.read * (known + state.gone_tokens) + longer.write * (new + state.gone_new_tokens), paid


_SAME: Final = tuple(f.name for f in fields(Ledger) if f.name not in {"parameters", "rates", "held", "by_path"})
"""The fields that a draft has as they are."""


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A ledger that nobody else has yet, so that it may be changed in place; ``base`` is the one that it came from."""

    base: Ledger
    calls: int
    total_tokens: int
    new_tokens: int
    gone_tokens: int
    gone_new_tokens: int
    reply_tokens: int
    is_detour: bool
    spent: float
    saved: float
    read_back_cost: float
    cache_expires_at: float | None
    held: dict[str, Held]
    by_path: dict[str, tuple[str, ...]]
    memory: MappingProxyType[str, Outcome]
    left: MappingProxyType[str, str]
    reply_is_last: bool
    rewritten_tokens: int
    misses: int

    @classmethod
    def of(cls, ledger: Ledger) -> "_Draft":
        """A copy of ``ledger``; the tables that few steps change are copied by these."""
        same = {name: getattr(ledger, name) for name in _SAME}
        return cls(base=ledger, held=ledger.held.copy(), by_path=ledger.by_path.copy(), **same)

    def ledger(self) -> Ledger:
        """The ledger that this has become; it must not be changed any more."""
        same: dict[str, Any] = {name: getattr(self, name) for name in _SAME}
        held, by_path, base = MappingProxyType(self.held), MappingProxyType(self.by_path), self.base
        return Ledger(parameters=base.parameters, rates=base.rates, held=held, by_path=by_path, **same)

    def add(self, parts: Iterable[Candidate | int]) -> None:
        """See ``Added``."""
        self.is_detour = self.reply_is_last = False
        self.append(parts, arrived=self.calls)

    def append(self, parts: Iterable[Candidate | int], *, arrived: int) -> None:
        """These stand at the end of the context now; they came after ``arrived`` calls."""
        held, by_path, rates = self.held, self.by_path, self.base.rates
        last, stays = next(reversed(held), ""), 0
        for part in parts:
            tokens = part if isinstance(part, int) else part.tokens
            self.total_tokens += tokens
            self.new_tokens += tokens
            if isinstance(part, int) or not self.base.parameters.could_leave(part.tokens, part.placeholder_tokens):
                stays += tokens
                continue
            if last and stays:
                held[last] = held[last].followed_by(stays)
            held[part.id] = Held.of(part, self.base.parameters, rates, arrived=arrived, born=self.calls - 1)
            for path in part.paths:
                known = (item_id for item_id in by_path.get(path, ()) if item_id in held)
                by_path[path] = (*known, part.id)[-ITEMS_PER_FILE:]
            last, stays = part.id, 0
        if last and stays:
            held[last] = held[last].followed_by(stays)

    def reply(self, reply: Replied) -> None:
        """See ``Replied``."""
        never, paid = _next_request(self, self.base.rates)
        checked = NO_BILL
        if reply.billed is not None:
            written = self.new_tokens + self.rewritten_tokens
            checked = Checked.of(reply.billed, total=self.total_tokens, written=written, misses=self.misses)
            never, paid = self._with_miss(checked.missed, never, paid)
        self.spent += never
        self.saved += never - paid
        if self.is_detour:
            self.read_back_cost += paid
            self.gone_tokens -= self.reply_tokens
        self.gone_tokens += self.gone_new_tokens
        self.new_tokens = self.gone_new_tokens = self.rewritten_tokens = 0
        self.is_detour = False
        self.lose(checked.lost)
        self.misses = checked.misses
        self.calls += 1
        self.cache_expires_at = reply.cache_expires_at
        self._work_on(reply.paths, frozenset(reply.changed_paths))
        before = self.total_tokens
        self.append(reply.parts, arrived=self.calls - 1)
        self.reply_tokens = self.total_tokens - before
        self.reply_is_last = True

    def _with_miss(self, missed: int, never: float, paid: float) -> tuple[float, float]:
        """What the last request cost without eviction, and as it was, with what the cache had lost."""
        rates, known = self.base.rates, self.total_tokens - self.new_tokens
        extra = (rates.write - rates.read) * missed
        if not extra or self.is_detour:
            return never, paid + extra
        return never + extra * (known + self.gone_tokens) / known, paid + extra

    def lose(self, tokens: int) -> None:
        """So many tokens at the end of what was sent are not in the provider's cache."""
        known = self.total_tokens - self.new_tokens
        lost = min(known, max(0, tokens))
        if lost:
            gone = round(self.gone_tokens * lost / known)
            self.new_tokens += lost
            self.gone_new_tokens += gone
            self.gone_tokens -= gone

    def _work_on(self, paths: Collection[str], changed: frozenset[str]) -> None:
        """Make the items of these files younger, and those of changed files less likely to be needed."""
        touched: dict[str, bool] = {}
        for path in paths:
            for item_id in self.by_path.get(path, ()):
                if item_id in self.held:
                    touched[item_id] = touched.get(item_id, False) or path in changed
        p = self.base.parameters
        for item_id, is_changed in touched.items():
            h = self.held[item_id]
            first = is_changed and not h.changed
            self.held[item_id] = replace(
                h,
                born=self.calls - (self.calls - h.born) * p.activity_factor,
                changed=h.changed or is_changed,
                patience=h.patience * p.age_of(p.changed_factor) if first else h.patience,
            )

    def evict(self, step: Left) -> None:
        """See ``Left``."""
        held, rates, leaving = self.held, self.base.rates, self.held.keys() & frozenset(step.item_ids)
        found = walked(held, leaving, new_tokens=self.new_tokens)
        for item_id in leaving:
            del held[item_id]
        for item_id, tokens in found.behind.items():
            held[item_id] = held[item_id].followed_by(tokens)
        self.left = MappingProxyType({**self.left, **found.lessons})
        memory = dict(self.memory)
        for lesson, number in Counter(found.lessons.values()).items():
            past = memory.get(lesson, NO_OUTCOME)
            memory[lesson] = replace(past, left=past.left + number)
        self.memory = MappingProxyType(memory)
        self.total_tokens -= found.freed_new + found.freed_pinned + found.priced
        self.new_tokens -= found.freed_new
        self.gone_tokens += found.priced
        self.gone_new_tokens += found.freed_new
        dearer = 0.0 if step.cold else rates.write - rates.read
        passed = self.total_tokens if rates.rewrites_all and found.rewritten > self.new_tokens else found.rewritten
        again = max(0, passed - self.new_tokens)
        self.rewritten_tokens = max(self.rewritten_tokens, again)
        self.saved -= dearer * again
        self._add_surplus(step.longer)

    def read_back(self, step: ReadBack) -> None:
        """See ``ReadBack``."""
        if (lesson := self.left.get(step.item_id)) is None:
            self.add(step.parts)
            return
        past = self.memory[lesson]
        self.memory = MappingProxyType(self.memory | {lesson: replace(past, read_back=past.read_back + 1)})
        self.is_detour = self.is_detour or self.reply_is_last
        self._add_surplus(step.parts)

    def _add_surplus(self, parts: Iterable[Candidate | int]) -> None:
        """Append what the context would not hold without eviction."""
        before = self.new_tokens
        self.append(parts, arrived=self.calls)
        self.gone_new_tokens -= self.new_tokens - before
