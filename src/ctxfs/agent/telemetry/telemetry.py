"""Spans, events and metrics of OpenTelemetry. The only module that imports its API, and that when it is first used."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ctxfs.agent.telemetry import names
from ctxfs.errors import MissingExtra
from ctxfs.errors.checks import names_settings, require_bool, require_text
from ctxfs.eviction.events import (
    Compacted,
    ContentReadBack,
    ContentRestored,
    ContextEvent,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
)
from ctxfs.messages.base import ChatModel, ModelEvent, ModelRequest, Reply, Retrying, Usage, UsageLike
from ctxfs.messages.messages import AssistantMessage, Block, Message, SystemMessage, ToolCall, ToolMessage
from ctxfs.messages.models.known import known_model
from ctxfs.messages.rates import bill_usd
from ctxfs.messages.wire_names import short
from ctxfs.storage.failures import TROUBLES, Trouble
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import ToolResult
from ctxfs.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span, Tracer


Attributes = Mapping[str, str | bool | int | float | list[str]]


def described(event: ContextEvent) -> tuple[str, Attributes]:
    """The name of an event, and its figures; of contents it says where they are, and nothing of them."""
    name, fields = _NAMES[type(event)]
    found = {attribute: getattr(event, field) for field, attribute in fields.items()}
    if found.get(names.TOOL_NAME):
        found[names.TOOL_NAME] = short(found[names.TOOL_NAME])
    if isinstance(event, OffloadFailed | RecordFailed):
        found[names.ERROR_TYPE] = type(event.error).__name__
    said = {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
    return name, {key: value for key, value in said.items() if value is not None}


_SIZES = {"tokens_before": names.TOKENS_BEFORE, "tokens_after": names.TOKENS_AFTER}
_ITEM = {"item_id": names.ITEM}

_NAMES: Mapping[type, tuple[str, Mapping[str, str]]] = {
    Offloaded: (
        names.OFFLOAD,
        {**_ITEM, "path": names.CONTENT_REF, "tokens": names.TOKENS, "size_bytes": names.SIZE},
    ),
    Evicted: (
        names.EVICT,
        {**_ITEM, **_SIZES, "tool_name": names.TOOL_NAME, "path": names.CONTENT_REF, "reason": names.REASON},
    ),
    Compacted: (names.COMPACT, {**_SIZES, "steps": names.STEPS}),
    ContentRestored: (names.RESTORE, {**_ITEM, "tokens": names.TOKENS, "reason": names.REASON}),
    ContentReadBack: (
        names.READ_BACK,
        {**_ITEM, "tokens": names.TOKENS, "first_line": names.FIRST_LINE, "last_line": names.LAST_LINE},
    ),
    OffloadFailed: (names.OFFLOAD_FAILED, _ITEM),
    RecordFailed: (names.RECORD_FAILED, {}),
    SummaryFailed: (names.SUMMARY_FAILED, {"reason": names.REASON}),
}
"""Of each event the name, and under which names its fields are sent."""


def request_text(messages: Iterable[Message]) -> str:
    """The messages of a request, as the conventions write them, in JSON."""
    return json_codec.dumps_text([{"role": _role(message), "parts": _parts(message)} for message in messages])


def reply_text(reply: Reply) -> str:
    """A reply, in the same form."""
    said = {"role": "assistant", "parts": _parts(reply.message), "finish_reason": reply.stop_reason}
    return json_codec.dumps_text([said])


def _role(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "tool"
    if isinstance(message, SystemMessage):
        return "system"
    return "assistant" if isinstance(message, AssistantMessage) else "user"


def _parts(message: Message) -> list[dict[str, Any]]:
    content: Any = message.content
    if isinstance(message, ToolMessage):
        response = content if isinstance(content, str) else list(content)
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    blocks = ({"type": "text", "text": content},) if isinstance(content, str) else content
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "text", "content": block["text"]}
        case "tool_use":
            return {"type": "tool_call", "id": block["id"], "name": block["name"], "arguments": block["input"]}
        case other:
            return {"type": other}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instruments:
    """The API's module ``trace``, and what is made of its providers once."""

    trace: ModuleType
    content: bool
    tracer: "Tracer"
    tokens: "Histogram"
    seconds: "Histogram"
    context: "Histogram"
    cached: "Histogram"
    cost: "Counter"
    stored: "Counter"
    freed: "Counter"


_watched: list[object] = []  # the meter providers that have the metrics of stores: an application has one or two

