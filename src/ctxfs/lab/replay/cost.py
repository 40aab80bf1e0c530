"""What a recorded session would have cost under a policy.

The model, in units of one uncached input token: a request reads the longest unchanged prefix of the last request from
the cache (``read``) and writes the rest (``write``), the last reply with it; what else the cache may give back is said
at ``Cached``. A call that missed the cache by its recorded bill, or a pause as long as the cache's time to live, loses
all of it. Above a step in price, every token of a request costs more. Output is the same for all policies and left out.
A placeholder costs what it is.

When a reply uses a distinctive string that is in something evicted and in nothing visible, one more call is
charged (a *read-back*): the whole context at ``read``, ``READ_BACK_OUTPUT_TOKENS`` of output, which the next request
writes, and a page of at most ``PAGE_TOKENS`` around the string at ``write``. Both are in the context from then on, and
the page can be evicted like anything else.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.session import Item, Session, Turn
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import Rates

MIN_PLACEHOLDER_TOKENS: Final = 40
PAGE_TOKENS: Final = 1_000
READ_BACK_OUTPUT_TOKENS: Final = 120

LOOKBACK_BLOCKS: Final = 20

Cached = Literal["prefix", "ends", "tail"]
"""What the cache gives back: any unchanged prefix, one that ended where an earlier request did, or such a one no more
than ``LOOKBACK_BLOCKS`` blocks before the end of the last request, where a host set its breakpoint."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """An item to evict: its placeholder's size, and the strings that the placeholder still shows.

    A second one for the same item replaces its placeholder by a shorter one. ``why``: for people.
    """

    index: int
    tokens: int
    shown: tuple[int, ...] = ()
    why: str = ""


class Run(Protocol):
    """A policy at work on one session. It sees only what has happened so far."""

    def plan(self, added: Sequence[Item], at: float, /) -> Sequence[Replacement]:
        """Before a request that carries ``added`` for the first time, at this time in seconds: what is evicted now."""

    def replied(self, reply: Sequence[Item], billed: Usage, /) -> None:
        """The model replied; ``billed``: what the request was billed, as far as it matters to the cache."""

    def read_back(self, index: int, call: Item, page: Item, billed: Usage, /) -> None:
        """The model read back something of the item ``index``; ``call`` and ``page`` end the context now.

        ``billed``: what the request was billed that ``call`` is the reply to.
        """


class Policy(Protocol):
    """Decides what is evicted, and when."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def start(self, session: Session, /) -> Run:
        """Begin with a session; of the session itself only the numbering of strings may be used."""


@dataclass(frozen=True, slots=True)
class CallFigures:
    """One call: the context it carried, in tokens, and what it cost with the read-backs in it."""

    context_tokens: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a session costs under a policy.

    ``stored_bytes``: of the contents that left, as UTF-8. ``missed_tokens``: what the cache would have given back, had
    it not lost it, or were it not too short for it; ``missed_cost``: what that is in ``cost``. ``later_uses``: how
    often a reply uses a distinctive string that a result, or the arguments of a call, brought in before;
    ``hidden_uses``: how often that was visible nowhere, in no placeholder either, when the reply began.
    """

    cost: float
    calls: tuple[CallFigures, ...]
    read_tokens: int
    written_tokens: int
    prefix_breaks: int
    evictions: int
    stored_bytes: int
    read_backs: int
    read_back_cost: float
    missed_tokens: int = 0
    missed_cost: float = 0.0
    later_uses: int = 0
    hidden_uses: int = 0

    @property
    def peak_tokens(self) -> int:
        """The largest context."""
        return max((c.context_tokens for c in self.calls), default=0)


def replay_session(
    session: Session,
    policy: Policy,
    rates: Rates,
    *,
    cached: Cached = "prefix",
    ttl_s: float = math.inf,
) -> Cost:
    """Replay ``session`` under ``policy``; ``ttl_s``: how long the cache keeps what nobody reads, by ``Turn.at``."""
    cache = _Cache(cached, ttl_s)
    replay = _Replay(session, policy.start(session), rates, cache)
    for turn in session.turns:
        replay.call(turn)
    return replay.result()


@dataclass(frozen=True, slots=True)
class _Cache:
    """A provider's cache: what it gives back, and for how many seconds it keeps a prefix."""

    gives_back: Cached
    ttl_s: float


