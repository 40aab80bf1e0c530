"""A request of the past, as it was sent. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ctxfs.messages.base import ModelRequest, ToolSchema, Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Message
from ctxfs.messages.serialize import to_messages_body

MESSAGES_ELSEWHERE: Final = (
    "the messages: your framework, program or loop keeps them, so look there; `ctxfs ls` lists what was replaced"
)
"""What is not recorded about each request where somebody else keeps the messages."""

READ_BACKS_ELSEWHERE: Final = "not recorded: the loop has its messages"
"""What is known about read-backs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRequest:
    """What the model was sent: every byte of the messages, as far as the session recorded them.

    Attributes:
        call: the number of the call, from 1; one more than there were calls is the request that comes next.
        items: the items that the context held, each as it was then; ``damaged`` says that a content could not be read.
        tools: the definitions of the tools that were sent along, as JSON data; None: they were not recorded.
        breakpoints: after how many of the messages a cache breakpoint was to be set; None: not recorded.
        status: the text that followed the messages in this request only; "": none.
        sent_at: when it was sent, in seconds since the epoch; None: not recorded.
        replied_at: when the reply came; None: not recorded, or there is none.
        model: the model that the reply named; "": not recorded.
        usage: what the provider billed; None: not recorded.
        reply_id: the item of the reply; None: there is none yet, or a framework has it.
        not_recorded: what else about the request is not known, as sentences for people.

    """

    call: int
    items: tuple[ContextItem, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    breakpoints: tuple[int, ...] | None = None
    status: str = ""
    sent_at: float | None = None
    replied_at: float | None = None
    model: str = ""
    usage: Usage | None = None
    reply_id: str | None = None
    not_recorded: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, the system prompt first."""
        return tuple([item.message for item in self.items])

    @property
    def token_count(self) -> int:
        """Tokens of all items, by the session's counter."""
        return sum(item.token_count for item in self.items)

    def body(self, *, cache: bool = True) -> dict[str, Any]:
        """``system``, ``messages`` and ``tools`` as the Messages API got them; those that were empty are left out.

        ``cache`` sets the prompt-cache breakpoints. Tools that are not of the form name, description and
        ``input_schema``, such as the provider's own, are returned as they were recorded.
        """
        tools = self.tools or ()
        schemas: tuple[ToolSchema, ...] = ()
        have_our_form = all(set(tool) == {"name", "description", "input_schema"} for tool in tools)
        if have_our_form:
            schemas = tuple(ToolSchema(**tool) for tool in tools)
        request = ModelRequest(messages=self.messages, tools=schemas, breakpoints=self.breakpoints, status=self.status)
        body = to_messages_body(request, model="", max_tokens=0, cache=cache)
        del body["model"]
        del body["max_tokens"]
        if not have_our_form:
            body["tools"] = [dict(tool) for tool in tools]
        return body
