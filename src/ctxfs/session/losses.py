"""Find where items are not a valid transcript, because a damaged journal lost some. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage


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
