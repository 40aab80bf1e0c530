"""The writing side of an open session: each method builds a commit, and returns when it is durable."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ctxfs.errors import ConfigError
from ctxfs.messages.base import Usage, UsageLike, check_model
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, has_media
from ctxfs.messages.names import Layout, NameAllocator, is_compressed, layout_of
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.growing import GrowingLog
from ctxfs.session.content.stored import Stored
from ctxfs.session.damaged import refuse_damaged
from ctxfs.session.field_types import check_types
from ctxfs.session.item_records import added, ids_of, metadata_of, replacement
from ctxfs.session.journal_writer import Commit, JournalWriter, Outcome
from ctxfs.session.records import (
    Beside,
    CallMade,
    Closed,
    EvictionSet,
    Record,
    Removed,
    RequestSent,
    Restored,
    SessionStarted,
    ToolsDefined,
    WriterOpened,
)
from ctxfs.session.recovery import Reading, SessionScan, quarantine, scan_session
from ctxfs.session.state import Owner, check_owner
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import uninterrupted
from ctxfs.text.jsontext.write_stream import has_surrogates, is_longer

EvictionStep = tuple[ContextItem, ContextItem, str]
"""The old item, the new one, and the reason."""


class Admitted(NamedTuple):
    """What became of items that join the context, and of the evictions of each item, by its id in the context."""

    joined: Outcome
    evicted: Mapping[str, Outcome]


_NOTHING_JOINS: Final = Outcome(None, 0)


class SessionWriter:
    """The operations of an open session's one writer; see ``ContextFileSystem.writer``.

    Every method that writes raises ``WriteFailed``, ``SessionLocked`` (another writer took over), ``SessionClosed`` and
    ``InvalidRecord``; nothing that the method was to write is in the session then.

    Args:
        store: the session's storage, open for writing.
        session_id: the session's id.
        base: the beginning of the session's paths.
        layout: where contents go, and in which form, in a new session; an existing one keeps its own, and only takes
            the sizes for compression from this one, if it has the same name.
        clock: gives seconds since the epoch.
        inline_limit_chars: content whose JSON has more than about this many characters goes to a file of its own when
            its item is added.

    Attributes:
        names: allocates ids and names.
        growing: the outputs of running commands that are being written, by item id.
        context: the context that is open on the session, which holds its items in memory and sets this; None: none.

    """

    def __init__(
        self,
        store: ThreadedStore,
        *,
        session_id: str,
        base: str,
        layout: Layout,
        clock: Callable[[], float],
        inline_limit_chars: int,
    ) -> None:
        self.journal = JournalWriter(store, session_id, clock)
        self.names = NameAllocator(layout=layout)
        self.growing: dict[str, GrowingLog] = {}
        self.context: object | None = None
        self._store = store
        self._session_id = session_id
        self._base = base
        self._layout = layout
        self._clock = clock
        self._inline_limit_chars = inline_limit_chars
        self._epoch = 0
        self._released = False

    @property
    def epoch(self) -> int:
        """The number of this writer: higher for each one that opened the session, or took it over."""
        return self._epoch

    # Opening and closing ---------------------------------------------------------------------------------------------

    async def open(self, owner: Owner | None = None, *, known: Reading | None = None) -> SessionScan:
        """Take in the session's state, repair what a crash left, and record that this writer opened it.

        Returns the session as it was found. ``known``: what was read of its journal before; see ``scan_session``.

        Raises ``ConfigError`` if ``owner`` cannot go on with the session (see ``check_owner``). Nothing changed.
        """
        found = await scan_session(self._store, read_only=False, known=known)
        check_owner(self._session_id, found.state, owner)
        self._layout = layout_of(found.state.layout, self._layout)
        if found.recovery.cut_bytes:
            await self._store.truncate_log(found.log_end)
        for name in found.name_conflicts:
            await quarantine(self._store, name)
        if found.leftovers:
            await self._store.delete(found.leftovers)
        started: list[SessionStarted] = []
        if found.new:
            started.append(self._started(rebuilt=found.recovery.rebuilt_journal))
        opened = self._opened(found.state.epoch)
        self.journal.resume(found)
        if found.orphans:
            await self.journal.commit(Commit(records=[*started, *found.orphans, opened]))
        else:
            await self.journal.opened(*started, opened)
        await self.flush()
        self.names = NameAllocator(self.journal.state.ids, layout=self._layout)
        return found

    def _started(self, *, rebuilt: bool) -> SessionStarted:
        return SessionStarted(
            session_id=self._session_id,
            started_at=self._clock(),
            layout=self._layout.name,
            rebuilt=rebuilt,
        )

    def _opened(self, last_epoch: int) -> WriterOpened:
        """Number this writer: one more than the last number in the journal, or the number that the store gives."""
        self._epoch = max(self._store.epoch, last_epoch + 1)
        return WriterOpened(epoch=self._epoch, path=self._base, opened_at=self._clock())

    @uninterrupted
    async def release(self) -> None:
        """Let another process write, once no output grows any more."""
        if self.growing:
            raise ConfigError(f"{', '.join(self.growing)} is being written: finish it, then release the session")
        self._released = True  # even if that fails: until `acquire` nothing can be written
        await self.journal.release()

    @uninterrupted
    async def acquire(self) -> tuple[Record, ...] | None:
        """Write again; return the records that others wrote. None: the session must be opened again."""
        if not self._released:
            return ()
        gained = await self.journal.acquire()
        if gained is not None:
            self._released = False
            self.names.take(ids_of(gained))
            epoch = self.journal.state.epoch
            if epoch != self._epoch:  # another writer wrote in between: our next line says who writes now
                self.journal.begin_line(self._opened(epoch))
        return gained

    async def follow(self) -> tuple[Record, ...] | None:
        """Return the records that others wrote, without a lease. None: the session must be acquired."""
        gained = await self.journal.follow()
        if gained is not None:
            self.names.take(ids_of(gained))
        return gained

    async def close(self) -> None:
        """Record the end and write the index; nothing is written after that, whether or not this succeeds.

        A session that was released is closed by its later writers: they record the end.
        """
        if self._released:
            self.journal.end()
            return
        try:
            await self.journal.commit(Commit(records=[Closed(closed_at=self._clock())], last=True))
            await self.flush()
        finally:
            self.journal.end()

    @uninterrupted
    async def settle(self) -> None:
        """Learn what became of a commit whose outcome is unknown; see ``JournalWriter.settle``."""
        await self.journal.settle()

    async def flush(self) -> None:
        """Write the index."""
        await self.journal.write_index()

    # Items -----------------------------------------------------------------------------------------------------------

    def allocate(
        self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None, content: Content | None = None
    ) -> tuple[str, str]:
        """Return a new item's id and the name of its file; see ``NameAllocator.allocate``."""
        return self.names.allocate(item_type, raw_id, tool_name, content)

    async def add(
        self, items: Sequence[ContextItem], *, before: str | None = None, removing: Sequence[str] = ()
    ) -> None:
        """Record items that join the context, in one commit: all or nothing.

        Args:
            items: the items, in order.
            before: the item that follows them; None is the end.
            removing: ids of items that leave the context in the same commit: the new ones replace them.

        Raises:
            CorruptContent: an item's content is damaged.

        """
        await self.journal.commit(self._joining(items, before=before, removing=removing))

    async def admit(
        self,
        items: Collection[ContextItem],
        *,
        eager: Sequence[EvictionStep] = (),
        saved_chars: Mapping[str, int] = MappingProxyType({}),
        removing: Sequence[str] = (),
        beside: Mapping[str, Sequence[Beside]] = MappingProxyType({}),
        steps: Sequence[EvictionStep] = (),
    ) -> Admitted:
        """Record items that join the context, and evictions, together if storage takes that.

        Else the items are written by themselves, all or none, and then the evictions, item by item: see
        ``JournalWriter.commit_each``. Of an item that could not be recorded nothing is evicted.

        Args:
            items: the items, in order; they join at the end.
            eager: evictions of some of them that are part of their commit; see ``evict``.
            saved_chars: how many characters each of these evictions saves, by item id.
            removing: ids of items that leave the context in the same commit: the new ones replace them.
            beside: model calls, as ``call_made`` returns them, and requests, as ``request`` does, by the id of the item
                that they follow; "" for none.
            steps: evictions of any items; see ``evict``.

        Raises:
            CorruptContent: an item's content is damaged.

        """
        commits: list[Commit] = []
        joining: Commit | None = None
        if items or beside:
            joining = self._joining(items, eager=eager, saved_chars=saved_chars, removing=removing, beside=beside)
            commits.append(joining)
        new_ids = {item.id for item in items}
        # Steps of one item build on each other, so they are one commit.
        by_item: dict[str, list[EvictionStep]] = {}
        for step in steps:
            by_item.setdefault(step[1].id, []).append(step)
        for item_id, own in by_item.items():
            commits.append(self._evicting(own, needs=joining if item_id in new_ids else None))
        outcomes = await self.journal.commit_each(commits)
        joined = _NOTHING_JOINS if joining is None else outcomes.pop(0)
        return Admitted(joined, dict(zip(by_item, outcomes, strict=True)))

    def _joining(
        self,
        items: Collection[ContextItem],
        *,
        before: str | None = None,
        eager: Sequence[EvictionStep] = (),
        saved_chars: Mapping[str, int] = MappingProxyType({}),
        removing: Sequence[str] = (),
        beside: Mapping[str, Sequence[Beside]] = MappingProxyType({}),
    ) -> Commit:
        """The commit of items that join the context; see ``admit``."""
        refuse_damaged(items)
        evicted = {old.id for old, _, _ in eager}
        # Contents come first: the record of an item says whether its content is in a file, or in the record itself.
        files: list[ContentFile] = []
        stored: set[str] = set()
        for item in items:
            if self._needs_file(item) or (item.id in evicted and self._must_store(item)):
                files.append(self._file_for(item))
                stored.add(item.id)
        records: list[Record] = []
        noted: set[str] = set()
        for item in items:
            in_file = item.id in stored or (item.offload_path is None and item.id in self.journal.state.stored)
            records.append(added(item, self._base, content_stored=in_file, before=before))
            records += beside.get(item.id, ())
            noted.add(item.id)
        # What follows no new item: bills of summaries, and of replies that were taken out before they were recorded.
        for item_id, others in beside.items():
            if item_id not in noted:
                records += others
        if removing:
            records.append(Removed(item_ids=tuple(removing), reason="a new one took its place"))
        for _, new, reason in eager:
            records.append(replacement(new, self._base, reason, saved_chars=saved_chars[new.id]))
        return Commit(files=files, records=records)

    def _evicting(self, steps: Sequence[EvictionStep], *, needs: Commit | None = None) -> Commit:
        """The commit of evictions, which is not written unless ``needs`` is, if that is given."""
        written = set[str]()
        if needs is not None:
            written.update(file.item_id for file in needs.files)
        files: dict[str, ContentFile] = {}
        for old, _, _ in steps:
            # An item that only repeats lines of a stored content is not stored a second time.
            if old.source is None and self._must_store(old) and old.id not in written:
                files[old.id] = self._file_for(old)
        records = [replacement(new, self._base, reason) for _, new, reason in steps]
        return Commit(files=list(files.values()), records=records, needs=needs)

    async def store(
        self, items: Sequence[ContextItem], *, metadata: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ) -> None:
        """Make the contents of items durable; a content that is already durable costs nothing.

        ``metadata``, JSON by item id, is recorded with each content: ``SessionState.stored[item_id].metadata``.
        Raises ``CorruptContent`` for an item whose content is damaged.
        """
        refuse_damaged(items)
        files = [self._file_for(item, metadata.get(item.id)) for item in items if self._must_store(item)]
        if files:
            await self.journal.commit(Commit(files=files))

    async def evict(self, steps: Sequence[EvictionStep]) -> None:
        """Store the contents of old items and record the new ones in their place, in one commit.

        An item whose content is stored already, or only repeats lines of one that is (``source``), is not stored again.
        """
        await self.journal.commit(self._evicting(steps))

    async def remove(self, item_ids: Sequence[str], *, reason: str) -> None:
        """Record that items left the context; their stored contents stay."""
        await self.journal.commit(Commit(records=[Removed(item_ids=tuple(item_ids), reason=reason)]))

    async def archive(
        self, item: ContextItem, content: str, item_ids: Sequence[str], *, before: str | None, reason: str
    ) -> None:
        """Store ``content`` as the content of ``item``, which replaces ``item_ids`` in the context.

        ``before`` is the item that follows it, None at the end. This is one commit: all of it happens, or nothing.
        """
        full = replace(item.with_content(content), offload_path=None)
        joined = added(item, self._base, content_stored=False, before=before)
        removed = Removed(item_ids=tuple(item_ids), reason=reason, archive=item.id)
        await self.journal.commit(Commit(files=[self._file_for(full)], records=[joined, removed]))

    async def restore(self, item_id: str, *, reason: str, token_count: int | None = None) -> None:
        """Record that an item's stored content is back in the context, and how many tokens it has.

        None: as many as when it entered. A live context does not notice. Raises
        ``UnknownItem`` and ``NotRestorable``.
        """
        self.journal.state.check_restorable(item_id)
        record = Restored(item_id=item_id, reason=reason, token_count=token_count)
        await self.journal.commit(Commit(records=[record]))

    async def decide(
        self, contents: Sequence[ContextItem], records: Sequence[Record] = (), *, last: bool = False
    ) -> None:
        """Store contents and record decisions about the history that they come from, in one commit.

        ``last`` releases the session; see ``Commit``.
        """
        refuse_damaged(contents)
        files = [self._file_for(item) for item in contents if self._must_store(item)]
        if files or records:
            await self.journal.commit(Commit(files=files, records=records, last=last))

    # Model calls and rules -------------------------------------------------------------------------------------------

    def call_made(
        self, usage: UsageLike, model: str | None, *, counted_tokens: int = 0, summary: bool = False
    ) -> CallMade:
        """The record of the bill of a call on the context as it stands; see ``CallMade`` for the rest.

        It has no number yet. Raises ``InvalidReply`` and ``InvalidRecord`` if it cannot be recorded.
        """
        call = CallMade(
            number=0,
            usage=Usage.of(usage),
            model=check_model(model),
            counted_tokens=counted_tokens,
            made_at=self._clock(),
            summary=summary,
        )
        check_types(call)
        return call

    async def record_call(
        self, usage: UsageLike, model: str | None, *, counted_tokens: int = 0, summary: bool = False
    ) -> None:
        """Record the bill of a call on the context as it stands, and nothing else; raises what ``call_made`` raises."""
        call = self.call_made(usage, model, counted_tokens=counted_tokens, summary=summary)
        await self.journal.commit(Commit(records=[call]))

    def request(self, breakpoints: Sequence[int], tools: ToolsDefined | None) -> tuple[ToolsDefined | RequestSent, ...]:
        """The record of a request that is sent now; ``tools``: None if they are not known."""
        sha256 = "" if tools is None else tools.sha256
        sent = RequestSent(sent_at=self._clock(), breakpoints=tuple(breakpoints), tools=sha256)
        if tools is None or sha256 in self.journal.state.tools:
            return (sent,)
        return (tools, sent)

    def request_sent(self, request: Sequence[ToolsDefined | RequestSent]) -> None:
        """Begin the next line of the journal with ``request``: the context as it stands; see ``RequestSent``."""
        self.journal.begin_line(*request)

    def status_sent(self, status: str) -> None:
        """Record that the request of ``request_sent`` carries ``status`` too."""
        sent = self.journal.request_to_write() or self.journal.state.request
        if sent is not None:
            self.journal.begin_line(replace(sent, status=status))

    async def record(self, records: Sequence[Record]) -> None:
        """Record facts about items that the session has, in one commit."""
        await self.journal.commit(Commit(records=records))

    async def record_eviction(self, rules: EvictionSet) -> None:
        """Record the rules of eviction from here on; nothing is written if they are known."""
        if rules != self.journal.state.eviction:
            await self.journal.opened(rules)

    # Content that grows ----------------------------------------------------------------------------------------------

    async def grow(self, tool_name: str) -> GrowingLog:
        """Start a file of the session that is written as a command prints: ``artifacts/terminal/<id>.log``.

        It can be read at once; ``finish`` makes it durable and records it. Neither a crash before that nor closing the
        session loses anything that was appended.
        """
        item_id, name = self.names.allocate_terminal()

        async def record(stored: Stored) -> None:
            await self.journal.commit(Commit(records=[stored]))
            self.growing.pop(item_id, None)  # the next opening forgets them all

        log = GrowingLog(
            self._store,
            item_id=item_id,
            name=name,
            metadata={"tool_name": tool_name},
            clock=self._clock,
            record=record,
            check_open=self.journal.check_open,
        )
        await log.append(b"")
        self.growing[item_id] = log
        return log

    # Files -----------------------------------------------------------------------------------------------------------

    def _must_store(self, item: ContextItem) -> bool:
        return item.id not in self.journal.state.stored and item.offload_path is None and item.damaged is None

    def _needs_file(self, item: ContextItem) -> bool:
        """Whether the content needs a file instead of the journal: it is large, or JSON escapes would change it.

        A page that was read back is never so large, unless an image or a document came with it.
        """
        content = item.message.content
        if not self._must_store(item) or (item.source is not None and not has_media(content)):
            return False
        return is_longer(content, self._inline_limit_chars) or has_surrogates(content)

    def _file_for(self, item: ContextItem, metadata: Mapping[str, Any] | None = None) -> ContentFile:
        return ContentFile(
            item.message.content,
            item_id=item.id,
            item_type=item.item_type,
            name=item.name,
            raw=self._layout.is_raw(item.name),
            compressed=is_compressed(item.name),
            offloaded_at=int(self._clock()),
            extra={**metadata_of(item), **(metadata or {})},
        )
