"""Compare what is done to a context on your own tasks: solved or not, and what it cost.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.lab.ab.arms import Arm
    from ctxfs.lab.ab.meter import Pricing
    from ctxfs.lab.ab.report import Against, Comparison
    from ctxfs.lab.ab.running import Settings, run
    from ctxfs.lab.ab.session import Session
    from ctxfs.lab.ab.tasks import Task

__all__ = [
    "Against",
    "Arm",
    "Comparison",
    "Pricing",
    "Session",
    "Settings",
    "Task",
    "run",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.lab.ab.arms": ("Arm",),
        "ctxfs.lab.ab.meter": ("Pricing",),
        "ctxfs.lab.ab.report": ("Against", "Comparison"),
        "ctxfs.lab.ab.running": ("Settings", "run"),
        "ctxfs.lab.ab.session": ("Session",),
        "ctxfs.lab.ab.tasks": ("Task",),
    },
)
