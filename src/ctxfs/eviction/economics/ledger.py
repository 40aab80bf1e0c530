"""What economic planning needs to know of a session, kept up as items come and go: a call costs what changed.

What the provider's cache was believed to hold is checked by what a request was billed.
"""

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import Final, Self

from ctxfs.eviction.economics.held import Candidate, Chain, Held
from ctxfs.eviction.economics.parameters import LEAST_SAVED_TOKENS, EvictionParameters
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates

_NO_CACHE_AFTER: Final = 4
"""So many misses in a row say that there is no cache, where the provider does not say what it holds.

After one or two, the next call finds it in 87 and 79 of 100 cases (3,957 recorded calls of such a provider).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What a request was billed, in tokens as the provider counts them.

    ``read``: those of the prompt that the cache held; ``held``: those that it holds since then. None: the provider
    caches automatically, and does not say what.
    """

    prompt: int
    read: int
    held: int | None = None

    @classmethod
    def of(cls, usage: Usage, *, charges_writes: bool) -> "Billed":
        """``usage``; a provider that charges for what it writes to the cache says what it wrote."""
        read = usage.cache_read_input_tokens
        written = usage.cache_creation_input_tokens
        held = read + written if charges_writes or written else None
        return cls(prompt=usage.total_input_tokens, read=read, held=held)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a bill says of the cache, in tokens of the ledger.

    ``missed``: what the request did not find of what was believed to be cached; ``lost``: the end of the request that
    is not cached now; ``misses``: how many calls in a row found less than half of what was believed.
    """

    missed: int = 0
    lost: int = 0
    misses: int = 0

    @classmethod
    def of(cls, billed: Billed, *, total: int, written: int, misses: int) -> "Checked":
        """Check a request of ``total`` tokens, of which the provider was expected to write ``written``."""
        ours = total / max(1, billed.prompt)  # tokens of the ledger for one that was billed
        known = max(0, total - written)
        missed = min(known, max(0, round((billed.prompt - billed.read) * ours) - written))
        misses = misses + 1 if 2 * missed > known else 0
        held = billed.held
        if held is None:
            held = billed.prompt if misses < _NO_CACHE_AFTER else 0
        return cls(missed, round((billed.prompt - held) * ours), misses)


NO_BILL = Checked()
"""All is as it was believed."""


PAGE_TOKENS: Final = 1_000
"""What a read-back brings into the context: the reading tool's page, as far as it is used."""

ASKING_TOKENS: Final = 120
"""What the model writes to ask for a page."""

_MOST_SUMS: Final = 128
_SIMILAR_AGE: Final = 1.1
"""Sums of items whose ages differ by less, as a factor, join when there are too many of them."""


def read_backs_in(age: int, calls: int) -> float:
    """The read-backs in so many calls from an age on, for a hazard of 1 / age: the sum is a logarithm."""
    return log((age + calls) / age)


@dataclass(slots=True)
class OpenReadBacks:
    """The hazards of what was evicted, summed by the call from which they are expected; old sums join."""

    sums: dict[int, float] = field(default_factory=dict)
    _known: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    _known_after: int = field(default=-1, repr=False, compare=False)
    """What was expected after so many calls, by the calls ahead: a request asks to plan, and to see where the next
    batch begins."""

    def add(self, came: int, hazard: float) -> None:
        """Take in the hazard of an item; below 0: it is back."""
        self._known_after = -1
        self.sums[came] = self.sums.get(came, 0.0) + hazard
        if len(self.sums) > _MOST_SUMS:
            self._join()

    def _join(self) -> None:
        """Join sums of similar age, from the youngest on; the younger one's call counts for both.

        It expects no fewer read-backs, and hardly more.
        """
        newest = max(self.sums)
        younger = newest
        joined: dict[int, float] = {}
        for call in sorted(self.sums, reverse=True):
            if newest - call + 1 > _SIMILAR_AGE * (newest - younger + 1):
                younger = call
            joined[younger] = joined.get(younger, 0.0) + self.sums[call]
        self.sums = joined

    def expected(self, calls_made: int, calls: int) -> float:
        """The read-backs to expect in the next ``calls``."""
        if calls_made != self._known_after:
            self._known.clear()
            self._known_after = calls_made
        known = self._known.get(calls)
        if known is not None:
            return known
        total = 0.0
        for came, hazard in self.sums.items():
            # `max` and `read_backs_in`, without their calls: this is asked for each sum, before every request.
            age = calls_made - came + 1 if came < calls_made else 1
            total += hazard * log((age + calls) / age)
        self._known[calls] = total
        return total


