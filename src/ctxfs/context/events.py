"""What happened to the context, as values with their figures. Sizes are in tokens of the session's counter."""

from dataclasses import dataclass

from ctxfs.errors import StorageError

__all__ = ["ContextEvent", "Evicted", "OffloadFailed", "Offloaded", "RecordFailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """The content of an item is durable in ``path`` (absolute)."""

    item_id: str
    path: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """An item's content left the context; ``tokens_after`` is what its placeholder takes instead of ``tokens_before``.

    ``path`` is the file that the placeholder names. ``reason`` is a sentence for people.
    """

    item_id: str
    tool_name: str | None
    path: str
    tokens_before: int
    tokens_after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadFailed:
    """An item was due but could not be stored: its content is still in the context, and it is tried again later."""

    item_id: str
    error: StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed:
    """Messages could not be written to the session: they live in memory only, and are tried again later."""

    item_ids: tuple[str, ...]
    error: StorageError


ContextEvent = Offloaded | Evicted | OffloadFailed | RecordFailed
