"""The page as a web application: requests in, pages out. One of two modules that import ``starlette``."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctxfs.errors import CtxfsError, ReplayFormatError, SessionNotFound, ToolError, UnknownCall, UnknownItem
from ctxfs.session.content.visible import visible_text
from ctxfs.session.filesystem import ContextFileSystem, reading_once
from ctxfs.session.records import Record
from ctxfs.session.timeline.back import Back, pinned, restored, undone, unpinned
from ctxfs.session.timeline.bring_back import change_session
from ctxfs.session.timeline.reading import past_request
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.version import DOCS, __version__
from ctxfs.view import security
from ctxfs.view.overview import SORTS, chosen_rows, narrow_titles
from ctxfs.view.pages import Pages, static_files
from ctxfs.view.recordings import Comparisons, NoComparisons, NoRecordings, Recordings
from ctxfs.view.search import search_all
from ctxfs.view.session_page import SessionPage, item_panel, number_in, session_page
from ctxfs.view.sources import OpenSessions

LOOKS_EVERY_S = 0.5
"""How often a running session is checked for changes."""
MOST_STREAMS = 64
"""The most pages that follow sessions at the same time: each looks for changes twice a second."""
NOT_FOUND = 404
REFUSED = 403
WRONG = 400
FAILED = 500
TOO_MANY = 503


@dataclass(slots=True)
class ViewApp:
    """The application that answers the browser.

    Args:
        sessions: the sessions that can be viewed.
        token: the first part of every path; without it nothing is shown.
        port: where the page is served; set before the first request.
        recordings: the recorded sessions that can be viewed.
        comparisons: the comparisons of arms that can be viewed.
        may_write: the token that a request needs to change something; empty: nothing can be changed.
    """

    sessions: OpenSessions
    token: str
    port: int = 0
    recordings: Recordings = field(default_factory=NoRecordings)
    comparisons: Comparisons = field(default_factory=NoComparisons)
    may_write: str = ""
    _pages: Pages = field(default_factory=Pages)
    _static: Mapping[str, tuple[bytes, str]] = field(default_factory=static_files)
    _streams: int = 0

    def asgi(self) -> ASGIApp:
        """The application for a server."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self.sessions.close()

        routes = [
            Route("/", self._answer(self._sessions)),
            Route("/search", self._answer(self._search)),
            Route("/static/{name}", self._answer(self._file)),
            Route("/comparison/{number:int}", self._answer(self._comparison)),
            Route("/recording/{number:int}", self._answer(self._recording)),
            Route("/recording/{number:int}/timeline.json", self._answer(self._recorded_chart)),
            Route("/recording/{number:int}/text", self._answer(self._recorded_text)),
            Route("/session/{session}", self._answer(self._session)),
            Route("/session/{session}/", self._answer(self._session)),
            Route("/session/{session}/timeline.json", self._answer(self._timeline)),
            Route("/session/{session}/request.json", self._answer(self._request)),
            Route("/session/{session}/change", self._answer(self._change), methods=["POST"]),
            Route("/session/{session}/events", self._answer(self._events)),
            Route("/session/{session}/{tab}", self._answer(self._session)),
        ]
        hosts = security.allowed_hosts(self.port)
        return _Guarded(Starlette(routes=routes, lifespan=lifespan), self.token, hosts, may_write=bool(self.may_write))

    def _answer(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """``handler``, with an error as a page that says what to do."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except CtxfsError as error:
                return self._page("error.html", _status(error), message=str(error))

        return answer

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        return _html(self._render(template, **values), status)

    def _render(self, template: str, **values: Any) -> str:
        return self._pages.render(
            template,
            base=f"/{self.token}",
            link=_link,
            may_write=self.may_write,
            docs=DOCS,
            version=__version__,
            **values,
        )

    async def _file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("no such file", NOT_FOUND)
        return Response(found[0], media_type=found[1], headers={"Cache-Control": "private, max-age=3600"})

    async def _sessions(self, request: Request) -> Response:
        query = request.query_params
        matching, sort = query.get("filter", ""), query.get("sort", "age")
        reverse = query.get("reverse") == "1"
        found = await self.sessions.summaries()
        rows = chosen_rows(found, matching=matching, sort=sort, reverse=reverse)
        return self._page(
            "session_rows.html" if request.headers.get("hx-target") == "sessions" else "sessions.html",
            rows=rows,
            narrow=narrow_titles(row.title for row in rows),
            running=await self.sessions.running(row.session_id for row in rows),
            matching=matching,
            sort=sort if sort in SORTS else "age",
            reverse=reverse,
            total=len(found),
            root=self.sessions.stores.url,
            now=time.time(),
            recordings=self.recordings.names,
            comparisons=self.comparisons.names,
        )

    async def _search(self, request: Request) -> Response:
        """The lines of all sessions that match, the newest session first, as they are found."""
        pattern = request.query_params.get("find", "")
        if not pattern:
            return self._page("search.html", pattern="", problem="")
        try:
            LinePattern(pattern)
        except ToolError as error:  # the user can correct the pattern in the form
            return self._page("search.html", WRONG, pattern=pattern, problem=str(error))
        return StreamingResponse(self._while_searching(request, pattern), media_type=_HTML, headers=_VARY)

    async def _while_searching(self, request: Request, pattern: str) -> AsyncIterator[str]:
        """The head of the page at once, each item with a match when it is found, and the end."""
        query = dict(request.query_params)
        head, _, end = self._render("search.html", pattern=pattern, problem="").partition(_REST)
        yield head
        place = number_in(query, "from", 0)
        found = search_all(self.sessions, pattern, first=place, skip=number_in(query, "skip", 0))
        async with aclosing(found):
            async for one in found:
                yield self._render("found.html", one=one, kind=type(one).__name__, pattern=pattern, query=query)
        yield end

    async def _comparison(self, request: Request) -> Response:
        """A comparison of arms: what was found, and each session."""
        return self._page("comparison.html", page=await self.comparisons.page(request.path_params["number"]))

    async def _recording(self, request: Request) -> Response:
        """A recorded session, and its cost under each policy."""
        page = await self._recorded(request)
        is_part = request.headers.get("hx-target") == "call"
        return self._page("recorded_call.html" if is_part else "recording.html", page=page)

    async def _recorded(self, request: Request) -> Any:
        number, query = request.path_params["number"], request.query_params
        place, call = number_in(query, "session", 1), number_in(query, "call", 0)
        shows_all = query.get("rows") == "all"
        return await self.recordings.page(number, place=place, call=call or None, shows_all=shows_all)

    async def _recorded_chart(self, request: Request) -> Response:
        page = await self._recorded(request)
        return Response(json_codec.dumps(page.file.chart), media_type="application/json")

    async def _recorded_text(self, request: Request) -> Response:
        """All of a block of which the page of the call shows only the beginning, a page at a time."""
        page, query = await self._recorded(request), request.query_params
        text = self.recordings.text(page, number_in(query, "block", 0), number_in(query, "from", 0))
        return self._page("recorded_text.html", page=page, shown=text, query=dict(query))

    async def _session(self, request: Request) -> Response:
        session_id = request.path_params["session"]
        if "hx-target" in request.headers or self.sessions.is_open(session_id):
            return _html(await self._session_html(request))
        await self.sessions.check(session_id)
        return StreamingResponse(self._while_opening(request), media_type=_HTML, headers=_VARY)

    async def _while_opening(self, request: Request) -> AsyncIterator[str]:
        """The page of a session that is not open yet: its head at once, the rest when the journal has been read."""
        opening = self._render("opening.html", session_id=request.path_params["session"])
        yield opening.partition(_REST)[0]
        try:
            html = await self._session_html(request)
        except CtxfsError as error:
            html = self._render("error.html", message=str(error))
        yield html.partition(_MAIN)[2]

    async def _session_html(self, request: Request) -> str:
        opened = await self.sessions.get(request.path_params["session"])
        query = dict(request.query_params)
        template = _PANELS.get(request.headers.get("hx-target", ""), "session.html")
        tab = request.path_params.get("tab", "timeline")
        is_item = template == "item.html"
        page = await (SessionPage.of(opened, tab) if is_item else session_page(opened, tab, query))
        values: dict[str, Any] = {"page": page, "query": query}
        if template in ("session.html", "item.html"):
            values["item"] = await item_panel(opened, query)
        return self._render(template, **values)

    async def _change(self, request: Request) -> Response:
        """Restore or pin an item, or undo the last change, if the request has the token ``may_write``."""
        if not self.may_write or not security.same_token(request.headers.get("x-ctxfs-write", ""), self.may_write):
            return PlainTextResponse("the request did not come from this page", REFUSED)
        query, session_id = request.query_params, request.path_params["session"]
        item_id = query.get("item", "")
        decide = _CHANGES.get(query.get("do", ""))
        if decide is None:
            return PlainTextResponse("no such change", WRONG)
        try:
            async with reading_once(
                ContextFileSystem(session_id, root_path=self.sessions.stores, read_only=True)
            ) as reader:
                await change_session(
                    reader, lambda records: decide(records, item_id), fits=query.get("do") != "restore"
                )
        except CtxfsError as error:
            return PlainTextResponse(visible_text(str(error)), WRONG)
        return PlainTextResponse("done")

    async def _timeline(self, request: Request) -> Response:
        opened = await self.sessions.get(request.path_params["session"])
        page = await SessionPage.of(opened)
        data = await run_in_steps(lambda: json.dumps(page.chart, separators=(",", ":")))
        return Response(data, media_type="application/json")

    async def _request(self, request: Request) -> Response:
        """A request as it was sent, in full."""
        opened = await self.sessions.get(request.path_params["session"])
        number = number_in(request.query_params, "call", 1)
        sent = await past_request(opened.fs, number, timeline=await opened.timeline())
        data = await run_in_steps(lambda: json_codec.dumps(sent.body(), indented=True))
        return Response(data, media_type="application/json")

    async def _events(self, request: Request) -> Response:
        """Send an event whenever the session grows, and a comment now and then, to notice when the client is gone."""
        if self._streams >= MOST_STREAMS:
            said = f"{MOST_STREAMS} pages follow sessions already: close some, and load this one again"
            return PlainTextResponse(said, TOO_MANY)
        opened = await self.sessions.get(request.path_params["session"])
        quiet, seen = 0, number_in(request.query_params, "version", opened.version)

        async def changes() -> AsyncGenerator[str]:
            nonlocal quiet, seen
            yield "retry: 1000\n\n"
            while True:
                await opened.refresh()  # another request may have refreshed it in the meantime
                quiet += 1
                if opened.version != seen:
                    quiet, seen = 0, opened.version
                    yield f"event: grew\ndata: {len(opened.activity.calls)}\n\n"
                elif quiet % 20 == 0:
                    yield ": still here\n\n"
                await anyio.sleep(LOOKS_EVERY_S)

        async def counted() -> AsyncIterator[str]:
            if self._streams >= MOST_STREAMS:  # others may have begun since the request was looked at
                return
            self._streams += 1
            try:
                async with aclosing(changes()) as events:
                    async for event in events:
                        yield event
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream")


def _status(error: CtxfsError) -> int:
    if isinstance(error, SessionNotFound | UnknownItem | UnknownCall | ReplayFormatError):
        return NOT_FOUND
    return WRONG if isinstance(error, ToolError) else FAILED


_HTML = "text/html; charset=utf-8"
_VARY = {"Vary": "HX-Request, HX-Target"}
_MAIN = '<main id="main" tabindex="-1">'
"""The last line of the part with which all pages begin."""
_REST = "<!-- the rest follows -->"


def _html(page: str, status: int = 200) -> Response:
    return Response(page, status, media_type=_HTML, headers=_VARY)


_CHANGES: Mapping[str, Callable[[Sequence[Record], str], Back]] = {
    "restore": restored,
    "pin": pinned,
    "unpin": unpinned,
    "undo": lambda records, _: undone(records, None),
}
"""What can be done to an item, and to the session, by its name on the page."""

_PANELS = {"call": "call.html", "facts": "facts.html", "items": "items.html", "item": "item.html"}
"""The templates of the parts of a page that can be requested alone, by the id of their element."""


def _link(path: str, query: Mapping[str, Any], **changed: Any) -> str:
    """A link to ``path`` with the arguments of ``query``, some of them changed; None takes one away."""
    merged = {name: value for name, value in {**query, **changed}.items() if value not in (None, "")}
    return f"{path}?{urlencode(merged)}" if merged else path


class _Guarded:
    """Lets in only requests from this machine that have the token, and sets the security headers of every response."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], *, may_write: bool) -> None:
        self._may_write = may_write
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = security.refusal(scope["method"], headers, self._hosts, may_write=self._may_write)
        given, _, rest = scope["path"].removeprefix("/").partition("/")

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in security.HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in more if one[0] not in own)]
            await send(message)

        if refused is not None or not security.same_token(given, self._token):
            answer = PlainTextResponse(refused or "open the address that `ctxfs view` printed", REFUSED)
            await answer(scope, receive, send_guarded)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self._app(inner, receive, send_guarded)
