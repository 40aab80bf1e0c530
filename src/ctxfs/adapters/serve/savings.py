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
from ctxfs.session.records import CallMade, EvictionSet
from ctxfs.session.timeline.cached import Billed, Cached, cached, units_by_model
from ctxfs.session.timeline.effect import compared_window
from ctxfs.text import figures


class _Call(NamedTuple):
    """A billed call.

    ``freed_tokens``: how much larger its prompt would have been, by our counter, as its bill has the size of the
    prompt. ``window_tokens``: the largest prompt. ``prices`` None: not known.
    """

    bill: CallMade
    freed_tokens: int
    window_tokens: int
    prices: Prices | None


@dataclass(slots=True)
class Savings:
    """The calls of one run. Several threads may use it.

    ``calls``: how many requests for a reply were rewritten, or could have been; ``heard``: how many of them were
    billed. ``sent_tokens``: the size of the prompts, in the provider's tokens. ``reading_turns``: how often the model
    read back inside of a request; each of these turns is a call too. ``usd``: what the calls cost, of models whose
    prices are known.
    """

    calls: int = 0
    reading_turns: int = 0
    heard: int = 0
    sent_tokens: int = 0
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
    def freed_tokens(self) -> int:
        """How much larger the prompts would have been with nothing replaced, in the provider's tokens."""
        return sum(sum(_freed_tokens(calls)) for calls in self._by_place())

    @property
    def whole_usd(self) -> float:
        """What they would have cost with nothing replaced, as long as the prompts would have fitted the window."""
        return sum([_without(calls).usd for calls in self._by_place()])

    def _by_place(self) -> list[list[_Call]]:
        with self._lock:
            return [[*calls] for calls in self._billed.values()]

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
        self,
        place: tuple[str, str],
        usage: Usage,
        model: str,
        *,
        counted_tokens: int,
        freed_tokens: int,
        window_tokens: int | None,
    ) -> None:
        """Count a call that was billed.

        Args:
            place: the conversation and its branch.
            usage: the usage that the provider reports.
            model: the model's name.
            counted_tokens: the size of the prompt by our counter.
            freed_tokens: by how much replacing shortened it, by our counter.
            window_tokens: the largest prompt; None means that no limit is set, so it is the model's.

        """
        known = known_model(model)
        prices = None if known is None else known.prices
        usd = 0.0 if prices is None else bill_usd(usage, prices)
        largest = compared_window(EvictionSet(window_tokens=window_tokens), model)
        with self._lock:
            self.heard += 1
            self.sent_tokens += usage.total_input_tokens
            self.usd += usd
            bill = CallMade(number=self.heard, usage=usage, model=model, counted_tokens=counted_tokens)
            self._billed.setdefault(place, []).append(_Call(bill, freed_tokens, largest, prices))

    def lines(self) -> list[str]:
        """What to show the user at the end."""
        with self._lock:  # other threads go on while it is summed up, and all figures are of one moment
            billed = {place: [*calls] for place, calls in self._billed.items()}
            now = replace(self, problems=dict(self.problems), _replaced=dict(self._replaced), _billed=billed)
        replaced = plural(now.replaced, "content")
        lines = [f"{plural(now.calls, 'call')}, {now.heard:,} with a bill; {replaced} replaced"]
        freed = now.freed_tokens
        if freed:
            whole = now.sent_tokens + freed
            without = [_without(calls) for calls in billed.values()]
            dollars = _dollars(sum([one.usd for one in without]), now.usd)
            lines.append(f"{freed:,} of {whole:,} prompt tokens were not sent ({freed / whole:.0%}){dollars}")
            too_long = sum([one.is_too_long for one in without])
            if too_long:
                which = f"{plural(too_long, 'conversation')} would not have fitted the window with everything sent"
                lines.append(f"{which}: dollars are counted up to there")
        if now.reading_turns:
            lines.append(f"{plural(now.reading_turns, 'reading turn')} answered inside of the program's requests")
        lines += [f"{plural(count, 'request')} sent unchanged: {reason}" for reason, count in now.problems.items()]
        if now.calls and not (now.replaced or freed or now.problems):
            lines.append(
                "nothing was replaced: the requests held no tool result that was due or would have paid for a change "
                "of the prompt, or no tool that could open it (a proxy has --read-tool and --reading-turns)"
            )
        return lines


def _dollars(whole_usd: float, usd: float) -> str:
    if not whole_usd:
        return ""
    whole = figures.usd(whole_usd)
    saved = whole_usd - usd
    if saved < 0:
        return f"; about {figures.usd(-saved)} more than {whole}, the cost of sending everything"
    return f"; about {figures.usd(saved)} of {whole} saved"


def _freed_tokens(calls: Sequence[_Call]) -> list[int]:
    """How much larger the prompt of each call of one conversation would have been, in the provider's tokens."""
    of_model = units_by_model(call.bill for call in calls)
    return [round(of_model[call.bill.model] * call.freed_tokens) for call in calls]


class _Without(NamedTuple):
    """What one conversation would have cost with nothing replaced.

    ``is_too_long``: a prompt would not have fitted the window. As the conversation could not have gone on, the calls
    from there on count with what they cost.
    """

    usd: float
    is_too_long: bool


def _without(calls: Sequence[_Call]) -> _Without:
    freed = _freed_tokens(calls)
    first = calls[0].bill.usage
    before_tokens = 0
    if first.cache_read_input_tokens:  # an earlier run had sent what it reads, and would have sent what is freed
        before_tokens = first.cache_read_input_tokens + freed[0]
    dollars = 0.0
    is_too_long = False
    for call, freed_tokens, held in zip(calls, freed, cached(_bills(calls)), strict=True):
        whole = _whole(call.bill.usage, freed_tokens, held, before_tokens)
        before_tokens = whole.total_input_tokens
        is_too_long = is_too_long or before_tokens > call.window_tokens
        if call.prices is not None:
            dollars += bill_usd(call.bill.usage if is_too_long else whole, call.prices)
    return _Without(dollars, is_too_long)


def _bills(calls: Sequence[_Call]) -> list[Billed]:
    """The bills; where more was replaced than in the call before, something that had been sent may have been."""
    before_tokens = 0
    bills = []
    for call in calls:
        bills.append(Billed(call.bill.usage, call.freed_tokens > before_tokens))
        before_tokens = call.freed_tokens
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
