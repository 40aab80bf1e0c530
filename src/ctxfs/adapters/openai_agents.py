"""The OpenAI Agents SDK: ``RunConfig(call_model_input_filter=CtxfsFilter(history))``; sessions keep every byte."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from ctxfs.adapters.extras import needs
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.messages import Content
from ctxfs.tools.base import Tool

with needs("openai_agents"):
    from agents import (
        Agent,
        AgentOutputSchema,
        AgentOutputSchemaBase,
        FunctionTool,
        Handoff,
        RunContextWrapper,
        RunHooks,
        ToolGuardrailFunctionOutput,
        ToolOutputGuardrail,
        ToolOutputGuardrailData,
        ToolOutputImage,
        ToolOutputText,
        handoff,
    )
    from agents.run import CallModelData, ModelInputData

__all__ = ["CtxfsFilter"]


@names_settings(GIVEN_TO_HISTORY)
class CtxfsFilter(RunHooks[Any]):
    """Replaces what is due in the input of each model call; items that do not change stay the same objects.

    Give each agent ``tools=[…, *ctxfs.tools]``, with which its model reads back what was replaced. Pass the same object
    to a run as ``hooks=ctxfs``, to record what was billed. A filter serves one history; make one for each conversation.

    If the server holds the history (``conversation_id``, ``previous_response_id``), nothing in a request can be
    replaced, and the first call after a tool's result raises ``ConfigError``. Use ``at_source`` instead.
    """

    def __init__(self, history: History) -> None:
        require_history(history)
        self.history = history
        self._of_servers: dict[tuple[str, ...], list[Any]] = {}

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input to send."""
        given = data.model_data
        _check_calls(given.input)
        agent = data.agent
        tools = [_schema(tool) for tool in agent.tools]
        tools += await self._served(agent, data.context)
        tools += [_handing_over(one) for one in agent.handoffs]
        body = {"input": given.input, "instructions": given.instructions, "tools": tools, "text": _output_of(agent)}
        sent = await self.history.aresponses(body, branch=data.agent.name)
        return ModelInputData(input=sent["input"], instructions=given.instructions)

    async def _served(self, agent: Agent[Any], context: Any) -> list[Any]:
        """The schemas of the tools of an agent's MCP servers, which are asked once: the SDK asks them at each call."""
        key = (agent.name, *[server.name for server in agent.mcp_servers])
        if agent.mcp_servers and key not in self._of_servers:
            found = await agent.get_mcp_tools(RunContextWrapper(context))
            self._of_servers[key] = [_schema(tool) for tool in found]
        return self._of_servers.get(key, [])

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: Any) -> None:  # noqa: ARG002
        """Record what was billed."""
        await self.history.areplied(response.usage, branch=agent.name)

    @property
    def tools(self) -> list[FunctionTool]:
        """The tools with which a model reads back what was replaced."""
        return [self._reader(tool) for tool in self.history.tools]

    @property
    def at_source(self) -> ToolOutputGuardrail[Any]:
        """Replaces large results where they are made: ``@function_tool(tool_output_guardrails=[ctxfs.at_source])``.

        Traces show a replaced result as a rejected output.
        """
        return ToolOutputGuardrail(self._arrived, name="ctxfs")

    async def _arrived(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        if isinstance(data.output, str):
            named = data.context
            new = await self.history.aarrive(data.output, tool=named.tool_name, call_id=named.tool_call_id)
            if isinstance(new, str) and new != data.output:
                return ToolGuardrailFunctionOutput.reject_content(new)
        return ToolGuardrailFunctionOutput.allow()

    def _reader(self, tool: Tool) -> FunctionTool:
        async def run(_: Any, arguments: str) -> Any:
            try:
                return _output((await self.history.arun_tool(tool.name, json.loads(arguments or "{}"))).content)
            except (InvalidToolArguments, json.JSONDecodeError) as error:
                return f"Error: {error}"

        return FunctionTool(tool.name, tool.description, dict(tool.input_schema), run, strict_json_schema=False)


def _schema(tool: Any) -> dict[str, Any]:
    """What a request holds of a tool; of a hosted one, such as a web search, all that is not code."""
    if isinstance(tool, FunctionTool):
        return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    fields = {name: value for name, value in vars(tool).items() if value is not None and not callable(value)}
    known: dict[str, Any] = to_jsonable_python({"type": tool.name, **fields}, fallback=lambda _: None)
    return known


def _handing_over(to: Agent[Any] | Handoff[Any, Any]) -> dict[str, Any]:
    """The schema of the tool with which a model hands over to another agent."""
    found = to if isinstance(to, Handoff) else handoff(to)
    return {"name": found.tool_name, "description": found.tool_description, "parameters": found.input_json_schema}


def _output_of(agent: Agent[Any]) -> dict[str, Any] | None:
    """The schema of an agent's answers; None: they are text."""
    kind = agent.output_type
    if kind is None or kind is str:
        return None
    schema = kind if isinstance(kind, AgentOutputSchemaBase) else AgentOutputSchema(kind)
    return None if schema.is_plain_text() else schema.json_schema()


def _check_calls(items: Sequence[Any]) -> None:
    """Refuse a request whose newest result has no call in it: the server then holds the messages before it."""
    known = [item for item in items if isinstance(item, Mapping)]
    results = [item["call_id"] for item in known if item.get("type") == "function_call_output"]
    if results and not any(item.get("type") == "function_call" and item["call_id"] == results[-1] for item in known):
        raise ConfigError(
            "the server holds this history (conversation_id or previous_response_id): leave them out and use a "
            "Session, or leave out the filter and replace results where they are made, with tool_output_guardrails"
        )


def _output(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [_shown(block) for block in content]


def _shown(block: dict[str, Any]) -> ToolOutputText | ToolOutputImage:
    source = block.get("source", {})
    if block["type"] == "image" and source.get("type") == "base64":
        return ToolOutputImage(image_url=f"data:{source['media_type']};base64,{source['data']}")
    return ToolOutputText(text=block["text"] if block["type"] == "text" else json.dumps(block))
