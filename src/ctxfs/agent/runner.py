"""Running the tools that a model calls: side by side, each asked for approval first, each result redacted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable

import anyio

from ctxfs.agent.config import Approve, Redact
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.llm.messages import ToolCall, check_content
from ctxfs.tools.base import Tool, ToolResult

__all__ = ["ToolRunner"]


class ToolRunner:
    """The tools of an agent, by name. ``approve`` None: all calls run; ``redact`` None: results stay as they are."""

    def __init__(self, tools: Mapping[str, Tool], *, approve: Approve | None, redact: Redact | None) -> None:
        self._tools = tools
        self._approve = approve
        self._redact = redact

    async def run(self, calls: Sequence[ToolCall], results: list[ToolResult]) -> None:
        """Run the calls of one reply side by side; each result takes its call's place in ``results`` as it comes.

        A tool that fails, a denied and an impossible call give an error result. Raises what a callback raises, once the
        other calls are cancelled.
        """
        failures: list[Exception] = []

        async def run(index: int, call: ToolCall) -> None:
            try:
                results[index] = await self._redacted(call, await self._outcome(call))
            except Exception as error:  # noqa: BLE001  (raised below, one instead of a group)
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(run, index, call)
        if failures:
            raise failures[0]

    async def _redacted(self, call: ToolCall, result: ToolResult) -> ToolResult:
        if self._redact is None:
            return result
        content = self._redact(call, result.content)
        content = await content if isawaitable(content) else content
        try:
            content = check_content(content)
        except ValueError as error:
            raise ConfigError(
                f"redact returned something that is not content ({error}): return a text or content blocks"
            ) from error
        return replace(result, content=content, is_data=result.is_data and content == result.content)

    async def _outcome(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return _error(f"There is no tool {call.name!r}. You can call: {', '.join(sorted(self._tools))}.")
        if self._approve is not None:
            verdict = self._approve(call)
            verdict = await verdict if isawaitable(verdict) else verdict
            if verdict is not True:
                return _error(f"The call was denied: {verdict}" if verdict else "The call was denied by the user.")
        try:
            return await tool.run(call.arguments, call_id=call.id)
        except InvalidToolArguments as error:
            return _error(str(error))
        except Exception as error:  # noqa: BLE001  (the model is told, and decides what to do)
            return _error(f"{type(error).__name__}: {error}")


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)
