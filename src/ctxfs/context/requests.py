"""The requests of a context: the messages as they were sent, and their form for the Messages API, serialised once."""

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

from ctxfs.items import ContextItem
from ctxfs.llm.base import ModelRequest
from ctxfs.llm.cache_breakpoints import CacheMarks
from ctxfs.llm.messages import Message
from ctxfs.llm.serialize import MessagesSerializer

__all__ = ["MessagesRequest", "Requests"]


class MessagesRequest(TypedDict):
    """What the Messages API's ``create`` and ``stream`` take of a context: ``create(model=…, **request)``."""

    messages: list[Any]
    system: NotRequired[Any]


class Requests:
    """The requests of one session since it was opened.

    ``counted_tokens``: the size of the last prompt by the counter; 0 before the first one.
    """

    def __init__(self) -> None:
        self._cache_marks = CacheMarks()
        self._serializer = MessagesSerializer()
        self.counted_tokens = 0

    @property
    def breakpoints(self) -> tuple[int, ...]:
        """After how many of the messages that were sent last a cache breakpoint is worth setting."""
        return self._cache_marks.breakpoints

    def sent(self, items: Iterable[ContextItem], *, counted_tokens: int) -> tuple[Message, ...]:
        """The messages of ``items``, which are sent now."""
        messages = tuple([item.message for item in items])
        self._cache_marks.sent(messages)
        self.counted_tokens = counted_tokens
        return messages

    def body(self, messages: tuple[Message, ...], *, cache: bool) -> MessagesRequest:
        """``messages`` for the Messages API; ``cache`` sets prompt-cache breakpoints."""
        request = ModelRequest(messages=messages, breakpoints=self.breakpoints)
        body = self._serializer.body(request, model="", max_tokens=0, cache=cache)
        made = MessagesRequest(messages=body["messages"])
        if "system" in body:
            made["system"] = body["system"]
        return made
