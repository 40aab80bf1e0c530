"""What a cache would have done for what evictions kept out: one rule, and both who count by it agree on dollars."""

import pytest

from ctxfs.adapters.serve.savings import Savings
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade, Decided, Record
from ctxfs.session.timeline.cached import Billed, Cached, cached
from ctxfs.session.timeline.costs import account

READ, WRITTEN, NEVER = Cached.READ, Cached.WRITTEN, Cached.NEVER
SYSTEM = 2_000
"""The tokens of the system prompt and the tools."""
STEP = 3_000
"""The tokens that each call adds to the conversation: a result."""
LEFT = 100
"""The tokens of a placeholder. A result leaves when the next one has been seen, too."""


def bill(read: int = 0, written: int = 0, plain: int = 0) -> Usage:
    return Usage(input_tokens=plain, cache_creation_input_tokens=written, cache_read_input_tokens=read)


@pytest.mark.parametrize(
    ("bills", "changed", "found"),
    [
        ([bill(plain=900), bill(plain=1_800)], (), [NEVER, NEVER]),
        ([bill(plain=900), bill(plain=1_800)], (1,), [NEVER, NEVER]),
        ([bill(written=900), bill(900, 900), bill(written=2_700)], (), [WRITTEN, READ, WRITTEN]),
        ([bill(written=900), bill(900, 900), bill(written=2_700)], (2,), [WRITTEN, READ, READ]),
        (
            [bill(plain=900), bill(768, plain=900), bill(plain=2_700), bill(plain=3_600)],
            (2,),
            [NEVER, READ, READ, NEVER],
        ),
        # A system prompt alone: of two bills it may be chance.
        ([bill(written=500, plain=9), bill(500, plain=900), bill(500, plain=1_800)], (2,), [NEVER, NEVER, NEVER]),
        ([bill(written=500, plain=9), bill(500, plain=900)], (), [WRITTEN, READ]),
        ([bill(500, plain=9)] * 3, (), [READ, READ, READ]),
        ([bill(500, plain=9), bill(500, plain=900), bill(600, plain=1_800)], (), [READ, READ, READ]),
        ([bill(written=500), bill(500, plain=900), bill(500, plain=1_800)], (2,), [WRITTEN, NEVER, NEVER]),
        # Prompts that differ by less than 1,024 tokens: the cache may hold the conversation, and count in steps.
        ([bill(12_288, plain=12), bill(12_288, plain=40), bill(12_288, plain=1_035)], (), [READ, READ, READ]),
        ([bill(12_288, plain=12), bill(12_288, plain=40), bill(12_288, plain=1_036)], (), [NEVER, NEVER, NEVER]),
        # The conversation has expired, and the system prompt has not.
        ([bill(58_000, 2_000), bill(15_000, 48_000), bill(63_000, 900)], (), [READ, WRITTEN, READ]),
        ([bill(58_000, 2_000), None, bill(15_000, 48_000)], (), [READ, READ, WRITTEN]),
        ([bill(58_000, 2_000), bill(15_000, 48_000)], (1,), [READ, READ]),
        # Most of it was read: a long result came, or the prompt is that of a short branch. Or nothing is known before.
        ([bill(written=5_000), bill(5_000, 90_000)], (), [WRITTEN, READ]),
        ([bill(58_000, 2_000), bill(15_000, 5_000)], (), [READ, READ]),
        ([bill(15_000, 48_000)], (), [READ]),
        ([None, bill(900)], (), [READ, READ]),
        ([], (), []),
    ],
)
def test_what_the_bills_say(bills: list[Usage | None], changed: tuple[int, ...], found: list[Cached]) -> None:
    assert cached([Billed(usage, number in changed) for number, usage in enumerate(bills)]) == found


def evicting(calls: int, until: int) -> list[tuple[int, int, int]]:
    """Of each call: its prompt, what was evicted from it, and what the eviction before it made to be rewritten.

    From the call ``until`` on, nothing more is evicted.
    """
    found = []
    for number in range(calls):
        left = max(0, min(number, until) - 2)
        rewritten = STEP + LEFT if left and number <= until else 0
        found.append((SYSTEM + STEP * (number - left) + LEFT * left, (STEP - LEFT) * left, rewritten))
    return found


def no_cache(prompt: int, before: int, kept: int) -> Usage:
    return bill(plain=prompt)


def system_only(prompt: int, before: int, kept: int) -> Usage:
    if before:
        return bill(SYSTEM, plain=prompt - SYSTEM)
    return bill(written=SYSTEM, plain=prompt - SYSTEM)


def moving(prompt: int, before: int, kept: int) -> Usage:
    return bill(kept, prompt - kept)


def expiring(prompt: int, before: int, kept: int) -> Usage:
    """The conversation expires before each call before which nothing was changed; the system prompt does not."""
    if kept < before:
        return bill(kept, prompt - kept)
    if before:
        return bill(SYSTEM, prompt - SYSTEM)
    return bill(written=prompt)


def automatic(prompt: int, before: int, kept: int) -> Usage:
    return bill(kept, plain=prompt - kept)


@pytest.mark.not_measured
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        (no_cache, "claude-sonnet-4-5"),
        (system_only, "claude-sonnet-4-5"),
        (moving, "claude-sonnet-4-5"),
        (expiring, "claude-sonnet-4-5"),
        (automatic, "gpt-5"),
    ],
)
@pytest.mark.parametrize("factor", [1.0, 0.6, 1.7])
def test_a_transport_and_explain_count_the_same_savings(provider: object, model: str, factor: float) -> None:
    """``factor``: how many tokens are billed for one of ours."""
    known = known_model(model)
    assert known is not None
    assert known.prices is not None
    assert callable(provider)
    savings = Savings()
    records: list[Record] = []
    before = 0
    for number, (prompt, evicted, rewritten) in enumerate(evicting(30, until=20)):
        kept = before - 2 * STEP if rewritten else before
        usage = provider(prompt, before, kept)
        counted = round(prompt / factor / (1 + number / 5_000))  # what the provider counts drifts away from our count
        freed = round(evicted / factor)
        savings.called(("s", ""), usage, model, counted_tokens=counted, freed_tokens=freed, window_tokens=None)
        if rewritten:
            records.append(
                Decided(
                    kind="result",
                    call_id=f"c{number}",
                    sha256=str(number),
                    item_id=f"c{number}",
                    content="…",
                    tokens_before=round(STEP / factor),
                    tokens=round(LEFT / factor),
                    reason="due",
                    tokens_rewritten=round(rewritten / factor),
                )
            )
        records.append(CallMade(number=number, usage=usage, model=model, counted_tokens=counted, made_at=0.0))
        before = prompt
    costs = account(records)
    rates = Rates.of(known.prices)
    net = (costs.saved(rates) - costs.rewriting(rates)) * known.prices.input / 1e6
    saved = savings.whole_usd - savings.usd
    assert saved == pytest.approx(net, rel=0.1)
    assert saved > 0
