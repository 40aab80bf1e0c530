"""What a recorded session would have cost under a policy.

The model, in units of one uncached input token: a request reads the longest unchanged prefix of the last request and
reply from the cache (``read``) and writes the rest (``write``); in the reading ``ends``, only a prefix that ended where
an earlier request or reply did. Output is the same for all policies and left out. A placeholder costs what it is. When
a reply uses a distinctive string that stands in something evicted and in nothing visible, one more call is charged (a
*read-back*): the whole context at ``read``, ``read_back_output_tokens`` of output, and a page of at most
``page_tokens`` around the string at ``write``; the page is in the context from then on, and can leave like anything
else.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from ctxfs.economics.prices import Rates
from ctxfs.recordings.recording import Kind
from ctxfs.replay.session import Item, Session, Turn

__all__ = ["MIN_PLACEHOLDER_TOKENS", "Cached", "CallFigures", "Cost", "Policy", "Replacement", "Run", "replay_session"]

MIN_PLACEHOLDER_TOKENS: Final = 40
PAGE_TOKENS: Final = 1_000
READ_BACK_OUTPUT_TOKENS: Final = 120

Cached = Literal["prefix", "ends"]
"""What the cache gives back: any unchanged prefix, or one that ended where an earlier request or reply did."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """An item that leaves: its placeholder's size, and the strings that the placeholder still shows.

    The second one of an item puts a shorter placeholder in the place of the first. ``why``: for people.
    """

    index: int
    tokens: int
    shown: tuple[int, ...] = ()
    why: str = ""


class Run(Protocol):
    """A policy at work on one session. It sees only what has happened so far."""

    def plan(self, added: Sequence[Item], /) -> Sequence[Replacement]:
        """Before a request that carries ``added`` for the first time: what is evicted now."""

    def replied(self, reply: Sequence[Item], /) -> None:
        """The model replied."""

    def read_back(self, index: int, page: Item, /) -> None:
        """The model came back for something of the item ``index``; ``page`` stands at the end of the context now."""


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
    it not lost it, or were it not too short for it; ``missed_cost``: what that is in ``cost``.
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

    @property
    def peak_tokens(self) -> int:
        """The largest context."""
        return max((c.context_tokens for c in self.calls), default=0)


def replay_session(
    session: Session, policy: Policy, rates: Rates, *, cached: Cached = "prefix", least_cached: int = 0
) -> Cost:
    """Replay ``session`` under ``policy``; ``least_cached``: the shortest prefix that is cached, in tokens."""
    replay = _Replay(session, policy.start(session), rates, cached, least_cached)
    for turn in session.turns:
        replay.call(turn)
    return replay.result()


class _Replay:
    """The context as the policy leaves it, and the bill."""

    def __init__(self, session: Session, run: Run, rates: Rates, cached: Cached, least_cached: int) -> None:
        self._session, self._run, self._rates, self._reading = session, run, rates, cached
        self._least_cached = least_cached
        self._strings = session.strings
        self._items: list[Item] = []  # in the order of the context
        self._place: dict[int, int] = {}  # an item's index: its place in the context
        self._sizes: list[int] = []
        self._cached = session.warm_items  # places before this one were in the last request or reply
        self._ends: list[int] = [
            session.warm_items
        ]  # places at which a request or reply ended, before which nothing has changed since
        self._visible: Counter[int] = Counter()
        self._shown: dict[int, tuple[int, ...]] = {}  # by the place of an evicted item: what its placeholder shows
        self._evicted: dict[int, list[int]] = {}  # a string: the places of the evicted items that have it
        self._next_index = sum(len(t.added) + len(t.reply) for t in session.turns)
        self._calls: list[CallFigures] = []
        self._cost = self._read_back_cost = self._missed_cost = 0.0
        self._missed = 0
        self._read = self._written = self._breaks = self._evictions = self._stored = self._read_backs = 0

    def call(self, turn: Turn) -> None:
        """One request, the read-backs that the reply needs, and the reply."""
        reply = turn.reply
        self._append(turn.added)
        first = self._replace(self._run.plan(turn.added))
        if first < self._cached:
            self._breaks += 1
        total, held = sum(self._sizes), sum(self._sizes[: self._reach(first)])
        kept = round(held * turn.kept)
        cached = kept if kept >= self._least_cached else 0
        self._missed += held - cached
        self._missed_cost += (self._rates.write - self._rates.read) * (held - cached)
        self._ends.append(len(self._items))
        cost = self._rates.read * cached + self._rates.write * (total - cached)
        self._read += cached
        self._written += total - cached
        read_backs = self._read_back(reply, total)
        self._cost += cost + read_backs
        self._read_back_cost += read_backs
        self._calls.append(CallFigures(total, cost + read_backs))
        self._append(reply)
        self._run.replied(reply)
        self._cached = len(self._items)
        self._ends.append(self._cached)

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
        )

    def _reach(self, first: int) -> int:
        """Up to which place the cache reaches when ``first`` is the first that changed."""
        while self._ends and self._ends[-1] > first:
            self._ends.pop()
        if self._reading == "prefix":
            return min(first, self._cached)
        return self._ends[-1] if self._ends else 0

    def _append(self, items: Iterable[Item]) -> None:
        for item in items:
            self._place[item.index] = len(self._items)
            self._items.append(item)
            self._sizes.append(item.tokens)
            self._visible.update(item.quotable)

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

    def _read_back(self, reply: Sequence[Item], total: int) -> float:
        """What the reply's read-backs cost: one for each page that it takes to have seen all that it uses."""
        cost = 0.0
        for string in dict.fromkeys(s for item in reply for s in item.quotable):
            if self._visible[string] > 0 or string not in self._evicted:
                continue
            source = self._items[self._evicted[string][-1]]
            page = self._page(source, string)
            cost += (
                self._rates.read * total
                + self._rates.output * READ_BACK_OUTPUT_TOKENS
                + self._rates.write * page.tokens
            )
            self._read += total
            self._written += page.tokens
            total += page.tokens
            self._read_backs += 1
            self._append([page])
            self._run.read_back(source.index if source.page_of is None else source.page_of, page)
        return cost

    def _page(self, source: Item, string: int) -> Item:
        """At most ``PAGE_TOKENS`` of an evicted item, with some of what stands before the string."""
        text, quotable = source.text, source.quotable
        if source.tokens > PAGE_TOKENS:
            size = len(text) * PAGE_TOKENS // source.tokens
            start = max(0, min(text.find(self._strings[string]) - size // 4, len(text) - size))
            text = text[start : start + size]
            quotable = tuple(dict.fromkeys((*self._session.quotable(text), string)))
        self._next_index += 1
        return Item(
            index=self._next_index,
            kind=Kind.TOOL_RESULT,
            tokens=min(source.tokens, PAGE_TOKENS),
            text=text,
            tool=source.tool,
            arguments=source.arguments,
            quotable=quotable,
            page_of=source.index if source.page_of is None else source.page_of,
        )
