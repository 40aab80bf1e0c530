"""The Claude Agent SDK: ``ClaudeAgentOptions(hooks=ctxfs.hooks, mcp_servers=ctxfs.mcp_servers, …)``.

Claude Code keeps the history. So large results are replaced where they are made, and old ones when the conversation is
resumed.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from anyio import to_thread

from ctxfs.adapters.extras import beside_tokens, needs
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.context.history.structured import arrived
from ctxfs.errors import CtxfsError, InvalidToolArguments
from ctxfs.errors.checks import names_settings
from ctxfs.tools.base import Tool

with needs("claude_agent_sdk"):
    from claude_agent_sdk import HookMatcher, McpSdkServerConfig, SdkMcpTool, SessionStore, create_sdk_mcp_server

__all__ = ["CtxfsHooks"]

_log = logging.getLogger("ctxfs.adapters")

_SERVER = "ctxfs"
_PROMPT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TOOLS = "Bash|BashOutput|TaskOutput|Grep|Glob|WebFetch|WebSearch|Task|Agent|mcp__.*"
"""The tools whose output may be replaced. What Read, Edit and Write show is in a file already."""


@names_settings(GIVEN_TO_HISTORY)
class CtxfsHooks:
    """Replaces large results before the model sees them, and gives it tools to read them back, all in this process.

    ``history`` is the session of one conversation. Pass ``hooks``, ``mcp_servers`` and ``allowed_tools`` to
    ``ClaudeAgentOptions`` under these names, together with your own.
    """

    def __init__(self, history: History) -> None:
        require_history(history)
        self.history = history

    @property
    def hooks(self) -> dict[Any, list[HookMatcher]]:
        """A hook that runs after each tool call."""
        return {"PostToolUse": [HookMatcher(matcher=_TOOLS, hooks=[self._after])]}

    @property
    def mcp_servers(self) -> dict[str, McpSdkServerConfig]:
        """An MCP server in this process, with the tools that read back results."""
        return {_SERVER: create_sdk_mcp_server(_SERVER, tools=self.tools)}

    @property
    def allowed_tools(self) -> list[str]:
        """The names of that server's tools, which need no permission."""
        return [f"mcp__{_SERVER}__{tool.name}" for tool in self.tools]

    @property
    def tools(self) -> list[SdkMcpTool[Any]]:
        """The tools of that server, for a server of your own."""
        return [self._reader(tool) for tool in self.history.tools if tool.name != "Read"]  # Claude Code has its own

    def session_store(self, store: SessionStore) -> SessionStore:
        """Return ``store`` with what is due replaced in each transcript that is loaded to be resumed.

        ``store`` keeps every transcript as it was. Each later load has the same bytes in place of what was replaced.
        The transcript of a subagent is a branch of the session.
        """
        return cast("SessionStore", _Store(self.history, store))

    async def _after(self, event: Any, tool_use_id: str | None, context: Any) -> Any:  # noqa: ARG002
        name = event["tool_name"]
        if name in self.allowed_tools:
            return {}
        try:
            new = await arrived(self.history, event["tool_response"], tool=name, call_id=event["tool_use_id"])
        except CtxfsError as error:
            _log.warning("session %s: %s", self.history.session_id, error)
            return {"systemMessage": f"ctxfs could not store a tool's output: {error}"}
        if new is None:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": new}}

    def _reader(self, tool: Tool) -> SdkMcpTool[Any]:
        async def run(arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                result = await self.history.arun_tool(tool.name, arguments)
            except InvalidToolArguments as error:
                return {"content": [{"type": "text", "text": str(error)}], "is_error": True}
            return {"content": [{"type": "text", "text": result.text}], "is_error": result.is_error}

        return SdkMcpTool(tool.name, tool.description, dict(tool.input_schema), run)


class _Store:
    """A store of transcripts, with what is due replaced in each transcript that is loaded."""

    def __init__(self, history: History, store: SessionStore) -> None:
        self._history = history
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the store; a method that it lacks, or only inherits, is missing here too."""
        if getattr(type(self._store), name, None) is getattr(SessionStore, name, None):
            raise AttributeError(name)
        return getattr(self._store, name)

    async def load(self, key: Any) -> Any:
        """Return the transcript to resume, with what is due replaced; None if the store has none."""
        entries: list[Any] | None = await self._store.load(key)
        said = [entry for entry in entries or () if _is_said(entry)]
        if entries is None or not said:
            return entries
        messages = [entry["message"] for entry in said]
        overhead = await _beside(messages)
        branch = key.get("subpath") or ""
        body = {"messages": messages}
        rewritten = partial(
            self._history.rewritten,
            "messages",
            body,
            branch=branch,
            overhead_tokens=overhead,
            has_tools=True,  # Claude Code's own, which no transcript has
        )
        sent, _ = await to_thread.run_sync(rewritten)
        new = iter(sent["messages"])
        return [{**entry, "message": next(new)} if _is_said(entry) else entry for entry in entries]


async def _beside(messages: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of Claude Code's own prompt and tools, which no transcript has; 0: no reply has its usage.

    It is what the first request was billed for besides its messages: nothing was replaced in them yet.
    """
    for number, message in enumerate(messages):
        usage = message.get("usage")
        if not isinstance(usage, Mapping):
            continue
        billed = sum(usage.get(kind) or 0 for kind in _PROMPT)
        said = [[one["role"], one["content"]] for one in messages[:number]]
        return max(0, billed - await beside_tokens(*said))
    return 0


def _is_said(entry: Mapping[str, Any]) -> bool:
    message = entry.get("message")
    return isinstance(message, Mapping) and "role" in message and bool(message.get("content"))
