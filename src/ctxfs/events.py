"""What happened to the context, as values with their figures. Sizes are in tokens of the session's counter."""

from dataclasses import dataclass

from ctxfs.errors import StorageError

__all__ = ["Compacted", "ContextEvent", "Evicted", "OffloadFailed", "Offloaded", "RecordFailed", "SummaryFailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """The content of an item is durable in ``path`` (absolute)."""

    item_id: str
    path: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """An item's content was evicted; ``tokens_after`` is the size of its placeholder, instead of ``tokens_before``.

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
    """An item was due but could not be stored: its content is still in the context, and the write is retried later."""

    item_id: str
    error: StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed:
    """Messages could not be written to the session: they exist only in memory, and the write is retried later."""

    item_ids: tuple[str, ...]
    error: StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The context passed its high-water mark and was made smaller. Sizes are in the provider's tokens, estimated.

    ``steps`` names what was done, in order: "types", "summary", "archive", "largest".
    """

    tokens_before: int
    tokens_after: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFailed:
    """There is no summary, and nothing was changed. ``reason`` is a sentence for people."""

    reason: str


ContextEvent = Offloaded | Evicted | OffloadFailed | RecordFailed | Compacted | SummaryFailed
