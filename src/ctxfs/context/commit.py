"""Carry out plans: the only place where a plan meets I/O. Contents are stored and journalled first, then replaced."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ctxfs.errors import OutcomeUnknown, StorageError, Unrecorded
from ctxfs.eviction.events import ContextEvent, Evicted, Offloaded, OffloadFailed, RecordFailed
from ctxfs.eviction.offload_plan import Archive, EagerOffload, Offload, Plan, Trim
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, ToolMessage, UserMessage
from ctxfs.session.archive import write_archive
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Beside, CallMade, RequestSent, ToolsDefined
from ctxfs.session.state import SessionState
from ctxfs.session.timeline.changes import change_id
from ctxfs.session.writer import Admitted, EvictionStep
from ctxfs.storage.threads import run_in_steps


class Step(NamedTuple):
    """One eviction: ``old`` is the item whose content is stored, ``new`` the item of the context in its new form.

    For a trim these are two items: the arguments, and the reply that had them.
    """

    planned: Offload | Trim
    old: ContextItem
    new: ContextItem

    @property
    def written(self) -> EvictionStep:
        """The step as the writer takes it."""
        return self.old, self.new, self.planned.reason


@dataclass(slots=True)
class Pending:
    """What is not durable yet, in the order in which it came: one commit records it all, or nothing.

    Attributes:
        items: the new items, by id; they exist only in memory.
        eager: how an eager policy evicts some of them, by id.
        removed: ids of recorded items that they replace.
        beside: the model calls and requests, each by the id of the item that it follows; "" for none.
        error: the last failure to write them.

    """

    items: dict[str, ContextItem] = field(default_factory=dict)
    eager: dict[str, EagerOffload] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    beside: dict[str, list[Beside]] = field(default_factory=dict)
    error: StorageError | None = None

    def __bool__(self) -> bool:
        return bool(self.items or self.beside)

    def remove(self, item_ids: Iterable[str]) -> None:
        """Note that the last added item replaces these."""
        for item_id in item_ids:
            if self.items.pop(item_id, None) is None:
                self.removed.append(item_id)
                continue
            # The journal will not show this item, so it cannot show the requests that carried it.
            for key, records in list(self.beside.items()):
                calls: list[Beside] = [record for record in records if isinstance(record, CallMade)]
                if calls:
                    self.beside[key] = calls
                else:
                    del self.beside[key]

    def called(self, call: CallMade) -> None:
        """Note a model call, which produced the last added item; a call for a summary produced none."""
        self.beside.setdefault(next(reversed(self.items), ""), []).append(call)

    def call_for(self, item_id: str) -> CallMade | None:
        """The model call that produced an item; None: none is known."""
        return next((record for record in self.beside.get(item_id, ()) if isinstance(record, CallMade)), None)

    def sent(self, request: Sequence[ToolsDefined | RequestSent]) -> None:
        """Note that all items were sent, although some are not durable: ``request`` is recorded after the last one."""
        defined = {record.sha256 for record in self._noted() if isinstance(record, ToolsDefined)}
        last = next(reversed(self.items))
        # The same items were sent again: only the last request counts.
        earlier = self.beside.get(last, ())
        records: list[Beside] = [record for record in earlier if not isinstance(record, RequestSent)]
        records += [new for new in request if isinstance(new, RequestSent) or new.sha256 not in defined]
        self.beside[last] = records

    def status_sent(self, status: str) -> None:
        """Note that the last request carries ``status`` too."""
        for records in reversed(self.beside.values()):
            for place in reversed(range(len(records))):
                record = records[place]
                if isinstance(record, RequestSent):
                    records[place] = replace(record, status=status)
                    return

    def clear(self) -> None:
        """Note that all of it is durable."""
        self.items.clear()
        self.eager.clear()
        self.removed.clear()
        self.beside.clear()

    def settle(self, state: SessionState) -> None:
        """Forget what is recorded by now: all of it is, or nothing."""
        noted = self._noted()
        # A call gets its number only when it is written.
        calls = [replace(call, number=0) for call in state.calls[-len(noted) :]]
        if any(item_id in state.items for item_id in self.items) or any(record in calls for record in noted):
            self.clear()

    def check_recorded(self, session_id: str) -> None:
        """Raise ``Unrecorded`` if items exist only in memory; its cause is the last failure to write them."""
        if self.items:
            raise Unrecorded(session_id, tuple(self.items)) from self.error

    def _noted(self) -> list[Beside]:
        noted: list[Beside] = []
        for records in self.beside.values():
            noted += records
        return noted


@dataclass(frozen=True, slots=True)
class Archived:
    """A durable archive: its item replaces ``item_ids``, and is put before the item ``before`` (None: at the end)."""

    item: ContextItem
    item_ids: tuple[str, ...]
    before: str | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What became durable: the items in their new form, the ids of evicted contents, and the events to emit.

    ``error`` must be raised once this is applied: something was not recorded, and trying again does not help.
    """

    items: tuple[ContextItem, ...] = ()
    left: tuple[str, ...] = ()
    archived: Archived | None = None
    events: tuple[ContextEvent, ...] = ()
    error: Exception | None = None


