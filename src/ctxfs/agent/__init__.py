"""The agent: a model, its tools, and one session of context."""

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.events import Compacted, Evicted, Offloaded, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.llm.base import Retrying, TextDelta, ThinkingDelta
from ctxfs.tools.decorator import tool

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentEvent",
    "Compacted",
    "Done",
    "Evicted",
    "OffloadFailed",
    "Offloaded",
    "RecordFailed",
    "Retrying",
    "SummaryFailed",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolStarted",
    "UsageReported",
    "tool",
]
