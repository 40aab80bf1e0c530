"""The table of models: the one that ships with ctxfs, or a newer one where ``genai-prices`` is installed."""

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from types import FrameType

from ctxfs.errors.checks import names_settings, require_model
from ctxfs.errors.spelling import did_you_mean
from ctxfs.messages.models.genai import SNAPSHOT, Row, Step, live_rows
from ctxfs.messages.models.prices import Prices

ASSUMED_WINDOW_TOKENS = 128_000
"""The window of a model of which nothing is known: the smallest of the models that agents are run with today."""

_RESELLER = re.compile(r"^(?!ft:)(?:.*/)?(?:[a-z_-]+:)?(?:[a-z_-]+\.)*")
"""What stands in front of a model's name where somebody else than its maker serves it, or a library says who does."""

_SAME_MODEL = re.compile(rf"{SNAPSHOT.pattern}(?::\d+|:(?:nitro|floor|online|exacto)|\[1m\])*")
"""What may follow a model's name: what ``SNAPSHOT`` says, and a reseller's version or route."""


class UnknownModel(UserWarning):
    """ctxfs does not know the model; the message says what it assumes, and which setting replaces that."""


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What the table knows of a model. None: the table does not say.

    Args:
        name: the name in the table.
        provider: whose prices they are.
        window_tokens: prompt and reply together.
        input_tokens: the largest prompt, where that has a limit of its own.
        cached_prefix_tokens: the shortest prefix that the provider caches.
        prices: None for a model that costs nothing, such as one that is scripted.
    """

    name: str
    provider: str
    window_tokens: int | None = None
    input_tokens: int | None = None
    cached_prefix_tokens: int | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModels:
    """Whose models are known, and from where: ``source`` names the table, ``by_provider`` counts the names in it."""

    source: str
    by_provider: Mapping[str, int]


def known_models() -> KnownModels:
    """Count what is known."""
    if live_rows() is None:
        from ctxfs.messages.models.table import DATE, VERSION  # noqa: PLC0415 — as in ``_rows``

        source = f"the table of ctxfs, of {DATE} (genai-prices {VERSION})"
    else:
        from importlib import metadata  # noqa: PLC0415 - for this line alone: it imports the parser of e-mail

        source = f"genai-prices {metadata.version('genai-prices')}, today's prices"
    return KnownModels(source=source, by_provider=dict(Counter(row[0] for row in _rows().values())))


@names_settings()
def known_model(model: str, *, day: date | None = None) -> ModelInfo | None:
    """What is known of ``model``: by the longest name in the table that it starts with; None when it is unknown.

    Dates, builds and channels may follow the name (``-20250929``, ``@001``, ``-latest``); anything else is another
    model. A reseller's or a library's prefix is ignored (``us.anthropic.claude-…``, ``openrouter/openai/gpt-…``,
    ``vertex_ai/…``, ``azure/…``, ``openai:gpt-…``): the prices are those of its maker. ``day``: with ``genai-prices``
    installed, the prices of that day; None: today's.
    """
    info, is_known = model_or_relative(model, day=day)
    return info if is_known else None


def day_of(at: float | None) -> date | None:
    """The day of a time in seconds since the epoch, in UTC, whose prices count; None: not known, so today's do."""
    return datetime.fromtimestamp(at, UTC).date() if at else None


def model_or_relative(model: str, *, day: date | None = None) -> tuple[ModelInfo | None, bool]:
    """What is known of ``model``, or of the longest name in the table that it starts with; and whether it is the model.

    None, False: no name in the table is like it. Raises ``ConfigError`` for what is not a ``str``.
    """
    require_model(model)
    if not model:
        return None, False  # the table is not even read, which takes as long as the start of a small program
    rows = _rows(day)
    name = model.lower()
    found = _find(name, rows)
    if found is None or not found[1]:
        found = _find(_RESELLER.sub("", name), rows) or found
    return found or (None, False)


def _find(name: str, rows: Mapping[str, Row]) -> tuple[ModelInfo, bool] | None:
    for end in range(len(name), 0, -1):
        row = rows.get(name[:end])
        rest = name[end:]
        if row is not None and (not rest or rest[0] in "-@:./["):
            return _info(name[:end], row), _SAME_MODEL.fullmatch(rest) is not None
    return None


def _rows(day: date | None = None) -> Mapping[str, Row]:
    rows = live_rows(day)
    if rows is None:
        from ctxfs.messages.models.table import ROWS  # noqa: PLC0415 — hundreds of rows, which an import of ctxfs can do without

        rows = ROWS
    return rows


def _info(name: str, row: Row) -> ModelInfo:
    provider, window_tokens, input_tokens, cached_prefix_tokens, steps = row
    by_length = {step[0]: _prices(step) for step in steps}
    base = by_length.pop(0, None)
    prices = replace(base, steps=by_length) if base is not None else None
    return ModelInfo(
        name=name,
        provider=provider,
        window_tokens=window_tokens,
        input_tokens=input_tokens,
        cached_prefix_tokens=cached_prefix_tokens,
        prices=prices,
    )


def _prices(step: Step) -> Prices:
    _, paid, output, read, write = step
    return Prices(input=paid, output=output, cache_read=read, cache_write=write)


def warn_unknown(what: str, assumed: str) -> None:
    """Warn, once for each pair, that ``what`` is unknown; ``assumed`` says what is taken instead, and what to set."""
    _warn_once(f"{what} is unknown: {assumed}")


def warn_unknown_model(model: str) -> None:
    """Warn, once for each name, that ``model`` is unknown: which model may be meant, and what is taken instead.

    It says all that is assumed of a model, whichever of it the caller needs, so that a name gives one warning.
    """
    info, _ = model_or_relative(model)
    if info is None:
        window_tokens = ASSUMED_WINDOW_TOKENS
        prices = "Anthropic's ratios of prices"
        question = did_you_mean(model.lower(), _rows())
    else:
        window_tokens = info.window_tokens or ASSUMED_WINDOW_TOKENS
        prices = f"the prices of {info.name!r}"
        question = ""
    _warn_once(
        f"the model {model!r} is unknown{question or '.'} Assumed of it are a window of {window_tokens:,} tokens and "
        f"{prices}: give your own, as window=... (--window N) and pricing=EvictionPricing(prices=...)"
    )


@lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    frame: FrameType | None = inspect.currentframe()
    level = 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("ctxfs."):
        frame = frame.f_back
        level += 1
    warnings.warn(text, UnknownModel, stacklevel=level + 1)  # the first line outside of ctxfs
