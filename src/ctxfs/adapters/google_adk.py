"""Google's ADK: ``Runner(…, plugins=[CtxfsPlugin(history)])``; the session's events keep every byte."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ctxfs.adapters.extras import beside_tokens, needs
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import HostCache, Part, Replacement
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, Histories, history_of, require_history
from ctxfs.context.history.wire_gemini import result_text
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.tools.base import Tool

with needs("google_adk"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.genai import types

__all__ = ["CtxfsPlugin"]


@names_settings(GIVEN_TO_HISTORY)
class CtxfsPlugin(BasePlugin):
    """Replaces what is due in each request of all agents of a runner, and adds the tools that read it back.

    ``history`` is the session of one conversation, or ``Histories``, with one for each session of ADK. ``at_source``:
    large results are also replaced where they are made, so that the events hold the summaries. The runner's ``close``
    closes the history. A request for JSON, without tools, gets none.
    """

    def __init__(self, history: History | Histories, *, at_source: bool = False) -> None:
        require_history(history, many=True)
        super().__init__(name="ctxfs")
        self.history = history
        self._at_source = at_source

    @property
    def tools(self) -> list[BaseTool]:
        """The tools with which a model reads back what was replaced."""
        return [_Reader(self, tool) for tool in self.history.tools]

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Add the reading tools to the request, and replace what is due in it."""
        if llm_request.tools_dict or llm_request.config.response_mime_type != "application/json":
            llm_request.append_tools([tool for tool in self.tools if tool.name not in llm_request.tools_dict])
        parts = list(_parts_of(llm_request.contents))
        host = HostCache(at_end=getattr(llm_request, "cache_config", None) is not None)  # ADK caches all but new ones
        history = self.history_in(callback_context)
        tools = list(llm_request.tools_dict)
        edits = await history.arewrite(
            parts,
            branch=callback_context.agent_name,
            overhead_tokens=await _overhead_of(llm_request.config),
            host=host,
            tools=tools,
        )
        llm_request.contents = _applied(llm_request.contents, edits)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record what was billed."""
        used = llm_response.usage_metadata
        if used is not None and used.prompt_token_count is not None and not llm_response.partial:
            await self.history_in(callback_context).areplied(used, branch=callback_context.agent_name)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: Any, tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """Replace a large result before it enters an event."""
        if not self._at_source or tool_args is None:
            return None
        text, stays = _result_text(result if isinstance(result, dict) else {"result": result})
        if stays:
            return None
        history = self.history_in(tool_context)
        new = await history.aarrive(text, tool=tool.name, call_id=tool_context.function_call_id or "")
        return None if new == text else {"result": new}

    async def close(self) -> None:
        """Close the sessions; the runner calls it."""
        self.history.close()

    def history_in(self, context: Any) -> History:
        """Return the history of a context's session."""
        session = context.session
        return history_of(self.history, f"{session.app_name}/{session.user_id}/{session.id}")


class _Reader(BaseTool):
    def __init__(self, plugin: CtxfsPlugin, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._plugin = plugin
        self._schema = dict(tool.input_schema)

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        try:
            result = await self._plugin.history_in(tool_context).arun_tool(self.name, args)
        except InvalidToolArguments as error:
            return {"error": str(error)}
        return {"error" if result.is_error else "result": result.text}


async def _overhead_of(config: types.GenerateContentConfig) -> int:
    """The tokens of what is no part of the history: the system instruction, the tools, the answer's schema."""
    schema: Any = config.response_schema
    if schema is not None and not isinstance(schema, dict | types.Schema):  # a class, or a type such as list[Answer]
        schema = TypeAdapter(schema).json_schema()
    beside = [config.system_instruction, config.tools, schema, getattr(config, "response_json_schema", None)]
    return await beside_tokens(to_jsonable_python(beside, exclude_none=True, fallback=str))


def _result_text(response: Mapping[str, Any] | None, media: Any = None) -> tuple[str, bool]:
    """``result_text`` of a response that may hold objects, which a tool of Python can return."""
    return result_text(to_jsonable_python(dict(response or {}), fallback=str), media=media)


def _parts_of(contents: Sequence[types.Content]) -> Iterator[Part]:
    """The parts of a request. Requests to Gemini have no call ids: decisions are then found by the content."""
    for i, content in enumerate(contents):
        kind: Any = "reply" if content.role == "model" else "user"
        for j, part in enumerate(content.parts or ()):
            if (call := part.function_call) is not None:
                yield Part("call", dict(call.args or {}), (i, j), call.id or "", call.name or "")
            elif (response := part.function_response) is not None:
                text, stays = _result_text(response.response, getattr(response, "parts", None))
                yield Part("result", text, (i, j), response.id or "", response.name or "", stays)
            elif part.text is not None:
                yield Part(kind, part.text, (i, j), stays=bool(part.thought))
            elif kind == "user":
                yield Part(kind, [{"type": "image", "source": {"type": "url"}}], (i, j), stays=True)
            else:
                yield Part(kind, repr(part), (i, j), stays=True)


def _applied(contents: Sequence[types.Content], edits: Mapping[Any, Replacement]) -> list[types.Content]:
    """The contents to send: changed ones are copies, since the request shares its parts with the session's events."""
    new = list(contents)
    for (i, j), content in edits.items():
        parts = list(new[i].parts or ())
        parts[j] = _edited(parts[j], content)
        new[i] = new[i].model_copy(update={"parts": parts})
    return new


def _edited(part: types.Part, new: Replacement) -> types.Part:
    if part.function_call is not None:
        return part.model_copy(update={"function_call": part.function_call.model_copy(update={"args": new})})
    if part.function_response is None:
        return part.model_copy(update={"text": new})
    response = part.function_response.model_copy(update={"response": {"result": new}})
    return part.model_copy(update={"function_response": response})
