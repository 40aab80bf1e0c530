"""The agent: a model, its tools, and one session of context."""

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig, Approve, Redact, ResultOffload
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.events import (
    Compacted,
    ContentReadBack,
    ContentRestored,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
)
from ctxfs.llm.base import Retrying, TextDelta, ThinkingDelta
from ctxfs.redaction import Redaction
from ctxfs.tools.decorator import tool

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentEvent",
    "Approve",
    "Compacted",
    "ContentReadBack",
    "ContentRestored",
    "Done",
    "Evicted",
    "OffloadFailed",
    "Offloaded",
    "RecordFailed",
    "Redact",
    "Redaction",
    "ResultOffload",
    "Retrying",
    "SummaryFailed",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolStarted",
    "UsageReported",
    "tool",
]
