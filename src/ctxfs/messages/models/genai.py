"""Rows of the table of models from the package ``genai-prices``, and the facts that it lacks.

The table that ships with ctxfs is made from these rows (``scripts/make_model_table.py``). This is the one place that
imports the package, when a model is first looked up; without it, the table that ships is used. That import takes up to
half a second of the processor, once in a process, even when an event loop is running.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import cache
from operator import attrgetter
from types import ModuleType
from typing import Any

from ctxfs.messages.models.prices import CacheTtl

_MIN_VERSION = (0, 2)
"""The oldest version of genai-prices that is read."""

Step = tuple[int, float, float, float, Mapping[CacheTtl, float]]
"""Above how many tokens of prompt it counts; then dollars per million: input, output, cache read, cache writes."""

Row = tuple[str, int | None, int | None, int | None, Sequence[Step]]
"""Provider, window, largest prompt, shortest cached prefix (all in tokens), prices by length of prompt."""

_WRITE_TTL: Mapping[str, CacheTtl] = {
    "anthropic": "5m",
    "openai": "30m",
    "google": "auto",
    "deepseek": "auto",
    "x-ai": "auto",
    "moonshotai": "auto",
    "zai": "auto",
    "minimax": "5m",
    "mistral": "auto",
}
"""The providers in the table, and how long what they write to the cache unasked is kept."""

_OPENAI_12H = 2.5
"""What OpenAI charges for writes that are kept for twelve hours, in uncached input tokens, where it charges at all."""

_DAYS = 100
"""How many days' prices are kept; reading those of one day takes a hundredth of a second."""

_NOT_TEXT = re.compile(
    r"audio|realtime|transcribe|tts|image|embed|whisper|moderation|live|ocr|voice|robotics|omni|vision|banana|search"
    r"|davinci|babbage|curie|^ada|^ft:|\.ft-|:free|:thinking|:extended|^palm|-bison|gecko|voxtral"
)
"""Models that are no chat models, and spellings of resellers."""

