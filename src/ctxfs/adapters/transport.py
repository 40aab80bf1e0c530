"""Any client on ``httpx`` or ``httpx2``: ``Client(transport=history_transport(history))``; no proxy is needed.

For each library that takes an HTTP client, such as the SDKs of Anthropic, OpenAI and Google and what is built on them.
"""

import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, closing
from functools import cache, partial
from types import TracebackType
from typing import Any, Self

from anyio import CancelScope, to_thread

from ctxfs.adapters.serve.bodies import TooLarge, UnreadableReply
from ctxfs.adapters.serve.calls import Endpoint, endpoint_at, thread_of
from ctxfs.adapters.serve.reading import ReadingTurns
from ctxfs.adapters.serve.rewriting import MOST_REFUSAL_BYTES, REFUSED, Rewriting, Sent
from ctxfs.adapters.serve.savings import Savings
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, Histories, history_of, require_history
from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_int

__all__ = ["history_transport"]

_LIBRARIES = ("httpx", "httpx2")


@names_settings(GIVEN_TO_HISTORY)
def history_transport(history: History | Histories, *, reading_turns: int = 0, inner: Any = None) -> Any:
    """Return a transport for a ``Client`` or an ``AsyncClient`` of ``httpx`` or ``httpx2``; see ``HistoryTransport``.

    It is typed as ``Any``, since the two libraries have types of their own for the same thing.
    """
    return HistoryTransport(history, reading_turns=reading_turns, inner=inner)


