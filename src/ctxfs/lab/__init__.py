"""Recorded sessions, replayed under policies: what they cost, and what was billed; and what rewriting changes.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.lab.replay.cost import Cost
    from ctxfs.lab.replay.explanation import Bill, ExplainedItem, Explanation, explain
    from ctxfs.lab.replay.html import render_html
    from ctxfs.lab.replay.lab import replay_files
    from ctxfs.lab.replay.recorded import RecordedItem, RecordedSession, explain_recording
    from ctxfs.lab.replay.report import PolicyFigures, PolicyRun, Report, SessionReport, Skipped
    from ctxfs.lab.replay.tariff import PriceOptions
    from ctxfs.lab.shadow import Shadow

__all__ = [
    "Bill",
    "Cost",
    "ExplainedItem",
    "Explanation",
    "PolicyFigures",
    "PolicyRun",
    "PriceOptions",
    "RecordedItem",
    "RecordedSession",
    "Report",
    "SessionReport",
    "Shadow",
    "Skipped",
    "explain",
    "explain_recording",
    "render_html",
    "replay_files",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.lab.replay.cost": ("Cost",),
        "ctxfs.lab.replay.explanation": (
            "Bill",
            "ExplainedItem",
            "Explanation",
            "explain",
        ),
        "ctxfs.lab.replay.html": ("render_html",),
        "ctxfs.lab.replay.lab": ("replay_files",),
        "ctxfs.lab.replay.recorded": (
            "RecordedItem",
            "RecordedSession",
            "explain_recording",
        ),
        "ctxfs.lab.replay.report": (
            "PolicyFigures",
            "PolicyRun",
            "Report",
            "SessionReport",
            "Skipped",
        ),
        "ctxfs.lab.replay.tariff": ("PriceOptions",),
        "ctxfs.lab.shadow": ("Shadow",),
    },
)