_WINDOWS: Sequence[tuple[str, int]] = (
    (r"gpt-5(\.\d)?-chat", 128_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gemini-(2|3|4|flash|pro-latest)", 1_048_576),
    (r"deepseek-(chat|reasoner)", 128_000),
)
"""Windows as the providers state them, where genai-prices has none, a round number or an old one."""

_OPENAI_REPLY_TOKENS = 128_000
"""What OpenAI's models from gpt-5 on keep of their window for the reply, unless that is small; prompts get the rest."""

_CACHED_PREFIXES: Sequence[tuple[str, int]] = (
    (r"claude-(opus-5|fable-5)$", 512),
    (r"claude-(opus-4-[567]|haiku-4-5)", 4_096),
    (r"claude-(3-5-haiku|3-haiku)", 2_048),
    (r"claude-(sonnet-5$|sonnet-4|opus-4|3-)", 1_024),
    (r"gpt-(4o|4\.1|5|6)|o[134]", 1_024),
    (r"gemini-(2\.5|3)", 1_024),
    (r"deepseek", 64),
)
"""The shortest prefixes that providers cache, as they state them, by the name of a model in genai-prices."""

_OWN_ROWS: Mapping[str, Row] = {"scripted": ("ctxfs", 128_000, None, None, ())}
"""Models of ctxfs itself, which cost nothing."""

SNAPSHOT = re.compile(r"(?:[-@:.](?:\d{3,8}|\d\d-\d{2,4}|latest|preview|exp|beta|v\d+))*")
"""What may follow a model's name without making it another model: a date, a build, a channel."""


def rows_of(providers: Iterable[Any], day: date) -> dict[str, Row]:
    """The table by lower-case name, from providers of ``genai-prices``, at the prices of ``day`` at noon UTC."""
    at = datetime.combine(day, time(12), UTC)
    by_id = {provider.id: provider for provider in providers}
    rows = dict(_OWN_ROWS)
    for provider_id in _WRITE_TTL:  # of a model that two of them offer, the first one's prices count
        if provider_id not in by_id:
            continue
        for model in by_id[provider_id].models:
            if provider_id == "google" and model.id.startswith("claude"):
                continue  # Anthropic's models at another shop
            steps = _steps(model.get_prices(at), provider_id)
            if not steps or _NOT_TEXT.search(model.id.lower()):
                continue
            cached = _first_match(_CACHED_PREFIXES, model.id)
            names = {model.id, *_names(model.match)}
            for name in sorted(name.lower() for name in names if name):
                rows.setdefault(name, _row(name, provider_id, model.context_window, cached, steps))
    return {name: row for name, row in rows.items() if not _implied(name, row, rows)}


def live_rows(day: date | None = None) -> Mapping[str, Row] | None:
    """The rows of the installed ``genai-prices``, at the prices of ``day``; None where it is not installed or too old.

    ``day`` None: today.
    """
    snapshots = installed_snapshots()
    if snapshots is None:
        return None
    return _LIVE.rows(snapshots.get_snapshot(), day or datetime.now(UTC).date())


@cache
def installed_snapshots() -> ModuleType | None:
    """The module of ``genai-prices`` that has its data; None where the package is not installed or too old."""
    try:
        import genai_prices  # noqa: PLC0415 — an optional extra
        import genai_prices.data_snapshot  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    version = tuple(int(part) for part in genai_prices.__version__.split(".")[:2])
    return genai_prices.data_snapshot if version >= _MIN_VERSION else None


class LiveRows:
    """The rows of the last snapshot that was asked for: ``genai-prices`` replaces its own when it updates itself."""

    def __init__(self) -> None:
        self._snapshot: object = None
        self._made: dict[date, Mapping[str, Row]] = {}

    def rows(self, snapshot: Any, day: date) -> Mapping[str, Row]:
        """The rows of ``snapshot``, at the prices of ``day``; kept for the last days that were asked for."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._made = {}
        if day not in self._made:
            if len(self._made) >= _DAYS:
                self._made = {}
            self._made[day] = rows_of(snapshot.providers, day)
        return self._made[day]


_LIVE = LiveRows()


# One model ----------------------------------------------------------------------------------------------------------


def _names(match: Any) -> Iterator[str]:
    """The names, or beginnings of names, that a condition of ``genai-prices`` matches."""
    for alternative in getattr(match, "or_", None) or getattr(match, "and_", None) or ():
        yield from _names(alternative)
    for kind in ("equals", "starts_with", "contains"):
        name = getattr(match, kind, None)
        if isinstance(name, str) and "/" not in name and not name.endswith(("-", "@", ":", ".")):
            yield name


def _implied(name: str, row: Row, rows: Mapping[str, Row]) -> bool:
    """Whether a look-up finds the same row by a shorter name."""
    for end in range(len(name) - 1, 0, -1):
        shorter = name[:end]
        if shorter in rows:
            return rows[shorter] == row and SNAPSHOT.fullmatch(name[end:]) is not None
    return False


def _row(name: str, provider: str, window_tokens: int | None, cached: int | None, steps: Sequence[Step]) -> Row:
    window_tokens = _first_match(_WINDOWS, name) or window_tokens
    input_tokens = None
    if re.match(r"gpt-[5-9]", name) and window_tokens is not None and window_tokens > 2 * _OPENAI_REPLY_TOKENS:
        input_tokens = window_tokens - _OPENAI_REPLY_TOKENS
    reached = tuple(step for step in steps if window_tokens is None or step[0] < window_tokens)
    return provider, window_tokens, input_tokens, cached, reached


def _first_match(table: Sequence[tuple[str, int]], name: str) -> int | None:
    for pattern, value in table:
        if re.match(pattern, name):
            return value
    return None


def _steps(prices: Any, provider: str) -> tuple[Step, ...]:
    """The prices by length of prompt; empty for a model that has none for tokens, or is free."""
    keys = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
    listed = [getattr(prices, key) for key in keys]
    if listed[0] is None or listed[1] is None:
        return ()
    starts = {0}
    for price in listed:
        starts.update(tier.start for tier in getattr(price, "tiers", ()))
    steps: list[Step] = []
    for above in sorted(starts):
        at_this_length = [_price(price, above) for price in listed]
        steps.append(_step(above, at_this_length, provider))
    if not all(step[1] and step[2] and step[3] for step in steps):
        return ()
    return tuple(steps)


def _step(above_tokens: int, listed: Sequence[float | None], provider: str) -> Step:
    paid, output, read, write, write_1h = listed
    assert paid is not None
    assert output is not None
    writes: dict[CacheTtl, float] = {}
    if write is not None:
        writes[_WRITE_TTL[provider]] = write
        if provider == "openai":
            writes["12h"] = round(paid * _OPENAI_12H, 9)
    if write_1h is not None:
        writes["1h"] = write_1h
    if read is None:  # the cache makes nothing cheaper
        read = paid
    return above_tokens, paid, output, read, writes or {"auto": paid}


def _price(price: Any, above_tokens: int) -> float | None:
    """A price, perhaps by length of prompt, for prompts of more than ``above_tokens``."""
    listed = getattr(price, "base", price)
    if above_tokens:
        for tier in sorted(getattr(price, "tiers", ()), key=attrgetter("start")):
            if tier.start <= above_tokens:
                listed = tier.price
    return None if listed is None else float(listed)
