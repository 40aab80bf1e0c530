"""The context of one session: messages come in, what is due leaves for files, and the messages to send go out.

It never needs to know who calls the model: ``Agent`` uses it, and so can any loop of your own.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NotRequired, Self, TypedDict

import anyio
import anyio.to_thread

from ctxfs.checks import require_bool, require_int, require_kind
from ctxfs.context.commit import Applied, apply
from ctxfs.context.entry import Entry, EntryRules, Incoming, Known, build_entry, skill_prompt, with_sources
from ctxfs.context.recorder import Recorder
from ctxfs.context.repair import repaired
from ctxfs.context.settings import Auto, agreed_policy, check_keep_recent, economy_for, eviction_rules, window_for
from ctxfs.context.transcript import Transcript
from ctxfs.economics.economy import EvictionPricing
from ctxfs.economics.features import IdentifierIndex
from ctxfs.economics.planner import EvictionDecision
from ctxfs.errors import ConfigError, ModelError, SessionClosed, StorageError
from ctxfs.events import ContextEvent, Offloaded, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.eviction.budget import Budget, Calibration
from ctxfs.eviction.compaction import ArchiveSlot, SelectiveCompaction
from ctxfs.eviction.eager import EagerPolicy
from ctxfs.eviction.plan import Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.reduction import AskForSummary, Done, Overflow, Reduction, View
from ctxfs.eviction.window import CompactionController, Window
from ctxfs.items import ContentRange, ContextItem, ItemType
from ctxfs.jsontext.write_stream import is_longer
from ctxfs.llm.base import ModelRequest, Reply, UsageLike, check_model
from ctxfs.llm.cache_breakpoints import CacheMarks
from ctxfs.llm.messages import Content, Message, MessageLike, SystemMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.llm.overflow import too_long
from ctxfs.llm.serialize import MessagesSerializer
from ctxfs.placeholder.attach import write_all
from ctxfs.session.damaged import counted
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import CallMade
from ctxfs.session.state import OffloadStats
from ctxfs.steps import run_in_steps
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import uninterrupted
from ctxfs.tokens import TokenCounter, load_counter
from ctxfs.weak_methods import weak_method

__all__ = ["Context", "MessagesRequest"]

_log = logging.getLogger("ctxfs")

_INLINE_CHARS = 4096
"""Reading less than this costs less than the hop to a worker thread."""


_INLINE_TOKENS = 16_384
"""Describing less than this takes no more than a millisecond or two."""


class MessagesRequest(TypedDict):
    """What the Messages API's ``create`` and ``stream`` take of a context: ``create(model=…, **request)``."""

    messages: list[Any]
    system: NotRequired[Any]


