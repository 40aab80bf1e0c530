"""The loop, two clients, and telemetry.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import OTHER_NAMES, lazy

if TYPE_CHECKING:
    from ctxfs.agent.agent import Agent
    from ctxfs.agent.config import AgentConfig, ResultOffload
    from ctxfs.agent.events import Done, ToolEnded, ToolStarted, UsageReported
    from ctxfs.agent.llm.anthropic import ChatAnthropic
    from ctxfs.agent.llm.openai import ChatOpenAI
    from ctxfs.agent.telemetry.telemetry import SessionTelemetry, Telemetry

__all__ = [
    "Agent",
    "AgentConfig",
    "ChatAnthropic",
    "ChatOpenAI",
    "Done",
    "ResultOffload",
    "SessionTelemetry",
    "Telemetry",
    "ToolEnded",
    "ToolStarted",
    "UsageReported",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.agent.agent": ("Agent",),
        "ctxfs.agent.config": (
            "AgentConfig",
            "ResultOffload",
        ),
        "ctxfs.agent.events": (
            "Done",
            "ToolEnded",
            "ToolStarted",
            "UsageReported",
        ),
        "ctxfs.agent.llm.anthropic": ("ChatAnthropic",),
        "ctxfs.agent.llm.openai": ("ChatOpenAI",),
        "ctxfs.agent.telemetry.telemetry": (
            "SessionTelemetry",
            "Telemetry",
        ),
    },
    renamed=OTHER_NAMES,
)
