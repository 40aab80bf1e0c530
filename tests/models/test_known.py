"""Looking a model up: by the longest name that it starts with, and what is assumed of one that is unknown."""

import sys
import warnings
from collections.abc import Iterator

import pytest

from ctxfs.messages import UnknownModel
from ctxfs.messages.models import genai
from ctxfs.messages.models.known import ModelInfo, known_model, known_models, model_or_relative, warn_unknown


def known(model: str) -> ModelInfo:
    info = known_model(model)
    assert info is not None
    return info


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("Claude-Opus-5-5", "claude-opus-5-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("gpt-6.1-sol-2026-09-29", "gpt-6.1-sol"),
        ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        ("gemini-2.0-flash-001", "gemini-2.0-flash"),
    ],
)
def test_dates_builds_and_channels_do_not_make_another_model(model: str, name: str) -> None:
    assert known(model).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("vertex_ai/claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4.5"),
        ("openai/gpt-5.1:nitro", "gpt-5.1"),
        ("azure/gpt-5.1-2025-11-13", "gpt-5.1"),
        ("openai:gpt-4o-2024-11-20", "gpt-4o"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("claude-opus-4-6[1m]", "claude-opus-4-6"),
    ],
)
def test_who_serves_a_model_does_not_make_it_another(model: str, name: str) -> None:
    assert known(model).name == name


def test_nothing_is_looked_up_for_a_model_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of tools, which prices nothing, does not pay for the table."""

    def read(*_: object) -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("ctxfs.messages.models.known.live_rows", read)
    assert model_or_relative("") == (None, False)
    with pytest.raises(AssertionError):
        model_or_relative("gpt-4o")


@pytest.mark.parametrize(
    ("model", "relative"),
    [
        ("gpt-6.1-sol-mini", "gpt-6.1-sol"),
        ("gpt-5.9", "gpt-5"),
        ("claude-opus-5-7", "claude-opus-5"),
        ("claude-sonnet-4-5-1", "claude-sonnet-4-5"),
        ("claude-opus-7", None),
        ("o3000", None),
        ("ft:gpt-4o:somebody", None),
        ("openrouter/moonshotai/kimi-k2:free", "kimi-k2"),
        ("azure/gpt-5.9", "gpt-5"),
        ("my/own", None),
        ("a-model-of-mine", None),
        ("", None),
    ],
)
def test_another_version_or_size_is_another_model(model: str, relative: str | None) -> None:
    assert known_model(model) is None
    info, is_known = model_or_relative(model)
    assert not is_known
    assert (info.name if info is not None else None) == relative


def test_what_is_known_of_models_of_three_providers() -> None:
    opus = known("claude-opus-5-5")
    assert (opus.provider, opus.window_tokens, opus.input_tokens) == ("anthropic", 1_000_000, None)
    assert opus.prices is not None
    assert (opus.prices.cache_ttls, opus.prices.steps) == (("5m", "1h"), {})
    sol = known("gpt-6.1-sol")
    assert (sol.provider, sol.window_tokens, sol.input_tokens) == ("openai", 1_050_000, 922_000)
    assert sol.cached_prefix_tokens == 1_024
    assert sol.prices is not None
    assert sol.prices.cache_ttls == ("30m", "12h")
    assert list(sol.prices.steps) == [272_000]
    gemini = known("gemini-2.5-pro")
    assert (gemini.provider, gemini.window_tokens) == ("google", 1_048_576)
    assert gemini.prices is not None
    assert gemini.prices.cache_ttls == ("auto",)
    assert list(gemini.prices.steps) == [200_000]


@pytest.mark.parametrize(
    ("model", "read"),
    [
        *(("claude-fable-5-2", 0.025), ("claude-opus-5-5", 0.05), ("gpt-6.1-terra", 0.05), ("claude-opus-5", 0.1)),
        *(("grok-4.7", 0.25), ("gpt-4.1", 0.25), ("gpt-4o", 0.5), ("deepseek-v4-flash", 0.02)),
    ],
)
def test_what_a_cached_token_costs_depends_on_the_model(model: str, read: float) -> None:
    prices = known(model).prices
    assert prices is not None
    assert prices.cache_read / prices.input == pytest.approx(read)


def test_a_scripted_model_is_known_and_costs_nothing() -> None:
    assert known("scripted") == ModelInfo(name="scripted", provider="ctxfs", window_tokens=128_000)


@pytest.fixture
def every_warning() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


def test_a_warning_is_given_once(every_warning: list[warnings.WarningMessage]) -> None:
    for assumed in ("this is assumed", "this is assumed", "that is assumed"):
        warn_unknown("the model 'warned-once'", assumed)
    assert [(w.category, str(w.message)) for w in every_warning] == [
        (UnknownModel, "the model 'warned-once' is unknown: this is assumed"),
        (UnknownModel, "the model 'warned-once' is unknown: that is assumed"),
    ]


def test_the_table_of_the_package_stands_in_where_prices_of_today_are_not_installed() -> None:
    genai.installed_snapshots.cache_clear()
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "genai_prices", None)  # what "not installed" is to an import
        known = known_models()
    genai.installed_snapshots.cache_clear()
    assert known.source.startswith("the table of ctxfs, of 20")
    assert known_models().source.startswith("genai-prices ")
    assert sum(known.by_provider.values()) > 100
