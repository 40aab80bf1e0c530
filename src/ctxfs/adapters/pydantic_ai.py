"""Pydantic AI: ``Agent(…, capabilities=[CtxfsCapability(history)])``; ``all_messages()`` keeps every byte."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_jsonable_python

from ctxfs.adapters.extras import beside_tokens, needs
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import HostCache, Part, Replacement, asked_by
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, Histories, history_of, require_history
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage

with needs("pydantic_ai"):
    from pydantic_ai import FunctionToolset, RunContext, Tool, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        CachePoint,
        FilePart,
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

__all__ = ["CtxfsCapability"]

_CACHES_MESSAGES = ("_cache", "_cache_messages")
"""Suffixes of the provider-specific settings that put a cache breakpoint at the end of the messages."""

_MARKED = ("anthropic", "bedrock", "openrouter")
"""Providers that can read the messages of an earlier request from their cache, given the shared setting ``cache``."""

_PER_ATTEMPT = hasattr(AbstractCapability, "prepare_model_request")  # since 2.64; its changes do not enter the history


@names_settings(GIVEN_TO_HISTORY)
@dataclass
class CtxfsCapability(AbstractCapability[Any]):
    """Replaces what is due in each request, and gives the model tools to read it back.

    ``history`` is the session of one conversation, or ``Histories``, with a session for each ``conversation_id`` that
    the messages carry. ``at_source``: large results are also replaced where they are made, so that the messages hold
    the summaries. Before pydantic-ai 2.64, the messages hold the replacements anyway.
    """

    history: History | Histories
    at_source: bool = False

    def __post_init__(self) -> None:
        require_history(self.history, many=True)

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools with which the model reads back what was replaced."""
        return FunctionToolset([self._reader(tool) for tool in self.history.tools])

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Replace what is due in the request."""
        host = _host_cache_of(request_context)
        overhead = await _overhead_of(request_context)
        parts = list(_parts_of(request_context.messages))
        edits = await self._of(ctx).arewrite(parts, branch=_branch(ctx), overhead_tokens=overhead, host=host)
        request_context.messages = _applied(request_context.messages, edits)
        return request_context

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Replace what is due, in releases that have no hook for each attempt."""
        return request_context if _PER_ATTEMPT else await self.prepare_model_request(ctx, request_context)

    async def after_model_request(self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse) -> Any:  # noqa: ARG002
        """Record what was billed."""
        used = response.usage
        cached, written = used.cache_read_tokens, used.cache_write_tokens
        billed = Usage(
            input_tokens=max(0, used.input_tokens - cached - written),
            cache_creation_input_tokens=written,
            cache_read_input_tokens=cached,
            output_tokens=used.output_tokens,
        )
        await self._of(ctx).areplied(billed, response.model_name, branch=_branch(ctx))
        return response

    async def after_tool_execute(self, ctx: RunContext[Any], *, call: ToolCallPart, result: Any, **_: Any) -> Any:
        """Replace a large result before it enters a message."""
        value = result.return_value if isinstance(result, ToolReturn) else result
        made = ToolReturnPart(call.tool_name, value, call.tool_call_id)
        if not self.at_source or made.files:
            return result
        text = made.model_response_str()
        new = await self._of(ctx).aarrive(text, tool=call.tool_name, call_id=call.tool_call_id)
        if new == text:
            return result
        return replace(result, return_value=new) if isinstance(result, ToolReturn) else new

    def _of(self, ctx: RunContext[Any]) -> History:
        return history_of(self.history, ctx.conversation_id or "")

    def _reader(self, tool: Any) -> Tool[Any]:
        async def run(ctx: RunContext[Any], **arguments: Any) -> str:
            try:
                return (await self._of(ctx).arun_tool(tool.name, arguments)).text
            except InvalidToolArguments as error:
                return str(error)

        schema = dict(tool.input_schema)
        return Tool.from_schema(run, tool.name, tool.description, json_schema=schema, takes_ctx=True)


def _branch(ctx: RunContext[Any]) -> str:
    """Agents that hand over to each other may share a history: each has requests of its own."""
    return (ctx.agent.name if ctx.agent is not None else None) or ""


def _host_cache_of(request_context: Any) -> HostCache:
    """What the request's settings, or marks in its last message, ask of the prompt cache for the messages."""
    settings: Mapping[str, Any] = request_context.model_settings or {}
    own = [setting for name, setting in settings.items() if name.endswith(_CACHES_MESSAGES)]
    last = request_context.messages[-1].parts if request_context.messages else ()
    contents = [part.content for part in last if isinstance(part, UserPromptPart) and not isinstance(part.content, str)]
    found = asked_by(*own, *(item for content in contents for item in content if isinstance(item, CachePoint)))
    shared = settings.get("cache")
    if found.at_end or shared in (None, False) or any("_cache" in name for name in settings):
        return found
    config: Mapping[str, Any] = shared if isinstance(shared, Mapping) else {"retention": shared}
    at_end = config.get("messages") is not False and getattr(request_context.model, "system", "") in _MARKED
    return asked_by(config.get("retention") or True)._replace(at_end=at_end)


async def _overhead_of(request_context: Any) -> int:
    """The tokens of what is no part of the history: instructions, tools, those of the provider, the answer's schema."""
    parameters = request_context.model_request_parameters
    instructions = [
        message.instructions for message in request_context.messages if getattr(message, "instructions", None)
    ]
    tools = [
        [tool.name, tool.description, tool.parameters_json_schema]
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
    hosted = to_jsonable_python(parameters.native_tools, exclude_none=True, fallback=str)
    answer = to_jsonable_python(parameters.output_object, exclude_none=True, fallback=str)
    return await beside_tokens(instructions[-1:], tools, hosted, answer)


def _parts_of(messages: Sequence[ModelMessage]) -> Iterator[Part]:
    for i, message in enumerate(messages):
        for j, part in enumerate(message.parts):
            yield _part(part, (i, j), "reply" if isinstance(message, ModelResponse) else "user")


def _part(part: Any, place: Any, kind: Any) -> Part:
    """One part. Parts that are never replaced, such as thinking, media and errors, are counted, and stay."""
    match part:
        case ToolCallPart():
            return Part("call", part.args_as_dict(), place, part.tool_call_id, part.tool_name)
        case ToolReturnPart():
            stays = bool(part.files) or part.outcome != "success"
            return Part("result", part.model_response_str(), place, part.tool_call_id, part.tool_name, stays)
        case TextPart() | UserPromptPart() if isinstance(part.content, str):
            return Part(kind, part.content, place)
        case UserPromptPart():
            return Part(kind, [_block(item) for item in part.content], place, stays=True)
        case FilePart():
            return Part(kind, [_block(part.content)], place, stays=True)
    content = getattr(part, "content", None)
    return Part(kind, content if isinstance(content, str) else repr(part), place, stays=True)


def _block(item: Any) -> dict[str, Any]:
    """The block as which a piece of a prompt is counted; all media count as images."""
    text = item if isinstance(item, str) else getattr(item, "content", "" if isinstance(item, CachePoint) else None)
    return {"type": "image", "source": {"type": "url"}} if text is None else {"type": "text", "text": text}


def _applied(messages: Sequence[ModelMessage], edits: Mapping[Any, Replacement]) -> list[ModelMessage]:
    new: list[Any] = list(messages)
    for (i, j), content in edits.items():
        parts = list(new[i].parts)
        parts[j] = replace(parts[j], **{"args" if isinstance(parts[j], ToolCallPart) else "content": content})
        new[i] = replace(new[i], parts=parts)
    return new
