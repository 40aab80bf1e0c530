"""Carrying out a plan: the only place where a plan meets I/O. Stored and journalled first, replaced after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ctxfs.context.events import ContextEvent, Evicted, Offloaded, OffloadFailed
from ctxfs.context.fs import ContextFileSystem
from ctxfs.context.items import ContextItem
from ctxfs.context.plan import Offload, Plan
from ctxfs.errors import StorageError
from ctxfs.llm.messages import ToolMessage

__all__ = ["Applied", "apply"]


@dataclass(frozen=True, slots=True)
class Applied:
    """What a plan came to: the items in their new form, and the events that tell it."""

    items: tuple[ContextItem, ...]
    events: tuple[ContextEvent, ...]


async def apply(plan: Plan, items: Mapping[str, ContextItem], fs: ContextFileSystem) -> Applied:
    """Make ``plan`` durable and return the rewritten items; what cannot be stored stays as it is, with an event."""
    steps = [(o, items[o.item_id], evicted(items[o.item_id], o)) for o in plan.offloads]
    try:
        await _store(steps, fs)
    except StorageError as error:
        if len(steps) == 1:
            return Applied((), (OffloadFailed(item_id=steps[0][0].item_id, error=error),))
        # One that cannot be stored must not hold back the others.
        singles = [await apply(Plan(offloads=(offload,)), items, fs) for offload in plan.offloads]
        return Applied(tuple(i for a in singles for i in a.items), tuple(e for a in singles for e in a.events))
    return Applied(tuple(new for _, _, new in steps), tuple(event for step in steps for event in _events(*step)))


def evicted(item: ContextItem, offload: Offload) -> ContextItem:
    """``item`` as it stands in the context once ``offload`` is durable."""
    message = item.message
    if isinstance(message, ToolMessage):
        message = replace(message, content=offload.placeholder, offloaded=True, offload_path=offload.path)
    else:
        message = replace(message, content=offload.placeholder)
    return replace(
        item,
        message=message,
        token_count=offload.tokens_after,
        offloaded=True,
        destroyed=True,
        offload_path=offload.path,
    )


async def _store(steps: Sequence[tuple[Offload, ContextItem, ContextItem]], fs: ContextFileSystem) -> None:
    await fs.evict([(old, new, offload.reason) for offload, old, new in steps])


def _events(offload: Offload, old: ContextItem, new: ContextItem) -> tuple[ContextEvent, ...]:
    gone = Evicted(
        item_id=old.id,
        tool_name=old.tool_name,
        path=offload.path,
        tokens_before=old.token_count,
        tokens_after=new.token_count,
        reason=offload.reason,
    )
    if old.source is not None:
        return (gone,)
    return (Offloaded(item_id=old.id, path=offload.path, tokens=old.content_tokens), gone)
