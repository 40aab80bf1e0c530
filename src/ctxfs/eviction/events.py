"""What happened to the context, as values with their figures. Sizes are in tokens of the session's counter."""

from dataclasses import dataclass

from ctxfs.errors import ModelError, StorageError
from ctxfs.errors.base import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """The content of an item, of ``size_bytes``, is durable in ``path`` (absolute)."""

    item_id: str
    path: str
    tokens: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """An item's content was evicted; ``tokens_after`` is the size of its placeholder, instead of ``tokens_before``.

    ``path`` is the file that the placeholder names. ``reason`` is a sentence for people. ``change`` is the id by which
    it is undone, with all that was evicted together: see ``Context.undo``.
    """

    item_id: str
    tool_name: str | None
    path: str
    tokens_before: int
    tokens_after: int
    reason: str
    change: str = ""


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
    """There is no summary, and nothing was changed. ``reason`` is a sentence for people, which quotes no content.

    ``error``: what calling the model raised, whose text may quote one; None: the model answered.
    """

    reason: str
    error: ModelError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRestored:
    """The content of an item is back in the context; ``tokens`` is what the item takes now."""

    item_id: str
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReadBack:
    """The model read these lines of a stored content, whose item is ``item_id``; ``tokens`` is what they take."""

    item_id: str
    first_line: int
    last_line: int
    tokens: int


ContextEvent = (
    Offloaded | Evicted | OffloadFailed | RecordFailed | Compacted | SummaryFailed | ContentRestored | ContentReadBack
)


def story(event: ContextEvent) -> str:
    """An event as a sentence for the log; names that a model or a server chose are quoted in it."""
    match event:
        case Offloaded():
            said = f"stored {event.item_id}: {event.size_bytes:,} bytes in {event.path}"
        case Evicted():
            sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
            said = f"evicted {event.item_id} (of {quoted(event.tool_name)}): {sizes}; {event.reason}"
        case Compacted():
            sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
            said = f"compacted the context: {sizes}, by {', '.join(event.steps)}"
        case ContentRestored():
            said = f"restored {event.item_id}: {event.tokens:,} tokens; {event.reason!r}"
        case ContentReadBack():
            said = f"read back lines {event.first_line}-{event.last_line} of {event.item_id}: {event.tokens:,} tokens"
        case SummaryFailed():
            said = f"there is no summary: {event.reason}"
        case _:
            said = str(event.error)
    return said
