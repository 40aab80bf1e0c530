"""What keep-recent costs where a prompt cache has to be written again for it, and who is told."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context import Context, History
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.keep_recent import KeepRecentCost
from ctxfs.messages import CharsCounter
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.rates import ANTHROPIC_RATES

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

CACHED = Prices(input=1.0, output=5.0, cache_read=0.1, cache_write={"5m": 1.25})
WITHOUT_CACHE = Prices(input=1.0, output=5.0, cache_read=1.0)
PAGE = "a line of a page that is shown once\n" * 200


def turn(number: int) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number} {PAGE}"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def pricing(prices: Prices) -> EvictionPricing:
    return EvictionPricing(prices=prices)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "keep_recent" in r.getMessage() and r.levelno == logging.WARNING]


@pytest.mark.parametrize(("prices", "warnings"), [(CACHED, 1), (WITHOUT_CACHE, 0)], ids=["cache", "no cache"])
async def test_a_context_tells_once_that_keep_recent_costs_more_than_it_saves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prices: Prices, warnings: int
) -> None:
    settings: dict[str, Any] = {"keep_recent": {"look": 2}, "pricing": pricing(prices), "counter": CharsCounter()}
    async with Context(root_path=tmp_path, **settings) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(20):
            await context.add(*turn(number))
            await context.request()
    found = told(caplog)
    assert len(found) == warnings
    assert all(" times what never evicting would have cost" in text for text in found)


def test_a_history_tells_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    with History(root_path=tmp_path, keep_recent={"look": 2}, counter=CharsCounter()) as history:
        for number in range(20):
            messages += turn(number)
            history.messages({"messages": messages})
    assert len(told(caplog)) == 1


def test_the_figure_is_what_rewrites_cost_and_what_calls_save() -> None:
    cost = KeepRecentCost()
    for _ in range(10):
        cost.evicted(saved_tokens=100, rewritten_tokens=2_000, rates=ANTHROPIC_RATES)
        cost.called(ANTHROPIC_RATES)
    assert cost.extra == pytest.approx(10 * 2_000 * 1.15)
    assert cost.saved == pytest.approx(0.1 * 100 * sum(range(1, 11)))
    warning = cost.warning(spent=20_000)
    assert warning is not None
    assert f"{(20_000 + 23_000) / (20_000 + 550):.1f} times" in warning
    assert "10 times a result left, and 20,000 tokens behind them" in warning
    assert cost.warning(spent=1_000_000) is None  # hardly more than never evicting


def test_a_few_rewrites_say_nothing_yet() -> None:
    cost = KeepRecentCost()
    for _ in range(9):
        cost.evicted(saved_tokens=100, rewritten_tokens=2_000, rates=ANTHROPIC_RATES)
    assert cost.warning(spent=100) is None


@pytest.mark.parametrize("lines", range(1, 30))
async def test_a_result_whose_placeholder_saves_next_to_nothing_leaves_the_ledger_too(
    tmp_path: Path, lines: int
) -> None:
    """The planner counts it as text that stays; keep_recent evicts it all the same."""
    async with Context(root_path=tmp_path, keep_recent={"look": 1}, counter=CharsCounter()) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(4):
            call, result = turn(number)
            result["content"][0]["content"] = f"{number} short line\n" * lines
            await context.add(call, result)
            await context.request()
        economy = context._live.transcript.economy  # noqa: SLF001 - decisions show it only when they differ
        assert economy is not None
        assert economy.ledger.total_tokens == sum(item.token_count for item in context.items)
