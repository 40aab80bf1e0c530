"""A transcript in memory and the session's files, changed together: changes are durable before they take effect."""

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ctxfs.context.commit import Pending, carry_out
from ctxfs.context.entry import Entry, EntryRules, Known, build_entry, recorded_entry
from ctxfs.context.notices import Notices, Warnings
from ctxfs.context.replayed import fill
from ctxfs.context.settings import ASSUMED, ContextSettings, Readers
from ctxfs.context.transcript import Transcript
from ctxfs.errors import ConfigError, OutcomeUnknown, SessionClosed
from ctxfs.eviction.compaction import ArchiveSlot, View
from ctxfs.eviction.events import ContentReadBack, ContentRestored
from ctxfs.eviction.offload_plan import EagerOffload, Plan
from ctxfs.eviction.placeholder.identifiers import IdentifierIndex
from ctxfs.eviction.preview import Preview, named_by
from ctxfs.messages.incoming import Incoming
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, MessageLike, ToolMessage
from ctxfs.messages.names import path_of
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.session.damaged import counted
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import absolute
from ctxfs.session.records import CallMade, ToolsDefined
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import run_in_steps, run_to_completion, uninterrupted
from ctxfs.text.jsontext.write_stream import is_longer

_log = logging.getLogger("ctxfs.context")

_INLINE_CHARS = 32_768
"""Reading less than this takes a millisecond or two at most; a hop to a worker thread takes a quarter of one."""

_INLINE_TOKENS = 32_768
"""Describing less than this takes a millisecond or two; a content counts once for each of its placeholders."""


