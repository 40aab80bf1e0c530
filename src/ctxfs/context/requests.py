"""The requests of a context: the messages as they were sent, and their form for the Messages API, serialised once."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from ctxfs.errors import ConfigError
from ctxfs.messages.base import ModelRequest
from ctxfs.messages.cache_breakpoints import CacheMarks
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Message
from ctxfs.messages.serialize import MessagesSerializer
from ctxfs.session.records import ToolsDefined
from ctxfs.text.jsontext import codec as json_codec


class MessagesRequest(TypedDict):
    """What the Messages API's ``create`` and ``stream`` take of a context: ``create(model=…, **request)``."""

    messages: list[Any]
    system: NotRequired[Any]


class Requests:
    """The requests of one session since it was opened.

    ``counted_tokens``: the size of the last prompt by the counter; 0 before the first one. ``tools``: the definitions
    of the tools that are sent along; None: they are not known.
    """

    def __init__(self, tools: ToolsDefined | None = None) -> None:
        self._cache_marks = CacheMarks()
        self._serializer = MessagesSerializer()
        self.counted_tokens = 0
        self.tools = tools

    @property
    def breakpoints(self) -> tuple[int, ...]:
        """After how many of the last sent messages a cache breakpoint is worth setting."""
        return self._cache_marks.breakpoints

    def sent(
        self, items: Iterable[ContextItem], *, counted_tokens: int, spare: int | None = None
    ) -> tuple[Message, ...]:
        """The messages of ``items``, which are sent now; ``spare`` as in ``CacheMarks.sent``."""
        messages = tuple([item.message for item in items])
        self._cache_marks.sent(messages, spare=spare)
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


def definitions_of(tools: Iterable[Mapping[str, Any]]) -> ToolsDefined:
    """The definitions of tools as the journal has them. Raises ``ConfigError`` unless they are objects of JSON."""
    try:
        text = json_codec.dumps([dict(tool) for tool in tools])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tools: {error}: give each tool as a dict, as the provider takes it") from error
    return ToolsDefined(sha256=hashlib.sha256(text).hexdigest(), tools=tuple(json_codec.loads(text)))
