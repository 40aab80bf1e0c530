"""Items for tests of the session's file system, and lines of a journal that ctxfs would not write."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ctxfs.content.stored import Stored
from ctxfs.context.commit import Applied, apply
from ctxfs.eviction.plan import Plan
from ctxfs.items import ContextItem, ItemType
from ctxfs.llm.messages import Content, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem

__all__ = ["PLACEHOLDER", "carried_out", "evicted", "forged_line", "stored_record", "tool_result", "user_message"]

PLACEHOLDER = "[Content offloaded]"


def tool_result(fs: ContextFileSystem, content: Content, raw_id: str = "call_1", tool: str = "Read") -> ContextItem:
    item_id, name = fs.claim(ItemType.TOOL_RESULT, raw_id, tool)
    return ContextItem(
        id=item_id,
        item_type=ItemType.TOOL_RESULT,
        message=ToolMessage(raw_id, tool, content),
        name=name,
        token_count=100,
        content_tokens=100,
    )


def user_message(fs: ContextFileSystem, content: Content) -> ContextItem:
    item_id, name = fs.claim(ItemType.USER_MESSAGE, None)
    return ContextItem(
        id=item_id,
        item_type=ItemType.USER_MESSAGE,
        message=UserMessage(content),
        name=name,
        token_count=10,
        content_tokens=10,
    )


def forged_line(seq: int, *data: Mapping[str, Any]) -> bytes:
    """A line of the journal with a right checksum, whatever its records are."""
    rec = json.dumps(data[0] if len(data) == 1 else {"type": "batch", "records": data}).encode()
    crc = zlib.crc32(rec, zlib.crc32(b"%d:" % seq))
    return b'{"v":1,"seq":%d,"len":%d,"crc":"%08x","rec":%b}\n' % (seq, len(rec), crc, rec)


def evicted(fs: ContextFileSystem, item: ContextItem) -> ContextItem:
    """The item as it stands in the context once its content left."""
    path = fs.path_of(item.name)
    assert isinstance(item.message, ToolMessage)
    message = replace(item.message, content=PLACEHOLDER, offloaded=True, offload_path=path)
    return replace(item, message=message, token_count=5, offloaded=True, destroyed=True, offload_path=path)


async def carried_out(plan: Plan, items: Mapping[str, ContextItem], fs: ContextFileSystem) -> Applied:
    """What all commits of a plan came to together."""
    current, parts = dict(items), list[Applied]()

    def done(applied: Applied) -> None:
        parts.append(applied)
        current.update((item.id, item) for item in applied.items)

    await apply(plan, current, fs, done)
    return Applied(
        items=tuple({item.id: item for part in parts for item in part.items}.values()),
        left=tuple(item_id for part in parts for item_id in part.left),
        archived=next((part.archived for part in parts if part.archived is not None), None),
        events=tuple(event for part in parts for event in part.events),
    )


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
