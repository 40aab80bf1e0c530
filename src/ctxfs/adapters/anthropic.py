"""The ``anthropic`` SDK: ``Anthropic(middleware=[CtxfsMiddleware(history)])``; your list of messages stays as it is.

The middleware gets the SDK's requests as the Messages API does, and reads the bills in replies while the caller reads.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

from anyio import CancelScope

from ctxfs.adapters.extras import needs
from ctxfs.agent.llm.bound_thinking import ThinkingDropper, beta_headers
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.context.history.wire import blocks_or_text
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.tools.base import ToolResult

_MESSAGES = "/v1/messages"
_COUNTING = f"{_MESSAGES}/count_tokens"
_REFUSED = 400


def _route(request: Any) -> str:
    return str(request.url).partition("?")[0]


def body_of(request: Any) -> dict[str, Any] | None:
    """The body of a request that holds a history; None for any other request."""
    if request.method.lower() != "post" or _route(request) not in (_MESSAGES, _COUNTING):
        return None
    return cast("dict[str, Any]", request.json)


def is_reply(request: Any, status: int) -> bool:
    """Whether the answer is a model's reply, which says what was billed."""
    return status == 200 and _route(request) == _MESSAGES


def is_refusal(response: Any) -> bool:
    """Whether the request was refused because of its contents."""
    return bool(response.status_code == _REFUSED)


def sent_body(request: Any) -> Mapping[str, Any]:
    """The body of a request that holds a history, as it is sent."""
    return cast("Mapping[str, Any]", request.json)


def with_body(request: Any, body: Mapping[str, Any], dropper: ThinkingDropper) -> Any:
    """The request with ``body`` as ``dropper`` changes it, and with the header that the change needs."""
    request.options.json_data = asking = dropper.asking(body)
    if asking is not body:
        request.options.headers = beta_headers(asking, request.headers)
    return request


def listen(http: Any, take: Callable[[UsageReader], None]) -> None:
    """Call ``take`` with the bill: now, or when the caller has read the reply as far as it wants."""
    heard = UsageReader()
    if http.is_closed:
        heard.feed(http.content)
        return take(heard)
    pieces, close = http.iter_bytes, http.close

    def iter_bytes(*arguments: Any) -> Iterator[bytes]:
        for chunk in pieces(*arguments):
            heard.feed(chunk)
            yield chunk

    def close_and_take() -> None:
        close()
        take(heard)

    http.iter_bytes, http.close = iter_bytes, close_and_take  # every way to read a reply in pieces calls these
    return None


async def listen_async(http: Any, take: Callable[[UsageReader], Awaitable[None]]) -> None:
    """``listen`` for the asynchronous client."""
    heard = UsageReader()
    if http.is_closed:
        heard.feed(http.content)
        return await take(heard)
    pieces, close = http.aiter_bytes, http.aclose

    async def aiter_bytes(*arguments: Any) -> AsyncIterator[bytes]:
        async for chunk in pieces(*arguments):
            heard.feed(chunk)
            yield chunk

    async def close_and_take() -> None:
        await close()
        await take(heard)

    http.aiter_bytes, http.aclose = aiter_bytes, close_and_take
    return None


with needs("anthropic"):
    from anthropic import (
        APIRequest,
        APIResponse,
        AsyncAPIResponse,
        AsyncCallNext,
        CallNext,
        Middleware,
        beta_async_tool,
        beta_tool,
    )
    from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError

__all__ = ["CtxfsMiddleware"]


