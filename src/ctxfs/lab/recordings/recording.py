"""A recorded session as a value, whatever format it came in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ctxfs.messages.base import Usage

_LARGE_TOKENS = 20_000
"""Smaller prompts vary for other reasons."""


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
    it is counted by, None for the text itself; a call's name is counted on top, and ``media_tokens`` for the images and
    documents in it. ``tool``, ``call_id``, ``arguments``: the call's, for a call and its result; empty otherwise.
    """

    kind: Kind
    text: str
    counted: str | None = None
    tool: str = ""
    call_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    media_tokens: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it that a model could see."""
        return not (self.text or self.counted or self.media_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """What a recording says of one call of a model.

    Args:
        id: the reply's, by which the same call is known in two files; empty: it has none.
        model: the model's name; empty: not recorded.
        at: when the reply was complete, in seconds since 1970; None: not recorded.
        usage: what was billed; None: not recorded.
        hour_tokens: of what was written to the cache, the tokens that are kept for an hour.
        usd: what the recording says that the call cost; None: it does not say.
    """

    id: str = ""
    model: str = ""
    at: float | None = None
    usage: Usage | None = None
    hour_tokens: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message: each one of the assistant is one call of the model.

    Args:
        role: who speaks.
        blocks: what was said.
        at: when it was complete, in seconds since 1970; None: not recorded.
        call: of a reply, what was billed; None: nothing is known.
        is_fresh: the context was emptied before it: a compaction, or the first message of another thread.
        cleared: the ids of the calls whose results the recorded agent removed from its context before this message.
    """

    role: Role
    blocks: tuple[Block, ...]
    at: float | None = None
    call: ModelCall | None = None
    is_fresh: bool = False
    cleared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session.

    Args:
        name: what reports call it.
        messages: in order; threads of sub-agents follow the main one, each begun by a message that ``is_fresh``.
        declared_model: the model that the file names as a whole; empty: it names none.
        project: the directory that the agent worked in; empty: not recorded.
        agent: the agent or program that wrote the file, such as Claude Code; empty: its format does not say.
        asides: calls that were billed and stand in no thread, such as those of a branch that was rewound.
    """

    name: str
    messages: tuple[Message, ...]
    declared_model: str = ""
    project: str = ""
    agent: str = ""
    asides: tuple[ModelCall, ...] = ()

    @property
    def has_reply(self) -> bool:
        """Whether a model replied to something."""
        return any(m.role is Role.ASSISTANT for m in self.messages[1:])

    @property
    def model(self) -> str:
        """The model that replied most often, else the one that the file names; empty: not recorded."""
        named = Counter(m.call.model for m in self.messages if m.call is not None and m.call.model)
        return named.most_common(1)[0][0] if named else self.declared_model

    @property
    def calls(self) -> Iterator[ModelCall]:
        """Every call of which something is known; calls outside of all threads come last."""
        yield from (m.call for m in self.messages if m.call is not None)
        yield from self.asides

    def threads(self) -> "tuple[Recording, ...]":
        """The recording, cut wherever the context was emptied: each part that a model replied in.

        A prompt of less than half of what was billed before it says so too, where the format does not.
        """
        found: list[list[Message]] = []
        asked = prompt = 0  # where the next request's new messages begin in the last thread; the last prompt's tokens
        for message in self.messages:
            if message.is_fresh or not found:
                found.append([])
                asked = prompt = 0
            if message.call is not None and message.call.usage is not None:
                tokens = message.call.usage.total_input_tokens
                if tokens * 2 < prompt and prompt > _LARGE_TOKENS:
                    found.append(found[-1][asked:])
                    del found[-2][asked:]
                prompt = tokens
            found[-1].append(message)
            asked = len(found[-1]) if message.role is Role.ASSISTANT else asked
        parts = (replace(self, messages=tuple(t), asides=(), declared_model=self.model) for t in found)
        return tuple(part for part in parts if part.has_reply)