class Context:
    """The messages of one session, kept inside the window and at a low price, without losing a byte.

    Without settings it works as in ``Agent``: it stays inside the window, and evicts content when that pays. ``None``
    switches a part off; "auto" derives it from ``model``.

    Args:
        session_id: the session to resume, or the id of a new one; None starts a new one with an id of its own.
        model: the model whose window and prices are used, as the provider names it; "" is an unknown model: a window of
            128,000 tokens, and Anthropic's price ratios.
        root_path: the directory that holds sessions; None means ``~/.agent/context``.
        keep_recent: how many results stay, by tool; older ones are evicted exactly when due, and by no other rule.
            Results of other tools stay until evicting them pays.
        offload_enabled: the main switch: False evicts nothing, whatever else is set. The session is still recorded, and
            the window is still guarded: ``ContextOverflow`` is raised before a request that cannot fit.
        offload_policy: which types of items may be evicted, and from which size on; every rule but ``keep_recent`` asks
            it. None means the default table, with a threshold for compactions only.
        digest_tokens: the longest digest in a placeholder, in tokens. 0 means no digests; then no result is evicted by
            its price before the model has seen it.
        on_event: called synchronously for each eviction and each failed write.
        counter: counts tokens; None means the exact o200k counter.
        window: the size that the context may reach: "auto" for the model's window, a number of tokens, a ``Budget``, or
            a ``Window`` with more settings; None means no limit.
        overhead_tokens: the size of what is sent with every call but is not in the context, such as the tools' schemas,
            by the counter. It can also be set later.
        eager: decides what is evicted before it is ever sent, of what the policy allows; None means nothing. It cannot
            be combined with a policy by which tool results stay.
        pricing: evicts what ``keep_recent`` does not govern when that pays: "auto" at the model's prices, or an
            ``EvictionPricing`` with your numbers; None evicts nothing because it pays.
        fs: the session's files, instead of ``session_id`` and ``root_path``.

    Use it as an async context manager, or call ``open`` and ``close``. Everything that was added is durable when the
    call returns, so a context that is never closed loses nothing. A closed context can be opened again.

    Raises:
        ConfigError: a setting of another type, one that cannot work, or two that contradict each other.

    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        model: str = "",
        root_path: str | Path | None = None,
        keep_recent: Mapping[str, int] | None = None,
        offload_enabled: bool = True,
        offload_policy: OffloadPolicy | None = None,
        digest_tokens: int = 200,
        on_event: Callable[[ContextEvent], None] | None = None,
        counter: TokenCounter | None = None,
        window: Window | Budget | int | Auto | None = "auto",
        overhead_tokens: int = 0,
        eager: EagerPolicy | None = None,
        pricing: EvictionPricing | Auto | None = "auto",
        fs: ContextFileSystem | None = None,
    ) -> None:
        check_keep_recent(keep_recent)
        require_bool("offload_enabled", offload_enabled)
        require_int("digest_tokens", digest_tokens, at_least=0)
        require_int("overhead_tokens", overhead_tokens, at_least=0)
        require_kind("model", model, str, "a model's name")
        require_kind("offload_policy", offload_policy, OffloadPolicy, "OffloadPolicy(...)")
        require_kind("on_event", on_event, Callable, "a function of an event")
        require_kind("fs", fs, ContextFileSystem, "ContextFileSystem(...)")
        if counter is not None and (isinstance(counter, type) or not callable(getattr(counter, "count", None))):
            raise ConfigError(f"counter is {counter!r}: use a counter, such as CharsCounter(), or None")
        if eager is not None and (isinstance(eager, type) or not callable(getattr(eager, "decide", None))):
            raise ConfigError(f"eager is {eager!r}: use a policy with a method decide, or None")
        if fs is not None and (session_id is not None or root_path is not None):
            raise ConfigError("fs already determines the session: leave out session_id and root_path")
        if pricing == "auto":
            pricing = economy_for(model)
        require_kind("pricing", pricing, EvictionPricing, 'EvictionPricing(...), "auto"')
        window = window_for(model, window)
        asked = (window.budget, pricing, eager)
        if offload_policy is not None and offload_enabled and all(rule is None for rule in asked):
            raise ConfigError("offload_policy has no effect: window, pricing and eager, which ask it, are off")
        self._policy = agreed_policy(offload_policy, window.compaction)
        if eager is not None and not self._policy.type_enabled[ItemType.TOOL_RESULT]:
            raise ConfigError("eager evicts tool results, but type_enabled says that they stay: change one of them")
        compaction = replace(window.compaction or SelectiveCompaction(), policy=self._policy)
        self._controller = CompactionController(replace(window, compaction=compaction))
        self.fs = fs or ContextFileSystem(session_id, root_path=root_path)
        self._offload_enabled = offload_enabled
        self._keep_recent = dict(keep_recent or {}) if offload_enabled else {}
        self._economy = pricing if offload_enabled else None
        self._eager = eager if offload_enabled else None
        self._digest_tokens = digest_tokens
        self._on_event = on_event
        self._counter = counter
        self._lock = LoopLock()
        self.overhead_tokens = overhead_tokens
        self._begin()

    def _begin(self) -> None:
        """Hold nothing, as before a session is taken up."""
        self._transcript = Transcript(self._keep_recent, self.fs.path_of, economy=self._economy, policy=self._policy)
        self._identifiers = IdentifierIndex()
        self._recorder = Recorder(self.fs, weak_method(self._tell))
        self._cache_marks = CacheMarks()
        self._serializer = MessagesSerializer()
        self._sent_tokens = 0
        self._slot: ArchiveSlot | None = None
        self._write_errors: list[StorageError] = []

    # The session -----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id, ``session_{YYYYMMDD_HHMMSS}_{6 random}`` in UTC unless you chose another."""
        return self.fs.session_id

    async def open(self) -> None:
        """Open or resume the session; does nothing if it is open.

        After ``close`` it resumes from what was recorded; items that could not be written before are not in it.

        Raises:
            SessionLocked: another writer has it.
            StorageError: the directory cannot be used.

        """
        async with self._lock:
            if self.fs.is_open:
                return
            if self._counter is None:
                self._counter = await load_counter()
            await self.fs.open()
            try:
                await self._resume()
                await self.fs.writer.record_eviction(
                    eviction_rules(
                        self._keep_recent,
                        self._controller.budget,
                        self._policy,
                        self._economy,
                        digest_tokens=self._digest_tokens,
                    )
                )
            except BaseException:
                await self.fs.close()
                raise

    async def _resume(self) -> None:
        self._begin()
        items = await self._repaired(counted(await self.fs.items(), self.counter))
        for found in self.fs.recovery.contents:
            _log.warning("session %s: %s", self.session_id, found)
        turns = [call for call in self.fs.calls if not call.summary]

        def take_up() -> None:
            last_call_at = turns[-1].made_at if turns else None
            rules = self._entry_rules()
            self._transcript.resume(items, known=self._known, rules=rules, last_call_at=last_call_at)
            self._controller.resumed(turns)

        await anyio.to_thread.run_sync(take_up)

    async def _repaired(self, items: tuple[ContextItem, ...]) -> tuple[ContextItem, ...]:
        """Make what a damaged journal left a valid transcript, and record how; what is cut short goes on next time."""
        repairs = repaired(items, names=self.fs.writer.names, counter=self.counter)
        if not repairs:
            return items
        for item, before in repairs.added:
            await self.fs.writer.add([item], before=before)
        if repairs.removed:
            await self.fs.writer.remove(repairs.removed, reason="its call is lost: the journal was damaged")
        text = "session %s: the journal was damaged; to go on, %d messages were put in and %d left out"
        _log.warning(text, self.session_id, len(repairs.added), len(repairs.removed))
        return repairs.items

    @uninterrupted
    async def close(self) -> None:
        """Write the index and release the session; idempotent. The session is released also if a write fails.

        Raises:
            Unrecorded: items could not be written, and exist only in memory.
            StorageError: the index or the end of the journal could not be written; all items were.

        """
        async with self._lock:
            if not self.fs.is_open:
                return
            try:
                await self._record()
            finally:
                try:
                    await self.fs.close()
                finally:
                    self._recorder.check_recorded(self.session_id)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What it holds ---------------------------------------------------------------------------------------------------

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """Everything in the context now, oldest first."""
        return tuple(self._transcript.items.values())

    @property
    def token_count(self) -> int:
        """Tokens of all items as they are now, by the counter, without the provider's own overhead."""
        return self._transcript.tokens

    @property
    def counted_tokens(self) -> int:
        """The next prompt by the counter: all items, and the overhead of every call."""
        return self._transcript.tokens + self.overhead_tokens

    @property
    def counter(self) -> TokenCounter:
        """The counter behind all figures."""
        if self._counter is None:
            raise SessionClosed("the counter is loaded by open(): call it first")
        return self._counter

    @property
    def calibration(self) -> Calibration:
        """How the provider's bills compare with the counter, for the model in use."""
        return self._controller.calibration

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls of the last reply that have no result yet, in order."""
        return tuple(self._transcript.open_calls)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Ids of items that exist only in memory, because writing them failed; retried with every change."""
        return tuple(self._recorder.waiting)

    @property
    def eager_stats(self) -> OffloadStats:
        """What was evicted before it was ever sent, in the whole life of the session; 0.1.0 did not record it."""
        return self.fs.state.eager_stats

    # Coming in -------------------------------------------------------------------------------------------------------

    async def add(
        self,
        *messages: MessageLike,
        sources: Mapping[str, ContentRange] | None = None,
        data: Collection[str] = (),
        usage: UsageLike | None = None,
        model: str | None = None,
    ) -> tuple[ContextItem, ...]:
        """Take in messages: ours, or the Messages API's, as plain dicts or as its SDK gives them; durable on return.

        ``sources``: for results of retrieval tools, by call id, the stored lines that they repeat. ``data``: the ids
        of the calls whose results are the JSON of data (``ToolResult.is_data``), so that ``ToolResultOffload`` may
        store it with a line for each value. ``usage`` and ``model``: what the provider billed for the call that gave
        an assistant message, as its SDK gives it (see ``Usage.of``). None records no call.

        Raises:
            TranscriptError: the order is one that a provider would refuse, or a message or a source could not be
                recorded; nothing was added.
            InvalidReply: ``usage`` or ``model`` could not be recorded; nothing was added.
            SessionClosed: the context is not open.

        """
        model = check_model(model)
        async with self._changing():
            call = None if usage is None else self.fs.writer.call_made(usage, model, counted_tokens=self._sent_tokens)
            incoming = with_sources(await self._parsed(messages), sources or {}, data)
            return await self._take(incoming, call=call)

    async def add_skill_prompt(self, name: str, text: str) -> ContextItem:
        """Add a skill's prompt: a user's message that is an item of its own type.

        Raises:
            TranscriptError: calls of the last reply are still open, or ``name`` or ``text`` is blank or not a text.

        """
        async with self._changing():
            (message,) = await self._parsed([UserMessage(text)])
            (item,) = await self._take([skill_prompt(name, message)])
            return item

    async def set_system_prompt(self, content: Content) -> None:
        """Make ``content`` the session's only system prompt; does nothing if it is that already.

        Raises ``TranscriptError`` if it is not content.
        """
        async with self._changing():
            (message,) = await self._parsed([SystemMessage(content)])
            old = [i for i in self.items if i.item_type is ItemType.SYSTEM_PROMPT]
            if [i.message for i in old] == [message]:
                return
            await self._take([Incoming(message=message)], replacing=[i.id for i in old])

    async def answer_open_calls(self, text: str) -> tuple[ContextItem, ...]:
        """Answer every open tool call with an error result that says ``text``, so that the transcript is valid.

        Raises ``TranscriptError`` when ``text`` is not a text.
        """
        async with self._changing():
            answers = [ToolMessage(call.id, call.name, text, is_error=True) for call in self.open_calls]
            return await self._take([Incoming(message=message) for message in await self._parsed(answers)])

    # Going out -------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What would be evicted now, and why; changes nothing."""
        return self._transcript.plan()

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """The planner's decision about everything that could be evicted: why it stays or not, and when it would go."""
        return self._transcript.economy.decisions() if self._transcript.economy is not None else ()

    async def evict(self) -> Plan:
        """Store and evict what is due; returns the plan that was carried out."""
        async with self._changing():
            if self._recorder.is_behind:
                await self._record()
            await self._write_placeholders()
            plan = self.plan()
            if waiting := self._recorder.waiting:
                recorded = tuple(o for o in plan.offloads if o.item_id not in waiting)
                plan = Plan(offloads=recorded, first_changed=recorded[0].item_id if recorded else None)
            if plan:
                await self._apply(plan)
            return plan

    async def _write_placeholders(self) -> None:
        """Write those that the next plan needs: beside the event loop when that takes long."""
        placeholders = self._transcript.unwritten()
        if sum(placeholder.content_tokens for placeholder in placeholders) > _INLINE_TOKENS:
            await run_in_steps(lambda: write_all(placeholders))

    async def messages(self) -> tuple[Message, ...]:
        """Evict what is due, make the rest fit the window, and return the messages to send.

        Raises:
            TranscriptError: tool calls are open; add their results first.
            ContextOverflow: over the window's limit, and nothing more can be reduced.

        """
        self._transcript.check_answered()
        await self.evict()
        if self._offload_enabled:
            await self._make_room(self._controller.fit(self.counted_tokens, self.counter))
        else:
            self._check_window()
        self._sent_tokens = self.counted_tokens
        messages = tuple([item.message for item in self._transcript.items.values()])
        self._cache_marks.sent(messages)
        return messages

    @property
    def breakpoints(self) -> tuple[int, ...]:
        """After how many of the messages that were returned last a cache breakpoint is worth setting."""
        return self._cache_marks.breakpoints

    async def refused(self, error: Exception) -> tuple[Message, ...]:
        """Make the context smaller after the provider refused the prompt as too long, and return the messages again.

        ``error`` is what the call raised: ``PromptTooLong``, or the SDK's own error (see ``ctxfs.llm.too_long``). The
        provider's figures are used if it gave some. Any other error is raised again, unchanged.

        Raises:
            ContextOverflow: nothing more can be reduced.

        """
        refusal = too_long(error)
        if refusal is None or not self._offload_enabled:
            raise error
        await self._make_room(self._controller.refused(refusal, self.counted_tokens, self.counter))
        return await self.messages()

    async def request(self, *, cache: bool = True) -> MessagesRequest:
        """Evict what is due, and return ``system`` and ``messages`` for the Messages API, as plain dicts.

        ``cache`` sets prompt-cache breakpoints. ``system`` is left out when there is none.

        Raises:
            TranscriptError: as for ``messages``.

        """
        request = ModelRequest(messages=await self.messages(), breakpoints=self.breakpoints)
        body = self._serializer.body(request, model="", max_tokens=0, cache=cache)
        made = MessagesRequest(messages=body["messages"])
        if "system" in body:
            made["system"] = body["system"]
        return made

    # Inside ----------------------------------------------------------------------------------------------------------

    @property
    def _known(self) -> Known:
        return Known(self.fs.writer.names, self._identifiers)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """One change of the open session at a time."""
        async with self._lock:
            if not self.fs.is_open:
                raise SessionClosed(f"session {self.fs.session_id} is not open: `async with` it, or call open()")
            yield

    async def _take(
        self, incoming: Sequence[Incoming], *, replacing: Sequence[str] = (), call: CallMade | None = None
    ) -> tuple[ContextItem, ...]:
        """Validate, count, enter and record: all or nothing up to the moment when the messages are in the context.

        ``replacing``: ids of items whose place they take. ``call``: the model call that gave them.
        """
        self._transcript.check_order([i.message for i in incoming])
        entries = await self._entries(incoming)
        for entry in entries:
            self._known.take(entry)
            self._transcript.enter(entry)
            self._recorder.add(entry.item, entry.leaving)
        if replacing:
            self._transcript.move(replacing)
            self._recorder.remove(replacing)
        if call is not None:
            self._recorder.called(call)
            self._controller.observe(call)
        await self._record()
        return tuple(self._transcript.items[entry.item.id] for entry in entries)

    async def _parsed(self, messages: Sequence[MessageLike]) -> Sequence[Message]:
        contents = (m.get("content") if isinstance(m, Mapping) else getattr(m, "content", None) for m in messages)
        if all(isinstance(content, str) or _is_small(content) for content in contents):
            return self._transcript.parse(messages)
        return await run_in_steps(lambda: self._transcript.parse(messages))

    async def _entries(self, incoming: Sequence[Incoming]) -> list[Entry]:
        """Decide how the messages would enter; until they do, nothing of that is taken in.

        Decided again if another task took one of their names meanwhile, as a tool does that stores what it prints.
        """
        rules = self._entry_rules()
        while True:
            draft, entries = self._known.draft(), list[Entry]()
            for one in incoming:
                entries.append(await self._built(one, draft, rules))
                draft.take(entries[-1])
            names = self.fs.writer.names
            if all(names.is_free(item_id) for entry in entries for item_id in entry.new_ids):
                return entries

    def _entry_rules(self) -> EntryRules:
        return self._transcript.entry_rules(self.counter, digest_tokens=self._digest_tokens, eager=self._eager)

    async def _built(self, incoming: Incoming, known: Known, rules: EntryRules) -> Entry:
        if _is_small(incoming.message.content):
            return build_entry(incoming, known, rules)
        return await run_in_steps(lambda: build_entry(incoming, known, rules))

    async def _make_room(self, reduction: Reduction | None) -> None:
        """Do what ``reduction`` says, step by step."""
        answer: Reply | ModelError | None = None
        self._write_errors.clear()
        while reduction is not None:
            step = await anyio.to_thread.run_sync(reduction.next_step, self._view(), answer)
            answer = None
            match step:
                case Plan():
                    await self._carry_out(step)
                case AskForSummary():
                    answer = await self._summary(step.prompt)
                case SummaryFailed():
                    self._tell(step)
                case Done():
                    self._made_room(step)
                    return
                case Overflow():
                    self._made_room(step.done)
                    if not self._write_errors:
                        raise step.error
                    (failed,) = self._write_errors
                    raise step.error.because(f"storing failed ({failed}), so these items are still in it") from failed

    def _check_window(self) -> None:
        """The window's guard of a context that nothing may leave."""
        if error := self._controller.overflow(self.items, self.counted_tokens):
            raise error.because("nothing may be evicted (offload_enabled=False); the largest items are")

    def _made_room(self, done: Done) -> None:
        self._controller.settled(done)
        if done.compacted is not None:
            self._tell(done.compacted)

    def _view(self) -> View:
        if self._slot is None:
            item_id, name = self.fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
            self._slot = ArchiveSlot(item_id=item_id, name=name, path=self.fs.path_of(name))
        paths = {item.id: self._transcript.path_of(item) for item in self.items}
        return View(
            items=self.items,
            counted_tokens=self.counted_tokens,
            paths=paths,
            slot=self._slot,
            with_placeholder=self._transcript.with_placeholder,
        )

    async def _carry_out(self, plan: Plan) -> None:
        """Do what a plan says, stored first; as long as there are items that could not be recorded, do nothing."""
        async with self._changing():
            await self._record()
            if not self._recorder.waiting:
                await self._apply(plan)

    async def _summary(self, prompt: str) -> Reply | ModelError:
        """Ask the model, and record what that was billed."""
        assert self._controller.summarize is not None
        try:
            reply = await self._controller.summarize(prompt)
        except ModelError as error:
            return error
        await self._bill_summary(reply)
        return reply

    @uninterrupted
    async def _bill_summary(self, reply: Reply) -> None:
        async with self._changing():
            self._recorder.called(self.fs.writer.call_made(reply.usage, reply.model, summary=True))
            await self._record()

    def _tell(self, event: ContextEvent) -> None:
        """Pass an event on to ``on_event``; failures are logged too."""
        if isinstance(event, OffloadFailed | RecordFailed):
            self._write_errors[:] = [event.error]
            _log.warning("session %s: %s", self.session_id, event.error)
        if isinstance(event, Offloaded):
            self._log_offload(event.item_id)
        if self._on_event is not None:
            self._on_event(event)

    def _log_offload(self, item_id: str) -> None:
        """Say what was stored under the names by which a workspace finds it."""
        stored = self.fs.stored()[item_id]
        context_type, biz_id = stored.item_type.value, stored.metadata.get("tool_call_id", item_id)
        fields = {"context_type": context_type, "biz_id": biz_id, "artifact_id": item_id, "session_id": self.session_id}
        text = "offloaded: context_type=%s biz_id=%r session_id=%s artifact_id=%s"
        _log.info(text, context_type, biz_id, self.session_id, item_id, extra=fields)

    @uninterrupted
    async def _apply(self, plan: Plan) -> None:
        await apply(plan, self._transcript.items, self.fs, self._applied)

    def _applied(self, applied: Applied) -> None:
        """Do in memory what is durable, and tell it."""
        self._transcript.rewrite(applied.items, applied.left)
        if (moved := applied.archived) is not None:
            self._transcript.move(moved.item_ids, item=moved.item, before=moved.before)
            self._slot = None
        for event in applied.events:
            self._tell(event)

    @uninterrupted
    async def _record(self) -> None:
        """Make what is in memory only durable; a failure is told and tried again with the next change."""
        self._applied(await self._recorder.record())


def _is_small(content: object) -> bool:
    """Whether content, which nobody has checked yet, is read at once; a model of an SDK would have to be dumped."""
    if isinstance(content, list | tuple) and not all(isinstance(block, dict) for block in content[:_INLINE_CHARS]):
        return False
    return isinstance(content, str | list | tuple) and not is_longer(content, _INLINE_CHARS)
