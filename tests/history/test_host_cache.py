"""What requests and settings show of the prompt cache that their program asks for."""

from pathlib import Path
from typing import Any

import pytest

from ctxfs.context import History, HostCache
from ctxfs.context.history.parts import NO_HOST_CACHE, asked_by, mark_of
from ctxfs.context.history.views import VIEWS
from ctxfs.errors import ConfigError

HOUR = {"type": "ephemeral", "ttl": "1h"}
FIVE_MINUTES = {"type": "ephemeral"}
AT_END = HostCache(at_end=True)
FOR_AN_HOUR = HostCache(at_end=True, ttl="1h")


class Point:
    ttl = "1h"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ((), NO_HOST_CACHE),
        ((None, False, {}), NO_HOST_CACHE),
        ((True,), AT_END),
        (("5m",), HostCache(at_end=True, ttl="5m")),
        ((None, HOUR, "5m"), FOR_AN_HOUR),
        ((FIVE_MINUTES,), AT_END),
        ((Point(),), FOR_AN_HOUR),
        (("for ever",), AT_END),
    ],
)
def test_the_first_setting_that_is_set_counts(settings: tuple[Any, ...], told: HostCache) -> None:
    assert asked_by(*settings) == told


def test_what_was_seen_once_stays_known() -> None:
    assert FOR_AN_HOUR.then(NO_HOST_CACHE) == FOR_AN_HOUR
    assert HostCache(ttl="5m").then(FOR_AN_HOUR) == FOR_AN_HOUR
    assert NO_HOST_CACHE.then(AT_END) == AT_END


def test_the_last_mark_of_the_last_messages_is_found() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": HOUR}, {"type": "text"}]}
    plain = {"role": "user", "content": "b"}
    assert mark_of([plain, marked, plain, plain]) == HOUR
    assert mark_of([marked, plain, {"role": "assistant", "content": None}, plain]) is None
    assert mark_of([{**plain, "cache_control": FIVE_MINUTES}]) == FIVE_MINUTES
    assert mark_of([{"role": "user", "content": [{"cachePoint": {"type": "default"}}]}], "cachePoint")


MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Go on"}]}]
MARKED = [{"role": "user", "content": [{"type": "text", "text": "Go on", "cache_control": HOUR}]}]
POINT = {"location": "message"}


@pytest.mark.parametrize(
    ("api", "body", "told"),
    [
        ("messages", {"messages": MESSAGES, "system": [{"type": "text", "cache_control": HOUR}]}, NO_HOST_CACHE),
        ("messages", {"messages": MARKED}, FOR_AN_HOUR),
        ("messages", {"messages": MESSAGES, "cache_control": HOUR}, FOR_AN_HOUR),
        ("chat", {"messages": MESSAGES}, NO_HOST_CACHE),
        ("chat", {"messages": MARKED}, FOR_AN_HOUR),
        ("chat", {"messages": MESSAGES, "cache_control_injection_points": [{**POINT, "index": -1}]}, AT_END),
        ("chat", {"messages": MESSAGES, "cache_control_injection_points": [{**POINT, "role": "tool"}]}, AT_END),
        (
            "chat",
            {"messages": MESSAGES, "cache_control_injection_points": [{**POINT, "role": "user", "control": HOUR}]},
            FOR_AN_HOUR,
        ),
        (
            "chat",
            {
                "messages": MESSAGES,
                "cache_control_injection_points": [{**POINT, "role": "system"}, {**POINT, "index": 0}, "odd"],
            },
            NO_HOST_CACHE,
        ),
        (
            "chat",
            {"messages": MESSAGES, "cache_control_injection_points": [{"location": "tool_config"}]},
            NO_HOST_CACHE,
        ),
        ("responses", {"input": []}, NO_HOST_CACHE),
    ],
)
def test_what_a_request_shows(api: Any, body: Any, told: HostCache) -> None:
    assert VIEWS[api].host_cache(body) == told


def rates_of(history: History) -> tuple[float, bool, float]:
    """What a written token costs, whether a change rewrites all, and for how many seconds the cache is kept."""
    economy = history._core._branch("").view.transcript.economy  # noqa: SLF001 - no decision of a small history shows it
    assert economy is not None
    return economy.ledger.rates.write, economy.ledger.rates.rewrites_all, economy._pricing.ttl_s  # noqa: SLF001


def test_the_planner_reckons_with_what_the_host_asks_for(tmp_path: Path) -> None:
    asked = {"messages": MESSAGES, "cache_control": HOUR}
    with History(root_path=tmp_path, model="claude-sonnet-5-5") as history:
        history.messages({"messages": MESSAGES})
        assert rates_of(history) == (1.25, False, 300.0)
        history.messages(asked)
        assert rates_of(history) == (2.0, True, 3_600.0)
        history.messages({"messages": [{"role": "user", "content": "Something else"}]})
        assert rates_of(history) == (2.0, True, 3_600.0), "also when all is read again"
    with History(root_path=tmp_path, model="gpt-5.6") as other:
        before, _, kept_s = rates_of_new(other)
        other.rewrite([], host=HostCache(at_end=True, ttl="5m"))
        assert rates_of(other) == (before, True, kept_s), "a time that this model's provider does not offer"


def rates_of_new(history: History) -> tuple[float, bool, float]:
    history.rewrite([])
    return rates_of(history)


def test_something_else_than_a_host_cache_is_refused(tmp_path: Path) -> None:
    with History(root_path=tmp_path) as history, pytest.raises(ConfigError, match="host is '1h': use HostCache"):
        history.rewrite([], host="1h")  # type: ignore[arg-type]
