"""The past of a context: its contents at each model call, and the way back for evicted items."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ctxfs.context.held import ContextHeld
from ctxfs.context.requests import Requests, definitions_of
from ctxfs.context.resume import go_back, pin_whole
from ctxfs.errors import ContextOverflow
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage
from ctxfs.messages.wire_names import tool_names
from ctxfs.session.records import Record
from ctxfs.session.timeline.back import Back, pinned, restored, undone, unpinned
from ctxfs.session.timeline.changes import Changes
from ctxfs.session.timeline.fork import Forked, fork_session
from ctxfs.session.timeline.reading import past_request, read_timeline
from ctxfs.session.timeline.request import PastRequest
from ctxfs.text.steps import run_in_steps

_log = logging.getLogger("ctxfs.context")


class ContextInTime(ContextHeld):
    """The part of ``Context`` that shows earlier requests, and brings evicted content back."""

    _requests: Requests

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...] | None:
        """The definitions of the tools that you send with every call, as JSON data; None: not known.

        Set them, so that they are recorded with the requests, once in a session; ``request_at`` shows them. They are
        not counted: see ``overhead_tokens``. Setting raises ``ConfigError`` if they are not JSON, and logs a warning if
        none of them is named as placeholders say: see ``ctxfs.tools.read_tool``.
        """
        return None if self._requests.tools is None else self._requests.tools.tools

    @tools.setter
    def tools(self, tools: Iterable[Mapping[str, Any]] | None) -> None:
        defined = None if tools is None else definitions_of(tools)
        self._requests.tools = defined
        names = [] if defined is None else tool_names(defined.tools)
        if names and READ_TOOL not in names:
            _log.warning(
                "session %s: of the tools, none is named %r, so the model cannot open what placeholders name: add "
                "read_tool(context.fs)",
                self.fs.session_id,
                READ_TOOL,
            )

    async def request_at(self, call: int) -> PastRequest:
        """The request of a call of the model as it was sent: messages, system prompt, tools and cache breakpoints.

        ``call``: its number, from 1; the number after the last call means the next request, as the context stands.
        Messages that could not be recorded yet (``unrecorded``) are not in it. ``not_recorded`` names what the session
        did not record, such as the tools in 0.1.0. ``ctxfs.session.past_request`` does the same for
        a session that is open for reading only.

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
            await self._live.record()
            self._live.recorder.check_recorded(self.fs.session_id)
            return await fork_session(self.fs.session_id, at=at, new_id=session_id, store=self.fs.stores)

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
                return await self._live.restore(item_id, self.counter, reason) if item.destroyed else item
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
            await self._live.record()
            self._live.recorder.check_recorded(self.fs.session_id)
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
            back = await self._go_back(lambda records: unpinned(records, item_id))
            return self._found(item_id, back)

    async def undo(self, change: str | None = None) -> tuple[ContextItem, ...]:
        """Undo an eviction, a compaction or a summary; return the items that are back, in order.

        Args:
            change: its id, as events (``Evicted.change``), ``changes`` and ``ctxfs history`` show it; None: the last
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

    async def _go_back(self, decide: Callable[[Sequence[Record]], Back], *, fits: bool = False) -> Back:
        """Decide from the journal what comes back, and bring it back. ``fits``: it must fit the window."""
        await self._live.record()
        self._live.recorder.check_recorded(self.fs.session_id)
        records = await self.fs.history()
        back = await run_in_steps(lambda: decide(records))
        if fits and back.tokens > 0:
            self._check_fits(back)
        await go_back(self._live, back, self.counter)
        return back

    def _check_fits(self, back: Back) -> None:
        budget, calibration = self._controller.budget, self._controller.calibration
        if budget is None:
            return
        needed = calibration.estimate(self.counted_tokens + back.tokens)
        if needed > budget.limit_tokens:
            what = back.change or "this"
            raise ContextOverflow(budget.limit_tokens, needed, back.item_ids, why=f"{what} would bring back")

    def _found(self, item_id: str, back: Back) -> ContextItem:
        """The item of the context that ``item_id`` named; for arguments, their reply."""
        items = self._live.transcript.items
        return items[item_id] if item_id in items else items[back.item_ids[0]]