@names_settings(GIVEN_TO_HISTORY)
class CtxfsMiddleware(Middleware):
    """Rewrites each request to the Messages API on its way out, and reads the bill of each reply, streamed or not.

    A middleware serves one history. For many conversations, derive a client for each:
    ``client.with_middleware(CtxfsMiddleware(histories.of(thread_id)))``. ``branch``: see ``History.rewrite``.

    A request whose thread the server holds (``client.beta.messages.thread()``, and ``tool_runner(…)`` by default)
    raises ``ConfigError``, since nothing in it can be replaced. Pass ``thread=False``.

    Newer models refuse a thinking block if something before it was replaced. After the first such refusal, each request
    asks for such blocks to be left out, unless its ``thinking`` has a ``block_binding`` or is disabled.
    """

    def __init__(self, history: History, *, branch: str = "") -> None:
        require_history(history)
        self.history = history
        self._branch = branch
        self._dropper = ThinkingDropper()

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        """Send the request with what is due replaced."""
        if (body := body_of(request)) is None:
            return call_next(request)
        sent = self.history.messages(body, branch=self._branch)
        response = call_next(with_body(request, sent, self._dropper))
        if is_refusal(response) and self._dropper.refused(sent_body(request), response.http_response.read()):
            response = call_next(with_body(request, sent, self._dropper))
        if is_reply(request, response.status_code):
            listen(response.http_response, self._replied)
        return response

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        """Send the request with what is due replaced."""
        if (body := body_of(request)) is None:
            return await call_next(request)
        sent = await self.history.amessages(body, branch=self._branch)
        response = await call_next(with_body(request, sent, self._dropper))
        if is_refusal(response) and self._dropper.refused(sent_body(request), await response.http_response.aread()):
            response = await call_next(with_body(request, sent, self._dropper))
        if is_reply(request, response.status_code):
            await listen_async(response.http_response, self._areplied)
        return response

    def _replied(self, heard: UsageReader) -> None:
        if bill := heard.bill():
            self.history.replied(*bill, branch=self._branch)

    async def _areplied(self, heard: UsageReader) -> None:
        if bill := heard.bill():
            with CancelScope(shield=True):
                await self.history.areplied(*bill, branch=self._branch)

    @property
    def tools(self) -> list[BetaFunctionTool[Any]]:
        """The tools with which the model reads back what was replaced, for ``tool_runner`` or a loop of your own."""
        return [_as(beta_tool, tool, self._reader(tool.name)) for tool in self.history.tools]

    @property
    def async_tools(self) -> list[BetaAsyncFunctionTool[Any]]:
        """``tools`` for the asynchronous client."""
        return [_as(beta_async_tool, tool, self._async_reader(tool.name)) for tool in self.history.tools]

    def at_source(self, tool: BetaFunctionTool[Any]) -> BetaFunctionTool[Any]:
        """Return ``tool`` with large results replaced where they are made, even if the server holds the thread."""

        def run(**given: Any) -> Any:
            return self.history.arrive(_content(tool.call(given)), tool=tool.name)

        return cast("BetaFunctionTool[Any]", _as(beta_tool, tool, run))

    def async_at_source(self, tool: BetaAsyncFunctionTool[Any]) -> BetaAsyncFunctionTool[Any]:
        """``at_source`` for the asynchronous client."""

        async def run(**given: Any) -> Any:
            return await self.history.aarrive(_content(await tool.call(given)), tool=tool.name)

        return cast("BetaAsyncFunctionTool[Any]", _as(beta_async_tool, tool, run))

    def _reader(self, name: str) -> Callable[..., Any]:
        def run(**given: Any) -> Any:
            try:
                return _shown(self.history.run_tool(name, given))
            except InvalidToolArguments as error:
                raise ToolError(str(error)) from error

        return run

    def _async_reader(self, name: str) -> Callable[..., Any]:
        async def run(**given: Any) -> Any:
            try:
                return _shown(await self.history.arun_tool(name, given))
            except InvalidToolArguments as error:
                raise ToolError(str(error)) from error

        return run


def _as(make: Callable[..., Any], tool: Any, run: Callable[..., Any]) -> Any:
    return make(run, name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))


def _shown(result: ToolResult) -> Any:
    content = blocks_or_text(result.content)
    if result.is_error:
        raise ToolError(content)
    return content


def _content(result: Any) -> Any:
    return result if isinstance(result, str) else tuple(result)
