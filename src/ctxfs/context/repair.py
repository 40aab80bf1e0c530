"""What a transcript lost through a damaged journal, and the changes that make it valid again. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ctxfs.messages.incoming import Incoming, new_item
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.tokens import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Calls whose results are lost; ``before`` is the item that follows where the results should be."""

    before: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What a damaged journal lost; falsy if nothing.

    ``orphans`` are results without their call, ``headless`` the reply that comes first because what it answers is lost.
    """

    orphans: tuple[str, ...]
    gaps: tuple[Gap, ...]
    headless: str | None

    def __bool__(self) -> bool:
        return bool(self.orphans or self.gaps or self.headless)


def losses_in(items: Iterable[ContextItem]) -> Losses:
    """Find where ``items`` are not a valid transcript. Calls at the end without a result yet are not a loss."""
    orphans: list[str] = []
    gaps: list[Gap] = []
    waiting: list[ToolCall] = []
    first_turn: ContextItem | None = None
    for item in items:
        message = item.message
        if isinstance(message, ToolMessage):
            place = next((n for n, call in enumerate(waiting) if call.id == message.tool_call_id), None)
            if place is None:
                orphans.append(item.id)
            else:
                del waiting[place]
        elif not isinstance(message, SystemMessage):
            if waiting:
                gaps.append(Gap(before=item.id, calls=tuple(waiting)))
            waiting = list(message.tool_calls) if isinstance(message, AssistantMessage) else []
            first_turn = first_turn or item
    headless = None
    if first_turn is not None and isinstance(first_turn.message, AssistantMessage):
        headless = first_turn.id
    return Losses(orphans=tuple(orphans), gaps=tuple(gaps), headless=headless)


MAY_HAVE_RUN: Final = "It may have run: if the tool changes something, check whether it did before you call it again."
_LOST_RESULT = f"The result of this call was lost: the session's journal was damaged. {MAY_HAVE_RUN}"

_LOST_BEGINNING = "(What was said before is lost: the session's journal was damaged.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """The changes that turn a damaged journal's items into a valid transcript, ``items``; falsy if none are needed.

    ``added``: new items, each with the id of the item that follows it. ``removed``: the ids of the items that are left
    out.
    """

    items: tuple[ContextItem, ...]
    added: tuple[tuple[ContextItem, str], ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def repaired(items: Sequence[ContextItem], *, names: NameAllocator, counter: TokenCounter) -> Repairs:
    """Make a valid transcript of ``items``: answer open calls, start with a user message, drop orphaned results.

    The ids of added items are taken from ``names``.
    """
    losses = losses_in(items)
    missing: list[tuple[Message, str]] = []
    for gap in losses.gaps:
        missing += [(ToolMessage(call.id, call.name, _LOST_RESULT, is_error=True), gap.before) for call in gap.calls]
    if losses.headless is not None:
        missing.append((UserMessage(_LOST_BEGINNING), losses.headless))
    added: dict[str, list[ContextItem]] = {}
    for message, before in missing:
        incoming = Incoming(message=message)
        added.setdefault(before, []).append(new_item(incoming, names=names, counter=counter))
    valid: list[ContextItem] = []
    for item in items:
        if item.id not in losses.orphans:
            valid += added.get(item.id, ())
            valid.append(item)
    placed: list[tuple[ContextItem, str]] = []
    for before, new in added.items():
        placed += [(item, before) for item in new]
    return Repairs(items=tuple(valid), added=tuple(placed), removed=losses.orphans)