_STORE_METRICS: Mapping[Trouble, tuple[str, str]] = {
    "retry": (names.STORE_RETRIES, "Requests to a store that were made again, since it did not answer"),
    "unknown outcome": (names.STORE_UNKNOWN, "Changes of which a store did not say whether they were stored"),
    "lost session": (names.STORE_LOST, "Sessions that another writer took over"),
}


def _watch_stores(metrics: ModuleType, meter: Any, provider: object) -> None:
    """Let a provider read the troubles of this process, once: they are not those of one agent."""
    if any(one is provider for one in _watched):
        return
    _watched.append(provider)

    def reader(trouble: Trouble) -> Callable[[Any], list[Any]]:
        return lambda _: [metrics.Observation(TROUBLES.count(trouble))]

    for trouble, (name, description) in _STORE_METRICS.items():
        meter.create_observable_counter(name, [reader(trouble)], "{occurrence}", description)


@names_settings()
class Telemetry:
    """Spans, events and metrics: ``AgentConfig(telemetry=Telemetry())``, or ``session`` in a loop of your own.

    It uses the API alone: without an SDK nothing is sent. Contents are not sent, only where they are stored and how
    large they are.

    Args:
        tracer_provider: a ``TracerProvider`` of OpenTelemetry, where spans go; None means the global one.
        meter_provider: a ``MeterProvider``, where metrics go; None means the global one.
        content: whether spans hold messages, arguments and results too. They may be large, and private.

    Raises:
        MissingExtra: the package ``opentelemetry-api`` is not installed.
        ConfigError: ``content`` is not True or False.

    """

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        content: bool = False,
    ) -> None:
        require_bool("content", content)
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise MissingExtra("otel", "opentelemetry-api") from error
        meter = metrics.get_meter("ctxfs", __version__, meter_provider)
        _watch_stores(metrics, meter, meter_provider)
        self._instruments = _Instruments(
            trace=trace,
            content=content,
            tracer=trace.get_tracer("ctxfs", __version__, tracer_provider),
            tokens=meter.create_histogram(names.TOKEN_USAGE, "{token}", "Tokens of a call"),
            seconds=meter.create_histogram(names.OPERATION_DURATION, "s", "How long a call took"),
            context=meter.create_histogram(names.CONTEXT_TOKENS, "{token}", "Tokens of a call's prompt"),
            cached=meter.create_histogram(names.CACHE_RATE, "1", "Share of a prompt that the cache held"),
            cost=meter.create_counter(names.COST, "{USD}", "What calls cost, at list prices"),
            stored=meter.create_counter(names.STORED_SIZE, "By", "What was stored of contents"),
            freed=meter.create_counter(names.FREED_TOKENS, "{token}", "What evictions took out of contexts"),
        )

    def session(self, session_id: str = "", *, path: str = "") -> "SessionTelemetry":
        """The part for one session. ``path``: its directory; "" leaves it out."""
        require_text("session_id", session_id)
        require_text("path", path)
        return SessionTelemetry(self._instruments, session_id, path)