class LiveTranscript:
    """The transcript of an open session; all of its changes are made here, one at a time (``changing``).

    New items are recorded with one commit. Items that could not be written, or need not be yet, are ``pending``, and go
    with the next commit, together with its evictions.
    """

    rules: EntryRules
    """The rules for each new message; set when the session is resumed, since the counter is loaded then."""

    def __init__(self, fs: ContextFileSystem, settings: ContextSettings) -> None:
        self.fs = fs
        self.notices = Notices(fs, settings.on_event)
        self.warnings = Warnings(fs.session_id)
        self.lock = LoopLock()
        self._has_files = Path(fs.base).is_absolute()
        self._readers = ASSUMED  # of the requests
        self._described_for = ASSUMED  # whom the placeholders of the transcript are for
        self._settings = settings
        self._agrees = True  # with the session: no change was cut in the middle
        self.begin()

    def begin(self) -> None:
        """Hold nothing, as before a session is resumed."""
        settings = self._settings
        self.transcript = Transcript(settings.exact, self.fs.base, economy=settings.priced, policy=settings.policy)
        self.pending = Pending()
        self._identifiers = IdentifierIndex()
        self._slot: ArchiveSlot | None = None

    @property
    def is_open(self) -> bool:
        """Whether the session was resumed here: somebody else may have opened, or opened again, its files."""
        return self.fs.is_open and self.fs.writer.context is self

    def attach(self) -> None:
        """Make this the one context over the open files. Raises ``ConfigError`` if there is another one."""
        if self.fs.writer.context is not None:
            raise ConfigError(
                f"session {self.fs.session_id} has a context over these files: use that one, or close it first"
            )
        self.fs.writer.context = self

    @property
    def known(self) -> Known:
        """What is taken: ids and names of files, and the identifiers that the model can already read."""
        return Known(self.fs.writer.names, self._identifiers)

    @property
    def compresses(self) -> bool:
        """Whether the open session compresses large contents; False before it is open."""
        return self.is_open and self.fs.writer.names.layout.compressed_from_chars > 0

    @property
    def why_unread(self) -> str | None:
        """Why no tool of the requests opens what placeholders name: nothing leaves before it must. None: one does."""
        return self._readers.why_not(has_files=self._has_files, compresses=self.compresses)

    def read_with(self, readers: Readers) -> None:
        """Placeholders are for these tools from the next change on, also those of what is there already.

        At any time: another task may be opening the session, or in the middle of a change.
        """
        self._readers = readers

    @property
    def _is_current(self) -> bool:
        return self._agrees and self._described_for == self._readers

    def _rules(self, counter: TokenCounter) -> EntryRules:
        readers = self._readers if self.why_unread is None else self._readers.without_files()
        return self._settings.entry_rules(counter, self.fs.base, readers)

    def warn_of_unread(self) -> None:
        """Log, once, why no tool of the requests opens what placeholders name."""
        why = self.why_unread
        if why is not None:
            self.warnings.once(
                f"{why}, so the model cannot open what placeholders name, and nothing is evicted until the window is "
                "full: add read_tool(context.fs)"
            )

    def warn_of_forced(self) -> None:
        """Log, once, that the window is full, if what leaves for it cannot be opened by a tool of the requests."""
        why = self.why_unread
        if why is not None:
            self.warnings.once(
                f"the window is full, so contents leave the context that its model cannot open: {why}. Their "
                "placeholders name the files"
            )

    def warn_of_unknown(self, tools: Collection[str]) -> None:
        """Log which tools the settings name that are not among ``tools``, those of the first request that has any."""
        settings = self._settings
        self.warnings.of_unknown(tools, keep_recent=[*settings.exact, *settings.pins.tools])

    def warn_of_large(self, entries: Sequence[Entry]) -> None:
        """Log, once, that a result is sent whole because no tool of the request opens what would be stored."""
        eager = self.rules.eager
        if isinstance(eager, Preview) and not eager.tools and any(eager.is_over(entry.item) for entry in entries):
            self.warnings.once(eager.rule.no_reader)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """One change of the open session at a time."""
        async with self.lock:
            if not self.is_open:
                raise SessionClosed(f"session {self.fs.session_id} is not open: `async with` it, or call open()")
            if not self._is_current:
                await self.settle()
            self._agrees = False
            try:
                yield
            except BaseException as error:
                self._agrees = not _cuts(error)
                raise
            self._agrees = True

    @uninterrupted
    async def settle(self) -> None:
        """If a change was cut in the middle, or the tools are others, hold what is recorded and what is not yet.

        Raises what ``SessionWriter.settle`` raises.
        """
        if self._is_current:
            return
        self._agrees = False
        await self.fs.writer.settle()
        pending = self.pending
        counter = self.rules.counter
        self.begin()
        pending.settle(self.fs.state)
        self.pending = pending
        await self.take_in(counted(await self.fs.items(), counter), counter)
        if pending.removed:  # a rewrite: the planner forgets what it knew to have left
            self.transcript.move(pending.removed)
        for item in pending.items.values():
            call = pending.call_for(item.id)
            if call is not None:
                self.transcript.billed(call.usage)
            self.transcript.enter(recorded_entry(item, self.known, self.rules))
            if item.id in pending.eager:
                self._hold_named(pending.eager[item.id])
        self._agrees = True

    async def take_in(self, items: Sequence[ContextItem], counter: TokenCounter) -> None:
        """Hold the session's ``items``, in a worker thread."""
        self._described_for = self._readers
        self.rules = self._rules(counter)
        state = self.fs.state
        await run_to_completion(
            lambda: fill(
                self.transcript,
                items,
                past=state.past,
                known=self.known,
                rules=self.rules,
                restored=state.replies_since_restored(),
            )
        )

    # Coming in -------------------------------------------------------------------------------------------------------

    async def parsed(self, messages: Sequence[MessageLike]) -> Sequence[Message]:
        """Messages of our own from input of any kind; see ``Transcript.parse``."""
        for message in messages:
            content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", None)
            if not isinstance(content, str) and not _is_small(content):
                return await run_in_steps(lambda: self.transcript.parse(messages))
        return self.transcript.parse(messages)

    async def prepare(self, incoming: Sequence[Incoming]) -> tuple[list[Entry], Known]:
        """Decide how messages would enter, large ones outside of the event loop; until they do, nothing changes.

        Returns their entries, and the draft of what is known that took them in. This is decided again if another task
        has taken one of their names, as a tool does that stores its output.
        """
        while True:
            known = self.known
            draft = known.draft()
            entries: list[Entry] = []
            replies: list[AssistantMessage] = []
            for one in incoming:
                seen: ContextItem | None = None
                if isinstance(one.message, AssistantMessage):
                    replies.append(one.message)
                elif isinstance(one.message, ToolMessage):
                    seen = self.transcript.seen_before(one.message, replies)
                if _is_small(one.message.content):
                    entry = build_entry(one, draft, self.rules, seen=seen)
                else:
                    entry = await run_in_steps(partial(build_entry, one, draft, self.rules, seen=seen))
                entries.append(entry)
            if all(map(known.names.is_free, draft.names.drafted)):
                return entries, draft

    async def take(
        self,
        entries: Sequence[Entry],
        draft: Known,
        *,
        replacing: Sequence[str] = (),
        call: CallMade | None = None,
        durable: bool = True,
    ) -> tuple[ContextItem, ...]:
        """Enter and record, and evict what need not be sent at all; return the items as they then are in the context.

        ``entries`` and ``draft`` are what ``prepare`` returned. ``replacing``: ids of items that they replace.
        ``call``: the model call that produced them. ``durable``: False leaves them, and their evictions, to the next
        commit.
        """
        self.known.take(draft)
        for entry in entries:
            self.transcript.enter(entry)
            self.pending.items[entry.item.id] = entry.item
            if entry.eager is not None:
                self.pending.eager[entry.item.id] = entry.eager
                self._hold_named(entry.eager)
        if replacing:
            self.transcript.move(replacing)
            self.pending.remove(replacing)
        if call is not None:
            self.pending.called(call)
            self.notices.called(call)
        if durable and (not self._settings.one_commit_a_turn or _ends_turn(entries)):
            await self.record_new()
        for entry in entries:
            source = entry.item.source
            if source is not None:
                self.notices.emit(
                    ContentReadBack(
                        item_id=source.item_id,
                        tokens=entry.item.content_tokens,
                        first_line=source.first_line,
                        last_line=source.last_line,
                    )
                )
        return tuple(self.transcript.items[entry.item.id] for entry in entries)

    def _hold_named(self, eager: EagerOffload) -> None:
        """Keep what a line names, for the request that has the line for the first time."""
        if isinstance(self.rules.eager, Preview):
            named = named_by(eager.offload.reason)
            self.transcript.refers(eager.offload.item_id, named)
            self.transcript.keep_for_next(named)

    async def record(self) -> None:
        """Make pending items durable; a failure is reported as an event, and is retried with the next change."""
        if self.pending:
            await self.apply(Plan())

    async def record_all(self) -> None:
        """Make pending items durable. Raises ``Unrecorded`` if that fails: what follows needs all of them."""
        await self.record()
        self.pending.check_recorded(self.fs.session_id)

    @uninterrupted
    async def record_new(self) -> None:
        """Record new items and, if some of them need not be sent at all, evict what is due in the same commit."""
        plan = Plan()
        if self.pending.eager and self.why_unread is None:
            plan = await self._plan(self.transcript.chosen())
        if self.pending:
            await self.apply(plan)

    def sent(self, breakpoints: Sequence[int], tools: ToolsDefined | None) -> None:
        """Note that the context is sent as it is: the journal says so after the last item, before the next change."""
        request = self.fs.writer.request(breakpoints, tools)
        if self.pending.items:
            self.pending.sent(request)
        else:
            self.fs.writer.request_sent(request)

    def carries(self, status: str) -> None:
        """Note that the last request carries ``status`` too."""
        if self.pending.items:
            self.pending.status_sent(status)
        else:
            self.fs.writer.status_sent(status)

    async def evict(self) -> Plan:
        """Store and evict what is due, in one commit with pending items; return the plan that was carried out.

        With one commit a turn, pending items go on waiting if nothing is due. What could not be stored is in the plan:
        events say what became of it.
        """
        chosen = self.transcript.chosen() if self.why_unread is None else []
        if not chosen:
            if self.pending and (self.pending.eager or not self._settings.one_commit_a_turn):
                await self.apply(Plan())
            self._log_stays()
            return Plan()
        plan = await self._plan(chosen)
        await self.apply(plan)
        return plan

    def _log_stays(self) -> None:
        """Log why nothing is evicted, item by item."""
        economy = self.transcript.economy
        if economy is None or not _log.isEnabledFor(logging.DEBUG):
            return
        for one in economy.decisions():
            text = "session %s: %s (%s tokens, %.0f calls old): %s"
            _log.debug(text, self.fs.session_id, one.item_id, f"{one.tokens:,}", one.age_calls, one.why)

    async def _plan(self, chosen: Sequence[str]) -> Plan:
        """What is due, with the placeholders for ``chosen``; in a thread if writing them takes long."""
        candidates = self.transcript.candidates
        if candidates.unwritten_tokens(chosen) > _INLINE_TOKENS:
            await run_in_steps(lambda: candidates.write(chosen))
        return self.transcript.plan()

    @uninterrupted
    async def restore(self, item_id: str, counter: TokenCounter, reason: str) -> ContextItem:
        """Bring the content of a result or of a user's message back, durable first; see ``Context.restore``."""
        self.fs.state.check_restorable(item_id)
        content = await self.fs.load(item_id)
        tokens = await run_in_steps(lambda: count_content(counter, content))
        await self.fs.writer.restore(item_id, reason=reason, token_count=tokens)
        restored = absolute(self.fs.state.items[item_id].with_content(content), self.fs.base)
        self.transcript.restore(restored)
        self.notices.emit(ContentRestored(item_id=item_id, tokens=restored.token_count, reason=reason))
        return restored

    @uninterrupted
    async def apply(self, plan: Plan) -> None:
        """Record what is pending, and carry out ``plan``; what cannot be stored stays as it is, with an event.

        The changes are durable before they are made in memory.
        """
        if plan and _log.isEnabledFor(logging.DEBUG):
            _log.debug("session %s: planned: %s", self.fs.session_id, plan.explain())
        applied = await carry_out(plan, self.transcript.items, self.fs, self.pending)
        if applied.items:
            self.transcript.rewrite(applied.items, applied.left)
            warning = self.transcript.keep_recent_warning()
            if warning is not None:
                self.warnings.once(warning, about="keep_recent")
        moved = applied.archived
        if moved is not None:
            self.transcript.move(moved.item_ids, item=moved.item, before=moved.before)
            self._slot = None
        for event in applied.events:
            self.notices.emit(event)
        if applied.error is not None:
            raise applied.error

    def view(self, counted_tokens: int) -> View:
        """The context as it is now, whose next prompt has ``counted_tokens``, with a place for the next archive."""
        if self._slot is None:
            item_id, name = self.fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
            path = path_of(self.fs.base, name)
            self._slot = ArchiveSlot(item_id=item_id, name=name, path=path)
        items = tuple(self.transcript.items.values())
        pinned = frozenset(item.id for item in items if item.pinned)
        return View(
            items=items,
            counted_tokens=counted_tokens,
            paths={item.id: self.transcript.path_of(item) for item in items},
            slot=self._slot,
            with_placeholder=self.transcript.with_placeholder,
            reader=self.rules.reader,
            staying=pinned.union(self.transcript.holds),
            pinned=pinned,
        )


def _cuts(error: BaseException) -> bool:
    """Whether ``error`` may have cut a change in the middle; a cancellation waits for its end, and has its error."""
    if isinstance(error, Exception):
        return isinstance(error, OutcomeUnknown)
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return True
    return error.__cause__ is not None and _cuts(error.__cause__)


def _ends_turn(entries: Sequence[Entry]) -> bool:
    """Whether the last of the messages is a reply that calls no tool."""
    message = entries[-1].item.message if entries else None
    return isinstance(message, AssistantMessage) and not message.tool_calls


def _is_small(content: object) -> bool:
    """Whether unchecked content can be read as it is; a model of an SDK has to be dumped first."""
    if isinstance(content, list | tuple) and not all(isinstance(block, dict) for block in content[:_INLINE_CHARS]):
        return False
    return isinstance(content, str | list | tuple) and not is_longer(content, _INLINE_CHARS)
