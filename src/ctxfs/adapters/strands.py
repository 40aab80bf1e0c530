"""Strands: ``Agent(plugins=[CtxfsPlugin(history)])``; ``agent.messages`` keeps every byte."""

from collections.abc import Sequence
from typing import Any

from ctxfs.adapters.beside import beside_tokens
from ctxfs.adapters.extras import needs
from ctxfs.adapters.strands_messages import applied, host_cache_of, parts_of, result_of
from ctxfs.adapters.strands_storage import CtxfsStorage
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.tools.base import Tool

with needs("strands"):
    from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeModelCallEvent
    from strands.plugins import Plugin
    from strands.tools.tools import PythonAgentTool

__all__ = ["CtxfsPlugin", "CtxfsStorage"]

_CACHED_APART = ("strands.models.bedrock", "strands.models.anthropic")
"""Models whose ``inputTokens`` leave out the tokens that were read from the cache or written to it."""


@names_settings(GIVEN_TO_HISTORY)
class CtxfsPlugin(Plugin):
    """Replaces what is due in each request, and gives the model tools to read it back.

    ``history`` is the session of one conversation, so create a plug-in for each. Agents with an ``agent_id`` may share
    one. ``at_source``: large results are also replaced where they are made, so that the messages hold the summaries.
    Before strands 1.62, the agent's messages hold the replacements anyway; a session manager still stores the
    originals.
    """

    name = "ctxfs"

    def __init__(self, history: History, *, at_source: bool = False) -> None:
        require_history(history)
        self.history = history
        self._at_source = at_source
        super().__init__()

    def init_agent(self, agent: Any) -> None:
        """Attach to an agent; the agent calls it."""
        agent.tool_registry.process_tools([self._reader(tool) for tool in self.history.tools])
        agent.add_hook(self._replied, AfterModelCallEvent)
        if self._at_source:
            agent.add_hook(self._arrived, AfterToolCallEvent)
        if not hasattr(agent, "add_middleware"):  # before 1.62 requests cannot be changed, only the agent's messages
            agent.add_hook(self._in_messages, BeforeModelCallEvent)
            return
        from strands.middleware import InvokeModelStage  # noqa: PLC0415 - since 1.62

        agent.add_middleware(InvokeModelStage.Input, self._in_request)

    async def _in_request(self, context: Any) -> Any:
        beside = [context.system_prompt, context.tool_specs]
        return context.replace(messages=await self._rewritten(context.agent, context.messages, beside))

    async def _in_messages(self, event: BeforeModelCallEvent) -> None:
        agent = event.agent
        beside = [agent.system_prompt, agent.tool_registry.get_all_tool_specs()]
        agent.messages[:] = await self._rewritten(agent, agent.messages, beside)

    async def _rewritten(self, agent: Any, messages: Sequence[Any], beside: Sequence[Any]) -> list[Any]:
        host = host_cache_of(messages, agent.model)
        overhead = await beside_tokens(beside)
        edits = await self.history.arewrite(
            list(parts_of(messages)), branch=_branch(agent), overhead_tokens=overhead, host=host
        )
        return applied(messages, edits)

    async def _replied(self, event: AfterModelCallEvent) -> None:
        message: Any = event.stop_response.message if event.stop_response else {}
        if used := message.get("metadata", {}).get("usage"):
            cached, written = used.get("cacheReadInputTokens", 0), used.get("cacheWriteInputTokens", 0)
            apart = type(event.agent.model).__module__ in _CACHED_APART
            billed = Usage(
                input_tokens=used["inputTokens"] - (0 if apart else min(used["inputTokens"], cached + written)),
                cache_read_input_tokens=cached,
                cache_creation_input_tokens=written,
                output_tokens=used["outputTokens"],
            )
            await self.history.areplied(billed, branch=_branch(event.agent))

    async def _arrived(self, event: AfterToolCallEvent) -> None:
        content, stays = result_of(event.result)
        if not stays:
            call = event.tool_use
            new = await self.history.aarrive(content, tool=call["name"], call_id=call["toolUseId"])
            if new != content and isinstance(new, str):
                event.result = {**event.result, "content": [{"text": new}]}

    def _reader(self, tool: Tool) -> PythonAgentTool:
        async def run(use: Any, **_: Any) -> Any:
            try:
                result = await self.history.arun_tool(tool.name, use["input"])
            except InvalidToolArguments as error:
                return {"toolUseId": use["toolUseId"], "status": "error", "content": [{"text": str(error)}]}
            status = "error" if result.is_error else "success"
            return {"toolUseId": use["toolUseId"], "status": status, "content": [{"text": result.text}]}

        spec: Any = {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": {"json": dict(tool.input_schema)},
        }
        return PythonAgentTool(tool.name, spec, run)


def _branch(agent: Any) -> str:
    return "" if agent.agent_id == "default" else agent.agent_id
