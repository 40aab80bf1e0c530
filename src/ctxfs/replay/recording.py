"""A recorded session as a value, whatever format it came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Block", "Kind", "Message", "Recording", "Role"]


class Role(StrEnum):
    """Who speaks. Tool results stand in user messages, as in the Anthropic Messages API."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Kind(StrEnum):
    """What a block is."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_INPUT = "tool_input"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a message.

    ``text`` is what can be quoted from it: of a call, its argument strings unescaped, one per line. ``counted`` is what
    it is counted by, None for the text itself; a call's name is counted on top. ``tool``, ``call_id``, ``arguments``:
    the call's, for a call and its result; empty otherwise.
    """

    kind: Kind
    text: str
    counted: str | None = None
    tool: str = ""
    call_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: each one of the assistant is one call of the model."""

    role: Role
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session; ``model`` is empty when the file does not say."""

    name: str
    messages: tuple[Message, ...]
    model: str = ""

    @property
    def has_reply(self) -> bool:
        """Whether a model replied to something."""
        return any(m.role is Role.ASSISTANT for m in self.messages[1:])