class HistoryTransport:
    """Rewrites each request for a model's reply on its way out, and reads the bill of each reply, streamed or not.

    It knows the Messages API, Chat Completions, the Responses API and Gemini's by the end of a request's path. Other
    requests, and replies, pass through unchanged. One transport may serve several clients, and several threads.

    Give the model ``history.tools`` among its tools, and answer their calls with ``history.run_tool``; or set
    ``reading_turns``. A request with tools, but without one that could open what was replaced, has nothing new
    replaced.

    Args:
        history: the session of one conversation; or ``Histories``, with a session for each conversation that a request
            names (its headers ``x-session-id`` or ``session_id``, ``prompt_cache_key``, ``metadata.user_id``).
        reading_turns: how many turns in which the model only reads back are answered inside of a request that has
            tools: the reading tools are added to it, and each turn is a call that is billed. The reply is given out
            when its last turn has ended, also if it is streamed. 0: the program offers the tools, and answers.
        inner: the transport that sends the requests, such as ``httpx2.HTTPTransport(verify=…)``; None makes the
            library's own, with its defaults, for each kind of client.

    Raises:
        ConfigError: ``history`` is neither of the two; ``reading_turns`` is negative, or not a number.

    """

    def __init__(self, history: History | Histories, *, reading_turns: int = 0, inner: Any = None) -> None:
        require_history(history, many=True)
        require_int("reading_turns", reading_turns, at_least=0)
        self.history = history
        self._inner = inner
        self._made: dict[str, Any] = {}
        self._rewriting = Rewriting(self._history_of, reading=ReadingTurns(reading_turns) if reading_turns else None)

    @property
    def savings(self) -> Savings:
        """What was sent and saved so far."""
        return self._rewriting.savings

    def _history_of(self, _model: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> History:
        if isinstance(self.history, History):
            return self.history
        thread = thread_of(headers, body, otherwise="")
        if not thread:
            raise ConfigError(
                "the request names no conversation, so none of Histories can be chosen: set the header x-session-id, "
                "or give each conversation a client of its own with history_transport(histories.of(thread_id))"
            )
        return history_of(self.history, thread)

    # Synchronous clients ---------------------------------------------------------------------------------------------

    def handle_request(self, request: Any) -> Any:
        """Send a request of a ``Client``."""
        inner = self._transport(request, "HTTPTransport")
        to = _endpoint_of(request)
        if to is None:
            return inner.handle_request(request)
        raw = request.read()
        sent = self._rewritten(raw, to, request.headers)
        while True:
            response, sent = self._exchanged(inner, request, raw, sent)
            if sent is None or not response.is_success:
                return response
            encodings = response.headers.get("content-encoding")
            if not self._rewriting.reads(sent, encodings):
                response.stream = _stream_of(request, _Heard(response.stream, partial(self._rewriting.billed, sent)))
                return response
            with closing(response):
                reply = b"".join(response.stream)
            try:
                following = self._rewriting.read_on(sent, reply, encodings)
            except UnreadableReply as error:
                raise _library_of(request).DecodingError(str(error), request=request) from error
            if not isinstance(following, Sent):
                return _read_response(request, response, following)
            sent = following

    def _exchanged(self, inner: Any, request: Any, raw: bytes, sent: Sent | None) -> tuple[Any, Sent | None]:
        """Send a request, and once more if it is refused for a reason that can be mended; what was sent at last."""
        response = inner.handle_request(self._outgoing(request, raw, sent))
        if sent is None or response.status_code not in REFUSED:
            return response, sent
        beginning = _Beginning(response.stream)
        encodings = response.headers.get("content-encoding")
        if not self._rewriting.mends(sent, response.status_code, beginning.read(), encodings):
            response.stream = _stream_of(request, beginning)
            return response, sent
        response.close()
        sent = self._rewriting.again(sent)
        return inner.handle_request(self._outgoing(request, raw, sent)), sent

    # Asynchronous clients --------------------------------------------------------------------------------------------

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of an ``AsyncClient``."""
        # In a thread: making one reads certificates from files.
        inner = await to_thread.run_sync(self._transport, request, "AsyncHTTPTransport")
        to = _endpoint_of(request)
        if to is None:
            return await inner.handle_async_request(request)
        raw = await request.aread()
        sent = await to_thread.run_sync(self._rewritten, raw, to, request.headers)
        while True:
            response, sent = await self._aexchanged(inner, request, raw, sent)
            if sent is None or not response.is_success:
                return response
            encodings = response.headers.get("content-encoding")
            if not self._rewriting.reads(sent, encodings):
                response.stream = _stream_of(request, _Heard(response.stream, partial(self._rewriting.billed, sent)))
                return response
            async with aclosing(response):
                reply = b"".join([piece async for piece in response.stream])
            try:
                following = await to_thread.run_sync(self._rewriting.read_on, sent, reply, encodings)
            except UnreadableReply as error:
                raise _library_of(request).DecodingError(str(error), request=request) from error
            if not isinstance(following, Sent):
                return _read_response(request, response, following)
            sent = following

    async def _aexchanged(self, inner: Any, request: Any, raw: bytes, sent: Sent | None) -> tuple[Any, Sent | None]:
        """``_exchanged``, awaited."""
        response = await inner.handle_async_request(self._outgoing(request, raw, sent))
        if sent is None or response.status_code not in REFUSED:
            return response, sent
        beginning = _Beginning(response.stream)
        refusal = await beginning.aread()
        encodings = response.headers.get("content-encoding")
        mends = partial(self._rewriting.mends, sent, response.status_code, refusal, encodings)
        if not await to_thread.run_sync(mends):
            response.stream = _stream_of(request, beginning)
            return response, sent
        await response.aclose()
        sent = await to_thread.run_sync(self._rewriting.again, sent)
        return await inner.handle_async_request(self._outgoing(request, raw, sent)), sent

    # Both ------------------------------------------------------------------------------------------------------------

    def _rewritten(self, raw: bytes, to: Endpoint, headers: Mapping[str, str]) -> Sent | None:
        try:
            return self._rewriting.rewrite(raw, to, headers)
        except TooLarge as error:  # the provider refuses it in its own words
            self.savings.problem(str(error))
            return None

    def _outgoing(self, request: Any, raw: bytes, sent: Sent | None) -> Any:
        """The request to send; ``request`` itself, which was read, if it could not be rewritten."""
        if sent is None:
            return request
        headers = self._rewriting.headers_of(sent, raw, list(request.headers.multi_items()))
        return type(request)(
            request.method, request.url, headers=headers, content=sent.content, extensions=request.extensions
        )

    def _transport(self, request: Any, kind: str) -> Any:
        """The transport that sends ``request``: the given one, or one of its library's, made at its first use."""
        if self._inner is not None:
            return self._inner
        library = _library_of(request)
        name = f"{library.__name__}.{kind}"
        made = self._made.get(name)
        if made is None:  # if several threads make one at once, all use the first
            made = self._made.setdefault(name, getattr(library, kind)())
        return made

    def _own(self, kind: str) -> list[Any]:
        given = [] if self._inner is None else [self._inner]
        return given + [made for name, made in self._made.items() if name.endswith(f".{kind}")]

    def close(self) -> None:
        """Close the connections of synchronous clients; the history stays open, and the transport can be used again."""
        for transport in self._own("HTTPTransport"):
            transport.close()

    async def aclose(self) -> None:
        """Close the connections of asynchronous clients; the history stays open."""
        for transport in self._own("AsyncHTTPTransport"):
            await transport.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _endpoint_of(request: Any) -> Endpoint | None:
    if request.method != "POST":
        return None
    return endpoint_at(request.url.path, request.url.query.decode("ascii"))


def _read_response(request: Any, response: Any, reply: bytes) -> Any:
    """``response`` with ``reply`` as its whole content, which is not compressed."""
    dropped = ("content-length", "content-encoding", "transfer-encoding")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in dropped]
    extensions = {name: value for name, value in response.extensions.items() if name != "network_stream"}
    library = _library_of(request)
    return library.Response(response.status_code, headers=headers, content=reply, extensions=extensions)


