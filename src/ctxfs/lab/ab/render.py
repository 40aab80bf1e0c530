"""A comparison as text, JSON, Markdown, and a page. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from textwrap import wrap
from typing import Any

from ctxfs.lab.ab.report import DEFAULT_MARGIN_POINTS, Against, ArmFigures, Comparison
from ctxfs.lab.ab.results import SessionResult
from ctxfs.lab.ab.statistics import CONFIDENCE, Difference
from ctxfs.lab.page import Cell, dollars, number, page, table

_COLUMNS = 80

_ROWS = (
    ("sessions", "sessions"),
    ("solved", "solved"),
    ("  ended by time", "timeouts"),
    ("  ended by their budget", "limited"),
    ("  crashed", "crashed"),
    ("dollars", "usd"),
    ("calls", "calls"),
    ("input, uncached", "input_tokens"),
    ("input, to the cache", "cache_write_tokens"),
    ("input, from the cache", "cache_read_tokens"),
    ("output", "output_tokens"),
    ("seconds", "wall_s"),
    ("read back", "read_backs"),
    ("repeated tool calls", "repeated_calls"),
    ("refused requests", "refusals"),
    ("cache breaks", "cache_breaks"),
)
"""What is shown of each arm: its name, and the field."""

LIMITS = (
    "Dollars are list prices of what was billed. Arms of a pair run after each other, so the second may find the first "
    "one's prompt in the provider's cache; their order is random. An interval that holds zero does not show that there "
    "is no difference."
)


def comparison_text(comparison: Comparison, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
    """For a terminal of 80 columns: the sentence of each arm, and a table of all."""
    lines = []
    for one in comparison.against:
        lines += wrap(f"{one.sentence(margin_points)}.", _COLUMNS)
    lines.append("")
    name_width = max(len(name) for name, _ in _ROWS) + 1
    widths = [max(12, len(one.arm) + 2) for one in comparison.figures]
    header = "".join(one.arm.rjust(width) for one, width in zip(comparison.figures, widths, strict=True))
    lines.append(f"{'':{name_width}}{header}")
    for name, field in _ROWS:
        cells = [_shown(one, field).rjust(width) for one, width in zip(comparison.figures, widths, strict=True)]
        lines.append(f"{name:{name_width}}{''.join(cells)}")
    for one in comparison.against:
        lines += ["", *wrap(_details(one), _COLUMNS)]
    lines += ["", *wrap(LIMITS, _COLUMNS)]
    for note in comparison.notes():
        lines += wrap(f"note: {note}", _COLUMNS)
    return "\n".join(lines) + "\n"


def comparison_json(comparison: Comparison, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
    """All of it, with stable keys; shares are from -1 to 1."""
    found = {
        "arms": [asdict(one) for one in comparison.figures],
        "against": [
            {
                **asdict(one),
                "not_worse_is_shown": one.is_shown(margin_points),
                "sentence": one.sentence(margin_points),
            }
            for one in comparison.against
        ],
        "margin_points": margin_points,
        "confidence": CONFIDENCE,
        "sessions": [asdict(one) for one in comparison.sessions],
        "unplayed": comparison.unplayed,
        "spent_usd": comparison.spent_usd,
        "notes": comparison.notes(),
    }
    return json.dumps(found, indent=1) + "\n"


def comparison_markdown(comparison: Comparison, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
    """The sentences, and the table, for an issue or a page."""
    lines = [f"{one.sentence(margin_points)}.\n" for one in comparison.against]
    figures = comparison.figures
    lines.append("| | " + " | ".join(_escaped(one.arm) for one in figures) + " |")
    lines.append("| --- |" + " ---: |" * len(figures))
    for name, field in _ROWS:
        lines.append(f"| {name.strip()} | " + " | ".join(_shown(one, field) for one in figures) + " |")
    lines += ["", *(f"{_details(one)}\n" for one in comparison.against), LIMITS]
    return "\n".join([*lines, *(f"\nnote: {_escaped(note)}" for note in comparison.notes())]) + "\n"


def comparison_html(comparison: Comparison, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
    """The comparison as a page of its own, in light and dark: the sentences, the arms, each pair, each session."""
    rows: list[tuple[Sequence[Cell], bool]] = []
    for name, field in _ROWS:
        cells: list[Cell] = [(escape(name.strip()), None)]
        cells += [_cell(one, field) for one in comparison.figures]
        rows.append((cells, False))
    columns = ("task", "repeat", "arm", "outcome", "cost", "calls", "read back", "repeated", "cache breaks", "note")
    body = ["<h1>Comparison of arms</h1>"]
    body += [f'<p class="answer">{escape(one.sentence(margin_points))}.</p>' for one in comparison.against]
    body += [f"<p>{escape(_details(one))}</p>" for one in comparison.against]
    body += [f'<p class="limits">{escape(LIMITS)}</p>']
    body += [f"<p>{escape(note)}</p>" for note in comparison.notes()]
    body += ["<h2>Arms</h2>", table(("", *(one.arm for one in comparison.figures)), rows)]
    body += ["<h2>Sessions</h2>", table(columns, [(_session(one), False) for one in comparison.sessions])]
    return page("Comparison", body)


def _session(one: SessionResult) -> list[Cell]:
    return [
        (escape(one.task), None),
        number(one.repeat, "d"),
        (escape(one.arm), None),
        (escape(one.outcome), None),
        dollars(one.usd),
        number(one.calls, ",d"),
        number(one.read_backs, ",d"),
        number(one.repeated_calls, ",d"),
        number(one.cache_breaks, ",d"),
        (escape(one.note), None),
    ]


def _details(one: Against) -> str:
    """Where the difference of an arm comes from, in sentences."""
    if one.solved is None:
        return f"{one.arm} and {one.base} have no task in common yet."
    found = (
        f"{one.arm} against {one.base}: {one.tasks} tasks in both; solved by {one.arm} alone {one.better}, by "
        f"{one.base} alone {one.worse}; the interval is by {one.solved.method}."
    )
    if one.usd is None:
        return found
    return f"{found} Dollars of a task: {_dollars(one.usd)} by {one.usd.method}."


def _dollars(difference: Difference) -> str:
    parts = [f"{value:+.4f}" for value in (difference.value, difference.low, difference.high)]
    return f"{parts[0]}, interval {parts[1]} … {parts[2]}"


def _shown(figures: ArmFigures, field: str) -> str:
    value: Any = getattr(figures, field)
    if field == "usd":
        return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.4f}"
    return f"{value:,.0f}"


def _cell(figures: ArmFigures, field: str) -> Cell:
    value: Any = getattr(figures, field)
    return dollars(value) if field == "usd" else number(value, ",.0f")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
