"""A reply from the server-sent events in the response of an SDK."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Any, Protocol

import anyio

from ctxfs.agent.llm.retry import broken, classify
from ctxfs.messages.base import ModelEvent, Reply
from ctxfs.text.jsontext import codec as json_codec

END = b"[DONE]"
"""What Chat Completions sends last, and what is no JSON."""

UNWIND_S = 5.0
"""A bound for what takes no time: never wait for a server while closing."""


class StreamedResponse(Protocol):
    """What the SDKs give for a streamed response."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come."""

    async def close(self) -> None:
        """Close the connection; idempotent."""


class Builder(Protocol):
    """Puts a reply together from a provider's events.

    Both methods raise AttributeError, LookupError, TypeError or ValueError for anything that is not an event of that
    provider.
    """

    @property
    def finished(self) -> bool:
        """Whether the reply came to its end."""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Take the next event; the deltas to show."""

    def reply(self) -> Reply:
        """The reply so far."""


async def streamed_reply(
    opening: AbstractAsyncContextManager[StreamedResponse], builder: Builder
) -> AsyncGenerator[ModelEvent, None]:
    """One attempt: deltas, then the reply. What the SDK raises while opening is the caller's.

    The events are taken as they came: the SDKs' models would drop or reorder what they do not know.

    Raises:
        AttemptFailed: the provider sent an error or an unknown event, or the reply broke off.

    """
    import httpx2  # noqa: PLC0415 — comes with the SDKs

    try:
        async with opening as response, aclosing(event_data(response)) as events:
            async for data in events:
                with _readable(data):
                    deltas = _read(builder, data)
                for delta in deltas:
                    yield delta
    except httpx2.RequestError as error:
        raise broken(f"the reply broke off: {error}") from error
    if not builder.finished:
        raise broken("the reply broke off before its end")
    with _readable(b"all of it"):
        reply = builder.reply()
    yield reply


def _read(builder: Builder, data: bytes) -> list[ModelEvent]:
    """What the next event adds; an error in the middle of a stream is raised as the failure that it is."""
    if data == END:
        return []
    event = json_codec.loads(data)
    error = event.get("error")
    if error:
        raise classify(error)
    return list(builder.feed(event))


@contextmanager
def _readable(data: bytes) -> Iterator[None]:
    """Have what is wrong with ``data`` fail the attempt: the next one may bring what can be read."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise broken(f"the server sent something that is not a reply ({error!r}): {data[:200]!r}") from error


class EventReader:
    """Takes the bytes of a response as they come, and gives the data of each event.

    An event that is not finished at the end is dropped. Lines end in LF or CRLF only: other separators of Unicode may
    stand inside of JSON. A response that is one JSON object instead is one event: of a server that does not stream, or
    that sends an error under a status of 200.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._before: list[bytes] | None = []  # the lines before the first event; None once it came

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that end in ``chunk``."""
        found: list[bytes] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            bare = line.rstrip(b"\r")
            if bare.startswith(b"data:"):
                self._data.append(bare[5:].removeprefix(b" "))
                self._before = None
            elif not bare and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
            elif self._before is not None:
                self._before.append(bare)
        return found

    def rest(self) -> bytes | None:
        """At the end: the response, if it was one JSON object."""
        if self._before is None:
            return None
        body = b"\n".join([*self._before, self._rest]).strip()
        return body if body.startswith(b"{") else None


class UsageReader:
    """Takes the bytes of a response as they come, and keeps what they say of the bill: the usage, and the model."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._events = EventReader()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; what is not about the bill is ignored."""
        for data in self._events.feed(chunk):
            self._take(data)

    def bill(self) -> tuple[dict[str, Any], str | None] | None:
        """At the end: the usage and the model, once; None if the response said nothing of them, or was asked before.

        A response without events is one JSON object.
        """
        self._take(self._events.rest() or b"")
        usage = self._usage
        self._events = EventReader()
        self._usage = {}
        if not usage:
            return None
        return usage, self._model

    def _take(self, data: bytes) -> None:
        if b'"usage' not in data:
            return
        try:
            event = json_codec.loads(data)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        for said in (event, event.get("message"), event.get("response")):
            if not isinstance(said, Mapping):
                continue
            usage = said.get("usage") or said.get("usageMetadata")  # Gemini's
            self._usage |= {key: value for key, value in (usage or {}).items() if value is not None}
            self._model = said.get("model") or said.get("modelVersion") or self._model


async def event_data(response: StreamedResponse) -> AsyncGenerator[bytes, None]:
    """The data of each event in ``response``, as ``EventReader`` finds it."""
    chunks = response.iter_bytes()
    reader = EventReader()
    try:
        async for chunk in chunks:
            for data in reader.feed(chunk):
                yield data
        body = reader.rest()
        if body is not None:
            yield body
    except GeneratorExit:
        await _unwind(response, chunks)
        raise


async def _unwind(response: StreamedResponse, chunks: AsyncIterator[bytes]) -> None:
    """Close ``response`` and run its half-read generators to their end, which else only the garbage collector would.

    They stand inside each other in the SDK and its HTTP client, out of reach of ``aclose``; on a closed connection the
    innermost one fails, and all of them with it.
    """
    import httpx2  # noqa: PLC0415 — comes with the SDKs

    with anyio.move_on_after(UNWIND_S, shield=True):
        await response.close()
        try:
            async for _ in chunks:
                continue
        except (httpx2.HTTPError, httpx2.StreamError, anyio.ClosedResourceError):
            return