@dataclass(slots=True, eq=False, kw_only=True)
class Ledger:
    """The state of one session, as the planner sees it. It changes in place; ``copy`` gives one to try things on.

    Args:
        parameters: the planner's numbers.
        rates: what a token costs.
        calls: model calls made.
        total_tokens: the context now.
        new_tokens: its end that the provider does not hold: what no request has carried yet, from the last reply on,
            and what its cache lost.
        gone_tokens: how much longer the rest would be without eviction; ``gone_new_tokens``: how much longer the new
            end would be. What was read back is taken off, and what leaves by another rule is not counted.
        reply_tokens: the last reply's, with which the context ends if ``reply_is_last``.
        is_detour: the next request is there only for what is read back.
        spent: what the calls would have cost without eviction.
        saved: how much less they did cost, rewrites and read-backs counted in.
        cache_expires_at: when the provider forgets the prefix, on the caller's clock; None: not before the next call.
        reading: the pages that the model has read one after the other, in calls that follow each other.
        read_at: the calls that were made before the last of these pages came.
        left: by id, the items that were evicted: the call from which their read-backs are expected, and their hazard.
        open_read_backs: what may still be read back of all that was evicted or previewed.
        rewritten_tokens: how much of what was sent the next request writes again, for what was evicted.
        misses: how many of the last calls found less than half of what the cache was believed to hold.
        changes: grows with each change, so that a plan is made once.
    """

    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    rates: Rates = ANTHROPIC_RATES
    calls: int = 0
    total_tokens: int = 0
    new_tokens: int = 0
    gone_tokens: int = 0
    gone_new_tokens: int = 0
    reply_tokens: int = 0
    reply_is_last: bool = False
    is_detour: bool = False
    spent: float = 0.0
    saved: float = 0.0
    cache_expires_at: float | None = None
    reading: list[str] = field(default_factory=list)
    read_at: int = -1
    left: dict[str, tuple[int, float]] = field(default_factory=dict)
    open_read_backs: OpenReadBacks = field(default_factory=OpenReadBacks)
    rewritten_tokens: int = 0
    misses: int = 0
    changes: int = 0
    chain: Chain = field(default_factory=Chain, repr=False)

    def copy(self) -> "Ledger":
        """A ledger that knows the same, and may change without this one."""
        other = copy.copy(self)
        other.reading = self.reading.copy()
        other.left = self.left.copy()
        other.open_read_backs = OpenReadBacks(self.open_read_backs.sums.copy())
        other.chain = self.chain.copy()
        return other

    @property
    def held(self) -> Mapping[str, Held]:
        """What could leave, by id, in the order of the context; a view."""
        return self.chain.by_id

    # What happens ----------------------------------------------------------------------------------------------------

    # Each of these changes the ledger, and returns it.

    def added(self, parts: Iterable[Candidate | int]) -> Self:
        """Take in what the next request will carry, in order: items that could leave, and tokens that stay."""
        self.is_detour = False
        self.reply_is_last = False
        self._append(parts, came=self.calls)
        return self

    def read_back(self, item_id: str, parts: Iterable[Candidate | int] = ()) -> Self:
        """Take in what the model read back of an item; if it was not evicted, these are parts like any other."""
        parts = tuple(parts)
        self._read_on([part.id for part in parts if isinstance(part, Candidate)])
        shown = self.held.get(item_id)
        if item_id not in self.left and (shown is None or not shown.candidate.hidden_tokens):
            return self.added(parts)
        self.is_detour = self.is_detour or self.reply_is_last
        self.surplus(parts)
        return self

    def surplus(self, parts: Iterable[Candidate | int]) -> None:
        """Take in what the next request carries, and would not without eviction."""
        before = self.new_tokens
        self._append(parts, came=self.calls)
        self.gone_new_tokens -= self.new_tokens - before

    def replied(
        self,
        parts: Iterable[Candidate | int],
        *,
        cache_expires_at: float | None = None,
        billed: Billed | None = None,
    ) -> Self:
        """The model has seen everything, and replied with ``parts``.

        ``cache_expires_at``: as above. ``billed``: what the request was billed; None: not known, so all of it is taken
        to be cached.
        """
        checked = NO_BILL
        if billed is not None:
            written = self.new_tokens + self.rewritten_tokens
            checked = Checked.of(billed, total=self.total_tokens, written=written, misses=self.misses)
        never, paid = self._next_request(missed=checked.missed)
        self.spent += never
        self.saved += never - paid
        if self.is_detour:
            self.gone_tokens -= self.reply_tokens
        self.gone_tokens += self.gone_new_tokens
        self.new_tokens = 0
        self.gone_new_tokens = 0
        self.rewritten_tokens = 0
        self.is_detour = False
        self.lost(checked.lost)
        self.misses = checked.misses
        self.calls += 1
        self.cache_expires_at = cache_expires_at
        before = self.total_tokens
        self._append(parts, came=self.calls - 1)
        self.reply_tokens = self.total_tokens - before
        self.reply_is_last = True
        return self

    def evicted(self, item_ids: Collection[str], *, cold: bool = False) -> Self:
        """These were replaced by their placeholders; ids that are not held change nothing.

        ``cold``: the cache has expired, so that nothing is rewritten for it.
        """
        leaving = self.held.keys() & frozenset(item_ids)
        if not leaving:
            return self
        new_tokens = self.new_tokens
        freed = 0
        rewritten = 0  # tokens from the oldest that was sent on, once all have left
        for held, tokens in self.chain.with_tokens(leaving):
            saved = held.saved_tokens
            freed += saved
            if tokens <= new_tokens:
                self.new_tokens -= saved
                self.gone_new_tokens += saved
            elif not held.candidate.pinned:
                self.gone_tokens += saved
                rewritten = tokens - freed
            if held.candidate.hidden_tokens:  # what a preview hides was counted when it came
                self.left[held.id] = (held.came, held.hazard)
            else:
                self.left[held.id] = (held.used, held.hazard)
                self.open_read_backs.add(held.used, held.hazard)
        self.total_tokens -= freed
        self.chain.take_out({one: self.held[one].candidate.placeholder_tokens for one in leaving})
        if self.rates.rewrites_all and rewritten > self.new_tokens:
            rewritten = self.total_tokens
        again = max(0, rewritten - self.new_tokens)
        self.rewritten_tokens = max(self.rewritten_tokens, again)
        if not cold:
            rates = self.rates.at(self.total_tokens)
            self.saved -= (rates.write - rates.read) * again
        self.changes += 1
        return self

    def resized(self, placeholder_tokens: Mapping[str, int]) -> bool:
        """Take in the exact sizes of these items' placeholders; whether one of them was not known.

        An item whose placeholder saves too little is no longer held: it stays.
        """
        stays: dict[str, int] = {}
        changes = self.changes
        for item_id, size in placeholder_tokens.items():
            held = self.held.get(item_id)
            if held is None or held.candidate.placeholder_tokens == size:
                continue
            self.changes += 1
            if held.candidate.tokens - size < LEAST_SAVED_TOKENS:
                stays[item_id] = held.candidate.tokens
            else:
                self.chain.change(held, replace(held.candidate, placeholder_tokens=size))
        if stays:
            self.chain.take_out(stays)
        return self.changes > changes

    def pin(self, item_ids: Collection[str], *, pinned: bool) -> Self:
        """These items are pinned, or free again; ids that are not held change nothing."""
        for item_id in item_ids:
            held = self.held.get(item_id)
            if held is not None and held.candidate.pinned != pinned:
                self.chain.change(held, replace(held.candidate, pinned=pinned))
                self.changes += 1
        return self

    def rebuilt(self, parts: Iterable[Candidate | int], *, unchanged_tokens: int = 0) -> Self:
        """The context was rewritten as ``parts``, behind its first ``unchanged_tokens``; all else is kept."""
        known = min(unchanged_tokens, self.total_tokens - self.new_tokens)
        self._refill(parts)
        self.new_tokens = self.total_tokens - known
        self.gone_tokens = 0
        self.gone_new_tokens = 0
        self.reply_tokens = 0
        self.reply_is_last = False
        self.is_detour = False
        self.rewritten_tokens = 0
        self._take_back()
        return self

    def recounted(self, parts: Iterable[Candidate | int], *, freed_tokens: int, freed_new_tokens: int) -> Self:
        """Tokens that stay are fewer: by ``freed_tokens`` of what was sent, and by ``freed_new_tokens`` of the rest.

        ``parts``: all of them as they are now; all else is kept.
        """
        new_tokens = self.new_tokens - freed_new_tokens
        self._refill(parts)
        self.new_tokens = min(max(0, new_tokens), self.total_tokens)
        self.gone_tokens += freed_tokens
        self.gone_new_tokens += freed_new_tokens
        return self

    def lost(self, tokens: int) -> Self:
        """So many tokens at the end of what was sent are not in the provider's cache."""
        known = self.total_tokens - self.new_tokens
        lost = min(known, max(0, tokens))
        if lost:
            gone = round(self.gone_tokens * lost / known)
            self.new_tokens += lost
            self.gone_new_tokens += gone
            self.gone_tokens -= gone
            self.changes += 1
        return self

    def going_on_from(self, before: "Ledger") -> Self:
        """Take over what ``before`` knew of the same session, whose context is this one, up to small differences."""
        known = min(self.total_tokens, before.total_tokens - before.new_tokens)
        self.lost(self.total_tokens - self.new_tokens - known)
        self.spent = before.spent
        self.saved = before.saved
        self.cache_expires_at = before.cache_expires_at
        self.misses = before.misses
        self.left = before.left.copy()
        self.open_read_backs = OpenReadBacks(before.open_read_backs.sums.copy())
        self._take_back()
        self.changes += 1
        return self

    # What is expected ------------------------------------------------------------------------------------------------

    def horizon(self) -> int:
        """How many more calls to expect: as many as were made, and ten."""
        return 10 + self.calls

    def stay_cost(self, rates: Rates) -> float:
        """What a token costs that stays until a batch takes it: its rent, but no more than a rewrite."""
        return min(rates.read * self.horizon(), max(rates.read, rates.write - rates.read))

    def read_back_price(self, rates: Rates) -> float:
        """What one read-back costs: the context is read once more, a reply asks, and a page comes and stays a while."""
        page = (rates.write + self.stay_cost(rates)) * (PAGE_TOKENS + ASKING_TOKENS)
        return rates.read * self.total_tokens + rates.output * ASKING_TOKENS + page

    @property
    def saved_then(self) -> float:
        """What the session will have saved once the next request is sent, if nothing more is evicted."""
        never, paid = self._next_request()
        return self.saved + never - paid

    def is_cold(self, now: float | None) -> bool:
        """Whether the provider holds nothing at the time ``now``, which is None where time has no say."""
        if now is not None and self.cache_expires_at is not None and now >= self.cache_expires_at:
            return True
        return self.calls > 0 and self.new_tokens >= self.total_tokens

    # Bookkeeping -----------------------------------------------------------------------------------------------------

    def _append(self, parts: Iterable[Candidate | int], *, came: int, known: Mapping[str, Held] | None = None) -> None:
        """These stand at the end of the context now; ``known``: those that were there before."""
        parameters = self.parameters
        for part in parts:
            tokens = part if isinstance(part, int) else part.tokens
            self.total_tokens += tokens
            self.new_tokens += tokens
            if isinstance(part, int) or tokens - part.placeholder_tokens < LEAST_SAVED_TOKENS:
                self.chain.followed_by(tokens)
                continue
            hazard = parameters.hazard(part.kind, tokens + part.hidden_tokens)
            before = None if known is None else known.get(part.id)
            held = Held(part, came, came, tokens - part.placeholder_tokens, hazard)
            if before is not None:
                held.came = before.came
                held.used = before.used
            self.chain.append(held)
            if part.hidden_tokens and not part.is_counted and known is None:
                # A preview hides the rest from the first request on: that is saved, and may be read back.
                self.gone_new_tokens += part.hidden_tokens
                self.open_read_backs.add(came, hazard)
        self.changes += 1

    def _refill(self, parts: Iterable[Candidate | int]) -> None:
        """The context holds ``parts``, and nothing else; the ages of items that it held before count on."""
        known_items = dict(self.held)
        self.chain = Chain()
        self.total_tokens = 0
        self._append(parts, came=self.calls - 1, known=known_items)

    def _read_on(self, pages: Iterable[str]) -> None:
        """These pages come now. Those that were read just before them stay as long: they are one reading.

        A model that reads a long content page by page needs them together, and would ask for the first ones again.
        """
        if self.calls - self.read_at > 1:
            self.reading = []
        for page in self.reading:
            held = self.held.get(page)
            if held is not None:
                self.chain.use(held, self.calls)
        self.reading += pages
        self.read_at = self.calls

    def _take_back(self) -> None:
        """Expect no read-backs of contents that are back; of one that a preview or placeholder hides, they go on."""
        for item_id in self.held.keys() & self.left.keys():
            if not self.held[item_id].candidate.hidden_tokens:
                since, hazard = self.left.pop(item_id)
                self.open_read_backs.add(since, -hazard)

    def _next_request(self, missed: int = 0) -> tuple[float, float]:
        """What the next request costs without eviction, and as the context is.

        ``missed``: so many tokens of what was sent must be written again, since the cache had lost them.
        """
        known = self.total_tokens - self.new_tokens
        at = self.rates.at(self.total_tokens)
        paid = at.read * (known - missed) + at.write * (self.new_tokens + missed)
        if self.is_detour:  # without eviction there would be neither this request nor the reply that asked for it
            return 0.0, paid + at.output * self.reply_tokens
        longer = self.rates.at(self.total_tokens + self.gone_tokens + self.gone_new_tokens)
        never = longer.read * (known + self.gone_tokens) + longer.write * (self.new_tokens + self.gone_new_tokens)
        if missed:  # of the longer context as large a share was lost
            never += (longer.write - longer.read) * missed * (known + self.gone_tokens) / known
        return never, paid
