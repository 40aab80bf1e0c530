"""The table of models: the one that ships with ctxfs, or a newer one where ``genai-prices`` is installed."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ctxfs.models.genai import SNAPSHOT, Row, Step, live_rows
from ctxfs.models.prices import Prices

__all__ = ["ModelInfo", "UnknownModel", "known_model", "model_or_relative", "warn_unknown"]


class UnknownModel(UserWarning):
    """ctxfs does not know the model; the message says what it assumes, and which setting replaces that."""


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


def known_model(model: str) -> ModelInfo | None:
    """What is known of ``model``: by the longest name in the table that it starts with; None when it is unknown.

    Dates, builds and channels may follow the name (``-20250929``, ``@001``, ``-latest``); anything else is another
    model. Prices are today's.
    """
    found = _find(model, _rows())
    return found[0] if found is not None and found[1] else None


def model_or_relative(model: str) -> tuple[ModelInfo | None, bool]:
    """What is known of ``model``, or of the longest name in the table that it starts with; and whether it is the model.

    None, False: no name in the table is like it.
    """
    return _find(model, _rows()) or (None, False)


def _find(model: str, rows: Mapping[str, Row]) -> tuple[ModelInfo, bool] | None:
    name = model.lower()
    for end in range(len(name), 0, -1):
        row, rest = rows.get(name[:end]), name[end:]
        if row is not None and (not rest or rest[0] in "-@:./"):
            return _info(name[:end], row), SNAPSHOT.fullmatch(rest) is not None
    return None


def _rows() -> Mapping[str, Row]:
    rows = live_rows()
    if rows is None:
        from ctxfs.models.table import ROWS  # noqa: PLC0415 — hundreds of rows, which an import of ctxfs can do without

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


@lru_cache(maxsize=1_000)
def warn_unknown(what: str, assumed: str) -> None:
    """Warn, once for each pair, that ``what`` is unknown; ``assumed`` says what is taken instead, and what to set."""
    warnings.warn(f"{what} is unknown: {assumed}", UnknownModel, stacklevel=2)
