"""The JSON form of a journal's records; a record of an unknown type is kept as it is. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, check_content
from ctxfs.session.content.stored import Stored
from ctxfs.session.field_types import check_values, reader_of
from ctxfs.session.records import (
    CallMade,
    Closed,
    ContentRemoved,
    Decided,
    EvictionSet,
    ItemAdded,
    NoteWritten,
    PartsNoted,
    Pinned,
    Record,
    Removed,
    Replaced,
    RequestSent,
    Restored,
    SessionStarted,
    SessionTagged,
    Shadowed,
    ToolsDefined,
    Undone,
    UnknownRecord,
    WriterOpened,
)

_TYPES: dict[str, type] = {
    "session_started": SessionStarted,
    "writer_opened": WriterOpened,
    "eviction_set": EvictionSet,
    "item_added": ItemAdded,
    "stored": Stored,
    "replaced": Replaced,
    "restored": Restored,
    "removed": Removed,
    "undone": Undone,
    "pinned": Pinned,
    "tools_defined": ToolsDefined,
    "request_sent": RequestSent,
    "call_made": CallMade,
    "decided": Decided,
    "parts_noted": PartsNoted,
    "content_removed": ContentRemoved,
    "session_tagged": SessionTagged,
    "note_written": NoteWritten,
    "shadowed": Shadowed,
    "closed": Closed,
}

_RECORDED = {entry.name: entry.default for entry in fields(ContextItem) if entry.name not in {"message", "damaged"}}
"""What is recorded of an item besides its message, with the defaults, which are left out.