async def carry_out(
    plan: Plan, items: Mapping[str, ContextItem], fs: ContextFileSystem, pending: Pending | None = None
) -> Applied:
    """Make durable what is ``pending``, and then ``plan``, which may be empty; return what became durable.

    All of it is one commit, if storage takes that. Else the pending items are written by themselves, all or none, and
    then each eviction. What cannot be stored stays as it is, with an event: an item whose file name is taken does not
    keep the others in the context. An archive is a commit of its own, after all others.

    Args:
        plan: what is evicted of ``items``.
        items: the items of the context by id, with the pending ones.
        fs: the open session.
        pending: emptied once it is durable. Otherwise the next commit has it again. None: nothing.

    Raises:
        OutcomeUnknown: the store does not say whether it took a commit.
        SessionError: nothing was recorded: another event loop has the session.

    """
    if pending is None:
        pending = Pending()
    eager: list[Step] = []
    for item_id, one in pending.eager.items():
        item = items[item_id]
        eager.append(Step(one.offload, item, evicted(item, one.offload)))
    steps = [step for step in steps_of(plan.offloads, items) if step.new.id not in pending.eager]
    applied = Applied()
    if pending or steps:
        applied = await _written(steps, eager, fs, pending)
    if plan.archive is None or pending:
        return applied
    current = {**items, **{item.id: item for item in applied.items}}
    archived, event = await _archive(plan.archive, current, fs)
    return replace(applied, archived=archived, events=(*applied.events, event))


async def _written(steps: Sequence[Step], eager: Sequence[Step], fs: ContextFileSystem, pending: Pending) -> Applied:
    """Write evictions of any items, and what is pending, with the ``eager`` evictions of pending items.

    What was not written waits for the next commit. It was refused for one of two reasons:

    - storage failed, which may pass: an event reports it;
    - it cannot be recorded at all, such as a field of a wrong type that a policy made: the first such error is raised
      once the rest is applied. The next commit goes without eager evictions, which must not fail the items again.
    """
    try:
        admitted = await _admitted(steps, eager, fs, pending)
    except OutcomeUnknown as error:  # trying again might record the items twice: ``settle`` comes first
        pending.error = error
        raise
    done: list[Step] = []
    events: list[ContextEvent] = []
    unrecordable: list[Exception] = []
    refused, change = admitted.joined
    if refused is None:
        pending.clear()
    elif isinstance(refused, StorageError):
        pending.error = refused
        events.append(RecordFailed(item_ids=tuple(pending.items), error=refused))
    else:
        unrecordable.append(refused)
        pending.eager.clear()
    for step in steps:
        failure, own_change = admitted.evicted[step.new.id]
        if failure is None:
            done.append(step)
            events += _events(step, own_change, fs)
        elif not isinstance(failure, StorageError):
            unrecordable.append(failure)
        elif failure is not refused:
            events.append(OffloadFailed(item_id=step.planned.item_id, error=failure))
    if refused is None:
        for step in eager:
            done.append(step)
            events += _events(step, change, fs)
    return Applied(
        items=tuple({step.new.id: step.new for step in done}.values()),
        left=tuple([step.old.id for step in done]),
        events=tuple(events),
        error=unrecordable[0] if unrecordable else None,
    )