def _library_of(request: Any) -> Any:
    """The library whose request this is: its responses and streams must be of its own types."""
    for base in type(request).__mro__:  # an SDK may have a subclass of its own
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return importlib.import_module(name)
    raise ConfigError(f"history_transport() sends requests of httpx and httpx2, not {type(request).__qualname__}")


class _Beginning:
    """A response's stream whose beginning was read, and is given out once more."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._read: list[bytes] = []
        self._rest: Any = None

    def read(self) -> bytes:
        """The beginning: all of it, or a little more than the longest refusal that is understood."""
        self._rest = iter(self._stream)
        size = 0
        for piece in self._rest:
            self._read.append(piece)
            size += len(piece)
            if size > MOST_REFUSAL_BYTES:
                break
        return b"".join(self._read)

    async def aread(self) -> bytes:
        """``read``, awaited."""
        self._rest = aiter(self._stream)
        size = 0
        async for piece in self._rest:
            self._read.append(piece)
            size += len(piece)
            if size > MOST_REFUSAL_BYTES:
                break
        return b"".join(self._read)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._read
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._read:
            yield piece
        async for piece in self._rest:
            yield piece

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Heard:
    """A reply's stream, which gives ``take`` the bill once the caller has closed it, however much of it he read."""

    def __init__(self, stream: Any, take: Callable[[Any], None]) -> None:
        self._stream = stream
        self._take = take
        self._heard = UsageReader()
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._heard.feed(piece)
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._heard.feed(piece)
            yield piece

    def close(self) -> None:
        self._stream.close()
        if not self._closed:
            self._closed = True
            self._take(self._heard.bill())

    async def aclose(self) -> None:
        with CancelScope(shield=True):  # also when the caller was cancelled
            await self._stream.aclose()
            if not self._closed:
                self._closed = True
                await to_thread.run_sync(self._take, self._heard.bill())


def _stream_of(request: Any, stream: _Beginning | _Heard) -> Any:
    """``stream`` as one of the library's own, which its clients check."""
    return _stream_class(_library_of(request).__name__)(stream)


@cache
def _stream_class(library: str) -> Any:
    module: Any = importlib.import_module(library)

    class Stream(module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc] # known when it runs
        def __init__(self, stream: _Beginning | _Heard) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._stream)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return aiter(self._stream)

        def close(self) -> None:
            self._stream.close()

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Stream
