"""Running the tools that a model calls: side by side, each asked for approval first, each result redacted."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable

from ctxfs.agent.config import Approve, Redact
from ctxfs.agent.telemetry.telemetry import SessionTelemetry
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.errors.base import quoted
from ctxfs.messages.messages import ToolCall, check_content
from ctxfs.storage.task_group import TaskGroup, is_own_cancellation
from ctxfs.tools.base import RunningCall, Tool, ToolResult, told

_log = logging.getLogger("ctxfs.agent")

_CANCELLED = "CancelledError: something that the tool waited for was cancelled"


class ToolRunner:
    """The tools of an agent, by name. ``approve`` None: all calls run; ``redact`` None: results stay as they are.

    ``telemetry`` gets a span for each call, with the result after ``redact``.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        approve: Approve | None,
        redact: Redact | None,
        telemetry: SessionTelemetry | None = None,
    ) -> None:
        self._tools = tools
        self._approve = approve
        self._redact = redact
        self._telemetry = telemetry

    def changes(self, calls: Sequence[ToolCall]) -> bool:
        """Whether one of the calls may change something, so that it must be recorded before it runs."""
        tools = (self._tools.get(call.name) for call in calls)
        return any(tool is not None and not tool.read_only for tool in tools)

    async def run(self, calls: Sequence[ToolCall], results: list[ToolResult], *, at: RunningCall) -> None:
        """Run the calls of one reply concurrently; each result is put at its call's index of ``results``.

        ``at``: the call that ``running_call`` returns, without its id.

        A tool that fails, and a call that is denied or names no tool, have an error as their result. If a callback
        raises, the other calls are cancelled, and its error is raised.
        """

        async def run(index: int, call: ToolCall) -> None:
            results[index] = await self._result(call, replace(at, call_id=call.id))

        async with TaskGroup() as group:
            for index, call in enumerate(calls):
                group.start_soon(run, index, call)

    async def _result(self, call: ToolCall, running: RunningCall) -> ToolResult:
        async def result() -> ToolResult:
            return await self._redacted(call, await self._outcome(call, running))

        _log.debug("call %s of the tool %s begins", quoted(call.id), quoted(call.name))
        if self._telemetry is None:
            found = await result()
        else:
            found = await self._telemetry.tool_call(call, result)
        if _log.isEnabledFor(logging.INFO):
            text = "call %s of the tool %s gave %s%s characters"
            _log.info(
                text,
                quoted(call.id),
                quoted(call.name),
                "an error of " if found.is_error else "",
                f"{len(found.text):,}",
            )
        return found

    async def _redacted(self, call: ToolCall, result: ToolResult) -> ToolResult:
        if self._redact is None:
            return result
        content = self._redact(call, result.content)
        if isawaitable(content):
            content = await content
        try:
            content = check_content(content)
        except ValueError as error:
            raise ConfigError(
                f"redact returned something that is not content ({error}): return a text or content blocks"
            ) from error
        return replace(result, content=content, is_data=result.is_data and content == result.content)

    async def _outcome(self, call: ToolCall, running: RunningCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return _error(f"There is no tool {quoted(call.name)}. You can call: {', '.join(sorted(self._tools))}.")
        if self._approve is not None:
            verdict = self._approve(call)
            if isawaitable(verdict):
                verdict = await verdict
            if verdict is not True:
                return _error(f"The call was denied: {verdict}" if verdict else "The call was denied by the user.")
        try:
            return await tool.run(call.arguments, call=running)
        except InvalidToolArguments as error:
            return _error(str(error))
        except Exception as error:  # noqa: BLE001 - it is the result, and the model decides what to do
            return _error(f"{type(error).__name__}: {told(error)}")
        except asyncio.CancelledError as error:
            if not is_own_cancellation(error):
                raise
            return _error(_CANCELLED)


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)
