"""The records of items, with paths relative to the session, since it may be moved. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import ToolMessage
from ctxfs.messages.names import SESSION_SCHEME, path_of
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import ItemAdded, Record, Replaced


def added(item: ContextItem, base: str, *, content_stored: bool, before: str | None) -> ItemAdded:
    """Say that ``item`` joined the context; ``content_stored``: its content is in its file, and not here."""
    item = item.moved_to(_relative(item.offload_path, base))
    if content_stored:
        item = item.with_content("")
    return ItemAdded(item=item, content_stored=content_stored, before=before)


def replacement(item: ContextItem, base: str, reason: str, *, saved_chars: int | None = None) -> Replaced:
    """The record that ``item`` has a new form in the context; ``saved_chars``: see ``Replaced``."""
    # An item that is evicted as it comes in is recorded with its later placeholder.
    later = item.placeholder if item.can_shrink and saved_chars is None else None
    return Replaced(
        item_id=item.id,
        content=item.message.content,
        token_count=item.token_count,
        path=_relative(item.offload_path, base),
        destroyed=item.destroyed,
        reason=reason,
        trimmed=item.trimmed,
        saved_chars=saved_chars,
        placeholder=later,
        placeholder_tokens=0 if later is None else item.placeholder_tokens,
    )


def absolute(item: ContextItem, base: str) -> ContextItem:
    """``item`` as it is outside of the journal."""
    path = item.offload_path
    if path is None or path.startswith(("/", SESSION_SCHEME)):
        return item
    return item.moved_to(path_of(base, path))


def metadata_of(item: ContextItem) -> dict[str, Any]:
    """What the file of an item holds besides the content."""
    data: dict[str, Any] = {}
    message = item.message
    if isinstance(message, ToolMessage):
        data["tool_name"] = message.tool_name
        if message.tool_call_id != item.id:
            data["tool_call_id"] = message.tool_call_id
        if message.is_error:
            data["is_error"] = True
    if item.label is not None:
        data["label"] = item.label
    if item.full_bytes:
        data["full_bytes"] = item.full_bytes
    return data


def _relative(path: str | None, base: str) -> str | None:
    return None if path is None else path.removeprefix(f"{base}/")


def ids_of(records: Iterable[Record]) -> Iterator[str]:
    """The ids that records give to items and contents."""
    for record in records:
        match record:
            case ItemAdded():
                yield record.item.id
            case Stored():
                yield record.item_id
