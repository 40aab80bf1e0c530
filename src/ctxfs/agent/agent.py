"""The agent loop: call the model, run the tools that it asks for, evict what is due, and repeat.

Follows "Context FileSystem 上下文卸载功能".
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.agent.own_tools import check_number, check_readable, check_status, tools_of, warn_of_roots
from ctxfs.agent.runner import ToolRunner
from ctxfs.agent.telemetry.telemetry import SessionTelemetry
from ctxfs.context.context import Context
from ctxfs.context.repair import MAY_HAVE_RUN
from ctxfs.context.settings import preview_rule
from ctxfs.errors import (
    AgentBusy,
    ConfigError,
    PromptTooLong,
    ReplyIncomplete,
    SessionClosed,
    TranscriptError,
    TurnLimitReached,
)
from ctxfs.errors.checks import async_with_only, names_settings, require_kind
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.placeholder.text import READ_TOOL, reading_tools
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import Preview
from ctxfs.eviction.window import WindowGuard
from ctxfs.messages.base import CUT, ChatModel, ModelRequest, Reply, Retrying
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import uninterrupted
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import RunningCall, ToolResult
from ctxfs.tools.materialization import Materialize, Materializer

if TYPE_CHECKING:
    from ctxfs.tools.recall.archive import PastSession

_INTERRUPTED = ToolResult(f"This call was interrupted before it had a result. {MAY_HAVE_RUN}", is_error=True)
_CUT = "Your reply was cut by its token limit, so this call was not run. Make smaller calls, one at a time."
_MAX_REFUSALS = 8
"""How often one prompt is made smaller because the provider refused it as too long."""
_STATUS = "[The state of your context, for your information; nobody wrote this.]"
_STATUS_MORE_TOKENS = 80
"""How many tokens a status may exceed its limit by, for its heading, its first line, and the mark where it was cut."""

_Answered = tuple[str, Sequence[ToolCall]]
"""The id of a reply, and its calls."""

_SETTINGS = {each.name: f"write Agent(llm, AgentConfig({each.name}=...))" for each in fields(AgentConfig)}


@async_with_only
@names_settings({**_SETTINGS, "model": "it is llm here, such as ChatAnthropic()"})
class Agent:
    """A model, its tools, and one session of context.

    The session opens with the first query (or ``async with``). The question is durable before it is sent, a call
    before its tool may change something, and the answer before it is returned: an agent that is never closed loses
    nothing. One query runs at a time.

    Raises:
        ConfigError: the configuration cannot work, or one of the two is something else.
        MissingApiKey: the model has no key; raised before any work, here and by each query.

    """

    def __init__(self, llm: ChatModel, config: AgentConfig | None = None) -> None:
        require_kind("config", config, AgentConfig, "AgentConfig(...)")
        if isinstance(llm, type) or not callable(getattr(llm, "stream", None)):
            raise ConfigError(f"llm is of type {type(llm).__name__}: use a model, such as ChatAnthropic()")
        config = config or AgentConfig()
        llm.check()
        self._config = config
        self._schema_tokens = 0
        self._events: list[AgentEvent] = []
        # By the ids of calls, and of which reply: those ids may come again.
        self._results: tuple[_Answered | None, dict[str, ToolResult]] = (None, {})
        self._answering = LoopLock()
        self._busy = False
        self._opened = False
        fs = ContextFileSystem(config.session_id, root_path=config.offload_root_path, layout=config.file_layout)
        otel = config.telemetry
        telemetry = None if otel is None else otel.session(fs.session_id, path=fs.base)
        self._llm = llm if telemetry is None else telemetry.model(llm)
        tools = tools_of(fs, config)
        self._runner = ToolRunner(tools, approve=config.approve, redact=config.redact, telemetry=telemetry)
        self._past: PastSession | None = None
        self._schemas = tuple(tool.schema for tool in tools.values())
        check_number(self._schemas, llm, yours=len(config.tools))
        window = config.window_with(self._summarize)
        budget = WindowGuard.of(window, llm.model, config.policy).budget
        check_status(config.status_tokens, budget)
        self._context = Context(
            fs,
            keep_recent=config.keep_recent(),
            offload_enabled=config.offload_enabled,
            offload_policy=None if config.policy == OffloadPolicy() else config.policy,
            model=llm.model,
            on_event=self._receiver_of(telemetry),
            pricing=config.pricing,
            window=window,
            eager=_eager(config, tools, budget),
            preview_above_tokens=None,
            pin_user_messages=config.pin_user_messages,
            one_commit_a_turn=config.one_commit_a_turn,
        )

    def _receiver_of(self, telemetry: SessionTelemetry | None) -> Callable[[ContextEvent], None]:
        """What receives the context's events: the agent's own stream, and ``telemetry``."""
        if telemetry is None:
            return self._events.append

        def emit(event: ContextEvent) -> None:
            self._events.append(event)
            telemetry.observe(event)

        return emit

    @property
    def context(self) -> Context:
        """The session's context; ``agent.context.items`` is what it holds."""
        return self._context

    @property
    def config(self) -> AgentConfig:
        """The settings the agent was made with."""
        return self._config

    @property
    def session_id(self) -> str:
        """The session's id; ``AgentConfig(session_id=…)`` resumes the session."""
        return self._context.session_id

    async def open(self) -> None:
        """Open or resume the session; calls that a crash left unanswered get an error result that says so.

        Raises:
            SessionLocked: another writer has the session.
            StorageError: the session's directory cannot be used.

        """
        if self._opened:
            return
        await warn_of_roots(self._config.read_roots)
        self._context.tools = [
            {"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in self._schemas
        ]
        await self._context.open()
        try:
            await self._begin()
        except BaseException:
            await self._context.close()
            raise
        self._opened = True

    async def _begin(self) -> None:
        """Prepare the context that was just opened for the first query."""
        schemas: list[str] = []
        for schema in self._schemas:
            parameters = json_codec.dumps(schema.input_schema).decode()
            schemas.append(f"{schema.name} {schema.description} {parameters}")
        self._schema_tokens = self._context.counter.count("".join(schemas))
        if self._config.reads_itself:
            check_readable(self._context.items, self.session_id)
        await self._add_results()
        if self._config.system_prompt is not None:
            await self._context.set_system_prompt(self._config.system_prompt)

    async def close(self) -> None:
        """Release the session and the model's connections; idempotent."""
        try:
            await self._close(anyio.get_current_task().id)
        except (KeyboardInterrupt, SystemExit):  # it may have hit before the session was released
            await self._context.close()
            raise

    @uninterrupted
    async def _close(self, task_id: int) -> None:
        """Close for the task with this id; this one may be another."""
        opened = self._opened
        self._opened = False
        try:
            if opened and self._busy:  # who opens the session next must know which calls have ended
                await self._runner.wait_for_redact(task_id)
                with suppress(SessionClosed):
                    await self._add_results(otherwise=None)
            elif opened:
                await self._settle()  # an interrupt may have kept the last query from it
        finally:
            try:
                await self._context.close()
            finally:
                await self._llm.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def add_skill_prompt(self, name: str, text: str) -> ContextItem:
        """Add a skill's prompt to the context, as an item of its own type."""
        await self.open()
        return await self._context.add_skill_prompt(name, text)

    async def query(self, text: str) -> str:
        """Run until the model answers without calling tools; returns the answer.

        Raises:
            AgentBusy: another query is running.
            TurnLimitReached: there was no answer after ``max_turns`` model calls.
            ReplyIncomplete: the answer was truncated by its token limit.
            TranscriptError: ``text`` is blank or not a text; nothing was added.
            ModelError: the model could not be called.
            Unrecorded, OutcomeUnknown: the answer, or a call of a tool that changes something, could not be recorded:
                that tool has not run. The context keeps what it has, and writes it with the next query.

        """
        answer = ""
        async with aclosing(self.stream(text)) as events:
            async for event in events:
                if isinstance(event, Done):
                    answer = event.text
        return answer

    async def stream(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Run like ``query``, and yield what happens as typed events; the last one is ``Done``.

        Close the generator (``contextlib.aclosing``) if you stop early. Raises what ``query`` raises.
        """
        if self._busy:
            raise AgentBusy("a query is running on this agent: wait for it, or use a second agent")
        if not str(text).strip():  # anything but a text is refused by the context
            raise TranscriptError([f"the query is {text!r}: a provider refuses a blank message, so say what to do"])
        self._llm.check()
        self._busy = True
        try:
            await self.open()
            await self._add_results()  # storage may have failed when the last query ended
            await self._context.add(UserMessage(text), durable=False)  # the request's commit has it
            async with aclosing(self._run()) as events:
                async for event in events:
                    yield event
        finally:
            try:
                await self._settle()
            finally:
                self._busy = False

    @uninterrupted
    async def _settle(self) -> None:
        """Answer the calls that a query left open, and record all; after a close they wait until it is opened."""
        with suppress(SessionClosed):
            await self._add_results()
            if self._context.unrecorded:
                await self._context.record()

    async def _run(self) -> AsyncGenerator[AgentEvent, None]:
        """Ask the model, record its reply, run the tools that it calls; again until it calls none."""
        turns = 0
        while self._config.max_turns is None or turns < self._config.max_turns:
            if not self._opened:
                raise SessionClosed(f"session {self.session_id} was closed while the query ran")
            turns += 1
            reply: Reply | None = None
            async with aclosing(self._ask()) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Reply):
                        await self._record(delta)
                        reply = delta
                    else:
                        yield delta
            reply = _whole(reply)
            for event in self._drain():
                yield event
            yield self._usage(reply)
            calls = reply.message.tool_calls
            if reply.stop_reason in CUT:
                await self._cut(reply)
            else:
                for call in calls:
                    yield ToolStarted(call)
                for ended in await self._answer(calls):
                    yield ended
            if not calls and reply.stop_reason != "pause_turn":  # after which the provider goes on
                yield Done(text=reply.message.text, stop_reason=reply.stop_reason, turns=turns)
                return
        raise TurnLimitReached(turns)

    async def _ask(self) -> AsyncGenerator[AgentEvent | Reply, None]:
        """Send the context to the model; a prompt that is refused as too long is made smaller and sent again."""
        overhead = self._schema_tokens
        if self._config.status_tokens:
            overhead += self._config.status_tokens + _STATUS_MORE_TOKENS
        self._context.overhead_tokens = overhead
        messages = await self._context.messages()
        refusals = 0
        while True:
            for happened in self._drain():
                yield happened
            try:
                async with aclosing(self._llm.stream(await self._request(messages))) as events:
                    async for event in events:
                        yield event
            except PromptTooLong as error:
                refusals += 1
                if refusals > _MAX_REFUSALS:
                    raise
                messages = await self._context.refused(error)
            else:
                return

    async def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        status = ""
        if self._config.status_tokens:
            status = f"{_STATUS}\n{await self._status()}"
            tokens = self._context.counter.count(status)
            self._context.overhead_tokens = self._schema_tokens + tokens
            self._context.carries(status)
        breakpoints = self._context.breakpoints
        return ModelRequest(messages=messages, tools=self._schemas, breakpoints=breakpoints, status=status)

    async def _status(self) -> str:
        """What the context holds, within ``status_tokens``."""
        # Only this setting needs them, and they would be a tenth of an agent's import.
        from ctxfs.tools.recall.archive import PastSession  # noqa: PLC0415
        from ctxfs.tools.recall.status import context_status  # noqa: PLC0415

        if self._past is None:
            self._past = PastSession(self._context.fs)
        return await context_status(self._past, self._config.status_tokens)

    async def _summarize(self, prompt: str) -> Reply:
        """Ask the same model, without tools; its retries and its usage are reported like those of any other call."""
        reply: Reply | None = None
        try:
            async with aclosing(self._llm.stream(ModelRequest(messages=(UserMessage(prompt),)))) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        reply = event
                    elif isinstance(event, Retrying):
                        self._events.append(event)
        except BaseException:
            if reply is not None:
                await self._bill_summary(reply)
            raise
        reply = _whole(reply)
        self._events.append(self._usage(reply))
        return reply

    @uninterrupted
    async def _bill_summary(self, reply: Reply) -> None:
        """Record the usage of a summary that was cancelled before the context received it."""
        await self._context.fs.writer.record_call(reply.usage, reply.model, summary=True)

    @uninterrupted
    async def _record(self, reply: Reply) -> None:
        """Take a reply in as soon as it is there, whatever is cancelled: it is billed.

        It is durable before an answer is returned, and before a tool runs that changes something. Raises ``Unrecorded``
        or ``OutcomeUnknown`` otherwise.
        """
        await self._context.add(reply.message, usage=reply.usage, model=reply.model, durable=False)
        calls = self._context.open_calls
        runs_tools = reply.stop_reason not in CUT
        if not calls or (runs_tools and not self._config.one_commit_a_turn and self._runner.changes(calls)):
            await self._context.record()
            self._context.check_recorded()

    async def _answer(self, calls: Sequence[ToolCall]) -> list[ToolEnded]:
        """Run the tools that a reply calls, and record their results; returns what the next request shows of them."""
        if not calls:
            return []
        wholes = await self._run_tools(calls)
        await self._context.evict()  # as before the next call, so that the events show what it is going to send
        # Looked up by call: results are not in the calls' order if the agent was closed and opened meanwhile.
        messages = [item.message for item in self._context.items[-len(calls) :]]
        shown = {each.tool_call_id: each.content for each in messages if isinstance(each, ToolMessage)}
        return [
            ToolEnded(call, replace(whole, content=shown.get(call.id, whole.content)), whole)
            for call, whole in zip(calls, wholes, strict=True)
        ]

    async def _cut(self, reply: Reply) -> None:
        """Answer the calls of a reply that was cut. Raises ``ReplyIncomplete`` if it has none: it was the answer."""
        if not reply.message.tool_calls:
            raise ReplyIncomplete(
                f"the reply was truncated ({reply.stop_reason}): query again to continue, or raise its max_tokens",
                stop_reason=reply.stop_reason,
            )
        await self._context.answer_open_calls(_CUT)

    async def _run_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of one reply and record the results in call order.

        When it is cancelled, or a callback fails, the end of the query records what has finished, and answers the rest
        as interrupted.
        """
        fs = self._context.fs
        reply_id = self._context.items[-1].id
        results: dict[str, ToolResult] = {}
        self._results = ((reply_id, calls), results)
        at = RunningCall(call_id="", session_id=fs.session_id, reply_id=reply_id, epoch=fs.writer.epoch)
        await self._runner.run(calls, results, at=at)
        await self._add_results(durable=False)  # the eviction's commit has them
        return [results[call.id] for call in calls]

    @uninterrupted
    async def _add_results(self, *, otherwise: ToolResult | None = _INTERRUPTED, durable: bool = True) -> None:
        """Answer the open calls with what their tools have returned, the rest with ``otherwise``; None: they stay open.

        One at a time: closing does it beside a query, and a call is answered once.
        """
        async with self._answering:
            calls = self._context.open_calls
            if not calls:
                return
            of, results = self._results
            if of != self._last_reply():
                results = {}
            found = [(call, results.get(call.id, otherwise)) for call in calls]
            answered = [(call, result) for call, result in found if result is not None]
            if not answered:
                return
            await self._context.add(
                *(ToolMessage(call.id, call.name, r.content, is_error=r.is_error) for call, r in answered),
                sources={call.id: r.source for call, r in answered if r.source is not None},
                data=[call.id for call, r in answered if r.is_data],
                durable=durable,
            )

    def _last_reply(self) -> _Answered | None:
        for item in reversed(self._context.items):
            if isinstance(item.message, AssistantMessage):
                return item.id, item.message.tool_calls
        return None

    def _usage(self, reply: Reply) -> UsageReported:
        return UsageReported(usage=reply.usage, model=reply.model, context_tokens=self._context.token_count)

    def _drain(self) -> list[AgentEvent]:
        events = list(self._events)
        self._events.clear()
        return events


def _whole(reply: Reply | None) -> Reply:
    """The reply that a stream ended with. Raises ``ReplyIncomplete`` if it had none."""
    if reply is None:
        raise ReplyIncomplete("the model's stream ended without a reply: query again")
    return reply


def _eager(config: AgentConfig, tool_names: Iterable[str], budget: Budget | None) -> EagerPolicy | None:
    """What decides about new results: ``materialize``, or else ``preview_above_tokens``."""
    offload = config.materialize
    if offload is not None and not isinstance(offload, Materialize):
        return offload
    # A tool of the user's may have the name of a reading tool that no setting asks for; only ``Read`` opens files.
    yours = {tool.name for tool in config.tools} - {READ_TOOL}
    readers = reading_tools(name for name in tool_names if name not in yours)
    if offload is not None:
        return Materializer(settings=offload, tools=readers)
    rule = preview_rule(config.preview_above_tokens, budget)
    if rule is None or not config.policy.type_enabled[ItemType.TOOL_RESULT]:
        return None
    return Preview(rule=rule, tools=readers)
