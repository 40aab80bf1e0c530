"""The data of a session's charts: columns of figures by call, for the page's script. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxfs.view.activity import Activity, Call, Event, EventKind, Part

LAYERS: Sequence[Part] = (
    *(Part.SYSTEM, Part.SUMMARY, Part.USER, Part.REPLIES),
    *(Part.PLACEHOLDERS, Part.RESULTS, Part.OTHER),
)
"""The parts of the context, from the bottom up."""
LANES: Sequence[EventKind] = (
    *(EventKind.COMPACTED, EventKind.EVICTED, EventKind.READ_BACK),
    *(EventKind.RESTORED, EventKind.CACHE_MISSED),
)
"""The events below the chart, from the top down."""


def chart_data(
    activity: Activity,
    *,
    window_tokens: int | None,
    steps: Sequence[int] = (),
    without: Sequence[float] = (),
    too_long_from: int | None = None,
) -> Mapping[str, Any]:
    """The columns as JSON data.

    Args:
        activity: the session.
        window_tokens: the largest prompt; None: not known.
        steps: the prompt lengths above which every token costs more.
        without: what the first calls would have cost in dollars without any eviction; empty: not known.
        too_long_from: the first call whose context would not have fitted without eviction; None: all would have.
    """
    calls = activity.calls
    layers = {part: [call.parts.get(part, 0) for call in calls] for part in LAYERS}
    return {
        "calls": [call.number for call in calls],
        "layers": [{"name": part, "tokens": tokens} for part, tokens in layers.items() if any(tokens)],
        "bills": _bills(calls),
        "without": [round(usd, 6) for usd in without],
        "window": window_tokens,
        "steps": list(steps),
        "too_long_from": too_long_from,
        "lanes": [_lane(lane, [event for event in activity.events if event.kind is lane]) for lane in LANES],
    }


def _lane(kind: EventKind, events: Sequence[Event]) -> Mapping[str, Any]:
    """The calls of the events, each with the item of the largest one, and how many items the events concerned."""
    largest = _largest(events)
    counts = Counter[int]()
    for event in events:
        counts[event.call] += max(1, len(event.item_ids))
    return {
        "name": kind,
        "calls": list(largest),
        "items": list(largest.values()),
        "counts": [counts[call] for call in largest],
    }


def _largest(events: Iterable[Event]) -> Mapping[int, str]:
    """The calls of the events, in order, each with the item that was affected; of several events, the largest."""
    by_call: dict[int, Event] = {}
    for event in sorted(events, key=lambda event: (event.call, event.tokens_before)):
        by_call[event.call] = event
    return {call: next(iter(event.item_ids), "") for call, event in by_call.items()}


def _bills(calls: Sequence[Call]) -> Mapping[str, Any] | None:
    """What each call was billed: tokens by price, and dollars where they are known; None: no bill was recorded."""
    if not any(call.usage for call in calls):
        return None
    names = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens", "output_tokens")
    tokens = [[getattr(call.usage, name) if call.usage else 0 for call in calls] for name in names]
    known = all(call.usd is not None for call in calls if call.usage)
    return {
        "tokens": dict(zip(("read", "written", "input", "output"), tokens, strict=True)),
        "usd": [call.usd or 0 for call in calls] if known else None,
    }
