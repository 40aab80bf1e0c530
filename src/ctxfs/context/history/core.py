"""The synchronous core of a history: one use at a time, and no thread or event loop of its own."""

import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutinefunction, isfunction, ismethod, unwrap
from typing import Any, TypeVar

from ctxfs.context.history.arrival import arriving
from ctxfs.context.history.branch import Branch
from ctxfs.context.history.counting import NotingCounter
from ctxfs.context.history.decisions import Decisions
from ctxfs.context.history.files import SessionFiles, run_alone
from ctxfs.context.history.parts import NO_HOST_CACHE, Edits, HostCache, Part, plain_content
from ctxfs.context.history.settings import HistorySettings
from ctxfs.context.history.view import Decision, HistoryView
from ctxfs.context.notices import Warnings
from ctxfs.errors import ConfigError, ContextOverflow, PromptTooLong, SessionLocked, StorageError, WriteFailed
from ctxfs.errors.base import quoted
from ctxfs.errors.checks import require_kind
from ctxfs.eviction.events import ContentReadBack, ContextEvent, Evicted, Offloaded, OffloadFailed, story
from ctxfs.eviction.offload_plan import Offload, Plan
from ctxfs.eviction.placeholder.text import reading_tools
from ctxfs.eviction.preview import Preview
from ctxfs.eviction.reduction import Done, Reduction
from ctxfs.eviction.window import CompactionController
from ctxfs.messages.base import UsageLike
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import path_of
from ctxfs.messages.tokens import count_content, default_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.records import CallMade, PartsNoted, Record, Shadowed
from ctxfs.session.shared import SharedFileSystem
from ctxfs.session.state import OtherOwner, SessionState
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.read import read_tool
from ctxfs.tools.recall.past import RECALL_TOOLS
from ctxfs.tools.recall.tools import WRITING_TOOLS, recall_tools
from ctxfs.tools.retrieval import retrieval_tools

T = TypeVar("T")

_log = logging.getLogger("ctxfs.context")

_TRIES = 5
"""How often to plan again when another process has decided something in the meantime."""

_BILLS = 10
"""Bills are written with the next decision, or when there are this many of them."""

_WAIT_S = 10.0
"""For how many seconds a use waits while another process writes: a write takes far less, and a caller is kept by it."""

WAIT_ELSEWHERE_S = 40.0
"""Outside of a directory: a killed writer's lease holds for 30 s, and waiting it out costs less than a request that
misses the prompt cache."""

_NOTHING = Decision(contents=(), decided=())


