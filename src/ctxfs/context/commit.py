"""Carry out plans: the only place where a plan meets I/O. Contents are stored and journalled first, then replaced."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ctxfs.errors import OutcomeUnknown, StorageError
from ctxfs.eviction.eager import EagerOffload
from ctxfs.eviction.events import ContextEvent, Evicted, Offloaded, OffloadFailed
from ctxfs.eviction.offload_plan import Archive, Offload, Plan, Trim
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, ToolMessage, UserMessage
from ctxfs.session.archive import write_archive
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import replacement
from ctxfs.session.records import Beside, Replaced
from ctxfs.session.timeline.changes import change_id
from ctxfs.storage.threads import begin
from ctxfs.text.steps import run_in_steps

Step = tuple[Offload | Trim, ContextItem, ContextItem]
"""The step, the item whose content is stored for it, and the item of the context in its new form."""


@dataclass(frozen=True, slots=True)
class Archived:
    """A durable archive: its item replaces ``item_ids``, and is put before the item ``before`` (None: at the end)."""

    item: ContextItem
    item_ids: tuple[str, ...]
    before: str | None


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of one commit: the items in their new form, the ids of removed items, and the events to emit."""

    items: tuple[ContextItem, ...] = ()
    left: tuple[str, ...] = ()
    archived: Archived | None = None
    events: tuple[ContextEvent, ...] = ()


_INLINE_CHARS = 262_144
"""Describing a content of this length takes a few milliseconds."""

Done = Callable[[Applied], None]


async def apply(plan: Plan, items: Mapping[str, ContextItem], fs: ContextFileSystem, done: Done) -> None:
    """Make ``plan`` durable; ``done`` is called with the result of each commit as soon as it is durable.

    Items that cannot be stored stay as they are, with an event. ``items`` is a view that follows the changes of
    ``done``. Raises ``OutcomeUnknown``.
    """
    if plan.offloads:
        await _offload(plan.offloads, items, fs, done)
    if plan.archive is not None:
        await _archive(plan.archive, items, fs, done)


async def admit(
    items: Sequence[ContextItem],
    leaving: Mapping[str, EagerOffload],
    fs: ContextFileSystem,
    *,
    steps: Sequence[Step] = (),
    removing: Collection[str] = (),
    beside: Sequence[tuple[str, Beside]] = (),
) -> Applied:
    """Record new items and, in the same commit, evictions.

    ``leaving``: how an eager policy evicts some of the new items, by id. ``steps``: other evictions, of any items.
    ``removing``: ids of the items that the new ones replace. ``beside``: the model calls that led to this, each with
    the id of the item that it produced ("" for none), and the requests, each with the id of its last item.

    Raises:
        StorageError: nothing was recorded, and nothing is evicted. Exceptions of a policy are not caught.
        OutcomeUnknown: all was recorded, or nothing.

    """
    eager = _EagerSteps([(item, leaving[item.id]) for item in items if item.id in leaving])
    try:
        await fs.writer.add(
            items,
            evicting=leaving,
            deferred=partial(eager.records, fs.base),
            steps=[(old, new, step.reason) for step, old, new in steps],
            removing=removing,
            beside=beside,
        )
    except StorageError:
        eager.check_policy()
        raise
    return _done([*steps, *eager.steps()], fs)


class _EagerSteps:
    """The evictions of new items by an eager policy, with the offloads that it builds.

    A long content is described in a thread of its own while the contents are being written. A short one is described
    after that, in the thread that writes, since a thread of its own would cost more.
    """

    def __init__(self, leaving: Sequence[tuple[ContextItem, EagerOffload]]) -> None:
        self._leaving = leaving
        self._steps: list[Step] | None = None
        self._begun: dict[str, Future[Offload]] = {}
        for item, eager in leaving:
            if eager.chars > _INLINE_CHARS:
                self._begun[item.id] = begin(eager.build)

    def steps(self) -> Sequence[Step]:
        """The steps; the first call builds what is not being built yet, and waits for the rest."""
        if self._steps is None:
            steps: list[Step] = []
            for item, eager in self._leaving:
                begun = self._begun.get(item.id)
                offload = eager.build() if begun is None else begun.result()
                steps.append((offload, item, evicted(item, offload)))
            self._steps = steps
        return self._steps

    def records(self, base: str) -> list[Replaced]:
        """The records of the steps, with the characters that each saves."""
        records: list[Replaced] = []
        for (_, eager), (step, _, new) in zip(self._leaving, self.steps(), strict=True):
            saved = eager.chars - len(new.message.content)
            records.append(replacement(new, base, step.reason, saved_chars=saved))
        return records

    def check_policy(self) -> None:
        """Raise what the policy raised in a thread that has ended.

        Called when storage failed, before ``steps`` was. A failed write is retried without a word to the caller, so
        it would hide a defect of the policy for as long as the storage fails.
        """
        for begun in self._begun.values():
            if begun.done():
                begun.result()


async def _offload(
    offloads: Sequence[Offload | Trim], items: Mapping[str, ContextItem], fs: ContextFileSystem, done: Done
) -> None:
    steps = steps_of(offloads, items)
    try:
        await fs.writer.evict([(old, new, step.reason) for step, old, new in steps])
    except OutcomeUnknown:
        raise
    except StorageError as error:
        if len(steps) == 1:
            done(Applied(events=(OffloadFailed(item_id=steps[0][0].item_id, error=error),)))
            return
        await _one_by_one(offloads, items, fs, done)
        return
    done(_done(steps, fs))


