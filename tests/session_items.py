"""The items of tests, the records of what was stored, and lines of a journal that ctxfs would not write."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ctxfs.context.commit import Applied, carry_out
from ctxfs.eviction.offload_plan import Plan
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem

__all__ = [
    "PLACEHOLDER",
    "carried_out",
    "claimed_item",
    "evicted",
    "forged_line",
    "make_item",
    "stored_record",
    "tool_result",
    "user_message",
]

PLACEHOLDER = "[Content offloaded]"
_KINDS: Mapping[type, ItemType] = {
    SystemMessage: ItemType.SYSTEM_PROMPT,
    UserMessage: ItemType.USER_MESSAGE,
    AssistantMessage: ItemType.ASSISTANT_MESSAGE,
    ToolMessage: ItemType.TOOL_RESULT,
}


def make_item(
    item_id: str,
    message: Message,
    tokens: int = 10,
    placeholder_tokens: int | None = None,
    *,
    kind: ItemType | None = None,
    **fields: Any,
) -> ContextItem:
    """The item of a message, without a session.

    ``kind`` None: what follows from the message. ``placeholder_tokens`` None: no placeholder would be smaller.
    ``fields`` say what else is not as in an item that has just entered.
    """
    kind = kind or _KINDS[type(message)]
    folder = f"{kind}/{message.tool_name}" if isinstance(message, ToolMessage) else kind
    values: dict[str, Any] = {
        "id": item_id,
        "item_type": kind,
        "message": message,
        "name": f"{folder}/{item_id}.json",
        "token_count": tokens,
        "content_tokens": tokens,
        "placeholder": None if placeholder_tokens is None else PLACEHOLDER,
        "placeholder_tokens": placeholder_tokens or 0,
    }
    return ContextItem(**{**values, **fields})


def claimed_item(
    fs: ContextFileSystem,
    message: Message,
    tokens: int = 10,
    *,
    kind: ItemType | None = None,
    raw_id: str | None = None,
    tool: str | None = None,
    **fields: Any,
) -> ContextItem:
    """The item of a message, with an id and a name that the session gives out; ``raw_id``: what the id is to be."""
    item_id, name = fs.writer.allocate(kind or _KINDS[type(message)], raw_id, tool)
    return make_item(item_id, message, tokens, kind=kind, name=name, **fields)


def tool_result(fs: ContextFileSystem, content: Content, raw_id: str = "call_1", tool: str = "Read") -> ContextItem:
    return claimed_item(fs, ToolMessage(raw_id, tool, content), 100, raw_id=raw_id, tool=tool)


def user_message(fs: ContextFileSystem, content: Content) -> ContextItem:
    return claimed_item(fs, UserMessage(content))


def forged_line(seq: int, *data: Mapping[str, Any]) -> bytes:
    """A line of the journal with a right checksum, whatever its records are."""
    rec = json.dumps(data[0] if len(data) == 1 else {"type": "batch", "records": data}).encode()
    crc = zlib.crc32(rec, zlib.crc32(b"%d:" % seq))
    return b'{"v":1,"seq":%d,"len":%d,"crc":"%08x","rec":%b}\n' % (seq, len(rec), crc, rec)


def evicted(fs: ContextFileSystem, item: ContextItem) -> ContextItem:
    """The item as it stands in the context once its content left."""
    path = f"{fs.base}/{item.name}"
    assert isinstance(item.message, ToolMessage)
    message = replace(item.message, content=PLACEHOLDER, offloaded=True, offload_path=path)
    return replace(item, message=message, token_count=5, offloaded=True, destroyed=True, offload_path=path)


async def carried_out(plan: Plan, items: Mapping[str, ContextItem], fs: ContextFileSystem) -> Applied:
    """What became durable of a plan."""
    return await carry_out(plan, items, fs)


def stored_record(item_id: str = "call_1", **changes: object) -> Stored:
    """A record of a stored content: five characters in the file of a result, where ``changes`` say nothing else."""
    values: dict[str, object] = {
        "item_id": item_id,
        "item_type": ItemType.TOOL_RESULT,
        "name": f"tool_result/Read/{item_id}.json",
        "encoding": "text",
        "size_bytes": 5,
        "chars": 5,
        "lines": 1,
        "digest": "ab",
        "blocks": 1,
        "content_offset": 7,
        "content_length": 5,
        "raw": False,
        "offloaded_at": 1,
        "metadata": {"encoding": "text"},
    }
    return Stored(**{**values, **changes})  # type: ignore[arg-type]
