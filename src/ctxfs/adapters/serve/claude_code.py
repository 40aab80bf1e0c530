"""The server of the plug-in for Claude Code, which serves both the hook and the reading tools.

The hook gets each tool's response before the model does, and returns what to send instead: a summary of each large
text, which is stored in full. The model reads stored texts with the other tools.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxfs.adapters.serve.mcp import Call, Server, serve_stdio
from ctxfs.context.history.history import History
from ctxfs.context.history.pool import Histories
from ctxfs.context.history.structured import arrived
from ctxfs.errors import CtxfsError
from ctxfs.errors.base import described
from ctxfs.eviction.events import ContextEvent, OffloadFailed
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.sessions import SessionStores, is_there
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.retrieval import retrieval_tools

HOOK = "ctxfs_hook"
"""The name of the tool that the plug-in's hooks call."""

_OF_THE_MODEL = "claudecode/toolUseId"
"""The key of the metadata that Claude Code sends with its model's calls, but not with those of a hook."""

_log = logging.getLogger("ctxfs.adapters")

_NOTHING = "{}"
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {} for name in ("session_id", "tool_name", "tool_use_id", "tool_response")},
}


@dataclass(slots=True)
class Plugin:
    """What the plug-in does for one process of Claude Code.

    ``session_id`` is the current conversation, as Claude Code names it; each hook may change it. "" until the first
    hook. ``failures``: errors of storing that were not reported yet.
    """

    histories: Histories
    session_id: str = ""
    failures: list[CtxfsError] = field(default_factory=list)
    tools: tuple[Tool, ...] = field(init=False)
    _known: str = field(default="", init=False)

    def __post_init__(self) -> None:
        async def never(_: Mapping[str, Any]) -> ToolResult:
            raise AssertionError("the hook is run by run()")

        hook = Tool(name=HOOK, description="For the plug-in's hooks only.", input_schema=_SCHEMA, handler=never)
        self.tools = (*retrieval_tools(ContextFileSystem("schemas")), hook)

    async def run(self, call: Call) -> ToolResult:
        """Run one of ``tools``.

        The model has no use for the hook, and must not be able to choose a session with it.
        """
        if call.tool.name == HOOK:
            if _OF_THE_MODEL in call.meta:
                return ToolResult("This tool is for the plug-in's hooks only: use the other ones.", is_error=True)
            return ToolResult(await self.hook(call.arguments))
        history = self._history()
        if history is None or not await self._is_there(history.session_id):
            return ToolResult("Nothing is stored yet in this conversation.", is_error=True)
        return await history.arun_tool(call.tool.name, call.arguments)

    async def hook(self, event: Mapping[str, Any]) -> str:
        """Return, as JSON, what Claude Code must do after an event. The tool's response in the event is JSON, too.

        Claude Code shows the user nothing of a hook that fails, so each failure is in the answer.
        """
        self.session_id = str(event.get("session_id") or self.session_id)
        if "tool_response" not in event:
            return _NOTHING
        messages: list[str] = []
        new = None
        try:
            new = await self._stored(_response(event["tool_response"]), event)
        except CtxfsError as error:
            self.failures.append(error)
        except Exception as error:  # noqa: BLE001 - a defect; else only the transcript would tell
            _log.error("the hook failed: %s", described(error))
            messages.append(f"ctxfs could not store a tool's output, by a defect of its own: {type(error).__name__}")
        if self.failures:
            messages.append(f"ctxfs could not store a tool's output: {self.failures[0]}")
            self.failures.clear()
        answer: dict[str, Any] = {}
        if messages:
            answer["systemMessage"] = "\n".join(messages)
            sys.stderr.write(f"ctxfs: {answer['systemMessage']}\n")
        if new is not None:
            answer["hookSpecificOutput"] = {"hookEventName": "PostToolUse", "updatedToolOutput": new}
        return json_codec.dumps_text(answer)

    async def _stored(self, response: Any, event: Mapping[str, Any]) -> Any:
        """``response`` with a summary in place of each large text; None if nothing was replaced."""
        if (history := self._history()) is None:
            return None
        tool, call_id = str(event.get("tool_name", "")), str(event.get("tool_use_id", ""))
        return await arrived(history, response, tool=tool, call_id=call_id)

    async def _is_there(self, session_id: str) -> bool:
        """Whether something is stored in the session; once it is, the store is not asked again."""
        if self._known != session_id and await is_there(self.histories.stores, session_id):
            self._known = session_id
        return self._known == session_id

    def _history(self) -> History | None:
        return self.histories.of(self.session_id) if self.session_id else None


def _response(given: Any) -> Any:
    """A tool's response as the tool gave it: Claude Code passes JSON, or the response itself if it is a text."""
    if not isinstance(given, str):
        return given
    try:
        return json_codec.loads(given)
    except ValueError:
        return given


def plugin_at(
    stores: SessionStores, session_id: str = "", *, preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS
) -> Plugin:
    """Return a plug-in that stores texts of more than ``preview_above_tokens`` in ``stores``; None: none."""
    failures: list[CtxfsError] = []

    def happened(event: ContextEvent) -> None:
        if isinstance(event, OffloadFailed):
            failures.append(event.error)

    histories = Histories(
        root_path=stores, preview_above_tokens=preview_above_tokens, read_tool="context_read", on_event=happened
    )
    return Plugin(histories, session_id, failures)


async def serve(plugin: Plugin, first: bytes = b"") -> None:
    """Serve the plug-in over standard input and output until standard input ends; ``first``: see ``serve_stdio``."""
    try:
        await serve_stdio(Server(plugin.tools, plugin.run), first=first)
    finally:
        plugin.histories.close()