async def _admitted(steps: Sequence[Step], eager: Sequence[Step], fs: ContextFileSystem, pending: Pending) -> Admitted:
    """What became of each commit. Raises ``OutcomeUnknown`` if the store does not say it of one of them."""
    admitted = await fs.writer.admit(
        pending.items.values(),
        eager=[step.written for step in eager],
        saved_chars={i: one.chars - len(one.offload.placeholder) for i, one in pending.eager.items()},
        removing=pending.removed,
        beside=pending.beside,
        steps=[step.written for step in steps],
    )
    for outcome in (admitted.joined, *admitted.evicted.values()):
        if isinstance(outcome.error, OutcomeUnknown):
            raise outcome.error
    return admitted


def steps_of(offloads: Sequence[Offload | Trim], items: Mapping[str, ContextItem]) -> list[Step]:
    """For each of a plan's offloads, the content to store and the item's new form; trims of one reply add up."""
    rewritten: dict[str, ContextItem] = {}
    steps: list[Step] = []
    for planned in offloads:
        item = rewritten.get(planned.item_id) or items[planned.item_id]
        if isinstance(planned, Trim):
            step = Step(planned, planned.stored, trimmed(item, planned))
        else:
            step = Step(planned, item, evicted(item, planned))
        rewritten[item.id] = step.new
        steps.append(step)
    return steps


async def _archive(
    archive: Archive, items: Mapping[str, ContextItem], fs: ContextFileSystem
) -> tuple[Archived | None, ContextEvent]:
    """Store an archive, and return it with its event; None: it could not be stored, as the event says."""
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
        return None, OffloadFailed(item_id=archive.item_id, error=error)
    event = Evicted(
        item_id=archive.item_id,
        tool_name=None,
        path=archive.path,
        tokens_before=archive.tokens_before,
        tokens_after=archive.tokens_after,
        reason=f"{len(going)} messages: {archive.reason}",
        change=change_id(fs.state.changes),
    )
    return Archived(item, archive.item_ids, before), event


def _place_of(going: Collection[str], items: Sequence[ContextItem]) -> str | None:
    """The item that follows an archive of ``going``: the one after the last of them, None for the end.

    If that would put a reply first, which providers refuse, the archive takes the place of the first item instead.
    """
    places = [n for n, item in enumerate(items) if item.id in going]
    place = places[-1]
    for item in items[:place]:
        if item.id not in going and item.item_type != ItemType.SYSTEM_PROMPT:
            if item.item_type == ItemType.ASSISTANT_MESSAGE:
                place = places[0]
            break
    for item in items[place:]:
        if item.id not in going:
            return item.id
    return None


def evicted(item: ContextItem, offload: Offload) -> ContextItem:
    """``item`` as the context holds it once ``offload`` is durable."""
    content: Content = offload.placeholder
    if offload.content and not isinstance(item.message, ToolMessage):
        content = offload.content
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


def _events(step: Step, change: int, fs: ContextFileSystem) -> tuple[ContextEvent, ...]:
    """What is reported of an eviction; ``change``: the number of the change that it is part of."""
    planned, old, _ = step
    gone = Evicted(
        item_id=old.id,
        tool_name=old.tool_name,
        path=planned.path,
        tokens_before=planned.tokens_before,
        tokens_after=planned.tokens_after,
        reason=planned.reason,
        change=change_id(change),
    )
    # Its content was stored earlier, is repeated from another's, or was erased.
    if old.source is not None or old.offloaded or old.id not in fs.state.stored:
        return (gone,)
    return (Offloaded(item_id=old.id, path=planned.path, tokens=old.content_tokens), gone)
