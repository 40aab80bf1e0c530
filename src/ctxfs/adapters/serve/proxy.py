"""A proxy on this machine between a program and the APIs of models: requests are rewritten on their way out.

The only module that imports the packages ``starlette`` and ``uvicorn``. Keys are forwarded, and never kept or logged.
Replies, and requests that do not ask for a reply of a model, pass through unchanged. A ``Meter`` or a ``Shadow`` sees
the requests for replies too: for budgets, measurements and comparisons.
"""

import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import httpx2
import uvicorn
from anyio import CancelScope, to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ctxfs.adapters.serve.bodies import TooLarge, UnreadableReply, beginning_of, whole_body
from ctxfs.adapters.serve.calls import (
    PROVIDERS,
    Endpoint,
    endpoint_at,
    normal_path,
    path_for,
    thread_of,
    unstreamed_url,
)
from ctxfs.adapters.serve.reading import ReadingTurns
from ctxfs.adapters.serve.rewriting import MOST_BODY_BYTES, MOST_REFUSAL_BYTES, REFUSED, Rewriting, Sent
from ctxfs.adapters.serve.savings import Savings
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.context.history.files import run_alone
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import Histories
from ctxfs.context.history.views import Api
from ctxfs.context.history.wire import tools_in
from ctxfs.errors import BudgetSpent, CtxfsError
from ctxfs.errors.checks import names_settings
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.pool import Work
from ctxfs.storage.sessions import SessionStores, is_there
from ctxfs.storage.threads import begin
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, stores_at
from ctxfs.text.jsontext import codec as json_codec

FREE = ("/count_tokens", "/input_tokens", ":countTokens")
"""How the paths of requests end that cost nothing, although they are posted."""


class MeteredCall(Protocol):
    """One request that is sent."""

    @property
    def content(self) -> bytes:
        """The bytes to send."""

    def ended(self, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool) -> None:
        """Take the end of the call; a second end says nothing.

        Args:
            status: of the answer; 0: there was none.
            bill: the usage and the model that the reply names; None: it names none.
            is_whole: the reply came to its end.

        """


class Meter(Protocol):
    """Sees every request for a reply as it is about to be sent; any thread may call it."""

    def began(self, api: Api, body: Mapping[str, Any] | None, content: bytes, *, place: str, model: str) -> MeteredCall:
        """Take a request that is about to be sent.

        Args:
            api: the API that it is for.
            body: what ``content`` is, decoded; None: it could not be read.
            content: its bytes, perhaps compressed.
            place: the conversation and its branch.
            model: the model that the path of the request names; "": the body names it.

        Raises:
            BudgetSpent: it must not be sent.

        """


class Shadow(Protocol):
    """Sees every request for a reply that was rewritten, as it is about to be sent; any thread may call it.

    See ``ctxfs.lab.shadow.Sampler``: it neither raises nor waits.
    """

    def take(
        self,
        api: Api,
        given: Mapping[str, Any],
        rewritten: Mapping[str, Any],
        note: Callable[[Any], None],
        *,
        send: Callable[[dict[str, Any]], Any],
        model: str,
    ) -> None:
        """Take a request as it came and as it is sent; ``send`` sends another body to the same place."""


_log = logging.getLogger("ctxfs.adapters")

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_NOT_FORWARDED = frozenset(
    {"host", "content-length", "connection", "keep-alive", "te", "trailer", "upgrade"}
    | {"transfer-encoding", "proxy-authorization", "proxy-authenticate", "proxy-connection"}
)
"""Hop-by-hop headers, which are not forwarded."""

_TIMEOUT = httpx2.Timeout(None, connect=30.0)
"""No read time-out: a model may think for a long time, and the client has a time-out of its own."""

_SHADOW_TIMEOUT_S = 120.0
"""The program may have ended: nothing waits for a reply much longer than most take."""

_ELSEWHERE: Mapping[str, Any] = {"read_tool": "context_read"}
"""Settings for sessions that are not in a directory: the program's tools cannot open their files."""


class _Forwarded(StreamingResponse):
    """The provider's answer, as it came."""

    @classmethod
    def of(cls, answer: httpx2.Response, content: AsyncIterator[bytes]) -> Self:
        """The answer with its own headers."""
        forwarded = cls(content, answer.status_code)
        forwarded.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if (known := name.lower().decode("latin-1")) == "content-length" or known not in _NOT_FORWARDED
        ]
        return forwarded

    @classmethod
    def read(cls, answer: httpx2.Response, reply: bytes) -> Response:
        """The answer with ``reply`` as its whole content, which is not compressed."""
        forwarded = Response(reply, answer.status_code)
        replaced = (*_NOT_FORWARDED, "content-encoding")
        kept = [(name.lower(), value) for name, value in answer.headers.raw]
        forwarded.raw_headers += [(name, value) for name, value in kept if name.decode("latin-1") not in replaced]
        return forwarded


