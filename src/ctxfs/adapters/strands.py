"""Strands: ``Agent(plugins=[CtxfsPlugin(history)])``; ``agent.messages`` keeps every byte.

Its messages are shown as parts of a history; edits are applied to copies of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxfs.adapters.extras import beside_tokens, needs
from ctxfs.adapters.strands_storage import CtxfsStorage
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import HostCache, Part, Replacement, asked_by, mark_of
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import Block, Content
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool

_OFFLOADED = "Tool result was offloaded to external storage"
"""A phrase near the start of the stub with which Strands' ContextOffloader replaces a result."""

_STUB_CHARS = 400


def result_of(result: Any) -> tuple[Content, bool]:
    """A tool's result as a content; and whether it stays: errors, media and stubs of another offloader do."""
    blocks = tuple(_block(item) for item in result["content"])
    stays = result.get("status") == "error" or any(
        block["type"] != "text" or _OFFLOADED in block["text"][:_STUB_CHARS] for block in blocks
    )
    return (blocks[0]["text"] if len(blocks) == 1 and not stays else blocks), stays


def _block(item: Any) -> Block:
    """The block as which a piece of content is counted; all media count as images."""
    if "text" in item or "json" in item:
        return {"type": "text", "text": item["text"] if "text" in item else json_codec.dumps_text(item["json"])}
    return {"type": "image", "source": {"type": "url"}}


def host_cache_of(messages: Sequence[Any], model: Any) -> HostCache:
    """What cache points at the end of the messages, or else the model's settings, ask of the prompt cache."""
    config = model.get_config().get("cache_config")
    return asked_by(mark_of(messages, "cachePoint"), config and (getattr(config, "ttl", None) or True))


def parts_of(messages: Sequence[Any]) -> Iterator[Part]:
    """The parts of messages; the place of each is (number of the message, number in its content)."""
    tools: dict[str, str] = {}
    for i, message in enumerate(messages):
        kind: Any = "reply" if message["role"] == "assistant" else "user"
        for j, item in enumerate(message["content"]):
            if use := item.get("toolUse"):
                tools[use["toolUseId"]] = use["name"]
                is_plain = isinstance(use["input"], Mapping)
                arguments = use["input"] if is_plain else {"input": use["input"]}
                yield Part("call", arguments, (i, j), use["toolUseId"], use["name"], stays=not is_plain)
            elif result := item.get("toolResult"):
                content, stays = result_of(result)
                yield Part("result", content, (i, j), result["toolUseId"], tools.get(result["toolUseId"], ""), stays)
            elif "text" in item:
                yield Part(kind, item["text"], (i, j))
            elif "cachePoint" not in item:
                said = [_block(item)] if kind == "user" else str(item)
                yield Part(kind, said, (i, j), stays=True)


def applied(messages: Sequence[Any], edits: Mapping[Any, Replacement]) -> list[Any]:
    """Copies of the messages with these edits; unchanged messages are the same objects."""
    new = list(messages)
    for (i, j), content in edits.items():
        items = list(new[i]["content"])
        items[j] = _edited(items[j], content)
        new[i] = {**new[i], "content": items}
    return new


def _edited(item: Any, new: Replacement) -> Any:
    if "toolUse" in item:
        return {**item, "toolUse": {**item["toolUse"], "input": new}}
    if "text" in item:
        return {**item, "text": new}
    texts = [new] if isinstance(new, str) else [block["text"] for block in new if isinstance(block, dict)]
    return {**item, "toolResult": {**item["toolResult"], "content": [{"text": text} for text in texts]}}


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
