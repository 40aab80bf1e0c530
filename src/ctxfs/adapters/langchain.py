"""LangChain agents: ``create_agent(…, middleware=[CtxfsMiddleware(histories)])``; the graph's state stays as it is."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import TypeAdapter

from ctxfs.adapters.extras import needs
from ctxfs.adapters.langchain_messages import bills_of, branch_of, content_of, edited, host_cache_of, parts_of
from ctxfs.context.history.history import History
from ctxfs.context.history.host_cache import HostCache
from ctxfs.context.history.parts import Part
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, Histories, require_history
from ctxfs.context.history.wire import blocks_or_text
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.messages import Block, text_of
from ctxfs.messages.tokens import count_json, default_counter
from ctxfs.tools.base import Tool, ToolResult

with needs("langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage, ToolMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.types import Command

__all__ = ["CtxfsMiddleware"]


@names_settings(GIVEN_TO_HISTORY)
class CtxfsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Rewrites what is sent to the model, and gives it tools to read it back; one middleware serves all threads.

    Args:
        history: the history of one conversation, or ``Histories``, with a history for each ``thread_id`` of a run's
            config; a run without a thread id is refused. A subgraph shares the history of its thread.
        at_source: whether large results of tools are also replaced where they are made, so that checkpoints stay small:
            the state then holds the summaries.

    """

    def __init__(self, history: History | Histories, *, at_source: bool = False) -> None:
        require_history(history, many=True)
        super().__init__()
        self._owner = history
        self.tools: Sequence[BaseTool] = [self._tool(tool) for tool in history.tools]
        self._at_source = at_source
        self._overheads: dict[tuple[Any, ...], int] = {}

    def history(self) -> History:
        """The history of the current thread.

        Raises:
            ConfigError: the run has no thread id.

        """
        if isinstance(self._owner, History):
            return self._owner
        thread_id = get_config().get("configurable", {}).get("thread_id")
        if thread_id is None:
            raise ConfigError(
                "this run has no thread id by which to find its history: pass the agent "
                'config={"configurable": {"thread_id": …}}, or give CtxfsMiddleware one History'
            )
        return self._owner.of(str(thread_id))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the messages with what is due replaced."""
        history, branch = self.history(), branch_of(request)
        parts, host = self.parts(request.messages), self.host_cache(request)
        edits = history.rewrite(parts, branch=branch, overhead_tokens=self._overhead(request), host=host)
        response = handler(request.override(messages=edited(request.messages, edits)))
        for usage, model in bills_of(response.result):
            history.replied(usage, model, branch=branch)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Send the messages with what is due replaced."""
        history, branch = self.history(), branch_of(request)
        parts, host = self.parts(request.messages), self.host_cache(request)
        edits = await history.arewrite(parts, branch=branch, overhead_tokens=self._overhead(request), host=host)
        response = await handler(request.override(messages=edited(request.messages, edits)))
        for usage, model in bills_of(response.result):
            await history.areplied(usage, model, branch=branch)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Replace a large result where it is made."""
        result = handler(request)
        if (content := self._arriving(result)) is None or not isinstance(result, ToolMessage):
            return result
        kept = self.history().arrive(content, tool=result.name or "", call_id=result.tool_call_id)
        return result if kept == content else result.model_copy(update={"content": blocks_or_text(kept)})

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Replace a large result where it is made."""
        result = await handler(request)
        if (content := self._arriving(result)) is None or not isinstance(result, ToolMessage):
            return result
        kept = await self.history().aarrive(content, tool=result.name or "", call_id=result.tool_call_id)
        return result if kept == content else result.model_copy(update={"content": blocks_or_text(kept)})

    def parts(self, messages: Sequence[AnyMessage]) -> list[Part]:
        """Return the messages as parts; a subclass may mark more parts to stay."""
        return [part for number, message in enumerate(messages) for part in parts_of(message, number)]

    def host_cache(self, request: ModelRequest[Any]) -> HostCache:
        """What a request asks of the prompt cache; a subclass may know more."""
        return host_cache_of(request)

    def _arriving(self, result: ToolMessage | Command[Any]) -> str | tuple[Block, ...] | None:
        """The content, if it may be replaced at the source; None: it stays."""
        if not self._at_source or not isinstance(result, ToolMessage):
            return None
        return None if result.name in {tool.name for tool in self.tools} else content_of(result)

    def _overhead(self, request: ModelRequest[Any]) -> int:
        """The tokens of what is sent besides the messages; counted once for each set of tools."""
        system = request.system_prompt or ""
        names = tuple(repr(tool) if isinstance(tool, dict) else tool.name for tool in request.tools)
        answer = getattr(request.response_format, "schema", None)
        key = (system, names, repr(answer))
        if key not in self._overheads:
            # A tool of the provider's, such as a web search, is a dict in a form of the provider's own.
            schemas = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
            if answer is not None:
                schemas.append(answer if isinstance(answer, dict) else TypeAdapter(answer).json_schema())
            self._overheads = {key: count_json(default_counter(), [system, schemas])}
        return self._overheads[key]

    def _tool(self, tool: Tool) -> BaseTool:
        def run(**given: Any) -> Any:
            try:
                return _shown(self.history().run_tool(tool.name, given))
            except InvalidToolArguments as error:
                raise ToolException(str(error)) from error

        async def arun(**given: Any) -> Any:
            try:
                return _shown(await self.history().arun_tool(tool.name, given))
            except InvalidToolArguments as error:
                raise ToolException(str(error)) from error

        return StructuredTool.from_function(
            run,
            arun,
            name=tool.name,
            description=tool.description,
            args_schema=dict(tool.input_schema),
            handle_tool_error=True,
        )


def _shown(result: ToolResult) -> Any:
    if result.is_error:
        raise ToolException(text_of(result.content))
    return blocks_or_text(result.content)
