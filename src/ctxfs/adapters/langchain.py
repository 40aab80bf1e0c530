"""LangChain agents: ``create_agent(…, middleware=[CtxfsMiddleware(histories)])``; the graph's state stays as it is.

Its messages are shown as parts of a history; edits are applied to copies of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from ctxfs.adapters.extras import needs
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import HostCache, Part, Replacement, asked_by, mark_of
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, Histories, require_history
from ctxfs.context.history.wire import blocks_or_text, spread
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import Block, text_of
from ctxfs.messages.tokens import count_json, default_counter
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult

with needs("langchain"):
    from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
    from langgraph.config import get_config


_CALLS = {"tool_use": "input", "tool_call": "args", "function_call": "arguments"}
"""The kinds of blocks in a message's content that repeat its calls, with the key of the arguments in each."""


def content_of(message: BaseMessage) -> str | tuple[Block, ...]:
    """A message's content in ctxfs's form, where a text in a list is a block."""
    content = message.content
    if isinstance(content, str):
        return content
    return tuple({"type": "text", "text": block} if isinstance(block, str) else block for block in content)


def host_cache_of(request: Any) -> HostCache:
    """What the request's settings, its model's settings, or a mark in its last messages ask of the prompt cache."""
    of_model = getattr(request.model, "model_kwargs", None) or {}
    marked = mark_of([{"content": message.content} for message in request.messages])
    return asked_by((request.model_settings or {}).get("cache_control"), of_model.get("cache_control"), marked)


def parts_of(message: AnyMessage, number: int) -> Iterator[Part]:
    """A message's parts; the place of its content is (its number, None), that of a call (its number, the call's)."""
    content, place = content_of(message), (number, None)
    if isinstance(message, ToolMessage):
        yield Part("result", content, place, message.tool_call_id, message.name or "")
    elif isinstance(message, AIMessage):
        if said := content if isinstance(content, str) else [content[n] for n in _said(content)]:
            yield Part("reply", said, place)
        for n, call in enumerate(message.tool_calls):
            yield Part("call", call["args"], (number, n), call["id"] or "", call["name"])
    else:
        yield Part("user", content, place, stays=not isinstance(message, HumanMessage))


def _said(blocks: Sequence[Block]) -> list[int]:
    """The numbers of the blocks in a reply that do not repeat one of its calls."""
    return [n for n, block in enumerate(blocks) if block["type"] not in _CALLS]


def edited(messages: list[AnyMessage], edits: Mapping[Any, Replacement]) -> list[AnyMessage]:
    """The messages to send. Changed messages are copies that keep their ids and all other fields."""
    sent = list(messages)
    for (number, inner), new in edits.items():
        message = sent[number]
        sent[number] = message.model_copy(update=_update(message, inner, new))
    return sent


def _update(message: AnyMessage, inner: int | None, new: Replacement) -> dict[str, Any]:
    """The fields of a message that an edit changes."""
    content = content_of(message)
    blocks = () if isinstance(content, str) else content
    if inner is not None and isinstance(message, AIMessage):
        call = message.tool_calls[inner]
        calls = [{**one, "args": new} if one is call else one for one in message.tool_calls]
        return {"tool_calls": calls, "content": [_repeated(block, call["id"], new) for block in blocks] or content}
    if not isinstance(message, AIMessage) or not blocks:
        return {"content": blocks_or_text(new)}
    places = _said(blocks)
    by_place = dict(zip(places, spread([blocks[n] for n in places], new), strict=True))
    return {"content": [block for n, old in enumerate(blocks) for block in by_place.get(n, [old])]}


def _repeated(block: Block, call_id: str | None, new: Replacement) -> Block:
    """A block with the arguments of the call that it repeats."""
    if block["type"] not in _CALLS or call_id not in (block.get("id"), block.get("call_id")):
        return block
    name = _CALLS[block["type"]]
    return {**block, name: json_codec.dumps_text(new) if isinstance(block.get(name), str) else new}


def bills_of(messages: Iterable[BaseMessage]) -> Iterator[tuple[Usage, str | None]]:
    """The bills of the replies, each with its model's name; LangChain counts cached tokens as input."""
    for message in messages:
        if isinstance(message, AIMessage) and (usage := message.usage_metadata):
            details = usage.get("input_token_details", {})
            read, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
            bill = Usage(
                input_tokens=max(0, usage["input_tokens"] - read - written),
                cache_read_input_tokens=read,
                cache_creation_input_tokens=written,
                output_tokens=usage["output_tokens"],
            )
            yield bill, message.response_metadata.get("model_name") or None


def branch_of(request: Any) -> str:
    """Which of a thread's histories this is: "" at the top; in a subgraph, its name and the id of the first message."""
    namespace = str(get_config().get("configurable", {}).get("checkpoint_ns", ""))
    graphs = [part.partition(":")[0] for part in namespace.split("|")[:-1]]  # without the tasks' ids, which change
    return "|".join([*graphs, request.messages[0].id or ""]) if graphs and request.messages else ""


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
