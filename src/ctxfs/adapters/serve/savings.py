"""What a proxy saved: what its calls cost, and what they would have cost with nothing replaced. Pure."""

from dataclasses import dataclass, field, replace

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.rates import bill_usd
from ctxfs.text import figures


@dataclass(slots=True)
class Savings:
    """The calls of one run.

    ``calls``: how many requests for a reply were rewritten, or could have been; ``heard``: how many of them were
    billed. ``sent_tokens`` and ``freed_tokens``: the size of the prompts, and how much larger they would have been, in
    the provider's tokens. ``usd`` and ``whole_usd``: what the calls cost, and what they would have cost; only for
    models whose prices are known. ``reading_turns``: how often the model read back inside of a request; each of these
    turns is a call too.
    """

    calls: int = 0
    reading_turns: int = 0
    heard: int = 0
    sent_tokens: int = 0
    freed_tokens: int = 0
    usd: float = 0.0
    whole_usd: float = 0.0
    problems: dict[str, int] = field(default_factory=dict)
    _replaced: dict[tuple[str, str], int] = field(default_factory=dict)
    _cached: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """How many contents were replaced: of each conversation and branch, the most in one request."""
        return sum(self._replaced.values())

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
        whole = _whole(usage, freed, cached_tokens=self._cached.get(place, 0))
        self._cached[place] = total + freed
        known = known_model(model)
        if known is not None and known.prices is not None:
            self.usd += bill_usd(usage, known.prices)
            self.whole_usd += bill_usd(whole, known.prices)

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
        if not self.whole_usd:
            return ""
        whole = figures.usd(self.whole_usd)
        saved = self.whole_usd - self.usd
        if saved < 0:
            return f"; about {figures.usd(-saved)} more than {whole}, the cost of sending everything"
        return f"; about {figures.usd(saved)} of {whole} saved"


def _whole(usage: Usage, freed_tokens: int, *, cached_tokens: int) -> Usage:
    """What the call would have been billed with nothing replaced.

    If the provider's cache was warm, it would have held the whole prompt of the call before; if not, nothing.
    """
    total = usage.total_input_tokens + freed_tokens
    warm = usage.cache_read_input_tokens
    read = min(max(cached_tokens, warm), total) if warm else 0
    rest = total - read
    if usage.cache_creation_input_tokens:
        plain = min(usage.input_tokens, rest)
        return replace(
            usage, input_tokens=plain, cache_creation_input_tokens=rest - plain, cache_read_input_tokens=read
        )
    return replace(usage, input_tokens=rest, cache_read_input_tokens=read)