@names_settings({"store": STORE_IS_ROOT_PATH})
@dataclass(slots=True)
class Proxy:
    """A proxy that serves on 127.0.0.1, at a port and a path that nobody can guess, while its context is entered.

    Args:
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        settings: the settings of every ``History``, except for the model, which each request names. If sessions are not
            in a directory, ``read_tool`` is "context_read" unless given.
        upstreams: the base URL that each provider's requests go to; by default, the provider's own.
        session_id: the session of requests that name no conversation; None creates a new one.
        requests: how many requests came so far.
        one_session: all requests belong to ``session_id``, whatever conversation they name.
        each_tool_keeps: how many results of each tool stay, as ``keep_recent`` for the tools that requests name; None:
            only what ``settings`` say.
        reading_turns: how many turns in which the model only reads back are answered inside of a request that has
            tools; 0: the program answers all calls.
        meter: sees each request for a reply before it is sent, and may refuse it; other requests that may cost
            something are refused then. None: nothing is refused.
        shadow: is shown each rewritten request for a reply, and may send it and its original beside the real one.
            None: nothing is sent.

    Raises:
        ConfigError: a setting that cannot work.
        MissingExtra: a package that the store needs is not installed.

    """

    root_path: str | Path | SessionStores | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    upstreams: Mapping[str, str] = field(default_factory=dict)
    session_id: str | None = None
    one_session: bool = False
    each_tool_keeps: int | None = None
    reading_turns: int = 0
    meter: Meter | None = None
    shadow: Shadow | None = None
    requests: int = 0
    savings: Savings = field(default_factory=Savings)
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    _stores: SessionStores = field(init=False)
    _pools: dict[tuple[str, ...], Histories] = field(default_factory=dict)
    _client: httpx2.AsyncClient = field(init=False)
    _server: uvicorn.Server = field(init=False)
    _serving: Work[None] = field(init=False)
    _port: int = 0
    _rewriting: Rewriting = field(init=False)

    def __post_init__(self) -> None:
        self._stores = stores_at(self.root_path)
        if self._stores.directory is None:
            self.settings = {**_ELSEWHERE, **self.settings}
        self.session_id = History(self.session_id, root_path=self._stores, **self.settings).session_id
        reading = ReadingTurns(self.reading_turns) if self.reading_turns else None
        self._rewriting = Rewriting(self._history_of, self.savings, reading)

    # Serving ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Serve. Raises ``SessionError`` and ``StorageError`` if the sessions cannot be reached."""
        self._reach()
        listening = socket.create_server(("127.0.0.1", 0))
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
            log_level="error",
            ws="none",  # a program that tries a WebSocket first is no news
        )
        config.load()  # here, since importing blocks: on files, and on imports in other threads
        self._client = httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False)
        self._server = uvicorn.Server(config)
        self._serving = begin(partial(Context().run, self._server.run, [listening]))
        return self

    def _reach(self) -> None:
        """Create the one session, so that other readers find it; else make a request to a remote store, as a check."""

        async def nothing(_: ContextFileSystem) -> None:
            pass

        if self.one_session:
            with History(self.session_id, root_path=self._stores, **self.settings) as history:
                history.read(nothing)
        elif self._stores.directory is None:
            run_alone(partial(is_there, self._stores, str(self.session_id)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        try:
            self._serving.result()
        finally:
            for histories in self._pools.values():
                try:
                    histories.close()
                except CtxfsError as failure:  # a bill that could not be recorded must not fail the program
                    _log.warning("%s", failure)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make a program send its requests here."""
        base = f"http://127.0.0.1:{self._port}/{self._token}"
        return {
            variable: f"{base}{given.path}{version}"
            for given in PROVIDERS.values()
            for variable, version in given.variables.items()
        }

    @property
    def app(self) -> ASGIApp:
        """The proxy as an ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with self._client:
                yield

        async def forward(request: Request) -> Response:
            for name, given in PROVIDERS.items():
                head = f"/{self._token}{given.path}"
                path = str(request.scope.get("raw_path", b"").decode("ascii"))
                rest = normal_path(path.removeprefix(head)) if path.startswith(f"{head}/") else None
                if rest is not None:
                    self.requests += 1
                    upstream = self._upstream(name)
                    address = f"{upstream}{path_for(name, rest, upstream)}"
                    query = request.scope["query_string"].decode("ascii")
                    to = endpoint_at(address, query) if request.method == "POST" else None
                    return self._refusal(request, rest, to) or await self._forward(request, address, to)
            return _error(404, "not_found_error", "not a path of this proxy")

        return Starlette(routes=[Route("/{path:path}", forward, methods=_METHODS)], lifespan=lifespan)

    async def _forward(self, request: Request, address: str, to: Endpoint | None) -> Response:
        query = request.scope["query_string"].decode("ascii")
        url = f"{address}?{query}" if query else address
        try:
            if to is not None:
                return await self._replied(request, url, to)
            headers = _forwarded_headers(request)
            if (length := request.headers.get("content-length")) is not None:
                headers.append(("content-length", length))
            answer = await self._send(request, url, headers, request.stream() if _has_body(request) else None)
            return _Forwarded.of(answer, answer.aiter_raw())
        except ClientDisconnect:
            return Response(status_code=499)
        except BudgetSpent as error:
            return _error(402, "billing_error", str(error))
        except TooLarge as error:
            return _error(413, "request_too_large", f"{error}: leave out content, or do not send it through the proxy")
        except UnreadableReply as error:
            reason = str(error)
        except httpx2.RequestError as error:
            reason = f"{httpx2.URL(url).host} cannot be reached: {error}"
        return _error(502, "api_error", reason)

    def _refusal(self, request: Request, path: str, to: Endpoint | None) -> Response | None:
        """Why a request is not sent on, whatever is in it; None: it is sent."""
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            reason = "the request has content-length and transfer-encoding: send one of them"
            return _error(400, "invalid_request_error", reason, {"connection": "close"})
        if request.headers.get("upgrade", "").lower() == "websocket":
            # Codex tries a WebSocket first: by this status it goes on over HTTP at once, by any other it tries again.
            reason = "there is no WebSocket here: send the request over HTTP"
            return _error(426, "invalid_request_error", reason, {"upgrade": "HTTP/1.1", "connection": "close"})
        if self.meter is not None and to is None and request.method == "POST" and not path.endswith(FREE):
            reason = "what this request costs is not known, so it is not sent while costs are measured"
            return _error(403, "permission_error", reason)
        return None

    async def _replied(self, request: Request, url: str, to: Endpoint) -> Response:
        """Rewrite and send a request for a reply; do so once more if it is refused for a reason that can be mended."""
        raw = await whole_body(request.stream(), MOST_BODY_BYTES)
        headers = dict(request.headers)
        sent = await to_thread.run_sync(self._rewriting.rewrite, raw, to, headers)
        if self.shadow is not None and sent is not None and sent.edits:
            await to_thread.run_sync(self._shadowed, self.shadow, request, url, sent)
        while True:
            answer, metered = await self._send_call(request, url, raw, sent, to)
            if sent is not None and answer.status_code in REFUSED:
                pieces = answer.aiter_raw()
                refusal = await beginning_of(pieces, MOST_REFUSAL_BYTES)
                encodings = answer.headers.get("content-encoding")
                await _ended(metered, answer.status_code, None, is_whole=True)
                if not await to_thread.run_sync(self._rewriting.mends, sent, answer.status_code, refusal, encodings):
                    return _Forwarded.of(answer, _all_of(refusal, pieces))
                await answer.aclose()
                sent = await to_thread.run_sync(self._rewriting.again, sent)
                answer, metered = await self._send_call(request, url, raw, sent, to)
            encodings = answer.headers.get("content-encoding")
            if sent is None or not answer.is_success or not self._rewriting.reads(sent, encodings):
                return _Forwarded.of(answer, self._answer(answer, sent, metered))
            following = await self._read_on(answer, sent, metered)
            if isinstance(following, bytes):
                return _Forwarded.read(answer, following)
            sent = following

    async def _read_on(self, answer: httpx2.Response, sent: Sent, metered: MeteredCall | None) -> Sent | bytes:
        """Take a whole reply: the request for the next turn, or the reply for the program."""
        heard = UsageReader()
        is_whole = False
        try:
            reply = await whole_body(answer.aiter_raw(), MOST_BODY_BYTES)
            heard.feed(reply)
            is_whole = True
        except TooLarge as error:
            raise UnreadableReply(f"the provider's reply cannot be read: {error}") from error
        finally:
            with CancelScope(shield=True):
                await answer.aclose()
                await _ended(metered, answer.status_code, heard.bill(), is_whole=is_whole)
        encodings = answer.headers.get("content-encoding")
        return await to_thread.run_sync(self._rewriting.read_on, sent, reply, encodings)

    def _shadowed(self, shadow: Shadow, request: Request, url: str, sent: Sent) -> None:
        """Show a rewritten request to the shadow, with what sends another body to the same place."""
        headers = self._rewriting.headers_of(sent, b"", _forwarded_headers(request))
        send = partial(_reply_to, unstreamed_url(url), headers)
        shadow.take(sent.to.api, sent.asked, sent.body, sent.history.compared, send=send, model=sent.model)

    async def _send_call(
        self, request: Request, url: str, raw: bytes, sent: Sent | None, to: Endpoint
    ) -> tuple[httpx2.Response, MeteredCall | None]:
        """Send a request for a reply: ``raw`` as it came if it could not be rewritten. Raises ``BudgetSpent``."""
        headers = _forwarded_headers(request)
        metered = None
        if self.meter is not None:
            metered = await to_thread.run_sync(partial(_begun, self.meter, to, raw, sent))
            if sent is not None:
                sent = replace(sent, content=metered.content)
        try:
            if sent is None:
                return await self._send(request, url, headers, raw), metered
            headers = self._rewriting.headers_of(sent, raw, headers)
            return await self._send(request, url, headers, sent.content), metered
        except httpx2.RequestError:
            await _ended(metered, 0, None, is_whole=False)
            raise

    async def _send(
        self, request: Request, url: str, headers: list[tuple[str, str]], content: bytes | AsyncIterator[bytes] | None
    ) -> httpx2.Response:
        """Send ``content`` with ``headers``; the answer is not read yet."""
        outgoing = self._client.build_request(request.method, url, headers=headers, content=content)
        return await self._client.send(outgoing, stream=True)

    def _upstream(self, provider: str) -> str:
        return self.upstreams.get(provider, PROVIDERS[provider].upstream).rstrip("/")

    async def _answer(
        self, answer: httpx2.Response, sent: Sent | None, metered: MeteredCall | None
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of a reply as they come, and record the bill that they contain."""
        heard = UsageReader()
        listens = (sent is not None or metered is not None) and answer.is_success
        is_whole = False
        try:
            async for chunk in answer.aiter_raw():
                if listens:
                    heard.feed(chunk)
                yield chunk
            is_whole = True
        finally:
            with CancelScope(shield=True):  # also when the client goes away
                await answer.aclose()
                bill = heard.bill() if listens else None
                await _ended(metered, answer.status_code, bill, is_whole=is_whole)
                if sent is not None and listens:
                    await to_thread.run_sync(self._rewriting.billed, sent, bill)

    def _history_of(self, model: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> History:
        """The history of a conversation: the same one for all its requests, whichever worker threads rewrite them."""
        thread = str(self.session_id)
        if not self.one_session:
            thread = thread_of(headers, body, otherwise=thread)
        settings = dict(self.settings)
        named: tuple[str, ...] = ()
        if self.each_tool_keeps is not None:
            named = tuple(sorted(tools_in(body)))
            settings["keep_recent"] = dict.fromkeys(named, self.each_tool_keeps)
        pool = self._pools.get((model, *named))
        if pool is None:  # if several are created at once, all threads use the first
            made = Histories(self._stores, model=model, **settings)
            pool = self._pools.setdefault((model, *named), made)
        return pool.of(thread)


def _reply_to(url: str, headers: list[tuple[str, str]], body: Mapping[str, Any]) -> Any:
    """Send a request, and return its reply. Raises ``httpx2.HTTPError``."""
    answer = httpx2.post(url, headers=headers, content=json_codec.dumps(body), timeout=_SHADOW_TIMEOUT_S)
    answer.raise_for_status()
    return json_codec.loads(answer.content)


def _forwarded_headers(request: Request) -> list[tuple[str, str]]:
    """The headers of a request that are sent on."""
    return [(name, value) for name, value in request.headers.items() if name not in _NOT_FORWARDED]


def _begun(meter: Meter, to: Endpoint, raw: bytes, sent: Sent | None) -> MeteredCall:
    """Tell the meter of a request that is about to be sent. Raises ``BudgetSpent``."""
    if sent is None:
        return meter.began(to.api, None, raw, place="", model=to.model)
    place = f"{sent.history.session_id} {sent.branch}"
    return meter.began(to.api, sent.body, sent.content, place=place, model=to.model)


async def _ended(
    metered: MeteredCall | None, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool
) -> None:
    if metered is not None:
        await to_thread.run_sync(partial(metered.ended, status, bill, is_whole=is_whole))


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


async def _all_of(beginning: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield beginning
    async for piece in rest:
        yield piece


def _error(status: int, kind: str, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of the proxy itself, in the form that programs expect of the providers."""
    body = {"type": "error", "error": {"type": kind, "message": f"ctxfs proxy: {reason}"}}
    return JSONResponse(body, status, headers)
