"""The agent: a model, its tools, and one session of context."""

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.context.events import Evicted, Offloaded, OffloadFailed, RecordFailed
from ctxfs.llm.base import Retrying, TextDelta, ThinkingDelta
from ctxfs.tools.decorator import tool

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentEvent",
    "Done",
    "Evicted",
    "OffloadFailed",
    "Offloaded",
    "RecordFailed",
    "Retrying",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolStarted",
    "UsageReported",
    "tool",
]
