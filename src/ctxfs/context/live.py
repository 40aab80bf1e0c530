"""A transcript in memory and the session's files, changed together: what is replaced or removed is durable first."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ctxfs.context.commit import Applied, apply, steps_of
from ctxfs.context.entry import Entry, EntryRules, Known
from ctxfs.context.notices import Notices
from ctxfs.context.recorder import Recorder
from ctxfs.context.settings import ContextSettings
from ctxfs.context.transcript import Transcript
from ctxfs.economics.features import IdentifierIndex
from ctxfs.errors import SessionClosed
from ctxfs.eviction.compaction import ArchiveSlot
from ctxfs.eviction.plan import Offload, Plan, Trim
from ctxfs.eviction.reduction import View
from ctxfs.items import ContextItem, ItemType
from ctxfs.placeholder.attach import write_all
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import absolute
from ctxfs.session.records import CallMade
from ctxfs.steps import run_in_steps
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import uninterrupted
from ctxfs.tokens import TokenCounter, count_content

__all__ = ["LiveTranscript"]

_INLINE_TOKENS = 32_768
"""Describing less than this takes a millisecond or two; a content counts once for each of its placeholders."""


class LiveTranscript:
    """The transcript of an open session; all of its changes are made here, one at a time (``changing``).

    What comes in is recorded with one commit. What could not be written waits in ``recorder`` and goes with the next.
    """

    def __init__(self, fs: ContextFileSystem, settings: ContextSettings) -> None:
        self.fs = fs
        self.notices = Notices(fs, settings.on_event)
        self.lock = LoopLock()
        self._settings = settings
        self.begin()

    def begin(self) -> None:
        """Hold nothing, as before a session is resumed."""
        settings = self._settings
        self.transcript = Transcript(settings.exact, self.fs.path_of, economy=settings.priced, policy=settings.policy)
        self.recorder = Recorder(self.fs, self.notices.emit)
        self._identifiers = IdentifierIndex()
        self._slot: ArchiveSlot | None = None

    @property
    def known(self) -> Known:
        """What is taken: ids and names of files, and the identifiers that the model can read already."""
        return Known(self.fs.writer.names, self._identifiers)

    def entry_rules(self, counter: TokenCounter) -> EntryRules:
        """What decides about each message that comes in."""
        settings = self._settings
        return self.transcript.entry_rules(counter, digest_tokens=settings.digest_tokens, eager=settings.eager)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """One change of the open session at a time."""
        async with self.lock:
            if not self.fs.is_open:
                raise SessionClosed(f"session {self.fs.session_id} is not open: `async with` it, or call open()")
            yield

    async def take(
        self, entries: Sequence[Entry], *, replacing: Sequence[str] = (), call: CallMade | None = None
    ) -> tuple[ContextItem, ...]:
        """Enter and record, and evict what need not be sent at all; the items as they are in the context then.

        ``replacing``: ids of items whose place they take. ``call``: the model call that gave them.
        """
        known = self.known
        for entry in entries:
            known.take(entry)
            self.transcript.enter(entry)
            self.recorder.add(entry.item, entry.leaving)
        if replacing:
            self.transcript.move(replacing)
            self.recorder.remove(replacing)
        if call is not None:
            self.recorder.called(call)
        await self._record_new(evicts=any(entry.leaving is not None for entry in entries))
        return tuple(self.transcript.items[entry.item.id] for entry in entries)

    @uninterrupted
    async def record(self) -> None:
        """Make what is in memory only durable; a failure is an event, and is tried again with the next change."""
        self._applied(await self.recorder.record())

    @uninterrupted
    async def _record_new(self, *, evicts: bool) -> None:
        """Record what came in and, if some of it need not be sent at all, evict what is due in the same commit.

        ``evicts``: an eager policy evicts some of it.
        """
        offloads: Sequence[Offload | Trim] = ()
        if evicts or self.transcript.leaves_unsent():
            await self._write_placeholders(self.transcript.chosen())
            offloads = self.transcript.plan().offloads
        self._applied(await self.recorder.record(steps_of(offloads, self.transcript.items)))

    async def evict(self) -> Plan:
        """Store and evict what is due, of what is recorded; returns the plan that was carried out."""
        if self.recorder.is_behind:
            await self.record()
        if not (chosen := self.transcript.chosen()):
            return Plan()
        await self._write_placeholders(chosen)
        plan = self.transcript.plan()
        if waiting := self.recorder.waiting:
            recorded = tuple(o for o in plan.offloads if o.item_id not in waiting)
            plan = Plan(offloads=recorded, first_changed=recorded[0].item_id if recorded else None)
        if plan:
            await self.apply(plan)
        return plan

    async def _write_placeholders(self, chosen: Sequence[str]) -> None:
        """Write the placeholders that the eviction of ``chosen`` needs: in a worker thread if that takes long."""
        placeholders = self.transcript.unwritten(chosen)
        if sum(placeholder.content_tokens for placeholder in placeholders) > _INLINE_TOKENS:
            await run_in_steps(lambda: write_all(placeholders))

    @uninterrupted
    async def restore(self, item_id: str, counter: TokenCounter, reason: str) -> ContextItem:
        """Bring the content of an item back, durable first; see ``Context.restore``."""
        if (item := self.transcript.items.get(item_id)) is not None and not item.destroyed:
            return item
        self.fs.state.check_restorable(item_id)
        content = await self.fs.load(item_id)
        tokens = await run_in_steps(lambda: count_content(counter, content))
        await self.fs.writer.restore(item_id, reason=reason, token_count=tokens)
        restored = absolute(self.fs.state.items[item_id].with_content(content), self.fs.session_path)
        self.transcript.restore(restored)
        return restored

    @uninterrupted
    async def apply(self, plan: Plan) -> None:
        """Store and evict what ``plan`` says; what cannot be stored stays, with an event."""
        await apply(plan, self.transcript.items, self.fs, self._applied)

    def _applied(self, applied: Applied) -> None:
        """Do in memory what is durable, and emit its events."""
        self.transcript.rewrite(applied.items, applied.left)
        if (moved := applied.archived) is not None:
            self.transcript.move(moved.item_ids, item=moved.item, before=moved.before)
            self._slot = None
        for event in applied.events:
            self.notices.emit(event)

    def view(self, counted_tokens: int) -> View:
        """The context as it is now, whose next prompt has ``counted_tokens``, with a place for the next archive."""
        if self._slot is None:
            item_id, name = self.fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
            self._slot = ArchiveSlot(item_id=item_id, name=name, path=self.fs.path_of(name))
        items = tuple(self.transcript.items.values())
        return View(
            items=items,
            counted_tokens=counted_tokens,
            paths={item.id: self.transcript.path_of(item) for item in items},
            slot=self._slot,
            with_placeholder=self.transcript.with_placeholder,
            staying=frozenset(self.transcript.holds),
        )
