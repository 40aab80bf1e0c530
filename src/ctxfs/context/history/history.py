"""For a history that a framework owns: parts in, edits out, from any thread and any event loop."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from anyio import to_thread

from ctxfs.context.history.core import HistoryCore
from ctxfs.context.history.files import forget_in_forked
from ctxfs.context.history.parts import NO_HOST_CACHE, Edits, HostCache, Part, checked_parts, result_content
from ctxfs.context.history.settings import HistorySettings
from ctxfs.context.history.views import VIEWS, Api, WireMemories
from ctxfs.context.history.wire import Body, tools_in
from ctxfs.errors.checks import names_settings, require_exception, require_int, require_kind, require_text
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS
from ctxfs.eviction.window import Auto, Window
from ctxfs.messages.base import UsageLike
from ctxfs.messages.messages import Content
from ctxfs.messages.names import Layout, LayoutName
from ctxfs.messages.overflow import too_long
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.shared import SharedFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.urls import STORE_IS_ROOT_PATH
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.materialization import Materialize

T = TypeVar("T")

_log = logging.getLogger("ctxfs.context")


MEANT: Final[Mapping[str, str]] = {
    "budget": "it is window here, which takes a Window",
    "compaction": "give it as window=Window(compaction=...)",
    "eager": "give materialize=Materialize(...), and call arrive() for each result",
    "offload_enabled": "window=None, pricing=None and no keep_recent replace nothing",
    "offload_root_path": "it is root_path here",
    "store": STORE_IS_ROOT_PATH,
    "lease_wait_s": "it waits 10 seconds for another process, and 40 outside of a directory",
    "clock": "seconds of the computer count",
    "offload_token_threshold": "give offload_policy=OffloadPolicy(token_threshold=...)",
    "compress_from_chars": "give layout=Layout('text', compress_from_chars=...)",
    "digest_tokens": "give offload_policy=OffloadPolicy(digest_tokens=...)",
    "cache_ttl": "give pricing=EvictionPricing(cache_ttl=...)",
    "eviction": "pricing=None switches eviction by price off",
    "eviction_parameters": "give pricing=EvictionPricing(parameters=...)",
    "host_breakpoints": "give pricing=EvictionPricing(host_breakpoints=True)",
    "prices": "give pricing=EvictionPricing(prices=...)",
}
"""What to write for the name of a setting that another class has."""


@names_settings(MEANT)
class History:
    """Keeps a history that a framework owns inside its window, and economical, without losing a byte.

    The framework may rewind, branch, edit, repeat and summarise its history, keep the replacements or not, use several
    threads and event loops, and go on in another process. Before each model call it shows the history to ``rewrite``,
    and sends it with the edits that this returns. A replaced content was durable before, stays replaced by the same
    bytes for good, and can be read back with ``tools``.

    It does no work before its first use. All methods may be called in any thread; those whose name starts with "a" are
    awaited, on asyncio and on trio, and run in a worker thread. Several histories of one session, even in several
    processes, take turns: the session is locked only while something is written.

    Args:
        session_id: an existing session is continued; None makes a new one.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        model: whose window and prices count, as the provider names it; "" is an unknown model: a window of 128,000
            tokens, and Anthropic's price ratios.
        keep_recent: how many results of each named tool stay; older ones are replaced at once, and no other rule
            applies to them. For a tool that is not named, the price decides. Names that no tool of the first request
            with tools has are logged.
        offload_policy: what may be replaced, and from what size on, which every rule but ``keep_recent`` obeys; and how
            long digests are. None means the default table.
        window: how large the history may be: "auto" for the model's window, a number of tokens, or a ``Window``
            with more settings; None means no limit. Nothing is summarised, and no message is moved: that is up to the
            framework.
        pricing: eviction by price: "auto" at the model's prices, or an ``EvictionPricing`` with your numbers; None
            switches it off.
        preview_above_tokens: a new result of up to so many tokens, or an eighth of the window if that is less, is sent
            whole. A larger one is stored, and the model sees a preview of up to 1,000 tokens. None: always whole while
            it fits.
        materialize: stricter limits, for ``arrive`` alone; None: ``preview_above_tokens`` is its limit, too.
        layout: in which form contents are stored in a new session; "text" (the content as it is, which any tool can
            read) or "envelope" (JSON with its metadata). Nothing is compressed, unless a ``Layout`` says from which
            size on; the files are for ctxfs's own tools then.
        read_tool: the name of the tool with which the model opens the file that a placeholder names; the first of
            ``tools`` has it. If the framework has a tool of that name that opens files, leave that one out. With
            "context_read" placeholders name that tool, and no other is added.
        recall: whether ``tools`` also search and read everything that the session ever stored, show what it holds, and
            keep the model's notes.
        counter: counts tokens; None means the exact o200k counter.
        on_event: called, synchronously, with an event for each replacement and for each failure to store.
        shadow: a ``ctxfs.lab.Shadow``, which sends some rewritten requests of the methods named after APIs once more as
            they were given, and compares what the model does next. None: nothing is sent.

    Raises:
        ConfigError: a setting of another type, one that cannot work, or two that contradict each other.

    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        root_path: str | Path | SessionStores | None = None,
        model: str = "",
        keep_recent: Mapping[str, int] | None = None,
        offload_policy: OffloadPolicy | None = None,
        window: Window | int | Auto | None = "auto",
        pricing: EvictionPricing | Auto | None = "auto",
        preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS,
        materialize: Materialize | None = None,
        layout: Layout | LayoutName = "text",
        read_tool: str = READ_TOOL,
        recall: bool = False,
        counter: TokenCounter | None = None,
        on_event: Callable[[ContextEvent], None] | None = None,
        shadow: Callable[[Api, Body, Body, Callable[[Any], None]], None] | None = None,
    ) -> None:
        self._settings = HistorySettings(
            model=model,
            keep_recent=keep_recent,
            offload_policy=offload_policy,
            window=window,
            pricing=pricing,
            preview_above_tokens=preview_above_tokens,
            materialize=materialize,
            layout=layout,
            read_tool=read_tool,
            recall=recall,
            counter=counter,
            on_event=on_event,
            shadow=shadow,
        )
        fs = SharedFileSystem(session_id, root_path=root_path, layout=self._settings.file_layout)
        self._core = HistoryCore(fs, self._settings)
        self._forget()
        forget_in_forked(self, History._after_fork)

    def _forget(self) -> None:
        """Forget the requests that were read."""
        self._memories = WireMemories()
        self._told_unread = False
        self._warns_of_no_tools = True

    def _after_fork(self) -> None:
        fs = self._core.fs
        self._inherited = fs  # its handles are the parent's: held, so that they are never closed here
        fs = SharedFileSystem(fs.session_id, root_path=fs.stores, layout=self._settings.file_layout)
        self._core = HistoryCore(fs, self._settings)
        self._forget()

    # The session -----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id, ``session_{YYYYMMDD_HHMMSS}_{6 random}`` in UTC unless you chose another."""
        return self._core.fs.session_id

    @property
    def session_path(self) -> Path:
        """The session's directory, absolute. Raises ``ConfigError`` if it has none on this machine."""
        return self._core.fs.session_path

    def may_be_large(self, text: str) -> bool:
        """Whether ``arrive`` might replace a result of this text; if not, it need not be called."""
        return self._settings.may_be_large(text)

    def close(self) -> None:
        """Record the pending bills, and close all handles; idempotent. The next use opens the session again.

        A history that is never closed loses only pending bills: nine at most, since the tenth writes them all. If a
        Context has made the session its own meanwhile, they are lost, which is logged.

        Raises:
            StorageError: the bills could not be written.

        """
        self._core.close()
        self._forget()

    async def aclose(self) -> None:
        """``close``, awaited."""
        await to_thread.run_sync(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # On the wire -----------------------------------------------------------------------------------------------------

    def rewrite(
        self,
        parts: Sequence[Part],
        *,
        branch: str = "",
        overhead_tokens: int = 0,
        host: HostCache = NO_HOST_CACHE,
        tools: Collection[str] = (),
    ) -> Edits:
        """Return what to replace in a history before it is sent; call it before each call of the model.

        Any history is accepted: results without their call, calls without a result, edits, repeats, another library's
        summary, earlier replacements. A content that cannot be stored is not in the edits, and is tried again. The same
        history gives the same edits; only a new part, or an expired prompt cache, adds edits. Once the session is open,
        a store that cannot be read, or a process that holds it too long, is only logged.

        Args:
            parts: the whole history, in order.
            branch: which of several histories of this session it is, such as a subagent's: they share what is stored
                and decided, but each has its own prompt cache and window.
            overhead_tokens: the size of all else in the request, such as the tools' schemas, by the counter.
            host: what the framework asks of the prompt cache in this request; once seen, it counts from then on.
            tools: the names of the request's tools. If none of them is ``read_tool``, nothing new is replaced, since
                the model could not open it, and that is logged once. (): not known.

        Raises:
            TranscriptError: something among the parts is not one; nothing was decided.
            ConfigError: a ``Context`` or an ``Agent`` wrote the session; nothing was written.
            StorageError: the session cannot be opened.
            SessionLocked: the session cannot be opened: another process still holds it after 10 seconds, or 40 outside
                of a directory.

        """
        require_int("overhead_tokens", overhead_tokens, at_least=0)
        require_kind("host", host, HostCache, "HostCache(...)")
        checked = checked_parts(parts)
        with self._core.used():
            can_read = self._can_read(tools)
            return self._core.rewrite(checked, branch, overhead_tokens, host=host, can_read=can_read, tools=tools)

    async def arewrite(
        self,
        parts: Sequence[Part],
        *,
        branch: str = "",
        overhead_tokens: int = 0,
        host: HostCache = NO_HOST_CACHE,
        tools: Collection[str] = (),
    ) -> Edits:
        """``rewrite``, awaited."""
        given = partial(self.rewrite, branch=branch, overhead_tokens=overhead_tokens, host=host, tools=tools)
        return await to_thread.run_sync(given, checked_parts(parts))

    def messages(self, body: Body, *, branch: str = "") -> Body:
        """Return a request to the Messages API, given as it would be sent, with what is due replaced.

        If it has tools, but none with which the model could open it, nothing new is replaced: see ``rewrite``. If no
        request had tools so far, this is not known: what is due is replaced, and a warning is logged once.

        Unchanged messages are the same objects; changed ones keep their fields: ids, ``cache_control``, unknown ones.
        Raises what ``rewrite`` raises, and ``TranscriptError`` if the body is not such a request.
        """
        return self.rewritten("messages", body, branch=branch)[0]

    def chat(self, body: Body, *, branch: str = "") -> Body:
        """``messages`` for a request to the Chat Completions API."""
        return self.rewritten("chat", body, branch=branch)[0]

    def responses(self, body: Body, *, branch: str = "") -> Body:
        """``messages`` for a request to the Responses API.

        Raises ``ConfigError`` if the server holds the history (``previous_response_id``, ``conversation``).
        """
        return self.rewritten("responses", body, branch=branch)[0]

    def gemini(self, body: Body, *, branch: str = "") -> Body:
        """``messages`` for a request to Gemini's ``generateContent``, as its JSON is: names in camel case.

        Its parts with a thought signature stay as they are.
        """
        return self.rewritten("gemini", body, branch=branch)[0]

    async def amessages(self, body: Body, *, branch: str = "") -> Body:
        """``messages``, awaited."""
        return await to_thread.run_sync(partial(self.messages, body, branch=branch))

    async def achat(self, body: Body, *, branch: str = "") -> Body:
        """``chat``, awaited."""
        return await to_thread.run_sync(partial(self.chat, body, branch=branch))

    async def aresponses(self, body: Body, *, branch: str = "") -> Body:
        """``responses``, awaited."""
        return await to_thread.run_sync(partial(self.responses, body, branch=branch))

    async def agemini(self, body: Body, *, branch: str = "") -> Body:
        """``gemini``, awaited."""
        return await to_thread.run_sync(partial(self.gemini, body, branch=branch))

    def rewritten(
        self, api: Api, body: Body, *, branch: str = "", overhead_tokens: int = 0, has_tools: bool = False
    ) -> tuple[Body, Edits]:
        """Return what the method named ``api`` returns, and the edits in it.

        ``overhead_tokens``: the size of what the request will hold and ``body`` does not. ``has_tools``: whether there
        will be tools in it, among them the one that placeholders name.
        """
        view = VIEWS[api]
        require_text("branch", branch)
        parts, is_own = self._memories.parts_of(api, body, branch)
        self._settings.warn_of_model(body.get("model"))
        beside = view.beside(body)
        with self._core.used():
            overhead = overhead_tokens
            if beside:
                overhead += self._core.counting.count(json_codec.dumps_text(beside))
            tools = tools_in(body)
            if tools or has_tools:
                self._warns_of_no_tools = False  # one without them, as for a text, may follow
            host = view.host_cache(body)
            can_read = self._can_read(tools)
            edits = self._core.rewrite(
                parts, branch, overhead, is_own=is_own, host=host, can_read=can_read, tools=tools
            )
        if edits and self._warns_of_no_tools:
            self._warns_of_no_tools = False
            _log.warning(
                "session %s: something is replaced in requests without 'tools', so it is not known whether the model "
                "can open it: give it a tool that does, such as those of the history; where the history is shown the "
                "messages alone, pass the request's tools to it, too",
                self.session_id,
            )
        if edits.overflow is not None:
            _log.warning("session %s: %s", self.session_id, edits.overflow)
        new = view.applied(body, edits)
        if self._settings.shadow is not None and edits:
            self._settings.shadow(api, body, new, self.compared)
        return new, edits

    def compared(self, record: Any) -> None:
        """Record what a ``Shadow`` found, as a ``Shadowed`` of the journal; what cannot be written is logged."""
        was_open = self._core.fs.is_open
        with self._core.used(asks=False):
            self._core.compared(record)
        if not was_open:
            self.close()

    def _can_read(self, tools: Collection[str]) -> bool:
        """Whether one of a request's tools opens what placeholders name; if none does, that is logged once."""
        can_read = self._settings.can_read(tools)
        if not can_read and not self._told_unread:
            self._told_unread = True
            _log.warning(
                "session %s: requests have no tool %r, so nothing more is replaced in them: give the model the tools "
                "of the history, or name the tool that opens files: History(read_tool=...), --read-tool of a proxy",
                self.session_id,
                self._settings.read_tool,
            )
        return can_read

    # At the source ---------------------------------------------------------------------------------------------------

    def arrive(
        self, content: Content, *, tool: str, call_id: str = "", replacement: Content | None = None, full_bytes: int = 0
    ) -> Content:
        """Return what the framework should keep of a tool's new result: the result, or a summary if it is too large.

        The summary is recognised in the history, and is not replaced again. The same result gives the
        same summary. A result that cannot be stored is returned as it is.

        Args:
            content: the result, a text or content blocks.
            tool: the name of the tool.
            call_id: the id of the call; "" where the framework has none.
            replacement: what another library put in the place of the result; it is returned, and the result is stored
                whatever its size. None: this method decides.
            full_bytes: the size of the whole result, where the framework cut it and ``content`` is its beginning: the
                summary and the tools then say how much is stored. 0: ``content`` is all of it.

        Raises:
            TranscriptError: ``content`` or ``replacement`` is not a content.
            StorageError: the session cannot be opened.

        """
        require_text("tool", tool)
        require_text("call_id", call_id)
        require_int("full_bytes", full_bytes, at_least=0)
        checked = result_content(content)
        stub = None if replacement is None else result_content(replacement)
        key = Key("result", call_id, sha256_of(checked))
        with self._core.used():
            return self._core.arrive(key, checked, tool=tool, stub=stub, full_bytes=full_bytes)

    async def aarrive(
        self, content: Content, *, tool: str, call_id: str = "", replacement: Content | None = None, full_bytes: int = 0
    ) -> Content:
        """``arrive``, awaited."""
        given = partial(self.arrive, tool=tool, call_id=call_id, replacement=replacement, full_bytes=full_bytes)
        return await to_thread.run_sync(given, content)

    # Results and tools -----------------------------------------------------------------------------------------------

    def replied(self, usage: UsageLike, model: str | None = None, *, branch: str = "") -> None:
        """Record what the provider billed for the history that was rewritten last; it improves the estimates.

        The bill is written with the next decision, or on ``close``.

        Raises:
            InvalidReply: ``usage`` or ``model`` could not be recorded; nothing was.

        """
        with self._core.used(asks=False):
            self._core.replied(usage, model, branch)

    async def areplied(self, usage: UsageLike, model: str | None = None, *, branch: str = "") -> None:
        """``replied``, awaited."""
        await to_thread.run_sync(partial(self.replied, usage, model, branch=branch))

    def refused(self, error: Exception, *, branch: str = "") -> None:
        """Record that the provider refused the history that was rewritten last as too long.

        ``error`` is what the call raised: ``PromptTooLong``, or the SDK's own error (see ``ctxfs.messages.too_long``).
        The provider's figures are used if it gave some. Then rewrite the history again, and send it. Any other error,
        and any error of a history without a window, is raised again, unchanged.

        Raises:
            ContextOverflow: nothing more can be replaced.

        """
        require_exception(error)
        refusal = too_long(error)
        if refusal is None or self._settings.guard.budget is None:
            raise error
        with self._core.used():
            self._core.refused(refusal, branch)

    async def arefused(self, error: Exception, *, branch: str = "") -> None:
        """``refused``, awaited."""
        await to_thread.run_sync(partial(self.refused, error, branch=branch))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools with which the model reads back what was replaced: give it their schemas, and use ``run_tool``."""
        return self._core.tools

    def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one of ``tools``; its result is recognised in the history, and is never stored a second time.

        For a content that was never stored here, or is damaged, the result says so (``is_error``).

        Raises:
            ConfigError: ``tools`` has no tool of this name.
            InvalidToolArguments: the arguments do not validate; the message tells the model what to change.
            SessionLocked: a note cannot be written: another process still holds the session after such a wait.

        """
        with self._core.used(reads=True):
            return self._core.run_tool(name, arguments)

    async def arun_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """``run_tool``, awaited."""
        return await to_thread.run_sync(partial(self.run_tool, name, arguments))

    def read(self, work: Callable[[ContextFileSystem], Awaitable[T]]) -> T:
        """Run an async function that reads the session, in an event loop and a thread of its own; return its result.

        It sees the session as it is now, and writes nothing.

        Raises:
            StorageError: the session cannot be opened or read.
            ConfigError: ``work`` is not an async function.

        """
        with self._core.used(reads=True):
            return self._core.read(work)

    async def aread(self, work: Callable[[ContextFileSystem], Awaitable[T]]) -> T:
        """``read``, awaited."""
        return await to_thread.run_sync(partial(self.read, work))
