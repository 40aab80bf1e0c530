"""What a proxy saved: what its calls cost, and what they would have cost with nothing replaced."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.rates import bill_usd
from ctxfs.session.timeline.cached import Billed, Cached, cached
from ctxfs.text import figures


class _Call(NamedTuple):
    """A billed call.

    ``freed_tokens``: how much larger its prompt would have been, in the provider's tokens. ``counted_freed_tokens``:
    the same by our counter. ``prices`` None: not known.
    """

    usage: Usage
    freed_tokens: int
    counted_freed_tokens: int
    prices: Prices | None


@dataclass(slots=True)
class Savings:
    """The calls of one run. Several threads may use it.

    ``calls``: how many requests for a reply were rewritten, or could have been; ``heard``: how many of them were
    billed. ``sent_tokens`` and ``freed_tokens``: the size of the prompts, and how much larger they would have been, in
    the provider's tokens. ``reading_turns``: how often the model read back inside of a request; each of these
    turns is a call too. ``usd``: what the calls cost, of models whose prices are known.
    """

    calls: int = 0
    reading_turns: int = 0
    heard: int = 0
    sent_tokens: int = 0
    freed_tokens: int = 0
    usd: float = 0.0
    problems: dict[str, int] = field(default_factory=dict)
    _replaced: dict[tuple[str, str], int] = field(default_factory=dict)
    # All calls are kept: only all bills of a conversation together show what its cache held.
    _billed: dict[tuple[str, str], list[_Call]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @property
    def replaced(self) -> int:
        """How many contents were replaced: of each conversation and branch, the most in one request."""
        with self._lock:
            return sum(self._replaced.values())

    @property
    def whole_usd(self) -> float:
        """What they would have cost with nothing replaced."""
        with self._lock:
            billed = [[*calls] for calls in self._billed.values()]
        return sum(map(_whole_usd, billed))

    def answered(self, place: tuple[str, str], *, replaced: int) -> None:
        """Count a call that was answered, and how many contents were replaced in its request."""
        with self._lock:
            self.calls += 1
            self._replaced[place] = max(replaced, self._replaced.get(place, 0))

    def read_back(self) -> None:
        """Count a turn in which the model read back inside of a request."""
        with self._lock:
            self.reading_turns += 1

    def problem(self, reason: str) -> None:
        """Count a request that was sent as it came, for this reason."""
        with self._lock:
            self.problems[reason] = self.problems.get(reason, 0) + 1

    def called(
        self, place: tuple[str, str], usage: Usage, model: str, *, counted_tokens: int, freed_tokens: int
    ) -> None:
        """Count a call that was billed.

        Args:
            place: the conversation and its branch.
            usage: the usage that the provider reports.
            model: the model's name.
            counted_tokens: the size of the prompt by our counter.
            freed_tokens: by how much replacing shortened it, by our counter.

        """
        total = usage.total_input_tokens
        freed = round(freed_tokens * total / counted_tokens) if counted_tokens else 0
        known = known_model(model)
        prices = None if known is None else known.prices
        usd = 0.0 if prices is None else bill_usd(usage, prices)
        with self._lock:
            self.heard += 1
            self.sent_tokens += total
            self.freed_tokens += freed
            self.usd += usd
            self._billed.setdefault(place, []).append(_Call(usage, freed, freed_tokens, prices))

    def lines(self) -> list[str]:
        """What to show the user at the end."""
        with self._lock:  # other threads go on while it is summed up, and all figures are of one moment
            billed = {place: [*calls] for place, calls in self._billed.items()}
            now = replace(self, problems=dict(self.problems), _replaced=dict(self._replaced), _billed=billed)
        replaced = plural(now.replaced, "content")
        lines = [f"{plural(now.calls, 'call')}, {now.heard:,} with a bill; {replaced} replaced"]
        if now.freed_tokens:
            whole = now.sent_tokens + now.freed_tokens
            part = f"{now.freed_tokens:,} of {whole:,} prompt tokens were not sent ({now.freed_tokens / whole:.0%})"
            lines.append(f"{part}{_dollars(now.whole_usd, now.usd)}")
        if now.reading_turns:
            lines.append(f"{plural(now.reading_turns, 'reading turn')} answered inside of the program's requests")
        lines += [f"{plural(count, 'request')} sent unchanged: {reason}" for reason, count in now.problems.items()]
        if now.calls and not (now.replaced or now.freed_tokens or now.problems):
            lines.append("nothing was replaced: no result was due, and none would have paid for a change of the prompt")
        return lines


def _dollars(whole_usd: float, usd: float) -> str:
    if not whole_usd:
        return ""
    whole = figures.usd(whole_usd)
    saved = whole_usd - usd
    if saved < 0:
        return f"; about {figures.usd(-saved)} more than {whole}, the cost of sending everything"
    return f"; about {figures.usd(saved)} of {whole} saved"


def _whole_usd(calls: Sequence[_Call]) -> float:
    """What the calls of one conversation would have cost with nothing replaced."""
    first = calls[0]
    before_tokens = 0
    if first.usage.cache_read_input_tokens:  # an earlier run had sent what it reads, and would have sent what is freed
        before_tokens = first.usage.cache_read_input_tokens + first.freed_tokens
    dollars = 0.0
    for call, held in zip(calls, cached(_bills(calls)), strict=True):
        whole = _whole(call.usage, call.freed_tokens, held, before_tokens)
        before_tokens = whole.total_input_tokens
        if call.prices is not None:
            dollars += bill_usd(whole, call.prices)
    return dollars


def _bills(calls: Sequence[_Call]) -> list[Billed]:
    """The bills; where more was replaced than in the call before, something that had been sent may have been.

    Our own count says it: the provider's tokens for each of ours differ a little from call to call.
    """
    before_tokens = 0
    bills = []
    for call in calls:
        bills.append(Billed(call.usage, call.counted_freed_tokens > before_tokens))
        before_tokens = call.counted_freed_tokens
    return bills


def _whole(usage: Usage, freed_tokens: int, held: Cached, before_tokens: int) -> Usage:
    """What a call would have been billed with nothing replaced; ``before_tokens``: the whole prompt before it."""
    if held is Cached.NEVER:
        return replace(usage, input_tokens=usage.input_tokens + freed_tokens)
    total = usage.total_input_tokens + freed_tokens
    read = usage.cache_read_input_tokens
    if held is Cached.READ:
        read = min(max(before_tokens, read), total)
    rest = total - read
    plain = rest
    if usage.cache_creation_input_tokens:
        plain = min(usage.input_tokens, rest)
    return replace(usage, input_tokens=plain, cache_creation_input_tokens=rest - plain, cache_read_input_tokens=read)
