"""The table that ships is what the script makes of ``genai-prices``; every row can be planned and billed with."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctxfs.messages.base import Usage
from ctxfs.messages.models import genai
from ctxfs.messages.models.genai import SNAPSHOT, live_rows, rows_of
from ctxfs.messages.models.known import known_model
from ctxfs.messages.models.table import DATE, ROWS, VERSION
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade
from ctxfs.session.timeline.effect import Paid

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
INSTALLED = next((d.version for d in metadata.distributions(name="genai-prices")), None)

needs_genai_prices = pytest.mark.skipif(
    INSTALLED != VERSION, reason=f"THE TABLE OF MODELS IS NOT CHECKED: it needs genai-prices {VERSION}, not {INSTALLED}"
)


@needs_genai_prices
def test_the_table_is_what_the_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = import_module("make_model_table")
    try:
        assert script.TABLE.read_text() == script.table(date.fromisoformat(DATE)), "python scripts/make_model_table.py"
    finally:
        del sys.modules["make_model_table"]


@needs_genai_prices
def test_the_installed_package_is_used_live() -> None:
    rows = live_rows()
    assert rows is not None
    assert rows is live_rows()
    assert rows is not ROWS
    assert rows.keys() == ROWS.keys()


@pytest.mark.not_measured
@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_can_be_planned_with(name: str) -> None:
    info = known_model(name)
    assert info is not None
    assert info.name == name
    if info.prices is None:
        assert info.provider == "ctxfs"
        return
    for prices in (info.prices, *info.prices.steps.values()):
        for ttl in prices.cache_ttls:
            rates = Rates.of(prices, ttl)
            assert rates.read <= 1
            assert 0.5 <= rates.write <= 3
        assert prices.cache_read <= prices.input <= prices.output
    assert all(above < (info.window_tokens or 10**9) for above in info.prices.steps)


def test_no_name_stands_in_the_table_twice() -> None:
    for name, row in ROWS.items():
        for end in range(1, len(name)):
            implied = SNAPSHOT.fullmatch(name[end:]) and ROWS.get(name[:end]) == row
            assert not (implied and not any(name[:n] in ROWS for n in range(end + 1, len(name)))), name


# Rows ----------------------------------------------------------------------------------------------------------------


def tiers(base: str, *above: tuple[int, str]) -> Any:
    return SimpleNamespace(base=base, tiers=[SimpleNamespace(start=start, price=price) for start, price in above])


def prices(**listed: Any) -> Any:
    keys = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
    return SimpleNamespace(**{**dict.fromkeys(keys), **listed})


def model(name: str, window: int | None = None, *, also: Any = None, **listed: Any) -> Any:
    seen: list[datetime] = []

    def get_prices(at: datetime) -> Any:
        seen.append(at)
        return prices(**listed)

    match = also or SimpleNamespace(equals=name)
    return SimpleNamespace(id=name, context_window=window, match=match, get_prices=get_prices, seen=seen)


def rows(provider: str, *models: Any) -> dict[str, Any]:
    made = rows_of([SimpleNamespace(id=provider, models=list(models))], date(2026, 11, 22))
    assert made.pop("scripted")[0] == "ctxfs"
    return made


def test_prices_are_those_of_the_day_at_noon() -> None:
    one = model("m-1", input_mtok="1", output_mtok="2")
    assert rows("x-ai", one) == {"m-1": ("x-ai", None, None, None, ((0, 1.0, 2.0, 1.0, {"auto": 1.0}),))}
    assert one.seen == [datetime(2026, 11, 22, 12, tzinfo=UTC)]


def test_steps_are_taken_from_every_price_that_has_one() -> None:
    stepped = model(
        "claude-new",
        10**6,
        input_mtok=tiers("1", (200_000, "2")),
        output_mtok=tiers("5", (200_000, "7.5"), (400_000, "9"), (2_000_000, "99")),
        cache_read_mtok="0.1",
        cache_write_mtok=tiers("1.25", (200_000, "2.5")),
        cache_write_1h_mtok="2",
    )
    assert rows("anthropic", stepped)["claude-new"][4] == (
        (0, 1.0, 5.0, 0.1, {"5m": 1.25, "1h": 2.0}),
        (200_000, 2.0, 7.5, 0.1, {"5m": 2.5, "1h": 2.0}),
        (400_000, 2.0, 9.0, 0.1, {"5m": 2.5, "1h": 2.0}),
    )


def test_openai_charges_for_writes_that_it_keeps_for_half_an_hour_or_twelve() -> None:
    charged = model("gpt-9", 400_000, input_mtok="2", output_mtok="8", cache_read_mtok="0.1", cache_write_mtok="2.5")
    one = ("openai", 400_000, 272_000, None, ((0, 2.0, 8.0, 0.1, {"30m": 2.5, "12h": 5.0}),))
    assert rows("openai", charged) == {"gpt-9": one}


def test_what_is_no_chat_model_or_has_no_price_for_tokens_is_left_out() -> None:
    paid: Any = {"input_mtok": "1", "output_mtok": "2"}
    others = [model("gpt-audio", **paid), model("gpt-image-9", **paid), model("text-embedding-9", **paid)]
    free = [model("hours"), model("one-way", input_mtok="1"), model("free", input_mtok="0", output_mtok="2")]
    assert rows("openai", *others, *free) == {}
    assert rows("google", model("claude-new", **paid)) == {}
    assert rows("a-reseller", model("m", **paid)) == {}


def test_the_names_and_beginnings_of_names_that_match_are_rows() -> None:
    equals, starts = SimpleNamespace(equals="Grok-9-Fast"), SimpleNamespace(starts_with="grok-nine")
    partial, elsewhere = SimpleNamespace(contains="grok-9-"), SimpleNamespace(equals="x-ai/grok-9")
    both = SimpleNamespace(and_=[starts, SimpleNamespace(regex="^grok")])
    match = SimpleNamespace(or_=[equals, both, partial, elsewhere, SimpleNamespace(equals="grok-9-latest")])
    assert sorted(rows("x-ai", model("grok-9", also=match, input_mtok="1", output_mtok="2"))) == [
        "grok-9",
        "grok-9-fast",
        "grok-nine",
    ]


# Live ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh() -> Iterator[None]:
    genai.installed_snapshots.cache_clear()
    yield
    genai.installed_snapshots.cache_clear()


@needs_genai_prices
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("version", [None, "0.1.9", "0.0.30"])
def test_without_the_package_the_table_that_ships_is_used(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if version is None:
        monkeypatch.setitem(sys.modules, "genai_prices", None)
    else:
        monkeypatch.setattr("genai_prices.__version__", version)
    assert live_rows() is None
    info = known_model("claude-opus-5-5")
    assert info is not None
    assert info.prices is not None
    assert (info.prices.input, info.prices.cache_read) == (4.0, 0.2)


def test_a_newer_snapshot_or_another_day_is_read_anew() -> None:
    live = genai.LiveRows()
    one, two = (SimpleNamespace(providers=[]) for _ in range(2))
    first = live.rows(one, date(2026, 11, 22))
    assert live.rows(one, date(2026, 11, 22)) is first
    assert live.rows(two, date(2026, 11, 22)) is not first
    assert live.rows(two, date(2026, 11, 23)) is not live.rows(two, date(2026, 11, 24))
    assert live.rows(two, date(2026, 11, 23)) is live.rows(two, date(2026, 11, 23))


def test_no_more_than_a_hundred_days_are_kept() -> None:
    live, none = genai.LiveRows(), SimpleNamespace(providers=[])
    first = live.rows(none, date(2026, 1, 1))
    for n in range(1, 100):
        live.rows(none, date(2026, 1, 1) + timedelta(days=n))
    assert live.rows(none, date(2026, 1, 1)) is first
    live.rows(none, date(2027, 1, 1))
    assert live.rows(none, date(2026, 1, 1)) is not first


@needs_genai_prices
def test_prices_are_those_of_the_day_that_is_asked_for() -> None:
    days = {day: known_model("o3", day=day) for day in (date(2025, 6, 9), date(2025, 6, 10))}
    assert [info.prices.input for info in days.values() if info is not None and info.prices is not None] == [10.0, 2.0]
    calls = [
        CallMade(number=n, usage=Usage(input_tokens=1_000_000), model="o3", made_at=at.timestamp())
        for n, at in enumerate((datetime(2025, 6, 9, tzinfo=UTC), datetime(2025, 6, 10, tzinfo=UTC)), 1)
    ]
    paid = Paid(None, ttl_s=300.0)
    assert [paid.usd([call]) for call in calls] == [10.0, 2.0]
    assert paid.usd([replace(calls[0], made_at=0.0)]) == 2.0