class _Replay:
    """The context as the policy leaves it, and the bill."""

    def __init__(self, session: Session, run: Run, rates: Rates, cache: "_Cache") -> None:
        self._session, self._run, self._rates, self._cache = session, run, rates, cache
        self._strings = session.strings
        self._items: list[Item] = []  # in the order of the context
        self._place: dict[int, int] = {}  # an item's index: its place in the context
        self._sizes: list[int] = []
        self._cached = session.warm_items  # places before this one were in the last request
        self._expires = math.inf
        self._ends = [session.warm_items]  # places at which a request ended, before which nothing has changed since
        self._visible: Counter[int] = Counter()
        self._shown: dict[int, tuple[int, ...]] = {}  # by the place of an evicted item: what its placeholder shows
        self._evicted: dict[int, list[int]] = {}  # a string: the places of the evicted items that have it
        self._brought: set[int] = set()  # the strings that a result, or the arguments of a call, brought in
        self._later_uses = 0
        self._hidden_uses = 0
        self._next_index = sum(len(t.added) + len(t.reply) for t in session.turns)
        self._calls: list[CallFigures] = []
        self._cost = self._read_back_cost = self._missed_cost = 0.0
        self._missed = 0
        self._billed = Usage()  # of the last request
        self._read = self._written = self._breaks = self._evictions = self._stored = self._read_backs = 0

    def call(self, turn: Turn) -> None:
        """One request, the read-backs that the reply needs, and the reply."""
        self._append(turn.added)
        first = self._replace(self._run.plan(turn.added, turn.at))
        if first < self._cached:
            self._breaks += 1
        total, held = sum(self._sizes), sum(self._sizes[: self._reach(first)])
        is_cold = turn.at >= self._expires
        kept = 0 if is_cold else round(held * turn.kept)
        cached = kept if kept >= self._rates.least_cached_tokens else 0
        if is_cold:
            self._ends.clear()
        self._sent(turn.at)
        rates = self._rates.at(total)
        self._missed += held - cached
        self._missed_cost += (rates.write - rates.read) * (held - cached)
        cost = rates.read * cached + rates.write * (total - cached)
        self._read += cached
        self._written += total - cached
        self._billed = Usage(cache_read_input_tokens=cached, cache_creation_input_tokens=total - cached)
        read_backs = self._read_back(turn)
        self._cost += cost + read_backs
        self._read_back_cost += read_backs
        self._calls.append(CallFigures(total, cost + read_backs))
        self._append(turn.reply)
        self._run.replied(turn.reply, self._billed)

    def result(self) -> Cost:
        """The bill."""
        return Cost(
            cost=self._cost,
            calls=tuple(self._calls),
            read_tokens=self._read,
            written_tokens=self._written,
            prefix_breaks=self._breaks,
            evictions=self._evictions,
            stored_bytes=self._stored,
            read_backs=self._read_backs,
            read_back_cost=self._read_back_cost,
            missed_tokens=self._missed,
            missed_cost=self._missed_cost,
            later_uses=self._later_uses,
            hidden_uses=self._hidden_uses,
        )

    def _reach(self, first: int) -> int:
        """Up to which place the cache reaches when ``first`` is the first that changed."""
        while self._ends and self._ends[-1] > first:
            self._ends.pop()
        if self._cache.gives_back == "prefix":
            return min(first, self._cached)
        end = self._ends[-1] if self._ends else 0
        return 0 if self._cache.gives_back == "tail" and end <= self._cached - LOOKBACK_BLOCKS else end

    def _sent(self, at: float) -> None:
        """A request ended with what the context holds now."""
        self._cached = len(self._items)
        self._ends.append(self._cached)
        self._expires = at + self._cache.ttl_s

    def _append(self, items: Iterable[Item]) -> None:
        for item in items:
            self._place[item.index] = len(self._items)
            self._items.append(item)
            self._sizes.append(item.tokens)
            self._visible.update(item.quotable)
            if item.kind in (Kind.TOOL_RESULT, Kind.TOOL_INPUT):
                self._brought.update(item.quotable)

    def _replace(self, replacements: Sequence[Replacement]) -> int:
        """Put placeholders in place; the first place that changed, or the context's end."""
        first = len(self._items)
        for r in replacements:
            place = self._place[r.index]
            item = self._items[place]
            self._sizes[place] = r.tokens
            self._visible.subtract(self._shown.get(place, item.quotable))
            self._visible.update(r.shown)
            first = min(first, place)
            if place not in self._shown:
                for string in item.quotable:
                    self._evicted.setdefault(string, []).append(place)
                self._evictions += 1
                self._stored += 0 if item.page_of is not None else len(item.text.encode("utf-8", "surrogatepass"))
            self._shown[place] = r.shown
        return first

    def _read_back(self, turn: Turn) -> float:
        """What the reply's read-backs cost: one for each page that it takes to have seen all that it uses."""
        cost = 0.0
        used = dict.fromkeys(s for item in turn.reply for s in item.quotable)
        self._count_uses(used)
        for string in used:
            if self._is_hidden(string):
                cost += self._read_page(self._items[self._evicted[string][-1]], string, turn.at)
        return cost

    def _count_uses(self, strings: Iterable[int]) -> None:
        """Count the strings of a reply that were brought in, and those that it cannot see as it begins."""
        for string in strings:
            if string in self._brought:
                self._later_uses += 1
                self._hidden_uses += self._is_hidden(string)

    def _is_hidden(self, string: int) -> bool:
        """Whether the string is in something evicted, and visible nowhere."""
        return self._visible[string] <= 0 and string in self._evicted

    def _read_page(self, source: Item, string: int, at: float) -> float:
        """What it costs to open the page of ``source`` with ``string`` in it."""
        call, page, total = self._asking(), self._page(source, string), sum(self._sizes)
        added = call.tokens + page.tokens
        rates = self._rates.at(total + added)
        self._read += total
        self._written += added
        self._read_backs += 1
        self._append([call, page])
        self._sent(at)
        self._run.read_back(source.index if source.page_of is None else source.page_of, call, page, self._billed)
        self._billed = Usage(cache_read_input_tokens=total, cache_creation_input_tokens=added)
        return rates.read * total + rates.output * call.tokens + rates.write * added

    def _asking(self) -> Item:
        """The reply that asks for a page."""
        return Item(index=self._new_index(), kind=Kind.TEXT, tokens=READ_BACK_OUTPUT_TOKENS)

    def _new_index(self) -> int:
        self._next_index += 1
        return self._next_index

    def _page(self, source: Item, string: int) -> Item:
        """At most ``PAGE_TOKENS`` of an evicted item, with some of what stands before the string."""
        text, quotable = source.text, source.quotable
        if source.tokens > PAGE_TOKENS:
            size = len(text) * PAGE_TOKENS // source.tokens
            found = text.find(self._strings[string]) - size // 4
            start = max(0, min(found, len(text) - size))
            text = text[start : start + size]
            quotable = tuple(dict.fromkeys((*self._session.quotable(text), string)))
        return Item(
            index=self._new_index(),
            kind=Kind.TOOL_RESULT,
            tokens=min(source.tokens, PAGE_TOKENS),
            text=text,
            tool=source.tool,
            arguments=source.arguments,
            quotable=quotable,
            page_of=source.index if source.page_of is None else source.page_of,
        )
