"""The ``anthropic`` SDK: ``Anthropic(middleware=[CtxfsMiddleware(history)])``; your list of messages stays as it is."""

from collections.abc import Callable
from typing import Any, cast

from anyio import CancelScope

from ctxfs.adapters.anthropic_messages import (
    body_of,
    is_refusal,
    is_reply,
    listen,
    listen_async,
    sent_body,
    with_body,
)
from ctxfs.adapters.extras import needs
from ctxfs.agent.llm.bound_thinking import ThinkingDropper
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.context.history.wire import blocks_or_text
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.tools.base import ToolResult

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
