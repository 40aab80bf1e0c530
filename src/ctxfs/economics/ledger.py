"""What economic planning needs to know of a session, kept up as items come and go.

A ledger is an immutable value. It holds every item that could leave, in the order of the context, and between them only
the number of tokens that stay. A transition copies shallow tables once, however many steps it takes in; nothing is ever
recounted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, Final

from ctxfs.economics.ledger_steps import Added, Candidate, Replied, Step
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates

__all__ = [
    "ITEMS_PER_FILE",
    "Held",
    "Ledger",
    "Outcome",
    "at_arrival",
]

ITEMS_PER_FILE: Final = 32
"""So many of a file's newest items count as worked on with it: what a call costs must not grow with the session."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many items left, and how often something of them was read back."""

    left: int = 0
    read_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An item that is in the context in full.

    ``patience``: the read-backs to expect of it against its rent, as an age in calls: an item is ripe at ``patience``
    times what is the same for all items of one ``lesson``. ``arrived``: the calls made before it came. ``born``: the
    call it counts as having come before, moved forward when its files are worked on. ``changed``: one of its files was
    changed since. ``tokens_after``: what stands between it and the next held item, and stays.
    """

    candidate: Candidate
    tokens: int
    saved_tokens: int
    patience: float
    lesson: str
    arrived: int
    born: float
    changed: bool = False
    tokens_after: int = 0


def _empty() -> MappingProxyType[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The state of one session, as the planner sees it.

    ``calls``: model calls made. ``total_tokens``: the context now. ``new_tokens``: its end that no request has carried
    yet, from the last reply on. ``gone_tokens``: tokens that were freed by evictions which had to pay;
    ``gone_new_tokens``: tokens evicted before they were ever sent. ``spent``: what the calls would have cost
    without eviction; ``saved``: how much less they did cost, rewrites and read-backs counted in. ``cache_expires_at``:
    when the provider forgets the prefix, on the caller's clock; None means not before the next call. ``held``: by id,
    in the order of the context. ``memory``: what happened to the evicted items of each tool. ``by_path``: the newest
    held items of a file, oldest first.
    """

    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    rates: Rates = ANTHROPIC_RATES
    calls: int = 0
    total_tokens: int = 0
    new_tokens: int = 0
    gone_tokens: int = 0
    gone_new_tokens: int = 0
    spent: float = 0.0
    saved: float = 0.0
    cache_expires_at: float | None = None
    held: MappingProxyType[str, Held] = field(default_factory=_empty)
    memory: MappingProxyType[str, Outcome] = field(default_factory=_empty)
    left: MappingProxyType[str, str] = field(default_factory=_empty)
    by_path: MappingProxyType[str, tuple[str, ...]] = field(default_factory=_empty)

    def after(self, steps: Iterable[Step]) -> "Ledger":
        """Take ``steps`` in: the same as one by one, with one copy of the tables for all of them."""
        ledger, tables = _writable(self)
        for step in steps:
            match step:
                case Added(parts):
                    ledger = _appended(ledger, tables, parts, arrived=ledger.calls)
                case Replied():
                    ledger = _replied(ledger, tables, step)
                case _:
                    ledger = ledger.read_back(step.item_id)
        return ledger

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
    ) -> "Ledger":
        """Take in a reply, as ``Replied`` does."""
        return self.after([Replied(parts, paths, changed_paths, cache_expires_at)])

    def evicted(self, item_ids: Collection[str], *, cold: bool = False) -> "Ledger":
        """Replace these items by their placeholders; ids that are not held change nothing.

        ``cold``: the cache has expired, so that nothing is rewritten for it.
        """
        leaving = self.held.keys() & frozenset(item_ids)
        if not leaving:
            return self
        held, found = self.held.copy(), _walked(self, leaving)
        for item_id in leaving:
            del held[item_id]
        for item_id, tokens in found.behind.items():
            held[item_id] = _followed_by(held[item_id], tokens)
        memory, left = self.memory.copy(), self.left.copy()
        left.update(found.lessons)
        for lesson, number in Counter(found.lessons.values()).items():
            past = memory.get(lesson, Outcome())
            memory[lesson] = replace(past, left=past.left + number)
        new_tokens = self.new_tokens - found.freed_new
        dearer = 0.0 if cold else self.rates.write - self.rates.read
        return replace(
            self,
            total_tokens=self.total_tokens - found.freed,
            new_tokens=new_tokens,
            gone_tokens=self.gone_tokens + found.priced,
            gone_new_tokens=self.gone_new_tokens + found.freed_new,
            saved=self.saved - dearer * max(0, found.rewritten - new_tokens),
            held=MappingProxyType(held),
            memory=MappingProxyType(memory),
            left=MappingProxyType(left),
        )

    def resized(self, placeholder_tokens: Mapping[str, int]) -> "Ledger":
        """The same, with the exact sizes of these items' placeholders; ids that are not held change nothing.

        An item whose placeholder saves too little is no longer held: it stays.
        """
        sizes = {
            i: t for i, t in placeholder_tokens.items() if i in self.held and t != _placeholder_tokens(self.held[i])
        }
        if not sizes:
            return self
        held, last = dict[str, Held](), ""
        for item_id, h in self.held.items():
            size = sizes.get(item_id, _placeholder_tokens(h))
            if self.parameters.could_leave(h.tokens, size):
                held[item_id] = _resized(self, h, size) if item_id in sizes else h
                last = item_id
            elif last:
                held[last] = _followed_by(held[last], h.tokens + h.tokens_after)
        return replace(self, held=MappingProxyType(held))

    def with_pinned(self, item_ids: Collection[str], pinned: bool) -> "Ledger":
        """The same, with these items pinned, or free again; ids that are not held change nothing."""
        held = self.held.copy()
        for item_id in held.keys() & frozenset(item_ids):
            candidate = replace(held[item_id].candidate, pinned=pinned)
            held[item_id] = replace(held[item_id], candidate=candidate, patience=_patience(self, candidate))
        return replace(self, held=MappingProxyType(held))

    def read_back(self, item_id: str) -> "Ledger":
        """Take in that the model came back for something, as ``ReadBack`` does."""
        lesson = self.left.get(item_id)
        if lesson is None:
            return self
        past = self.memory[lesson]
        memory = self.memory | {lesson: replace(past, read_back=past.read_back + 1)}
        return replace(self, memory=MappingProxyType(memory), saved=self.saved - self.read_back_price())

    def rebuilt(self, parts: Iterable[Candidate | int]) -> "Ledger":
        """The context was rewritten as ``parts`` (compaction, resume): nothing of it is cached, all else is kept."""
        empty = replace(
            self, total_tokens=0, new_tokens=0, gone_tokens=0, gone_new_tokens=0, held=_empty(), by_path=_empty()
        )
        return _appended(*_writable(empty), parts, arrived=self.calls - 1)

    def read_back_price(self) -> float:
        """What one read-back costs now: another call over the whole context, and a page of what had left."""
        p, rates = self.parameters, self.rates
        asked = rates.output * p.read_back_output_tokens
        return rates.read * self.total_tokens + asked + rates.write * p.page_tokens

    @property
    def spent_then(self) -> float:
        """What the session will have cost without eviction once the next request is sent."""
        known = self.total_tokens - self.new_tokens + self.gone_tokens
        return self.spent + self.rates.read * known + self.rates.write * (self.new_tokens + self.gone_new_tokens)

    def is_new(self, held: Held) -> bool:
        """Whether no request has carried the item yet."""
        return held.arrived >= self.calls

    def newest_first(self) -> Iterator[Held]:
        """What is held, from the end of the context to its start."""
        return reversed(tuple(self.held.values()))


