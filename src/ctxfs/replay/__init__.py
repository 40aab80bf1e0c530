"""Recorded sessions under eviction policies, without a model: what each would have cost, with its read-backs.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.replay.answer import render_text
    from ctxfs.replay.composition import Share
    from ctxfs.replay.cost import Cached, CallFigures, Cost
    from ctxfs.replay.counting import Counted
    from ctxfs.replay.effect import Effect
    from ctxfs.replay.explanation import Bill, ExplainedItem, Explanation, explain
    from ctxfs.replay.html import render_html
    from ctxfs.replay.lab import Progress, Tokens, replay_files
    from ctxfs.replay.policies import DEFAULT_POLICIES, POLICY_NAMES
    from ctxfs.replay.prediction import Prediction
    from ctxfs.replay.recorded import RecordedItem, RecordedSession, explain_recording
    from ctxfs.replay.render import render_json, render_table
    from ctxfs.replay.report import PolicyFigures, PolicyRun, Report, SessionReport, Skipped
    from ctxfs.replay.tariff import BilledCall, PriceOptions
    from ctxfs.replay.tune import Fold, Tuned, tune_files
    from ctxfs.replay.watched import ToolFigures

__all__ = [
    "DEFAULT_POLICIES",
    "POLICY_NAMES",
    "Bill",
    "BilledCall",
    "Cached",
    "CallFigures",
    "Cost",
    "Counted",
    "Effect",
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
        "ctxfs.replay.answer": ("render_text",),
        "ctxfs.replay.counting": ("Counted",),
        "ctxfs.replay.cost": ("Cached", "CallFigures", "Cost"),
        "ctxfs.replay.composition": ("Share",),
        "ctxfs.replay.effect": ("Effect",),
        "ctxfs.replay.explanation": ("Bill", "ExplainedItem", "Explanation", "explain"),
        "ctxfs.replay.html": ("render_html",),
        "ctxfs.replay.lab": (
            "Progress",
            "Tokens",
            "replay_files",
        ),
        "ctxfs.replay.policies": (
            "DEFAULT_POLICIES",
            "POLICY_NAMES",
        ),
        "ctxfs.replay.prediction": ("Prediction",),
        "ctxfs.replay.recorded": ("RecordedItem", "RecordedSession", "explain_recording"),
        "ctxfs.replay.render": (
            "render_json",
            "render_table",
        ),
        "ctxfs.replay.report": (
            "PolicyFigures",
            "PolicyRun",
            "Report",
            "SessionReport",
            "Skipped",
        ),
        "ctxfs.replay.tariff": ("BilledCall", "PriceOptions"),
        "ctxfs.replay.watched": ("ToolFigures",),
        "ctxfs.replay.tune": (
            "Fold",
            "Tuned",
            "tune_files",
        ),
    },
)