class SessionTelemetry:
    """The spans, events and metrics of one session; made by ``Telemetry.session``.

    Pass ``observe`` as ``on_event`` to a ``Context`` or ``History``; call the model through ``model``, or report with
    ``replied`` what was billed; run tools through ``tool_call``.
    """

    def __init__(self, instruments: Any, session_id: str, path: str) -> None:
        self._of: _Instruments = instruments
        self._always = {names.CONVERSATION: session_id} if session_id else {}
        self._always |= {names.SESSION_PATH: path} if path else {}
        self._compacted = False

    def observe(self, event: ContextEvent) -> None:
        """Record an event: in the current span, or as a span of its own if there is none."""
        name, attributes = described(event)
        span = self._of.trace.get_current_span()
        attributes = {**self._always, **attributes}
        if span.is_recording():
            span.add_event(name, attributes)
        else:
            self._of.tracer.start_span(name, attributes=attributes).end()
        if isinstance(event, Evicted | Compacted):
            self._compacted = True
        if isinstance(event, Evicted):
            self._of.freed.add(max(0, event.tokens_before - event.tokens_after))
        if isinstance(event, Offloaded):
            self._of.stored.add(event.size_bytes)

    @contextmanager
    def run(self, name: str = "") -> Iterator[Any]:
        """Enter a span around a whole run, such as a query; spans and events inside belong to it."""
        title = f"{names.INVOKE_AGENT} {name}".rstrip()
        attributes = {names.OPERATION: names.INVOKE_AGENT, **({names.AGENT_NAME: name} if name else {})}
        with self._span(title, {**self._always, **attributes}) as span:
            yield span

    @contextmanager
    def _span(self, title: str, attributes: Mapping[str, Any]) -> Iterator["Span"]:
        """Enter a span. The text of an error is sent only if contents are: a tool or a callback may quote one in it."""
        with self._of.tracer.start_as_current_span(
            title, attributes=attributes, record_exception=self._of.content, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                self._failed(span, type(error).__name__)
                raise

    def replied(self, usage: UsageLike, model: str) -> None:
        """Add a call's bill to the metrics; ``model`` does so itself.

        Raises ``InvalidReply`` when ``usage`` is not a usage.
        """
        self._billed(Usage.of(usage), model)

    def _billed(self, used: Usage, model: str) -> float | None:
        """Take a bill into the metrics; what it cost, None where the prices are not known."""
        of = self._of
        known = known_model(model)
        about = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model}
        prompt = used.total_input_tokens
        of.tokens.record(prompt, {**about, names.TOKEN_TYPE: "input"})
        of.tokens.record(used.output_tokens, {**about, names.TOKEN_TYPE: "output"})
        of.context.record(prompt, about)
        if prompt:
            of.cached.record(used.cache_read_input_tokens / prompt, about)
        if known is None or known.prices is None:
            return None
        usd = bill_usd(used, known.prices)
        of.cost.add(usd, about)
        return usd

    def model(self, model: ChatModel) -> ChatModel:
        """Return ``model`` with a span for each call."""
        return _TracedModel(self, model)

    async def tool_call(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run a tool in a span: ``run`` returns its result."""
        name = short(call.name)
        attributes = {
            **self._always,
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: short(call.id),
        }
        if self._of.content:
            attributes[names.TOOL_ARGUMENTS] = json_codec.dumps_text(dict(call.arguments))
        with self._span(f"{names.EXECUTE_TOOL} {name}", attributes) as span:
            result = await run()
            if self._of.content:
                span.set_attribute(names.TOOL_RESULT, result.text)
            if result.is_error:
                self._failed(span, "tool_error")
            return result

    def _failed(self, span: "Span", kind: str) -> None:
        span.set_attribute(names.ERROR_TYPE, kind)
        span.set_status(self._of.trace.StatusCode.ERROR)

    async def call(self, model: ChatModel, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send ``request``, in a span that is not current: the caller's code runs between the events."""
        of = self._of
        known = known_model(model.model)
        attributes: dict[str, Any] = {
            **self._always,
            names.OPERATION: names.CHAT,
            names.REQUEST_MODEL: model.model,
            names.PROVIDER: known.provider if known is not None else "unknown",
            names.COMPACTED: self._compacted,
        }
        if of.content:
            attributes[names.INPUT_MESSAGES] = request_text(request.messages)
        span = of.tracer.start_span(f"{names.CHAT} {model.model}", kind=of.trace.SpanKind.CLIENT, attributes=attributes)
        start = time.perf_counter()
        error_type = {}
        try:
            async with aclosing(model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Retrying):
                        span.add_event(names.RETRY)
                    if isinstance(event, Reply):
                        self._told(span, event, model.model)
                    yield event
        except Exception as error:
            error_type = {names.ERROR_TYPE: type(error).__name__}
            self._failed(span, type(error).__name__)
            raise
        finally:
            about = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model.model, **error_type}
            of.seconds.record(time.perf_counter() - start, about)
            span.end()

    def _told(self, span: "Span", reply: Reply, model: str) -> None:
        used = reply.usage
        span.set_attribute(names.RESPONSE_MODEL, reply.model or model)
        span.set_attribute(names.FINISH_REASONS, [reply.stop_reason])
        span.set_attribute(names.INPUT_TOKENS, used.total_input_tokens)
        span.set_attribute(names.OUTPUT_TOKENS, used.output_tokens)
        span.set_attribute(names.CACHE_READ_TOKENS, used.cache_read_input_tokens)
        for name in (names.CACHE_WRITE_TOKENS, names.CACHE_CREATION_TOKENS):
            span.set_attribute(name, used.cache_creation_input_tokens)
        usd = self._billed(used, model)
        if usd is not None:
            span.set_attribute(names.COST, usd)
        if self._of.content:
            span.set_attribute(names.OUTPUT_MESSAGES, reply_text(reply))


class _TracedModel:
    """A model whose calls have a span each; in all else it is the model."""

    def __init__(self, telemetry: SessionTelemetry, model: ChatModel) -> None:
        self._telemetry = telemetry
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def model(self) -> str:
        return self._model.model

    def check(self) -> None:
        self._model.check()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return self._telemetry.call(self._model, request)

    async def close(self) -> None:
        await self._model.close()