def at_arrival(lesson: str) -> str:
    """Where it is remembered what became of a tool's results that left at arrival."""
    return f"arrival:{lesson}"


@dataclass(slots=True)
class _Walked:
    """What leaving does, in tokens. ``behind``: what stays where something leaves, by the held item before it."""

    freed: int = 0
    freed_new: int = 0
    priced: int = 0
    rewritten: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    lessons: dict[str, str] = field(default_factory=dict)


def _walked(ledger: Ledger, leaving: Collection[str]) -> _Walked:
    """Walk from the end of the context to the item before the first that leaves; what is older is not looked at."""
    found, to_find, passed, behind, unsent = _Walked(), len(leaving), 0, 0, ledger.new_tokens
    for item_id in reversed(ledger.held):
        h = ledger.held[item_id]
        unsent -= h.tokens + h.tokens_after
        if item_id not in leaving:
            if behind:
                found.behind[item_id], behind = behind, 0
            if not to_find:
                break
            passed += h.tokens + h.tokens_after
            continue
        saved, stays = h.saved_tokens, h.tokens - h.saved_tokens + h.tokens_after
        to_find -= 1
        behind += stays
        passed += stays
        found.freed += saved
        found.lessons[item_id] = at_arrival(h.lesson) if ledger.is_new(h) else h.lesson
        if unsent >= 0:
            found.freed_new += saved
        elif not h.candidate.pinned:
            found.priced += saved
            found.rewritten = passed
    return found


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of a ledger that nobody else has yet, so that they may be changed in place."""

    held: dict[str, Held]
    by_path: dict[str, tuple[str, ...]]


def _writable(ledger: Ledger) -> tuple[Ledger, _Tables]:
    tables = _Tables(ledger.held.copy(), ledger.by_path.copy())
    views = MappingProxyType(tables.held), MappingProxyType(tables.by_path)
    return replace(ledger, held=views[0], by_path=views[1]), tables


def _appended(ledger: Ledger, tables: _Tables, parts: Iterable[Candidate | int], *, arrived: int) -> Ledger:
    held, by_path = tables.held, tables.by_path
    last, stays, added = next(reversed(held), ""), 0, 0
    for part in parts:
        tokens = part if isinstance(part, int) else part.tokens
        added += tokens
        if isinstance(part, int) or not ledger.parameters.could_leave(part.tokens, part.placeholder_tokens):
            stays += tokens
            continue
        if last and stays:
            held[last] = _followed_by(held[last], stays)
        held[part.id] = _held(ledger, part, arrived=arrived)
        for path in part.paths:
            known = (item_id for item_id in by_path.get(path, ()) if item_id in held)
            by_path[path] = (*known, part.id)[-ITEMS_PER_FILE:]
        last, stays = part.id, 0
    if last and stays:
        held[last] = _followed_by(held[last], stays)
    return replace(ledger, total_tokens=ledger.total_tokens + added, new_tokens=ledger.new_tokens + added)


def _replied(ledger: Ledger, tables: _Tables, reply: Replied) -> Ledger:
    rates, known = ledger.rates, ledger.total_tokens - ledger.new_tokens + ledger.gone_tokens
    seen = replace(
        ledger,
        calls=ledger.calls + 1,
        new_tokens=0,
        gone_tokens=ledger.gone_tokens + ledger.gone_new_tokens,
        gone_new_tokens=0,
        spent=ledger.spent + rates.read * known + rates.write * (ledger.new_tokens + ledger.gone_new_tokens),
        saved=ledger.saved + rates.read * ledger.gone_tokens + rates.write * ledger.gone_new_tokens,
        cache_expires_at=reply.cache_expires_at,
    )
    _work_on(seen, tables, reply.paths, frozenset(reply.changed_paths))
    return _appended(seen, tables, reply.parts, arrived=seen.calls - 1)


def _held(ledger: Ledger, candidate: Candidate, *, arrived: int) -> Held:
    return Held(
        candidate=candidate,
        tokens=candidate.tokens,
        saved_tokens=candidate.tokens - candidate.placeholder_tokens,
        patience=_patience(ledger, candidate),
        lesson=f"{'placeholder:' if candidate.is_placeholder else ''}{candidate.tool_class}:{candidate.tool}",
        arrived=arrived,
        born=ledger.calls - 1,
    )


def _patience(ledger: Ledger, candidate: Candidate) -> float:
    if candidate.pinned:
        return inf
    needs = ledger.parameters.needs(candidate.tool_class, candidate.tokens)
    saved = candidate.tokens - candidate.placeholder_tokens
    return ledger.parameters.age_of(needs / (ledger.rates.read * saved))


def _placeholder_tokens(held: Held) -> int:
    return held.tokens - held.saved_tokens


def _resized(ledger: Ledger, held: Held, placeholder_tokens: int) -> Held:
    candidate = replace(held.candidate, placeholder_tokens=placeholder_tokens)
    patience, p = _patience(ledger, candidate), ledger.parameters
    return replace(
        held,
        candidate=candidate,
        saved_tokens=held.tokens - placeholder_tokens,
        patience=patience * p.age_of(p.changed_factor) if held.changed else patience,
    )


def _work_on(ledger: Ledger, tables: _Tables, paths: Collection[str], changed: frozenset[str]) -> None:
    """Make the items of these files younger, and those of changed files less likely to be needed."""
    touched: dict[str, bool] = {}
    for path in paths:
        for item_id in tables.by_path.get(path, ()):
            if item_id in tables.held:
                touched[item_id] = touched.get(item_id, False) or path in changed
    p = ledger.parameters
    for item_id, is_changed in touched.items():
        h = tables.held[item_id]
        first = is_changed and not h.changed
        tables.held[item_id] = replace(
            h,
            born=ledger.calls - (ledger.calls - h.born) * p.activity_factor,
            changed=h.changed or is_changed,
            patience=h.patience * p.age_of(p.changed_factor) if first else h.patience,
        )


def _followed_by(held: Held, tokens: int) -> Held:
    return replace(held, tokens_after=held.tokens_after + tokens)
