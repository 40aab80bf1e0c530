"""Named policies: what frameworks and providers do, what ctxfs does, and what a TOML file asks for.

A replay compares them with what the recorded agent did itself, with never evicting inside of the window, and with a
bound that no policy can know: each item vanishes, free of charge, after its last use.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from ctxfs.errors import ConfigError
from ctxfs.errors.spelling import did_you_mean
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.placeholder.identifiers import identifiers_in
from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.cost import MIN_PLACEHOLDER_TOKENS, Policy, Replacement, Run
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.session import Item, Session, tokens_of
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import Rates

CLEARED_TOKENS: Final = 15
"""What an agent leaves of a result that it clears: "[Old tool result content cleared]"."""
SUMMARY_TOKENS: Final = 2_000


@dataclass(frozen=True, slots=True)
class AsRecorded:
    """What the recorded agent removed from its context, when it did."""

    name: str = "as-recorded"

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        return _AsRecordedRun(session)


class _AsRecordedRun:
    def __init__(self, session: Session) -> None:
        self._cleared = iter([turn.cleared for turn in session.turns])
        self._sizes: dict[int, int] = {}

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        self._sizes |= {item.index: item.tokens for item in added}
        due = next(self._cleared)
        return [Replacement(index, CLEARED_TOKENS) for index in due if self._sizes.get(index, 0) > CLEARED_TOKENS]

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._sizes |= {item.index: item.tokens for item in reply}

    def read_back(self, _index: int, _call: Item, _page: Item, _billed: Usage) -> None:
        """The agent did not know that it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Nothing leaves until the context has ``limit`` tokens; then all of it becomes a summary.

    Writing the summary is not charged, and nothing that it replaced is missed: no agent does better.
    """

    name: str
    limit: int

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _WindowRun(self.limit)


class _WindowRun:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._kept: list[Item] = []  # what is not yet summarised

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        total = self._total + sum(item.tokens for item in added)
        prefix = [item for item in self._kept if item.index < 0]
        old = [item for item in self._kept if item.index >= 0]  # the summary first, where there is one
        self._kept += added
        self._total = total
        if total <= self._limit or sum(item.tokens for item in old) <= SUMMARY_TOKENS:
            return ()  # a summary of less would be longer than what it is of
        first, *rest = old
        self._kept = [*prefix, first, *added]
        self._total = sum(item.tokens for item in (*prefix, *added)) + SUMMARY_TOKENS
        summary = Replacement(first.index, SUMMARY_TOKENS, first.quotable)
        return [summary, *(Replacement(item.index, 0, item.quotable) for item in rest)]

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._kept += reply
        self._total += sum(item.tokens for item in reply)

    def read_back(self, _index: int, _call: Item, _page: Item, _billed: Usage) -> None:
        """Nothing is read back: a summary shows what it replaced."""


def oracle_cost(session: Session, rates: Rates, *, tool_inputs: bool) -> float:
    """What ``session`` would cost if results (and, with ``tool_inputs``, calls' arguments) vanished after last use.

    A use of a distinctive string counts for the item that had it last, and for none if something that never leaves has
    it. A new result is sent once in any case. It is never above what never evicting costs.
    """
    leaves = {Kind.TOOL_RESULT, Kind.TOOL_INPUT} if tool_inputs else {Kind.TOOL_RESULT}
    last_use, end = _last_uses(session, leaves), len(session.turns)
    written, grown = [0] * (end + 1), [0] * (end + 1)  # by request: what it is the first to carry, how much it grew by
    for number, turn in enumerate(session.turns):
        for items, first in ((turn.added, number), (turn.reply, number + 1)):
            for item in items:
                behind = last_use.get(item.index, number) + 1 if item.kind in leaves else end
                if behind > first:
                    written[first] += item.tokens
                    grown[first] += item.tokens
                    grown[behind] -= item.tokens
    if session.turns:
        # The cache had these before the first call, which therefore reads them.
        written[0] -= tokens_of(session.turns[0].added[: session.warm_items])
    cost = 0.0
    for new, total in zip(written[:end], accumulate(grown[:end]), strict=True):
        paid = rates.at(total)
        cost += paid.read * (total - new) + paid.write * new
    return cost


def _last_uses(session: Session, leaves: set[Kind]) -> dict[int, int]:
    """The number of the last turn that uses an item, by its index; items that are never used are not in it."""
    holder: dict[int, Item | None] = {}  # a string: the item that had it last; None for something that never leaves
    found: dict[int, int] = {}

    def take_in(items: tuple[Item, ...]) -> None:
        for item in items:
            for string in item.quotable:
                if holder.get(string, item) is not None:
                    holder[string] = item if item.kind in leaves else None

    for number, turn in enumerate(session.turns):
        take_in(turn.added)
        for item in turn.reply:
            for string in item.quotable:
                used = holder.get(string)
                if used is not None:
                    found[used.index] = number
        take_in(turn.reply)
    return found


DEFAULT_POLICIES = ("none", "economic")
"""What a replay compares unless it is asked for more."""

LAB_POLICIES = (
    "none",
    "window",
    "exact-3",
    "clear-100k-keep-3",
    "clear-100k-keep-3-clear-at-least-20k",
    "eager-2k",
    "ski-rental",
    "economic",
)

POLICY_NAMES = (
    "none, window[-TOKENS] (nothing is evicted up to this size, then all is summarised), "
    "exact-N (each tool keeps its last N results), clear-TOKENS-keep-N[-clear-at-least-TOKENS] "
    "(above this size, all results but the last N are evicted), eager-TOKENS (larger results are evicted before they "
    "are sent), ski-rental, economic, economic-whole (economic without previews), patient-N (economic with fewer "
    "read-backs: each counts N times its price), or a TOML file of eviction parameters; TOKENS as in 100k or 2500"
)


_WHY_NOT = {
    "window": "it forgets everything at once, and what it summarises cannot be read back",
    "exact": "it rewrites the cache at each result, and its worst sessions pay for that",
    "clear": "it waits for a size, whatever a session costs, and hides results without a price for reading them back",
    "eager": "it hides results before the model has seen them",
    "ski-rental": "it puts no price on reading back, so that what is needed again leaves too",
    "economic-whole": "it sends results of any size whole, so that one of them can fill the window",
    "patient": "it is ctxfs with other parameters, which save less on most sessions",
}


def why_not(name: str) -> str:
    """Why the policy of that name is not what ctxfs does, where it costs less on some sessions."""
    family = next((family for family in _WHY_NOT if name.startswith(family)), None)
    if family is None:
        return "its parameters were found on few sessions" if name != "none" else "on these sessions nothing pays"
    return _WHY_NOT[family]


def policy_named(
    name: str,
    *,
    rates: Rates,
    count: Callable[[str], int],
    compacts_at: int = 170_000,
    ttl_s: float = math.inf,
) -> Policy:
    """The policy of that name; a name that ends in ``.toml`` is read as a file.

    ``compacts_at``: what ``window`` takes for the tokens at which an agent compacts. ``ttl_s``: for how
    long ctxfs assumes that the cache keeps a prefix.

    Raises:
        ConfigError: no such policy, or a file that does not hold eviction parameters.
    """
    if name.endswith(".toml"):
        return Economic(name=Path(name).stem, rates=rates, count=count, ttl_s=ttl_s, parameters=_from_toml(Path(name)))
    plain: dict[str, Policy] = {
        "none": Never(),
        "window": Window(name=name, limit=compacts_at),
        "ski-rental": SkiRental(name=name, rates=rates),
        "economic": Economic(name=name, rates=rates, count=count, ttl_s=ttl_s),
        "economic-whole": Economic(name=name, rates=rates, count=count, ttl_s=ttl_s, preview_above_tokens=None),
    }
    found = plain.get(name) or _with_numbers(name) or _patient(name, rates, count, ttl_s)
    if found is None:
        question = did_you_mean(name, DEFAULT_POLICIES) or "."
        raise ConfigError(f"no policy {name!r}{question} The policies are {POLICY_NAMES}")
    return found


def _with_numbers(name: str) -> Policy | None:
    if m := re.fullmatch(r"exact-([1-9]\d*)", name):
        return KeepRecent(name=name, keep=int(m[1]))
    if m := re.fullmatch(r"clear-(\d+k?)-keep-(\d+)(?:-clear-at-least-(\d+k?))?", name):
        return Clear(name=name, limit=_tokens(m[1]), keep=int(m[2]), at_least=_tokens(m[3] or "0"))
    if m := re.fullmatch(r"window-(\d+k?)", name):
        return Window(name=name, limit=_tokens(m[1]))
    if m := re.fullmatch(r"eager-(\d+k?)", name):
        return Eager(name=name, limit=_tokens(m[1]))
    return None


def _patient(name: str, rates: Rates, count: Callable[[str], int], ttl_s: float) -> Policy | None:
    """Fewer read-backs the more each one counts."""
    m = re.fullmatch(r"patient-([1-9]\d{0,5})", name)
    if m is None:
        return None
    parameters = EvictionParameters(read_back_weight=int(m[1]))
    return Economic(name=name, rates=rates, count=count, ttl_s=ttl_s, parameters=parameters)


def _tokens(text: str) -> int:
    return int(text[:-1]) * 1_000 if text.endswith("k") else int(text)


def _from_toml(path: Path) -> EvictionParameters:
    try:
        return EvictionParameters.from_mapping(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


class _Passive:
    """A run that plans nothing and remembers nothing."""

    def plan(self, _added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        return ()

    def replied(self, _reply: Sequence[Item], _billed: Usage) -> None:
        """Nothing to remember."""

    def read_back(self, _index: int, _call: Item, _page: Item, _billed: Usage) -> None:
        """Nothing to remember."""


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing ever leaves."""

    name: str = "none"

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _Passive()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRecent:
    """What ``@tool(ephemeral=keep)`` does for every tool: exactly, whatever it costs, but for what is still unseen."""

    name: str
    keep: int

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _KeepRecentRun(self.keep)


class _KeepRecentRun(_Passive):
    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._held: dict[str, list[Item]] = {}

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        for item in _results(added):
            self._held.setdefault(item.tool, []).append(item)
        due, unseen = [], frozenset(item.index for item in added)
        for tool, held in self._held.items():
            beyond = held[: -self._keep]
            due += [item for item in beyond if item.index not in unseen]
            self._held[tool] = [item for item in beyond if item.index in unseen] + held[-self._keep :]
        return [_bare(item) for item in due if item.tokens > MIN_PLACEHOLDER_TOKENS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """Above ``limit`` tokens, all results but the last ``keep`` leave, if that frees ``at_least`` tokens."""

    name: str
    limit: int
    keep: int
    at_least: int

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _ClearRun(self)


class _ClearRun(_Passive):
    def __init__(self, policy: Clear) -> None:
        self._policy = policy
        self._total = 0
        self._held: list[Item] = []

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        self._add(added)
        if self._total <= self._policy.limit:
            return ()
        keep = self._policy.keep
        due = [i for i in (self._held[:-keep] if keep else self._held) if i.tokens > MIN_PLACEHOLDER_TOKENS]
        freed = sum(i.tokens - MIN_PLACEHOLDER_TOKENS for i in due)
        if not due or freed < self._policy.at_least:
            return ()
        self._held = self._held[-keep:] if keep else []
        self._total -= freed
        return [_bare(item) for item in due]

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._add(reply)

    def read_back(self, _index: int, call: Item, page: Item, _billed: Usage) -> None:
        self._total += call.tokens + page.tokens

    def _add(self, items: Sequence[Item]) -> None:
        self._total += sum(i.tokens for i in items)
        self._held += _results(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager:
    """Results above ``limit`` tokens leave before they are sent."""

    name: str
    limit: int

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _EagerRun(self.limit)


class _EagerRun(_Passive):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        return [_bare(item) for item in _results(added) if item.tokens > self._limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkiRental:
    """A result pays its cache reads as rent; a batch goes when its rent has paid the rewrite; the last ``keep`` stay.

    A placeholder lists the first ``identifiers`` distinct identifiers; 0 means none.
    """

    name: str
    rates: Rates
    keep: int = 8
    identifiers: int = 40

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        return _SkiRentalRun(self, session)


class _SkiRentalRun(_Passive):
    def __init__(self, policy: SkiRental, session: Session) -> None:
        self._policy, self._session = policy, session
        self._context: list[tuple[Item, int]] = []  # an item, or its placeholder, and its tokens now
        self._offers: dict[int, Replacement] = {}  # results that could leave
        self._rent: dict[int, float] = {}
        self._recent: list[int] = []

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        self._context += [(i, i.tokens) for i in added]
        for item in _results(added):
            self._recent.append(item.index)
            offer = self._offer(item)
            if offer.tokens < item.tokens:
                self._offers[item.index] = offer
        kept = frozenset(self._recent[-self._policy.keep :])
        self._recent = self._recent[-self._policy.keep :]
        batch = self._batch(kept)
        sizes = {r.index: r.tokens for r in batch}
        self._context = [(item, sizes.get(item.index, tokens)) for item, tokens in self._context]
        for r in batch:
            del self._offers[r.index]
        return batch

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._context += [(i, i.tokens) for i in reply]

    def read_back(self, _index: int, call: Item, page: Item, _billed: Usage) -> None:
        self._context += [(call, call.tokens), (page, page.tokens)]

    def _batch(self, kept: frozenset[int]) -> list[Replacement]:
        rates = self._policy.rates
        behind, rent, best = 0, 0.0, 0
        batch: list[Replacement] = []
        for item, tokens in reversed(self._context):
            offer = self._offers.get(item.index)
            if offer is None or item.index in kept:
                behind += tokens
                continue
            behind += offer.tokens
            self._rent[item.index] = self._rent.get(item.index, 0.0) + rates.read * (tokens - offer.tokens)
            rent += self._rent[item.index]
            batch.append(offer)
            if rent >= (rates.write - rates.read) * behind:
                best = len(batch)
        return batch[:best]

    def _offer(self, item: Item) -> Replacement:
        names = list(identifiers_in(item.text))[: self._policy.identifiers]
        known = self._session.vocabulary
        size = MIN_PLACEHOLDER_TOKENS + -(-sum(len(name) + 1 for name in names) // 4)
        return Replacement(item.index, size, tuple(known[name] for name in names if name in known))


def _results(items: Sequence[Item]) -> Iterator[Item]:
    return (item for item in items if item.kind is Kind.TOOL_RESULT)


def _bare(item: Item) -> Replacement:
    return Replacement(item.index, MIN_PLACEHOLDER_TOKENS)
