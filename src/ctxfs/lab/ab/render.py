"""A comparison as JSON, Markdown, and a page. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from ctxfs.lab.ab.report import DEFAULT_MARGIN_POINTS, LIMITS, ROWS, ArmFigures, Comparison, details, shown
from ctxfs.lab.ab.results import SessionResult
from ctxfs.lab.ab.statistics import CONFIDENCE
from ctxfs.lab.page import Cell, dollars, number, page, table

_COLUMNS = ("task", "repeat", "arm", "outcome", "cost", "calls", "read back", "repeated", "cache breaks", "note")
"""What the page shows of each session; "repeat" only where there is more than one."""


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
    for name, field in ROWS:
        lines.append(f"| {name.strip()} | " + " | ".join(shown(one, field) for one in figures) + " |")
    lines += ["", *(f"{details(one)}\n" for one in comparison.against), LIMITS]
    return "\n".join([*lines, *(f"\nnote: {_escaped(note)}" for note in comparison.notes())]) + "\n"


def comparison_html(comparison: Comparison, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
    """The comparison as a page of its own, in light and dark: the sentences, the arms, each pair, each session."""
    rows: list[tuple[Sequence[Cell], bool]] = []
    for name, field in ROWS:
        cells: list[Cell] = [(escape(name.strip()), None)]
        cells += [_cell(one, field) for one in comparison.figures]
        rows.append((cells, False))
    sessions = [_session(one) for one in comparison.sessions]
    columns = [name for name in _COLUMNS if name != "repeat" or comparison.repeats > 1]
    cells_of = [([cells[name] for name in columns], False) for cells in sessions]
    body = ["<h1>Comparison of arms</h1>"]
    body += [f'<p class="answer">{escape(one.sentence(margin_points))}.</p>' for one in comparison.against]
    body += [f"<p>{escape(details(one))}</p>" for one in comparison.against]
    body += [f'<p class="limits">{escape(LIMITS)}</p>']
    body += [f"<p>Note: {escape(note)}</p>" for note in comparison.notes()]
    body += ["<h2>Arms</h2>", table(("figure", *(one.arm for one in comparison.figures)), rows)]
    body += ["<h2>Sessions</h2>", table(columns, cells_of)]
    return page("Comparison", body)


def _session(one: SessionResult) -> dict[str, Cell]:
    note = f'<span class="words">{escape(one.note)}</span>' if one.note else ""
    return {
        "task": (escape(one.task), None),
        "repeat": number(one.repeat + 1, "d"),
        "arm": (escape(one.arm), None),
        "outcome": (escape(one.outcome), None),
        "cost": dollars(one.usd),
        "calls": number(one.calls, ",d"),
        "read back": number(one.read_backs, ",d"),
        "repeated": number(one.repeated_calls, ",d"),
        "cache breaks": number(one.cache_breaks, ",d"),
        "note": (note, None),
    }


def _cell(figures: ArmFigures, field: str) -> Cell:
    value: Any = getattr(figures, field)
    if value is None:
        return "?", None
    return dollars(value) if field == "usd" else number(value, ",.0f")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
