"""Recorded sessions, replayed under policies: what they cost, and what was billed.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.lab.replay.answer import render_text
    from ctxfs.lab.replay.composition import Share
    from ctxfs.lab.replay.cost import Cached, CallFigures, Cost
    from ctxfs.lab.replay.counting import Counted
    from ctxfs.lab.replay.explanation import Bill, ExplainedItem, Explanation, explain
    from ctxfs.lab.replay.html import render_html
    from ctxfs.lab.replay.lab import Progress, Tokens, replay_files
    from ctxfs.lab.replay.policies import DEFAULT_POLICIES, POLICY_NAMES
    from ctxfs.lab.replay.prediction import Prediction
    from ctxfs.lab.replay.recorded import RecordedItem, RecordedSession, explain_recording
    from ctxfs.lab.replay.render import render_json, render_table
    from ctxfs.lab.replay.report import PolicyFigures, PolicyRun, Report, SessionReport, Skipped
    from ctxfs.lab.replay.tariff import BilledCall, PriceOptions
    from ctxfs.lab.replay.tune import Fold, Tuned, tune_files
    from ctxfs.lab.replay.watched import ToolFigures

__all__ = [
    "DEFAULT_POLICIES",
    "POLICY_NAMES",
    "Bill",
    "BilledCall",
    "Cached",
    "CallFigures",
    "Cost",
    "Counted",
    "ExplainedItem",
    "Explanation",
    "Fold",
    "PolicyFigures",
    "PolicyRun",
    "Prediction",
    "PriceOptions",
    "Progress",
    "RecordedItem",
    "RecordedSession",
    "Report",
    "SessionReport",
    "Share",
    "Skipped",
    "Tokens",
    "ToolFigures",
    "Tuned",
    "explain",
    "explain_recording",
    "render_html",
    "render_json",
    "render_table",
    "render_text",
    "replay_files",
    "tune_files",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.lab.replay.answer": ("render_text",),
        "ctxfs.lab.replay.composition": ("Share",),
        "ctxfs.lab.replay.cost": (
            "Cached",
            "CallFigures",
            "Cost",
        ),
        "ctxfs.lab.replay.counting": ("Counted",),
        "ctxfs.lab.replay.explanation": (
            "Bill",
            "ExplainedItem",
            "Explanation",
            "explain",
        ),
        "ctxfs.lab.replay.html": ("render_html",),
        "ctxfs.lab.replay.lab": (
            "Progress",
            "Tokens",
            "replay_files",
        ),
        "ctxfs.lab.replay.policies": (
            "DEFAULT_POLICIES",
            "POLICY_NAMES",
        ),
        "ctxfs.lab.replay.prediction": ("Prediction",),
        "ctxfs.lab.replay.recorded": (
            "RecordedItem",
            "RecordedSession",
            "explain_recording",
        ),
        "ctxfs.lab.replay.render": (
            "render_json",
            "render_table",
        ),
        "ctxfs.lab.replay.report": (
            "PolicyFigures",
            "PolicyRun",
            "Report",
            "SessionReport",
            "Skipped",
        ),
        "ctxfs.lab.replay.tariff": (
            "BilledCall",
            "PriceOptions",
        ),
        "ctxfs.lab.replay.tune": (
            "Fold",
            "Tuned",
            "tune_files",
        ),
        "ctxfs.lab.replay.watched": ("ToolFigures",),
    },
)
