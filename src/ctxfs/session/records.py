"""The records of a session's journal, as values, and their JSON form.

Fields are only ever added, with a default; a record of an unknown type is kept as it is. Paths inside the session are
recorded as names relative to it, so that a session can be moved.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ctxfs.content.stored import Stored
from ctxfs.items import ContentRange, ContextItem, ItemType
from ctxfs.llm.base import Usage
from ctxfs.llm.messages import (
    AssistantMessage,
    Content,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    check_content,
)
from ctxfs.session.field_types import check_values

__all__ = [
    "CallMade",
    "Closed",
    "Decided",
    "EvictionSet",
    "ItemAdded",
    "PartsNoted",
    "Record",
    "Removed",
    "Replaced",
    "Restored",
    "SessionStarted",
    "UnknownRecord",
    "WriterOpened",
    "from_json",
    "is_accounting",
    "to_json",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """The first record. ``started_at`` is in seconds since the epoch; ``rebuilt``: the journal before was lost."""

    session_id: str
    started_at: float
    layout: str = "envelope"
    rebuilt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOpened:
    """A writer opened the session. ``epoch`` counts writers; ``path`` is where the session lay then."""

    epoch: int
    path: str
    opened_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSet:
    """By which rules results leave from here on.

    ``keep_recent``: how many results a tool keeps exactly, by tool name. ``parameters``: the numbers of the economic
    planner, None when nothing leaves because it pays; ``rates`` (prices in uncached input tokens) and ``ttl_s`` are
    what it reckons with. ``window_tokens``: the largest prompt, None when the context has no limit or none is recorded.
    ``policy``: what may leave, None when that is the default. ``digest_tokens``: the longest digest of a placeholder.
    """

    keep_recent: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] | None = None
    rates: Mapping[str, Any] = field(default_factory=dict)
    ttl_s: float = 0.0
    window_tokens: int | None = None
    policy: Mapping[str, Any] | None = None
    digest_tokens: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded:
    """An item joined the context, before the item ``before`` (None: at the end).

    ``content_stored``: the item's content is in its file, and empty here.
    """

    item: ContextItem
    content_stored: bool = False
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """An item's content in the context is now ``content``: its placeholder, or a reply without its large arguments.

    ``path`` is where the original is, None when it is only in part elsewhere. ``trimmed``: see ``ContextItem``.
    ``saved_chars``: how much shorter the item is, if it left the moment it came in; None when it left later, and in
    sessions of 0.1.0. ``placeholder``: the shorter one that may replace it later, of ``placeholder_tokens``; None: the
    one that was recorded with the item, or there is none.
    """

    item_id: str
    content: Content
    token_count: int
    path: str | None
    destroyed: bool
    reason: str
    trimmed: tuple[int, ...] = ()
    saved_chars: int | None = None
    placeholder: str | None = None
    placeholder_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """An item's stored content is back in the context; it has ``token_count`` tokens (None: as when it entered)."""

    item_id: str
    reason: str = ""
    token_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Items left the context; what was stored of them stays. ``archive``: the item whose content holds theirs."""

    item_ids: tuple[str, ...]
    reason: str
    archive: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """The model was called on the context as it stood here. ``number`` counts from 1.

    An accounting record: nothing in the session depends on it.

    ``counted_tokens``: the prompt by our own count; 0 when it was not counted. ``made_at``: when the reply was there,
    in seconds since the epoch; 0 when it is not known. ``summary``: a summary was asked for, with a prompt of its
    own that says nothing of the context's size and leaves its prompt cache alone.
    """

    number: int
    usage: Usage
    model: str
    counted_tokens: int = 0
    made_at: float = 0.0
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """In a history that a framework owns, ``content`` stands for one part from here on, whenever the part is shown.

    The part is known by its ``kind`` ("user", "reply", "call" or "result"), the ``call_id`` of its call ("" where it
    has none) and the ``sha256`` of its content. ``item_id``: the item that holds this content. ``content``: a text or
    blocks; of a call, its arguments. ``tokens_before`` and ``tokens`` count the part and what stands for it. ``sent``:
    a request had carried the part.
    """

    kind: str
    call_id: str
    sha256: str
    item_id: str
    content: Content | Mapping[str, Any]
    tokens_before: int
    tokens: int
    reason: str
    tool: str = ""
    sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsNoted:
    """What was found out about parts of such a history, so that it need not be found out again.

    ``tokens``: by the first 16 hexadecimal digits of the SHA-256 of a content. ``sources``: by the whole of it, the
    stored lines that the content only repeats: the item, the first line and the last.
    """

    tokens: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The writer closed the session in order."""

    closed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRecord:
    """A record of a later version; it stays in the journal untouched."""

    data: Mapping[str, Any]


Record = (
    SessionStarted
    | WriterOpened
    | EvictionSet
    | ItemAdded
    | Stored
    | Replaced
    | Restored
    | Removed
    | CallMade
    | Decided
    | PartsNoted
    | Closed
    | UnknownRecord
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
    "call_made": CallMade,
    "decided": Decided,
    "parts_noted": PartsNoted,
    "closed": Closed,
}

_RECORDED = {entry.name: entry.default for entry in fields(ContextItem) if entry.name not in {"message", "damaged"}}
"""What is recorded of an item beside its message, with the defaults: these are left out.

The next opening of the session looks again whether its content is damaged.
"""

_NAMES = {kind: name for name, kind in _TYPES.items()}

_FIELDS = {kind: tuple(entry.name for entry in fields(kind)) for kind in (*_TYPES.values(), ToolMessage, Usage)}

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
    if isinstance(record, ItemAdded):
        data["item"] = _item_to_json(record.item)
    elif isinstance(record, CallMade):
        data["usage"] = _values_of(record.usage, Usage)
    return data


def _values_of(value: Any, kind: type) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[kind]}


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
    """Whether JSON data is a record that nothing in the session depends on: what a call cost."""
    return isinstance(data, dict) and data.get("type") == _NAMES[CallMade]


def _convert_item_added(values: dict[str, Any]) -> None:
    values["item"] = _item_from_json(values["item"])


def _convert_eviction(values: dict[str, Any]) -> None:
    if not all(isinstance(keep, int) and keep > 0 for keep in values.get("keep_recent", {}).values()):
        raise ValueError("a tool keeps at least one result")


def _convert_stored(values: dict[str, Any]) -> None:
    values["item_type"] = _item_type(values["item_type"])
    if min([values[name] for name in _SIZES]) < 0:
        raise ValueError("a size is negative")


def _convert_replaced(values: dict[str, Any]) -> None:
    values["content"] = check_content(values["content"])
    values["trimmed"] = tuple(values.get("trimmed", ()))


def _convert_removed(values: dict[str, Any]) -> None:
    values["item_ids"] = tuple(values["item_ids"])


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
    Removed: _convert_removed,
    CallMade: _convert_call,
    Decided: _convert_decided,
    PartsNoted: _convert_noted,
}


def _item_to_json(item: ContextItem) -> dict[str, Any]:
    message = _message_to_json(item.message)
    data: dict[str, Any] = {"id": item.id, "item_type": item.item_type, "message": message}
    for name, default in _RECORDED.items():
        value = getattr(item, name)
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