async def _one_by_one(
    offloads: Sequence[Offload | Trim], items: Mapping[str, ContextItem], fs: ContextFileSystem, done: Done
) -> None:
    """Carry out steps that failed together, each in a commit of its own.

    An item that cannot be stored, such as one whose file name is taken, must not keep the others in the context.
    """
    for offload in offloads:
        await _offload([offload], items, fs, done)


def _done(steps: Sequence[Step], fs: ContextFileSystem) -> Applied:
    """The result of steps that are durable."""
    return Applied(
        items=tuple({new.id: new for _, _, new in steps}.values()),
        left=tuple(old.id for _, old, _ in steps),
        events=tuple(event for step, old, _ in steps for event in _events(step, old, fs)),
    )


def steps_of(offloads: Sequence[Offload | Trim], items: Mapping[str, ContextItem]) -> list[Step]:
    """For each step, the content to store, and the item's new form; trims of one reply build on each other."""
    rewritten: dict[str, ContextItem] = {}
    steps: list[Step] = []
    for step in offloads:
        item = rewritten.get(step.item_id) or items[step.item_id]
        if isinstance(step, Trim):
            old, new = step.stored, trimmed(item, step)
        else:
            old, new = item, evicted(item, step)
        rewritten[item.id] = new
        steps.append((step, old, new))
    return steps


async def _archive(archive: Archive, items: Mapping[str, ContextItem], fs: ContextFileSystem, done: Done) -> None:
    going = set(archive.item_ids)
    before = _place_of(going, list(items.values()))
    item = ContextItem(
        id=archive.item_id,
        item_type=ItemType.COMPACTION_SUMMARY,
        message=UserMessage(archive.placeholder),
        name=archive.name,
        token_count=archive.tokens_after,
        content_tokens=archive.tokens_before,
        offload_path=archive.path,
    )
    content = await run_in_steps(lambda: write_archive([items[i] for i in archive.item_ids]))
    try:
        await fs.writer.archive(item, content, archive.item_ids, before=before, reason=archive.reason)
    except OutcomeUnknown:
        raise
    except StorageError as error:
        done(Applied(events=(OffloadFailed(item_id=archive.item_id, error=error),)))
        return
    event = Evicted(
        item_id=archive.item_id,
        tool_name=None,
        path=archive.path,
        tokens_before=archive.tokens_before,
        tokens_after=archive.tokens_after,
        reason=f"{len(going)} messages: {archive.reason}",
        change=change_id(fs.state.changes),
    )
    done(Applied(archived=Archived(item, archive.item_ids, before), events=(event,)))


def _place_of(going: Collection[str], items: Sequence[ContextItem]) -> str | None:
    """The item that follows an archive of ``going``: the one after the last of them, None for the end.

    If that would put a reply first, which providers refuse, the archive takes the place of the first item instead.
    """
    places = [n for n, item in enumerate(items) if item.id in going]
    left = (i.item_type for i in items[: places[-1]] if i.id not in going and i.item_type != ItemType.SYSTEM_PROMPT)
    place = places[0] if next(left, None) == ItemType.ASSISTANT_MESSAGE else places[-1]
    return next((item.id for item in items[place:] if item.id not in going), None)


def evicted(item: ContextItem, offload: Offload) -> ContextItem:
    """``item`` as the context holds it once ``offload`` is durable."""
    content = offload.placeholder if isinstance(item.message, ToolMessage) else offload.content or offload.placeholder
    # Once a reply was evicted, none of its arguments can be evicted again.
    trimmed = _calls_in(content) if isinstance(item.message, AssistantMessage) else ()
    return item.offloaded_to(offload.path, content, offload.tokens_after, trimmed=trimmed)


def _calls_in(content: Content) -> tuple[int, ...]:
    """The places of the calls in a reply's content."""
    if isinstance(content, str):
        return ()
    return tuple(n for n, block in enumerate(content) if block["type"] == "tool_use")


def trimmed(item: ContextItem, trim: Trim) -> ContextItem:
    """The reply ``item`` as the context holds it once ``trim`` is durable."""
    assert isinstance(item.message, AssistantMessage)
    blocks: list[Any] = list(item.message.content)
    blocks[trim.block] = {**blocks[trim.block], "input": dict(trim.arguments)}
    saved = trim.tokens_before - trim.tokens_after
    return replace(
        item,
        message=AssistantMessage(tuple(blocks)),
        token_count=item.token_count - saved,
        trimmed=(*item.trimmed, trim.block),
    )


def _events(step: Offload | Trim, old: ContextItem, fs: ContextFileSystem) -> tuple[ContextEvent, ...]:
    gone = Evicted(
        item_id=old.id,
        tool_name=old.tool_name,
        path=step.path,
        tokens_before=step.tokens_before,
        tokens_after=step.tokens_after,
        reason=step.reason,
        change=change_id(fs.state.changes),
    )
    if old.source is not None or old.offloaded or old.id not in fs.state.stored:  # it repeats lines, or was erased
        return (gone,)
    return (Offloaded(item_id=old.id, path=step.path, tokens=old.content_tokens), gone)