The next opening of the session looks again whether its content is damaged.
"""

_NAMES = {kind: name for name, kind in _TYPES.items()}

_ACCOUNTING = tuple(_NAMES[kind] for kind in (ToolsDefined, RequestSent, CallMade))

_FIELDS = {kind: tuple(entry.name for entry in fields(kind)) for kind in (*_TYPES.values(), ToolMessage, Usage)}

_READ_ITEM = attrgetter(*_RECORDED)

_SIZES = ("size_bytes", "chars", "lines", "blocks", "content_offset", "content_length", "offloaded_at")

_ITEM_TYPES = {item_type.value: item_type for item_type in ItemType}

_ROLES: dict[type, str] = {SystemMessage: "system", UserMessage: "user", AssistantMessage: "assistant"}

_KINDS: dict[str, type[SystemMessage | UserMessage | AssistantMessage]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
}


def to_json(record: Record) -> dict[str, Any]:
    """Return the record as JSON data, its type first."""
    if isinstance(record, UnknownRecord):
        return dict(record.data)
    kind = type(record)
    data: dict[str, Any] = {"type": _NAMES[kind], **_values_of(record, kind)}
    if isinstance(record, Stored) and not record.compression:
        del data["compression"]
    if isinstance(record, ItemAdded):
        data["item"] = _item_to_json(record.item)
    elif isinstance(record, CallMade):
        data["usage"] = _values_of(record.usage, Usage)
    return data


def _values_of(value: Any, kind: type) -> dict[str, Any]:
    return dict(zip(_FIELDS[kind], reader_of(kind)(value), strict=False))


def from_json(data: Mapping[str, Any]) -> Record:
    """Return the record. Raises KeyError, TypeError or ValueError if it is not a record, or lacks a field."""
    if not isinstance(data, dict):
        raise TypeError("a record is an object")
    kind = _TYPES.get(data.get("type", ""))
    if kind is None:
        return UnknownRecord(data=data)
    values = {name: data[name] for name in _FIELDS[kind] if name in data}
    convert = _CONVERTERS.get(kind)
    if convert is not None:
        convert(values)
    check_values(kind, values)
    record: Record = kind(**values)
    return record


def is_accounting(data: Any) -> bool:
    """Whether JSON data is a record that nothing in the session depends on: what a call sent, and what it cost."""
    return isinstance(data, dict) and data.get("type") in _ACCOUNTING


def _convert_item_added(values: dict[str, Any]) -> None:
    values["item"] = _item_from_json(values["item"])


def _convert_eviction(values: dict[str, Any]) -> None:
    if not all(isinstance(keep, int) and keep > 0 for keep in values.get("keep_recent", {}).values()):
        raise ValueError("a tool keeps at least one result")


def _convert_stored(values: dict[str, Any]) -> None:
    values["item_type"] = _item_type(values["item_type"])
    if min([values[name] for name in _SIZES]) < 0:
        raise ValueError("a size is negative")


def _convert_content_removed(values: dict[str, Any]) -> None:
    values["item_type"] = _item_type(values["item_type"])
    if min(values["size_bytes"], values["lines"]) < 0:
        raise ValueError("a size is negative")


def _convert_tagged(values: dict[str, Any]) -> None:
    values["tags"] = tuple(values["tags"])
    if not all(isinstance(tag, str) for tag in values["tags"]):
        raise ValueError("a tag is a text")


def _convert_replaced(values: dict[str, Any]) -> None:
    values["content"] = check_content(values["content"])
    values["trimmed"] = tuple(values.get("trimmed", ()))


def _convert_item_ids(values: dict[str, Any]) -> None:
    values["item_ids"] = tuple(values["item_ids"])


def _convert_tools(values: dict[str, Any]) -> None:
    values["tools"] = tuple(values["tools"])


def _convert_request(values: dict[str, Any]) -> None:
    values["breakpoints"] = tuple(values.get("breakpoints", ()))


def _convert_call(values: dict[str, Any]) -> None:
    values["usage"] = Usage(**{name: count for name, count in values["usage"].items() if name in _FIELDS[Usage]})


def _convert_decided(values: dict[str, Any]) -> None:
    if values["kind"] != "call":
        values["content"] = check_content(values["content"])
    elif not isinstance(values["content"], dict):
        raise ValueError("the arguments of a call are an object")


def _convert_noted(values: dict[str, Any]) -> None:
    if not all(isinstance(count, int) and count >= 0 for count in values.get("tokens", {}).values()):
        raise ValueError("a count of tokens is a number")
    for source in values.get("sources", {}).values():
        if [type(part) for part in source] != [str, int, int]:
            raise ValueError("a source is an item, its first line and its last")


_CONVERTERS: dict[type, Callable[[dict[str, Any]], None]] = {
    EvictionSet: _convert_eviction,
    ItemAdded: _convert_item_added,
    Stored: _convert_stored,
    Replaced: _convert_replaced,
    Removed: _convert_item_ids,
    Pinned: _convert_item_ids,
    ContentRemoved: _convert_content_removed,
    SessionTagged: _convert_tagged,
    Shadowed: _convert_tools,
    ToolsDefined: _convert_tools,
    RequestSent: _convert_request,
    CallMade: _convert_call,
    Decided: _convert_decided,
    PartsNoted: _convert_noted,
}


def _item_to_json(item: ContextItem) -> dict[str, Any]:
    message = _message_to_json(item.message)
    data: dict[str, Any] = {"id": item.id, "item_type": item.item_type, "message": message}
    for (name, default), value in zip(_RECORDED.items(), _READ_ITEM(item), strict=True):
        if value != default:
            data[name] = asdict(value) if isinstance(value, ContentRange) else value
    return data


def _item_from_json(data: Mapping[str, Any]) -> ContextItem:
    values = {name: data[name] for name in _RECORDED if name in data}
    values["item_type"] = _item_type(values["item_type"])
    values["message"] = _message_from_json(data["message"])
    if "trimmed" in values:
        values["trimmed"] = tuple(values["trimmed"])
    if values.get("source") is not None:
        values["source"] = ContentRange(**values["source"])
    check_values(ContextItem, values)
    return ContextItem(**values)


def _item_type(name: str) -> ItemType:
    return _ITEM_TYPES.get(name) or ItemType(name)


def _message_to_json(message: Message) -> dict[str, Any]:
    check_content(message.content)  # names the place of what could not be read back
    if isinstance(message, ToolMessage):
        return {"role": "tool", **_values_of(message, ToolMessage)}
    return {"role": _ROLES[type(message)], "content": message.content}


def _message_from_json(data: Mapping[str, Any]) -> Message:
    content = check_content(data["content"])
    if data["role"] == "tool":
        values = {name: data[name] for name in _FIELDS[ToolMessage] if name in data}
        values["content"] = content
        check_values(ToolMessage, values)
        return ToolMessage(**values)
    return _KINDS[data["role"]](content)
