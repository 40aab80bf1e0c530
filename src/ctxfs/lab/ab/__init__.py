"""Compare what is done to a context on your own tasks: solved or not, and what it cost.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.lab.ab.arms import ARM_NAMES, Arm, arm_named
    from ctxfs.lab.ab.meter import Pricing
    from ctxfs.lab.ab.render import comparison_html, comparison_json, comparison_markdown, comparison_text
    from ctxfs.lab.ab.report import Against, ArmFigures, Comparison
    from ctxfs.lab.ab.results import Outcome, SessionKey, SessionResult
    from ctxfs.lab.ab.running import Settings, Solve, run
    from ctxfs.lab.ab.session import Session
    from ctxfs.lab.ab.statistics import Difference
    from ctxfs.lab.ab.tasks import Check, Task, read_tasks

__all__ = [
    "ARM_NAMES",
    "Against",
    "Arm",
    "ArmFigures",
    "Check",
    "Comparison",
    "Difference",
    "Outcome",
    "Pricing",
    "Session",
    "SessionKey",
    "SessionResult",
    "Settings",
    "Solve",
    "Task",
    "arm_named",
    "comparison_html",
    "comparison_json",
    "comparison_markdown",
    "comparison_text",
    "read_tasks",
    "run",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.lab.ab.arms": ("ARM_NAMES", "Arm", "arm_named"),
        "ctxfs.lab.ab.meter": ("Pricing",),
        "ctxfs.lab.ab.render": ("comparison_html", "comparison_json", "comparison_markdown", "comparison_text"),
        "ctxfs.lab.ab.report": ("Against", "ArmFigures", "Comparison"),
        "ctxfs.lab.ab.results": ("Outcome", "SessionKey", "SessionResult"),
        "ctxfs.lab.ab.running": ("Settings", "Solve", "run"),
        "ctxfs.lab.ab.session": ("Session",),
        "ctxfs.lab.ab.statistics": ("Difference",),
        "ctxfs.lab.ab.tasks": ("Check", "Task", "read_tasks"),
    },
)
