"""Messages and events as the attributes that say them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from ctxfs.agent.telemetry import names
from ctxfs.eviction.events import (
    Compacted,
    ContentReadBack,
    ContentRestored,
    ContextEvent,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
)
from ctxfs.messages.base import Reply
from ctxfs.messages.messages import AssistantMessage, Block, Message, SystemMessage, ToolMessage
from ctxfs.messages.wire_names import short
from ctxfs.text.jsontext import codec as json_codec

Attributes = Mapping[str, str | bool | int | float | list[str]]


def described(event: ContextEvent) -> tuple[str, Attributes]:
    """The name of an event, and its figures; of contents it says where they are, and nothing of them."""
    name, fields = _NAMES[type(event)]
    found = {attribute: getattr(event, field) for field, attribute in fields.items()}
    if found.get(names.TOOL_NAME):
        found[names.TOOL_NAME] = short(found[names.TOOL_NAME])
    if isinstance(event, OffloadFailed | RecordFailed):
        found[names.ERROR_TYPE] = type(event.error).__name__
    said = {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
    return name, {key: value for key, value in said.items() if value is not None}


_SIZES = {"tokens_before": names.TOKENS_BEFORE, "tokens_after": names.TOKENS_AFTER}
_ITEM = {"item_id": names.ITEM}

_NAMES: Mapping[type, tuple[str, Mapping[str, str]]] = {
    Offloaded: (
        names.OFFLOAD,
        {**_ITEM, "path": names.CONTENT_REF, "tokens": names.TOKENS, "size_bytes": names.SIZE},
    ),
    Evicted: (
        names.EVICT,
        {**_ITEM, **_SIZES, "tool_name": names.TOOL_NAME, "path": names.CONTENT_REF, "reason": names.REASON},
    ),
    Compacted: (names.COMPACT, {**_SIZES, "steps": names.STEPS}),
    ContentRestored: (names.RESTORE, {**_ITEM, "tokens": names.TOKENS, "reason": names.REASON}),
    ContentReadBack: (
        names.READ_BACK,
        {**_ITEM, "tokens": names.TOKENS, "first_line": names.FIRST_LINE, "last_line": names.LAST_LINE},
    ),
    OffloadFailed: (names.OFFLOAD_FAILED, _ITEM),
    RecordFailed: (names.RECORD_FAILED, {}),
    SummaryFailed: (names.SUMMARY_FAILED, {"reason": names.REASON}),
}
"""Of each event the name, and under which names its fields are sent."""


def request_text(messages: Iterable[Message]) -> str:
    """The messages of a request, as the conventions write them, in JSON."""
    return json_codec.dumps_text([{"role": _role(message), "parts": _parts(message)} for message in messages])


def reply_text(reply: Reply) -> str:
    """A reply, in the same form."""
    said = {"role": "assistant", "parts": _parts(reply.message), "finish_reason": reply.stop_reason}
    return json_codec.dumps_text([said])


def _role(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "tool"
    if isinstance(message, SystemMessage):
        return "system"
    return "assistant" if isinstance(message, AssistantMessage) else "user"


def _parts(message: Message) -> list[dict[str, Any]]:
    content: Any = message.content
    if isinstance(message, ToolMessage):
        response = content if isinstance(content, str) else list(content)
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    blocks = ({"type": "text", "text": content},) if isinstance(content, str) else content
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "text", "content": block["text"]}
        case "tool_use":
            return {"type": "tool_call", "id": block["id"], "name": block["name"], "arguments": block["input"]}
        case other:
            return {"type": other}
