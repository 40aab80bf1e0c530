"""The context of one session: it takes in messages, evicts what is due to files, and returns the messages to send.

It does not need to know who calls the model: ``Agent`` uses it, and so can any loop of your own.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ctxfs.context.entry import skill_prompt, with_sources
from ctxfs.context.live import LiveTranscript
from ctxfs.context.requests import MessagesRequest, Requests, definitions_of
from ctxfs.context.resume import go_back, pin_whole, resume, unpin
from ctxfs.context.room import make_room
from ctxfs.context.settings import ASSUMED, ContextSettings, KeepRecent, readers_in
from ctxfs.errors import ConfigError, ContextOverflow, InvalidReply, SessionClosed, UnknownItem
from ctxfs.errors.checks import async_with_only, names_settings, require_exception, require_int
from ctxfs.eviction.budget import Calibration
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.plans import EvictionDecision
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.offload_plan import EagerPolicy, Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS
from ctxfs.eviction.reduction import Reduction
from ctxfs.eviction.window import Auto, CompactionController, Window
from ctxfs.messages.base import UsageLike, check_model
from ctxfs.messages.incoming import Incoming
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import (
    AssistantMessage,
    Content,
    Message,
    MessageLike,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ctxfs.messages.overflow import too_long
from ctxfs.messages.tokens import TokenCounter, load_counter
from ctxfs.messages.wire_names import tool_names
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import CallMade, Record
from ctxfs.session.state import OffloadStats
from ctxfs.session.timeline.back import Back, pinned, restored, undone
from ctxfs.session.timeline.changes import Changes
from ctxfs.session.timeline.fork import Forked, fork_session
from ctxfs.session.timeline.reading import past_request, read_timeline
from ctxfs.session.timeline.timeline import PastRequest
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_in_steps, uninterrupted
from ctxfs.storage.urls import STORE_IS_ROOT_PATH

_log = logging.getLogger("ctxfs.context")


@async_with_only
@names_settings(
    {
        "budget": "it is window here, which takes a Window",
        "compaction": "give it as window=Window(compaction=...)",
        "ephemeral_keep_recent": 'it is keep_recent here, with a number for each tool, as in {"search": 2}',
        "eviction": "pricing=None switches eviction by price off",
        "materialize": "give it as eager=Materializer(...)",
        "workspace": "give it as eager=ToolResultOffload(...)",
        "offload_root_path": "it is root_path here",
        "pin_tools": 'give keep_recent={"plan": "all"}',
        "fs": "give it as session_id, which takes an id or a ContextFileSystem",
        "store": STORE_IS_ROOT_PATH,
        "overhead_tokens": "context.overhead_tokens = ... sets it",
        "offload_token_threshold": "give offload_policy=OffloadPolicy(token_threshold=...)",
        "digest_tokens": "give offload_policy=OffloadPolicy(digest_tokens=...)",
        "cache_ttl": "give pricing=EvictionPricing(cache_ttl=...)",
        "eviction_parameters": "give pricing=EvictionPricing(parameters=...)",
        "host_breakpoints": "give pricing=EvictionPricing(host_breakpoints=True)",
        "prices": "give pricing=EvictionPricing(prices=...)",
        "system_prompt": "await context.set_system_prompt(...) sets it",
        "tools": "context.tools = [...] sets it",
    }
)
class Context:
    """The messages of one session, kept inside the window and at a low price, without losing a byte.

    Without settings it works as in ``Agent``: it stays inside the window, and evicts content when that pays. ``None``
    switches a part off; "auto" derives it from ``model``.

    Args:
        session_id: the session to resume, or the id of a new one; None starts a new one with an id of its own. Or the
            session's files, a ``ContextFileSystem``, open or not; ``close`` closes them.
        model: the model whose window and prices are used, as the provider names it; "" is an unknown model: a window of
            128,000 tokens, and Anthropic's price ratios.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        keep_recent: how many results stay, by tool; older ones are evicted exactly when due, and by no other rule.
            "all" pins them as they come in: they are never evicted (see ``pin``). Results of other tools stay until
            evicting them pays. Names that no tool in ``tools`` has are logged.
        offload_enabled: the main switch: False evicts nothing, whatever else is set. The session is still recorded, and
            the window is still guarded: ``ContextOverflow`` is raised before a request that cannot fit.
        offload_policy: which types of items may be evicted, and from which size on, which every rule but
            ``keep_recent`` obeys; and how long digests are. None means the default table, with a threshold for
            compactions only.
        on_event: called synchronously for each eviction and each failed write.
        counter: counts tokens; None means the exact o200k counter.
        window: the size that the context may reach: "auto" for the model's window, a number of tokens, or a
            ``Window`` with more settings; None means no limit.
        eager: decides what is evicted before it is ever sent; None: nothing. The policy must allow tool results to go.
        pricing: evicts what ``keep_recent`` does not govern if that pays: "auto" at the model's prices, or an
            ``EvictionPricing`` with your numbers; None: nothing is evicted by price.
        preview_above_tokens: a new result of up to so many tokens, or an eighth of the window if that is less, is sent
            whole. A larger one is stored, and the model sees a preview of up to 1,000 tokens. None: always whole while
            it fits. Where ``eager`` decides about new results, it decides alone.
        pin_user_messages: whether messages of the user are pinned.
        one_commit_a_turn: new messages become durable only with a reply that calls no tool, with an eviction, or when
            ``record`` or ``close`` is called: this saves commits, but a crash loses the turn.

    Use it as an async context manager, or call ``open`` and ``close``. Everything that was added is durable when the
    call returns, unless you ask otherwise, so a context that is never closed loses nothing. A closed context can be
    opened again.

    Raises:
        ConfigError: a setting of another type, one that cannot work, or two that contradict each other.

    """

    def __init__(
        self,
        session_id: str | ContextFileSystem | None = None,
        *,
        model: str = "",
        root_path: str | Path | SessionStores | None = None,
        keep_recent: KeepRecent | None = None,
        offload_enabled: bool = True,
        offload_policy: OffloadPolicy | None = None,
        on_event: Callable[[ContextEvent], None] | None = None,
        counter: TokenCounter | None = None,
        window: Window | int | Auto | None = "auto",
        eager: EagerPolicy | None = None,
        pricing: EvictionPricing | Auto | None = "auto",
        preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS,
        pin_user_messages: bool = False,
        one_commit_a_turn: bool = False,
    ) -> None:
        if isinstance(session_id, ContextFileSystem):
            self.fs = _for_writing(session_id, root_path)
        else:
            self.fs = ContextFileSystem(session_id, root_path=root_path)
        self._settings = ContextSettings(
            model=model,
            keep_recent=keep_recent,
            offload_enabled=offload_enabled,
            offload_policy=offload_policy,
            on_event=on_event,
            counter=counter,
            window=window,
            eager=eager,
            pricing=pricing,
            pin_user_messages=pin_user_messages,
            one_commit_a_turn=one_commit_a_turn,
            preview_above_tokens=preview_above_tokens,
        )
        self._overhead_tokens = 0
        self._counter = counter
        self._controller = CompactionController(self._settings.guard)
        self._live = LiveTranscript(self.fs, self._settings)
        self._requests = Requests()

    # What it holds ----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id, ``session_{YYYYMMDD_HHMMSS}_{6 random}`` in UTC unless you chose another."""
        return self.fs.session_id

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """Everything in the context now, oldest first."""
        return tuple(self._live.transcript.items.values())

    @property
    def conversation(self) -> Self:
        """The context itself, whose ``items`` "Context FileSystem 上下文卸载功能" finds under this name."""
        return self

    @property
    def token_count(self) -> int:
        """Tokens of all items as they are now, by the counter, without the provider's own overhead."""
        return self._live.transcript.tokens

    @property
    def overhead_tokens(self) -> int:
        """The size of all else in every request, such as the tools' schemas, by the counter: set it; 0 is nothing else.

        Setting raises ``ConfigError`` unless it is a whole number from 0 on.
        """
        return self._overhead_tokens

    @overhead_tokens.setter
    def overhead_tokens(self, tokens: int) -> None:
        require_int("overhead_tokens", tokens, at_least=0)
        self._overhead_tokens = tokens

    @property
    def counted_tokens(self) -> int:
        """The next prompt by the counter: all items, and the overhead of every call."""
        return self._live.transcript.tokens + self._overhead_tokens

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
        return tuple(self._live.transcript.open_calls)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Ids of items that exist only in memory: writing them failed, or was put off. The next commit has them."""
        return tuple(self._live.pending.items)

    @property
    def eager_stats(self) -> OffloadStats:
        """What was evicted before it was ever sent, in the whole life of the session."""
        return self.fs.state.eager_stats

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...] | None:
        """The definitions of the tools that you send with every call, as JSON data; None: not known.

        Set them, so that they are recorded with the requests, once in a session; ``request_at`` shows them. They are
        not counted: see ``overhead_tokens``. ``ctxfs.tools.read_tool`` opens all that was evicted. A ``Read`` of your
        own opens it too if the session is in a directory and not compressed (``layout=TEXT``): placeholders then name
        paths. With neither of them nothing new is evicted by price or by ``keep_recent``, only what must leave to fit
        the window, and both are logged. They count from the next call of a method on, also where another task is in the
        middle of one. Setting raises ``ConfigError`` if they are not JSON.
        """
        return None if self._requests.tools is None else self._requests.tools.tools

    @tools.setter
    def tools(self, tools: Iterable[Mapping[str, Any]] | None) -> None:
        defined = None if tools is None else definitions_of(tools)
        self._requests.tools = defined
        self._live.read_with(ASSUMED if defined is None else readers_in(defined.tools))
        self._warn_of_unread()
        if defined is not None:
            self._live.warn_of_unknown(tool_names(defined.tools))

    # The session -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open or resume the session; does nothing if it is open.

        After ``close`` it resumes from what was recorded; items that could not be written before are not in it.

        Raises:
            ConfigError: a ``History`` wrote the session, so that its messages are elsewhere, or another context is open
                over the same ``fs``. Nothing changed.
            SessionLocked: another writer has it.
            StorageError: the directory cannot be used.

        """
        was_open = self._live.is_open
        try:
            await self._open()
        except (KeyboardInterrupt, SystemExit):  # it may have hit when the session was open
            if not was_open:
                await self._release()
            raise

    async def _open(self) -> None:
        async with self._live.lock:
            if self._live.is_open:
                return
            if self._counter is None:
                self._counter = await load_counter()
            await self.fs.open(owner="Context")
            self._live.attach()
            try:
                self._requests = Requests(self._requests.tools)
                await resume(self._live, self._controller, self.counter)
                self._warn_of_unread()  # an existing session keeps its layout, which may be compressed
                rules = self._settings.rules(self._controller.budget)
                await self.fs.writer.record_eviction(replace(rules, compresses=self._live.compresses))
            except BaseException:
                await self.fs.close()
                raise

    async def close(self) -> None:
        """Write the index and release the session; idempotent. The session is released even if a write fails.

        Raises:
            Unrecorded: items could not be written, and exist only in memory.
            StorageError: the index or the end of the journal could not be written; all items were.

        """
        try:
            await self._close()
        except (KeyboardInterrupt, SystemExit):  # it may have hit before the session was released
            await self._release()
            raise

    async def _release(self) -> None:
        """Close the files, unless another context is open over them."""
        if not self.fs.is_open or self.fs.writer.context in (None, self._live):
            await self.fs.close()

    @uninterrupted
    async def _close(self) -> None:
        async with self._live.lock:
            if not self.fs.is_open:
                return
            try:
                if self._live.is_open:  # else somebody opened the files again
                    await self._live.settle()
                    await self._live.record()
            finally:
                try:
                    await self._release()
                finally:
                    self._live.pending.check_recorded(self.session_id)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Coming in -------------------------------------------------------------------------------------------------------

    async def add(
        self,
        *messages: MessageLike,
        sources: Mapping[str, ContentRange] | None = None,
        data: Collection[str] = (),
        usage: UsageLike | None = None,
        model: str | None = None,
        durable: bool = True,
    ) -> tuple[ContextItem, ...]:
        """Add messages: ctxfs's own, or the Messages API's, as dicts or as its SDK returns them; durable on return.

        ``sources``: for results of retrieval tools, by call id, the stored lines that they repeat. ``data``: the ids
        of the calls whose results are the JSON of data (``ToolResult.is_data``), so that ``ToolResultOffload`` may
        store it with a line for each value. ``usage`` and ``model``: what the provider billed for the call that gave
        an assistant message, as its SDK gives it (see ``Usage.of``). None records no call. ``durable``: False
        leaves the messages to the next commit: that of ``messages``, with its evictions, or an earlier one. A crash
        before that loses them; ``unrecorded`` names them.

        Raises:
            TranscriptError: the order is one that a provider would refuse, or a message or a source could not be
                recorded; nothing was added.
            InvalidReply: ``usage`` or ``model`` could not be recorded; nothing was added.
            SessionClosed: the context is not open.

        """
        model = check_model(model)
        async with self._live.changing():
            call: CallMade | None = None
            if usage is not None:
                call = self.fs.writer.call_made(usage, model, counted_tokens=self._requests.counted_tokens)
            incoming = with_sources(await self._live.parsed(messages), sources or {}, data)
            if call is not None and not any(isinstance(one.message, AssistantMessage) for one in incoming):
                raise InvalidReply(
                    "usage is what a reply was billed, and no message here is one: add it with the reply"
                )
            return await self._take(incoming, call=call, durable=durable)

    async def add_skill_prompt(self, name: str, text: str) -> ContextItem:
        """Add a skill's prompt: a user's message that is an item of its own type.

        Raises:
            TranscriptError: calls of the last reply are still open, or ``name`` or ``text`` is blank or not a text.

        """
        async with self._live.changing():
            (message,) = await self._live.parsed([UserMessage(text)])
            (item,) = await self._take([skill_prompt(name, message)])
            return item

    async def set_system_prompt(self, content: Content) -> None:
        """Make ``content`` the session's only system prompt; does nothing if it is that already.

        Raises ``TranscriptError`` if it is not content.
        """
        async with self._live.changing():
            (message,) = await self._live.parsed([SystemMessage(content)])
            old = [i for i in self.items if i.item_type is ItemType.SYSTEM_PROMPT]
            if [i.message for i in old] == [message]:
                return
            await self._take([Incoming(message=message)], replacing=[i.id for i in old])

    async def answer_open_calls(self, text: str) -> tuple[ContextItem, ...]:
        """Answer every open tool call with an error result that says ``text``, so that the transcript is valid.

        Raises ``TranscriptError`` when ``text`` is not a text.
        """
        async with self._live.changing():
            answers = [ToolMessage(call.id, call.name, text, is_error=True) for call in self.open_calls]
            return await self._take([Incoming(message=message) for message in await self._live.parsed(answers)])

    async def record(self) -> None:
        """Make pending items durable, and evict items that need not be sent at all, in one commit; see ``add``.

        A failure is reported as an event, and is retried with the next change. Raises ``SessionClosed`` if the context
        is not open, and ``OutcomeUnknown`` if a store on a server does not say whether it took them: the next change
        asks again.
        """
        async with self._live.changing():
            await self._live.record_new()

    def check_recorded(self) -> None:
        """Raise ``Unrecorded`` if items exist only in memory; its cause is the last failure to write them."""
        self._live.pending.check_recorded(self.session_id)

    # Going out -------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What would be evicted now, and why; changes nothing."""
        return self._live.transcript.plan()

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """The planner's decision about everything that could be evicted: why it stays or not, and when it would go."""
        economy = self._live.transcript.economy
        if economy is None:
            return ()
        return economy.decisions()

    async def evict(self) -> Plan:
        """Store and evict what is due; returns the plan that was carried out."""
        async with self._live.changing():
            return await self._live.evict()

    async def messages(self) -> tuple[Message, ...]:
        """Evict what is due, make the rest fit the window, and return the messages to send.

        Raises:
            TranscriptError: tool calls are open; add their results first.
            ContextOverflow: over the window's limit, and nothing more can be reduced.

        """
        self._live.transcript.check_answered()
        async with self._live.changing():  # so that nothing that is being recorded comes in between
            await self._live.evict()
            reduction = self._reduction()
            if reduction is None:
                return self._sent()
        await self._make_room(reduction)
        async with self._live.changing():
            return self._sent()

    @property
    def breakpoints(self) -> tuple[int, ...]:
        """After how many of the last returned messages a cache breakpoint is worth setting."""
        return self._requests.breakpoints

    def carries(self, status: str) -> None:
        """The request that ``messages`` returned last carries ``status`` too: it is recorded with it.

        ``overhead_tokens`` counts it, as it is now: what the provider bills is compared with that.
        """
        self._live.carries(status)
        self._requests.counted_tokens = self.counted_tokens

    async def refused(self, error: Exception) -> tuple[Message, ...]:
        """Make the context smaller after the provider refused the prompt as too long, and return the messages again.

        ``error`` is what the call raised: ``PromptTooLong``, or the SDK's own error (see ``ctxfs.messages.too_long``).
        The provider's figures are used if it gave some. Any other error is raised again, unchanged.

        Raises:
            ContextOverflow: nothing more can be reduced.

        """
        require_exception(error)
        refusal = too_long(error)
        if refusal is None or not self._settings.offload_enabled:
            raise error
        await self._make_room(self._controller.refused(refusal, self.counted_tokens, self.counter))
        return await self.messages()

    async def request(self, *, cache: bool = True) -> MessagesRequest:
        """Evict what is due, and return ``system`` and ``messages`` for the Messages API, as plain dicts.

        ``cache`` sets prompt-cache breakpoints. ``system`` is left out if there is no system prompt.

        Raises:
            TranscriptError: as for ``messages``.

        """
        return self._requests.body(await self.messages(), cache=cache)

    # Earlier requests, and evicted content that comes back ------------------------------------------------------------

    async def request_at(self, call: int) -> PastRequest:
        """The request of a call of the model as it was sent: messages, system prompt, tools and cache breakpoints.

        ``call``: its number, from 1; the number after the last call means the next request, as the context stands.
        Messages that could not be recorded yet (``unrecorded``) are not in it. ``not_recorded`` names what the session
        did not record, such as tools that were never set. ``ctxfs.session.past_request`` does the same for a session
        that is open for reading only.

        Raises:
            UnknownCall: there was no such call.
            SessionClosed: the context is not open.

        """
        return await past_request(self.fs, call)

    async def changes(self, first: int, last: int | None = None) -> Changes:
        """What changed from the request of the call ``first`` to the one of ``last`` (None: of the call after it).

        It says what was added or evicted and why, its tokens, and what the prompt cache had to write again.

        Raises:
            UnknownCall: there was no such call.
            SessionClosed: the context is not open.

        """
        return (await read_timeline(self.fs)).changes(first, last)

    async def fork(self, at: int | None = None, *, session_id: str | None = None) -> Forked:
        """Make a session that continues from the request of call ``at``, and shares the contents of this one.

        The next request of the new session is that request, byte for byte, with this session's files behind its
        placeholders. ``at``: None takes all of this session; ``session_id``: None gives the new one a generated id.

        Raises:
            UnknownCall: there was no such call.
            SessionExists: there is already a session with that id.
            ConfigError: this session was given its own ``Store``, so it is unknown where to make another one.
            WriteFailed: the session could not be written; nothing is left of it.
            SessionClosed: the context is not open.

        """
        async with self._live.changing():
            await self._live.record_all()
            return await fork_session(self.fs.session_id, at=at, new_id=session_id, root_path=self.fs.stores)

    async def restore(self, item_id: str, *, reason: str = "") -> ContextItem:
        """Bring the content of an evicted item back into the context, and into the journal; return the item.

        A message that is in an archive comes back with its exchange (a reply and the results of its calls), to where
        it was; the large arguments of calls come back with their reply: ``item_id`` may be its id or theirs.

        A restored content stays until the model has replied 10 times, even in a session that is resumed; it is evicted
        earlier only if the prompt could not be sent otherwise. Then it may be evicted again like any other. An item
        whose content is in the context stays as it is, and nothing is recorded.

        Raises:
            UnknownItem: the session has no such item.
            NotRestorable: it is not a message, or it has no content of its own: read it instead.
            CorruptContent: the stored content is damaged. Nothing changed.
            WriteFailed: it could not be recorded. Nothing changed.
            SessionClosed: the context is not open.

        """
        async with self._live.changing():
            item = self._live.transcript.items.get(item_id)
            if item is not None and not isinstance(item.message, AssistantMessage):
                if not item.destroyed:
                    return item
                return await self._live.restore(item_id, self.counter, reason)
            back = await self._go_back(lambda records: restored(records, item_id, reason=reason))
            return self._found(item_id, back)

    async def pin(self, item_id: str) -> ContextItem:
        """Keep an item in the context, whatever rule evicts others: keep-recent, price, compaction, summary, window.

        If it was evicted, it comes back first, as with ``restore``. It stays pinned in a session that is resumed, until
        ``unpin``. Returns the item; one that is pinned already stays as it is.

        Raises:
            ContextOverflow: it would not fit the window. Nothing changed.
            UnknownItem: the session has no such item.
            NotRestorable, CorruptContent, WriteFailed, SessionClosed: as for ``restore``. Nothing changed.

        """
        async with self._live.changing():
            await self._live.record_all()
            item = self._live.transcript.items.get(item_id)
            if item is not None and not (item.destroyed or item.trimmed):
                return item if item.pinned else await pin_whole(self._live, item)
            back = await self._go_back(lambda records: pinned(records, item_id), fits=True)
            return self._found(item_id, back)

    async def unpin(self, item_id: str) -> ContextItem:
        """Let an item be evicted again like any other; return the item. One that is not pinned stays as it is.

        Raises:
            UnknownItem: the context has no such item.
            WriteFailed: it could not be recorded. Nothing changed.
            SessionClosed: the context is not open.

        """
        async with self._live.changing():
            await self._live.record_all()
            item = self._live.transcript.items.get(item_id)
            if item is None:
                raise UnknownItem(item_id)
            if item.pinned:
                await unpin(self._live, item, self.counter)
            return self._live.transcript.items[item_id]

    async def undo(self, change: str | None = None) -> tuple[ContextItem, ...]:
        """Undo an eviction, a compaction or a summary; return the items that are back, in order.

        Args:
            change: its id, as events (``Evicted.change``), ``changes`` and ``ctxfs explain`` show it; None: the last
                one that is in force, so that several calls undo several in a row.

        Restored items stay for a while, as with ``restore``. Nothing that was recorded is changed: the undo is
        recorded too.

        Raises:
            ContextOverflow: it would not fit the window, with the figures. Nothing changed.
            NotRestorable: there is no such change; it was undone already; or items that it evicted were removed
                later: undo that first.
            ContentGone: a content that it evicted has been removed on purpose. Nothing changed.
            CorruptContent, WriteFailed, SessionClosed: as for ``restore``. Nothing changed.

        """
        async with self._live.changing():
            back = await self._go_back(lambda records: undone(records, change), fits=True)
            items = self._live.transcript.items
            return tuple(items[item_id] for item_id in back.item_ids if item_id in items)

    # Inside ----------------------------------------------------------------------------------------------------------

    async def _take(
        self,
        incoming: Sequence[Incoming],
        *,
        replacing: Sequence[str] = (),
        call: CallMade | None = None,
        durable: bool = True,
    ) -> tuple[ContextItem, ...]:
        """Validate, count, enter and record: all or nothing until the messages are in the context."""
        self._live.transcript.check_order([i.message for i in incoming])
        entries, draft = await self._live.prepare(incoming)
        self._live.warn_of_large(entries)
        if call is not None:
            self._controller.observe(call.usage, call.model, call.counted_tokens)
            self._live.transcript.billed(call.usage)
        return await self._live.take(entries, draft, replacing=replacing, call=call, durable=durable)

    async def _make_room(self, reduction: Reduction) -> None:
        await make_room(reduction, self._live, self._controller, overhead_tokens=self.overhead_tokens)

    def _warn_of_unread(self) -> None:
        defined = self._requests.tools
        if defined is not None and tool_names(defined.tools):
            self._live.warn_of_unread()

    def _sent(self) -> tuple[Message, ...]:
        """The messages as they are now, noted as sent."""
        messages = self._requests.sent(
            self._live.transcript.items.values(),
            counted_tokens=self.counted_tokens,
            spare=self._live.transcript.before_next_eviction(),
        )
        self._live.sent(self._requests.breakpoints, self._requests.tools)
        return messages

    def _reduction(self) -> Reduction | None:
        """How to make the context fit the window; None: it does. Raises ``ContextOverflow`` if nothing may leave."""
        if self._settings.offload_enabled:
            return self._controller.fit(self.counted_tokens, self.counter)
        error = self._controller.overflow(self.items, self.counted_tokens)
        if error is not None:
            raise error.because("nothing may be evicted (offload_enabled=False); the largest items are")
        return None

    async def _go_back(self, decide: Callable[[Sequence[Record]], Back], *, fits: bool = False) -> Back:
        """Decide from the journal what comes back, and bring it back. ``fits``: it must fit the window."""
        await self._live.record_all()
        records = await self.fs.history()
        back = await run_in_steps(lambda: decide(records))
        if fits and back.tokens > 0:
            self._check_fits(back)
        await go_back(self._live, back, self.counter)
        return back

    def _check_fits(self, back: Back) -> None:
        budget = self._controller.budget
        if budget is None:  # no limit
            return
        needed = self._controller.calibration.estimate(self.counted_tokens + back.tokens)
        if needed > budget.limit_tokens:
            what = back.change or "this"
            raise ContextOverflow(budget.limit_tokens, needed, back.item_ids, why=f"{what} would bring back")

    def _found(self, item_id: str, back: Back) -> ContextItem:
        """The item of the context that ``item_id`` named; for arguments, their reply."""
        items = self._live.transcript.items
        return items[item_id] if item_id in items else items[back.item_ids[0]]


def _for_writing(fs: ContextFileSystem, root_path: object) -> ContextFileSystem:
    """``fs``. Raises ``ConfigError`` if a context cannot use it, or has a root of its own as well."""
    if root_path is not None:
        raise ConfigError("a ContextFileSystem says where its session is: leave out root_path")
    if fs.read_only:
        raise ConfigError(
            "this ContextFileSystem is for reading only, and a context writes: open it with read_only=False"
        )
    return fs
