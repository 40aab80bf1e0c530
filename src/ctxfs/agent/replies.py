"""What a reply means for a query: whether it is there, what it starts, and whether it is the answer. Pure."""

from ctxfs.agent.events import ToolStarted
from ctxfs.errors import ReplyIncomplete
from ctxfs.messages.base import CUT, Reply


def whole(reply: Reply | None) -> Reply:
    """Return the reply. Raises ``ReplyIncomplete`` when there is none."""
    if reply is None:
        raise ReplyIncomplete("the model's stream ended without a reply: query again")
    return reply


def started(reply: Reply) -> list[ToolStarted]:
    """The tools that a reply starts; none if it was cut."""
    return [] if reply.stop_reason in CUT else [ToolStarted(call) for call in reply.message.tool_calls]


def is_final(reply: Reply) -> bool:
    """A reply ends the query unless it calls tools or the provider only paused it."""
    return not reply.message.tool_calls and reply.stop_reason != "pause_turn"