class HistoryCore:
    """The work of a ``History``, in the calling thread; every method but ``close`` must be called inside ``used``.

    ``fs`` is the session; nothing is read or written before the first use. ``wait_s``: for how many seconds to wait
    while another process writes; None: for ``_WAIT_S``, or ``WAIT_ELSEWHERE_S`` outside of a directory.
    """

    def __init__(self, fs: SharedFileSystem, settings: HistorySettings, *, wait_s: float | None = None) -> None:
        self.fs = fs
        if wait_s is None:
            wait_s = WAIT_ELSEWHERE_S if fs.stores.directory is None else _WAIT_S
        self._wait_s = wait_s
        self._settings = settings
        self._rules = settings.rules
        self._warnings = Warnings(fs.session_id)
        self._lock = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        """Hold nothing, as before the first use."""
        self._files = SessionFiles(self.fs, wait_s=self._wait_s)
        self._decisions = Decisions()
        self._branches: dict[str, Branch] = {}
        self._sources: dict[str, ContentRange] = {}
        self._state: SessionState | None = None  # whose decisions these are
        self._counter: NotingCounter | None = None
        self._tools: tuple[Tool, ...] = ()
        self._bills: list[CallMade | Shadowed] = []
        self._new_sources: dict[str, tuple[str, int, int]] = {}
        self._unread: StorageError | SessionLocked | None = None  # why this use cannot know what others wrote

    def close(self) -> None:
        """End what is running, and release the session."""
        with self._lock:
            if not self.fs.is_open:
                return
            self._unread = None
            try:
                if self._bills or self._notes():
                    self._write(_NOTHING)
            except OtherOwner as error:  # a Context uses the session now: closing does not fail for that
                _log.warning("%s; bills are lost: %d", error, len(self._bills))
            finally:
                self._files.close()
                self._begin()

    def rewrite(
        self,
        shown: Sequence[Part],
        branch: str,
        overhead_tokens: int,
        *,
        is_own: bool = False,
        host: HostCache = NO_HOST_CACHE,
        can_read: bool = True,
        tools: Collection[str] = (),
    ) -> Edits:
        """Rewrite the parts of a request, and return the edits; ``is_own``: the parts' contents cannot change later.

        ``can_read``: False replaces nothing new, since no tool of the request could open it. ``tools``: their names.
        """
        kept = self._branch(branch)
        view = kept.view
        view.follow_host(host)
        self._warnings.of_unknown(tools, keep_recent=self._settings.exact)
        kept.unsettled |= view.update(shown, is_own=is_own)
        if kept.unsettled or kept.overhead_tokens != overhead_tokens:
            kept.overhead_tokens = overhead_tokens
            kept.failed = False
            if can_read:
                self._decide_due(kept, tools)
                kept.overflow = self._reduced(kept, kept.controller.fit(kept.counted_tokens, self.counting))
            messages = tuple([item.message for item in view.transcript.items.values()])
            kept.marks.sent(messages, spare=view.transcript.before_next_eviction())
            kept.unsettled = kept.failed or not can_read
        view.sent_at = self._settings.clock()
        edits = view.edits(shown)
        text = (
            "session %s, branch %r: %d parts take %d tokens, %d of them replaced; %d tokens beside them; "
            "cache breakpoints at the end: %s, kept for: %s"
        )
        budget = kept.controller.budget
        tokens = view.transcript.tokens
        told = (branch, len(shown), tokens, len(edits), overhead_tokens, view.host.at_end, view.host.ttl)
        _log.debug(text, self.fs.session_id, *told)
        return Edits(
            edits,
            tokens=kept.counted_tokens,
            freed_tokens=view.freed_tokens,
            breakpoints=view.places_after(kept.marks.breakpoints, shown),
            window_tokens=None if budget is None else budget.limit_tokens,
            overflow=kept.overflow,
        )

    def _previews(self, view: HistoryView, tools: Collection[str]) -> Plan:
        """New results that are too large to be sent whole, or repeat one; ``tools``: see ``History.rewrite``."""
        rule = self._settings.preview
        if rule is None:
            return Plan()
        reader = self._settings.read_tool
        readers = reading_tools(tools or [tool.name for tool in self.tools], reader=reader)
        preview = Preview(rule=rule, tools=readers, reader=reader)
        offloads: list[Offload] = []
        for item in view.unseen_results():
            assert isinstance(item.message, ToolMessage)
            path = view.transcript.path_of(item)
            seen = view.transcript.seen_before(item.message)
            repeat = None if seen is None else preview.repeat(item, seen, path, self.counting)
            if repeat is not None:
                offloads.append(repeat)
            elif preview.is_over(item):
                offloads.append(preview.offload(item, path, self.counting))
        return Plan(offloads=tuple(offloads))

    def arrive(self, key: Key, content: Content, *, tool: str, stub: Content | None, full_bytes: int) -> Content:
        """Return what takes the place of a new result, or the result; ``key`` is that of the result."""
        if self._decisions.replacing(key) is not None or key.sha256 in self._sources:
            return content
        for _ in range(_TRIES):
            decided = self._decisions.of(key)
            if decided is not None:
                assert isinstance(decided.content, str | tuple)
                return decided.content
            made = arriving(
                key,
                content,
                tool=tool,
                stub=stub,
                full_bytes=full_bytes,
                names=self._settings.names_in(self.fs.state),
                eager=self._settings.at_source([tool.name for tool in self.tools]),
                policy=self._settings.policy,
                path_of=partial(path_of, self.fs.base),
                counter=self.counting,
            )
            if made is None:
                return content
            try:
                if self._write(made):
                    self._tell_decided(made)
            except (StorageError, SessionLocked) as error:
                self._tell_failed(made, error)
                return content
        return content

    def replied(self, usage: UsageLike, model: str | None, branch: str) -> None:
        """Learn from what the provider billed for a request."""
        kept = self._branch(branch)
        call = self.fs.writer.call_made(usage, model, counted_tokens=kept.counted_tokens)
        kept.controller.observe(call.usage, call.model, call.counted_tokens)
        kept.view.billed(call)
        self._bills.append(call)
        if len(self._bills) >= _BILLS:
            self._write_bills()

    def compared(self, record: Shadowed) -> None:
        """Record at once what was compared beside the real requests: there may be no later write."""
        self._bills.append(record)
        self._write_bills()

    def refused(self, refusal: PromptTooLong, branch: str) -> None:
        """Learn from a prompt that the provider refused as too long."""
        kept = self._branch(branch)
        kept.overflow = self._reduced(kept, kept.controller.refused(refusal, kept.counted_tokens, self.counting))
        if kept.overflow is not None:
            raise kept.overflow

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools with which the model reads back what was evicted."""
        if not self._tools:
            counter = self._settings.counter
            reader = self._settings.read_tool
            tools: list[Tool] = [*retrieval_tools(self.fs, counter=counter)]
            if all(tool.name != reader for tool in tools):
                tools.insert(0, read_tool(self.fs, counter=counter, name=reader))
            if self._settings.recall:
                tools += recall_tools(self.fs, counter=counter)
            self._tools = tuple(tools)
        return self._tools

    def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one of ``tools``, and return its result."""
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            raise ConfigError(
                f"there is no tool {quoted(name)}: use one of {', '.join(tool.name for tool in self.tools)}"
            )
        if name in RECALL_TOOLS and self._bills:  # they number the calls by the recorded bills
            self._write_bills()
        work = partial(tool.run, arguments)
        result = self._files.leased(work) if name in WRITING_TOOLS else run_alone(work)
        if result.source is not None:
            source = result.source
            sha256 = sha256_of(plain_content(Part("result", result.content, 0)))
            self._sources[sha256] = source
            self._new_sources[sha256] = (source.item_id, source.first_line, source.last_line)
            event = ContentReadBack(
                item_id=source.item_id,
                tokens=count_content(self.counting, result.content),
                first_line=source.first_line,
                last_line=source.last_line,
            )
            self._tell(event)
        return result

    def read(self, work: Callable[[ContextFileSystem], Awaitable[T]]) -> T:
        """Run ``work`` on the session, and return its result. Raises ``ConfigError`` if it is not an async function."""

        async def awaited() -> T:
            given: object = work  # which no type checker may have seen
            begun = given(self.fs) if callable(given) and not _is_sync(given) else None
            if not isinstance(begun, Awaitable):
                raise ConfigError(f"work is {work!r}: use an async function of a session, such as read_timeline")
            result: T = await begun
            return result

        return run_alone(awaited)

    # Inside ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def used(self, *, asks: bool = True, reads: bool = False) -> Iterator[None]:
        """One use at a time, of the session as it is now.

        If records of others cannot be read, the session is used as last known, and nothing is written: decisions up to
        then hold for good. ``reads``: the error is raised instead. ``asks``: False uses the session as last known.
        """
        with self._lock:
            self._unread = None
            gained = not self.fs.is_open
            if gained:
                self._files.open()
            elif asks:
                gained = self._caught_up(reads=reads)
            self._settle(gained=gained)
            yield

    def _caught_up(self, *, reads: bool) -> bool:
        try:
            return self._files.catch_up()
        except (StorageError, SessionLocked) as error:
            if reads or not self.fs.is_open:
                raise
            _log.warning("session %s is used as it was last known: %s", self.fs.session_id, error)
            self._unread = error
            return False

    def _settle(self, *, gained: bool) -> None:
        """Take in new records; forget the old ones if the session was removed and another one has its id."""
        state = self.fs.state
        if state is not self._state:
            self._state = state
            gained = True
            if Decisions(state.decisions).since(0)[: len(self._decisions)] != self._decisions.since(0):
                self._decisions = Decisions()
                self._branches = {}
                self._sources = {}
        if gained:
            self._take_in()

    def _take_in(self) -> None:
        """Take in everything recorded by now."""
        state = self.fs.state
        self._decisions.take(state.decisions)
        self.counting.learn(state.noted_tokens if self._settings.counter is None else {})
        for sha256, (item_id, first, last) in state.noted_sources.items():
            stored = state.stored.get(item_id)
            if stored is not None and sha256 not in self._sources:
                path = path_of(self.fs.base, stored.name)
                self._sources[sha256] = ContentRange(item_id=item_id, path=path, first_line=first, last_line=last)

    @property
    def counting(self) -> NotingCounter:
        """The counter, which remembers what it counted; loaded when it is first needed."""
        if self._counter is None:
            self._counter = NotingCounter(self._settings.counter or default_counter(), {})
        return self._counter

    def _branch(self, name: str) -> Branch:
        require_kind("branch", name, str, "a name")
        kept = self._branches.pop(name, None)
        if kept is None:
            calls = [call for call in self.fs.state.calls if not call.summary]
            rules = self._settings.entry_rules(self.counting, self.fs.base)
            view = HistoryView(self._settings, rules, self.fs.state, self._sources, self._decisions)
            view.sent_at = calls[-1].made_at if calls else None
            kept = Branch(view, CompactionController(self._settings.guard))
            # Bills do not say of which branch they are: they count as the main one's, and as those of the first one in
            # use, since a framework that names each of its agents has no other main one.
            if not name or not self._branches:
                for call in calls:
                    kept.controller.observe(call.usage, call.model, call.counted_tokens)
                view.bills += calls
            while len(self._branches) >= self._settings.kept_branches:
                del self._branches[next(iter(self._branches))]
        kept.view.state = self.fs.state  # another object once the session was opened again
        self._branches[name] = kept
        return kept

    def _decide_due(self, kept: Branch, tools: Collection[str]) -> None:
        """Make durable what is due: previews of new results, then evictions by price; ``tools``: see ``rewrite``."""
        view = kept.view
        for _ in range(_TRIES):
            if self._decide(kept, self._previews(view, tools)) and self._decide(kept, view.transcript.plan()):
                return

    def _decide(self, kept: Branch, plan: Plan) -> bool:
        """Make the evictions of ``plan`` durable, all of them in one write.

        False: another process had decided something first. That is taken in, and the rest has to be planned again.

        If the write fails, each eviction is tried alone, since one that cannot be stored must not hold back the others.
        In a session that another process keeps locked, each would fail, too.
        """
        if not plan.offloads:
            return True
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("session %s: planned: %s", self.fs.session_id, plan.explain())
        decision = kept.view.decision(plan)
        try:
            is_written = self._write(decision)
        except (StorageError, SessionLocked) as error:
            kept.failed = True
            if len(plan.offloads) == 1 or isinstance(error, SessionLocked):
                self._tell_failed(decision, error)
                return True
            return all(self._decide(kept, Plan(offloads=(step,))) for step in plan.offloads)
        kept.view.follow()
        if is_written:
            self._tell_decided(decision)
            warning = kept.view.transcript.keep_recent_warning()
            if warning is not None:
                self._warnings.once(warning, about="keep_recent")
        return is_written

    def _tell_failed(self, decision: Decision, error: StorageError | SessionLocked) -> None:
        _log.warning("session %s: %s", self.fs.session_id, error)
        failure = error if isinstance(error, StorageError) else WriteFailed(self.fs.session_id, str(error))
        for one in decision.decided:
            self._tell(OffloadFailed(item_id=one.item_id, error=failure))

    def _write(self, decision: Decision) -> bool:
        if self._unread is not None:
            raise self._unread
        records: list[Record] = []
        if self._rules != self.fs.state.eviction:
            records.append(self._rules)
        bills = list(self._bills)
        records += bills
        notes = self._notes()
        if notes is not None:
            records.append(notes)
        records += decision.decided
        done = self._files.write(decision.contents, records)
        self._take_in()
        if done:
            del self._bills[: len(bills)]
            if notes is not None:
                self.counting.new.clear()
                self._new_sources.clear()
        return done

    def _write_bills(self) -> None:
        try:
            self._write(_NOTHING)
        except (StorageError, SessionLocked, OtherOwner) as error:  # the bills wait for the next time, or for close
            _log.warning("session %s: %s", self.fs.session_id, error)

    def _notes(self) -> PartsNoted | None:
        # Another counter may count otherwise, so its numbers are not noted for other processes.
        tokens = dict(self.counting.new) if self._settings.counter is None else {}
        if not tokens and not self._new_sources:
            return None
        sources = {sha256: list(source) for sha256, source in self._new_sources.items()}
        return PartsNoted(tokens=tokens, sources=sources)

    def _reduced(self, kept: Branch, reduction: Reduction | None) -> ContextOverflow | None:
        """Replace more, as ``reduction`` says; return an error if the history cannot be made to fit its window."""
        tries = _TRIES
        while reduction is not None:
            step = reduction.next_step(kept.seen())
            match step:
                case Plan():
                    if not self._decide(kept, step) and tries:
                        tries -= 1
                        reduction.again()
                case Done():
                    kept.controller.settled(step)
                    return step.error
        return None

    def _tell_decided(self, decision: Decision) -> None:
        stored = {item.id: item for item in decision.contents}
        for one in decision.decided:
            content = self.fs.state.stored[one.item_id]
            path = path_of(self.fs.base, content.name)
            if one.item_id in stored:
                tokens = stored[one.item_id].content_tokens
                self._tell(Offloaded(item_id=one.item_id, path=path, tokens=tokens, size_bytes=content.size_bytes))
            self._tell(
                Evicted(
                    item_id=one.item_id,
                    tool_name=one.tool or None,
                    path=path,
                    tokens_before=one.tokens_before,
                    tokens_after=one.tokens,
                    reason=one.reason,
                )
            )

    def _tell(self, event: ContextEvent) -> None:
        if not isinstance(event, OffloadFailed) and _log.isEnabledFor(logging.INFO):  # a failure was logged already
            _log.info("session %s: %s", self.fs.session_id, story(event))
        if self._settings.on_event is not None:
            self._settings.on_event(event)


def _is_sync(work: object) -> bool:
    """Whether ``work`` is a function that is not async, and must not run; of a lambda only its result shows that."""
    if not isfunction(work) and not ismethod(work):
        return False
    return work.__name__ != "<lambda>" and not iscoroutinefunction(unwrap(work))
