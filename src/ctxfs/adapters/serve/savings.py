"""What a proxy saved: what its calls cost, and what they would have cost with nothing replaced. Pure."""

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
    """A billed call; ``freed_tokens``: how much larger its prompt would have been. ``prices`` None: not known."""

    usage: Usage
    freed_tokens: int
    prices: Prices | None


@dataclass(slots=True)
class Savings:
    """The calls of one run.

    ``calls``: how many requests for a reply were rewritten, or could have been; ``heard``: how many of them were
    billed. ``sent_tokens`` and ``freed_tokens``: the size of the prompts, and how much larger they would have been, in
    the provider's tokens. ``reading_turns``: how often the model read back inside of a request; each of these
    turns is a call too.
    """

    calls: int = 0
    reading_turns: int = 0
    heard: int = 0
    sent_tokens: int = 0
    freed_tokens: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    _replaced: dict[tuple[str, str], int] = field(default_factory=dict)
    _billed: dict[tuple[str, str], list[_Call]] = field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """How many contents were replaced: of each conversation and branch, the most in one request."""
        return sum(self._replaced.values())

    @property
    def usd(self) -> float:
        """What the calls cost, of models whose prices are known."""
        every = [call for calls in self._billed.values() for call in calls]
        return sum(bill_usd(call.usage, call.prices) for call in every if call.prices is not None)

    @property
    def whole_usd(self) -> float:
        """What they would have cost with nothing replaced."""
        return sum(map(_whole_usd, self._billed.values()))

    def answered(self, place: tuple[str, str], *, replaced: int) -> None:
        """Count a call that was answered, and how many contents were replaced in its request."""
        self.calls += 1
        self._replaced[place] = max(replaced, self._replaced.get(place, 0))

    def problem(self, reason: str) -> None:
        """Count a request that was sent as it came, for this reason."""
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
        self.heard += 1
        self.sent_tokens += total
        self.freed_tokens += freed
        known = known_model(model)
        prices = None if known is None else known.prices
        self._billed.setdefault(place, []).append(_Call(usage, freed, prices))

    def lines(self) -> list[str]:
        """What to show the user at the end."""
        replaced = plural(self.replaced, "content")
        lines = [f"{plural(self.calls, 'call')}, {self.heard:,} of them with a bill; {replaced} replaced"]
        if self.freed_tokens:
            whole = self.sent_tokens + self.freed_tokens
            part = f"{self.freed_tokens:,} of {whole:,} prompt tokens were not sent ({self.freed_tokens / whole:.0%})"
            lines.append(f"{part}{self._dollars()}")
        if self.reading_turns:
            lines.append(f"{plural(self.reading_turns, 'reading turn')} answered inside of the program's requests")
        lines += [f"{plural(count, 'request')} sent unchanged: {reason}" for reason, count in self.problems.items()]
        return lines

    def _dollars(self) -> str:
        whole_usd = self.whole_usd
        if not whole_usd:
            return ""
        whole = figures.usd(whole_usd)
        saved = whole_usd - self.usd
        if saved < 0:
            return f"; about {figures.usd(-saved)} more than {whole}, the cost of sending everything"
        return f"; about {figures.usd(saved)} of {whole} saved"


def _whole_usd(calls: Sequence[_Call]) -> float:
    """What the calls of one conversation would have cost with nothing replaced."""
    before_tokens = 0
    dollars = 0.0
    for call, held in zip(calls, cached(_bills(calls)), strict=True):
        whole = _whole(call.usage, call.freed_tokens, held, before_tokens)
        before_tokens = whole.total_input_tokens
        if call.prices is not None:
            dollars += bill_usd(whole, call.prices)
    return dollars


def _bills(calls: Sequence[_Call]) -> list[Billed]:
    """The bills; where more was replaced than in the call before, something that had been sent may have been."""
    before_tokens = 0
    bills = []
    for call in calls:
        bills.append(Billed(call.usage, call.freed_tokens > before_tokens))
        before_tokens = call.freed_tokens
    return bills


def _whole(usage: Usage, freed_tokens: int, held: Cached, before_tokens: int) -> Usage:
    """What a call would have been billed with nothing replaced; ``before_tokens``: the whole prompt before it."""
    if held is Cached.NEVER:
        return replace(usage, input_tokens=usage.input_tokens + freed_tokens)
    total = usage.total_input_tokens + freed_tokens
    read = 0
    if held is Cached.READ:
        read = min(max(before_tokens, usage.cache_read_input_tokens), total)
    rest = total - read
    plain = rest
    if usage.cache_creation_input_tokens:
        plain = min(usage.input_tokens, rest)
    return replace(usage, input_tokens=plain, cache_creation_input_tokens=rest - plain, cache_read_input_tokens=read)
