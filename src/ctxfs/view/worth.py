"""What evictions were worth: what the session would have cost without them, and what each saved and cost. Pure.

The figures are estimates by the rules of ``session.timeline.costs``. Dollars are at the prices of the last billed
model.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from ctxfs.view.activity import Activity, Event, EventKind, ItemLife

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What one eviction saved and cost so far.

    Args:
        calls: the number of calls without the content.
        saved_tokens: the prompt tokens that were not sent, over all these calls.
        saved_usd: what these would have cost; None: no price is known.
        rewritten_tokens: what the prompt cache had to take in again because of all evictions before the same call.
        rewritten_usd: what that cost more than reading the same tokens from the cache; None: no price is known.
        others: how many other items were evicted before the same call.
    """

    calls: int
    saved_tokens: int
    saved_usd: float | None
    rewritten_tokens: int
    rewritten_usd: float | None
    others: int

    @property
    def net_usd(self) -> float | None:
        """What the eviction saved, less what it cost; None: no price is known, or other evictions share the cost."""
        if self.saved_usd is None or self.rewritten_usd is None or self.others:
            return None
        return self.saved_usd - self.rewritten_usd


def worth(activity: Activity, life: ItemLife, event: Event) -> Worth:
    """What ``event`` was worth: an eviction of this item, and of any items that were evicted together with it."""
    end = len(activity.calls) + 1
    freed: list[tuple[int, int]] = []  # from which call on, and how many tokens
    for later in life.events[life.events.index(event) :]:
        if later.kind is EventKind.RESTORED:
            end = later.call
            break
        if later is event or later.kind is EventKind.SHORTENED:
            freed.append((later.call, later.tokens_before - later.tokens_after))
    calls = max(0, end - event.call)
    saved = sum(max(0, end - call) * tokens for call, tokens in freed)
    rates, unit_usd = _rates(activity)
    prices = activity.account.token_prices(rates)
    saved_units = sum(tokens * sum(prices[call - 1 : end - 1]) for call, tokens in freed)
    rewritten = 0
    rewritten_units = 0.0
    if calls:
        rewritten = activity.account.rewritten()[event.call - 1]
        rewritten_units = activity.account.rewriting_by_call(rates)[event.call - 1]
        if not event.sent:
            unsent_price = activity.account.written_again_prices(rates)[event.call - 1]
            saved_units += unsent_price * (event.tokens_before - event.tokens_after)
    together = [e for e in activity.events if e.call == event.call and e.is_eviction]
    return Worth(
        calls=calls,
        saved_tokens=saved,
        saved_usd=_usd(saved_units, unit_usd),
        rewritten_tokens=rewritten,
        rewritten_usd=_usd(rewritten_units, unit_usd),
        others=sum(len(e.item_ids) for e in together) - 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unevicted:
    """The session as it would have been without evictions.

    Args:
        usd: what each call would have cost, as long as the context fits the window; empty: not every call has a bill
            with a known price.
        too_long_from: the first call whose context would not have fit in the window; None: all would have fit.
    """

    usd: Sequence[float] = ()
    too_long_from: int | None = None


def unevicted(activity: Activity, *, window_tokens: int | None) -> Unevicted:
    """What the session would have been without evictions. ``window_tokens``: the largest prompt; None: not known."""
    rates, unit_usd = _rates(activity)
    too_long_from = None if window_tokens is None else activity.account.too_long_from(window_tokens)
    bills = [call.usd for call in activity.calls if call.usd is not None]
    if unit_usd is None or len(bills) < len(activity.calls):
        return Unevicted(too_long_from=too_long_from)
    saved = activity.account.saved_by_call(rates)
    read_back = Counter[int]()
    for event in activity.events:
        if event.kind is EventKind.READ_BACK:
            read_back[event.call] += event.tokens_before
    usd = []
    rewriting = activity.account.rewriting_by_call(rates)
    units = activity.account.units
    rows = zip(bills, saved, rewriting, units, strict=True)
    for number, (paid, more, again, unit) in enumerate(rows, 1):
        less = again + rates.write * unit * read_back[number]
        usd.append(max(0.0, paid + unit_usd * (more - less)))
    return Unevicted(usd=usd[: None if too_long_from is None else too_long_from - 1], too_long_from=too_long_from)


def _rates(activity: Activity) -> tuple[Rates, float | None]:
    """The rates of the session's model, and the dollars of one uncached input token; None: not known."""
    prices = activity.paid.prices(activity.model) if activity.model else None
    if prices is None:
        return ANTHROPIC_RATES, None
    return Rates.of(prices, activity.paid.ttl(prices)), prices.input / _MILLION


def _usd(units: float, unit_usd: float | None) -> float | None:
    return None if unit_usd is None else units * unit_usd
