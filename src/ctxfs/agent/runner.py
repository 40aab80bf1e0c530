"""Running the tools that a model calls: side by side, each asked for approval first, each result redacted."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable

import anyio

from ctxfs.agent.config import Approve, Redact
from ctxfs.agent.telemetry.telemetry import SessionTelemetry
from ctxfs.errors import ConfigError, InvalidToolArguments
from ctxfs.errors.base import quoted
from ctxfs.messages.messages import ToolCall, check_content
from ctxfs.storage.task_group import TaskGroup, is_own_cancellation
from ctxfs.storage.threads import uninterrupted
from ctxfs.tools.base import RunningCall, Tool, ToolResult, told

_log = logging.getLogger("ctxfs.agent")

_CANCELLED = "CancelledError: something that the tool waited for was cancelled"

_REDACT_S = 5.0
"""For how long a query that is cancelled, or an agent that closes, waits for redact: it may wait for a server."""

_ASK_S = 0.01


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
        self._begun: set[str] = set()  # ids of calls whose tools have begun
        self._unredacted: dict[str, ToolResult] = {}  # by the ids of calls: their tools have ended
        self._redacting: dict[int, str] = {}  # ids of calls, by the ids of the tasks in which redact runs for them

    def changes(self, calls: Sequence[ToolCall]) -> bool:
        """Whether one of the calls may change something, so that it must be recorded before it runs."""
        tools = (self._tools.get(call.name) for call in calls)
        return any(tool is not None and not tool.read_only for tool in tools)

    async def run(self, calls: Sequence[ToolCall], results: dict[str, ToolResult], *, at: RunningCall) -> None:
        """Run the calls of one reply concurrently; each result is put into ``results`` under its call's id.

        ``at``: the call that ``running_call`` returns, without its id.

        A tool that fails, and a call that is denied or names no tool, have an error as their result. If a callback
        raises, the other calls are cancelled, and its error is raised; the results of those whose tool had not begun
        say so. After an exit or an interrupt, nothing that ``redact`` does meanwhile is raised in its place.
        """
        self._begun = set()
        try:
            async with TaskGroup() as group:
                for call in calls:
                    group.start_soon(self._run, call, replace(at, call_id=call.id), results)
        except BaseException as first:
            for call in calls:
                if call.id not in self._begun:
                    results.setdefault(call.id, _NOT_RUN)
            try:
                await self._redact_rest(calls, results)
            except BaseException:  # another exit, or the task is cancelled
                if isinstance(first, (Exception, anyio.get_cancelled_exc_class())):
                    raise
            raise
        finally:
            self._unredacted = {}

    async def wait_for_redact(self, task_id: int) -> None:
        """Wait until no result is being redacted, for a few seconds at most: until then none is in the results.

        ``task_id``: the task that waits. What it redacts itself, it would wait for in vain.
        """
        own = {self._redacting.get(task_id)}
        with anyio.move_on_after(_REDACT_S):
            while self._unredacted.keys() - own:  # noqa: ASYNC110 - the loop that would set an event may have ended
                await anyio.sleep(_ASK_S)

    @uninterrupted
    async def _redact_rest(self, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> None:
        """Redact again what was cut in the middle of it: its tool has run, and would be run again without a result.

        All of them at once: one that hangs costs no other its time. Who cancels every task of the event loop cuts these
        too; so once more what is left, until the time is over.
        """
        try:
            with anyio.move_on_after(_REDACT_S):
                while rest := [call for call in calls if call.id in self._unredacted]:
                    async with TaskGroup() as group:
                        for call in rest:
                            group.start_soon(self._redact_again, call, results)
        finally:
            for call in calls:
                if call.id in self._unredacted:
                    text = "the result of call %s of the tool %s is lost: redact did not end"
                    _log.warning(text, quoted(call.id), quoted(call.name))

    async def _redact_again(self, call: ToolCall, results: dict[str, ToolResult]) -> None:
        """Redact one result again; a failure costs this result and nothing else."""
        try:
            results[call.id] = await self._redact_one(call, self._unredacted[call.id])
        except (Exception, asyncio.CancelledError) as error:  # what interrupted the calls is raised
            if not isinstance(error, Exception) and not is_own_cancellation(error):
                raise
            text = "the result of call %s of the tool %s is lost: redact raised %s"
            _log.warning(text, quoted(call.id), quoted(call.name), type(error).__name__)
        del self._unredacted[call.id]

    async def _run(self, call: ToolCall, running: RunningCall, results: dict[str, ToolResult]) -> None:
        """Run one call, in a span, and log it."""
        _log.debug("call %s of the tool %s begins", quoted(call.id), quoted(call.name))
        if self._telemetry is None:
            found = await self._result(call, running, results)
        else:
            found = await self._telemetry.tool_call(call, partial(self._result, call, running, results))
        if _log.isEnabledFor(logging.INFO):
            text = "call %s of the tool %s gave %s%s characters"
            _log.info(
                text,
                quoted(call.id),
                quoted(call.name),
                "an error of " if found.is_error else "",
                f"{len(found.text):,}",
            )

    async def _result(self, call: ToolCall, running: RunningCall, results: dict[str, ToolResult]) -> ToolResult:
        """The result of one call. From the end of its tool on, ``results`` says so: it must not be run again."""
        refusal = await self._refusal(call)
        if refusal is None:
            outcome = await self._outcome(call, running)
            not_redacted = _NOT_REDACTED
        else:
            outcome = refusal
            not_redacted = _REFUSAL_NOT_REDACTED
        if self._redact is None:
            results[call.id] = outcome
            return outcome
        results[call.id] = not_redacted
        self._unredacted[call.id] = outcome
        try:
            results[call.id] = await self._redact_one(call, outcome)
        except (Exception, SystemExit):  # redact would do the same again
            del self._unredacted[call.id]
            raise
        del self._unredacted[call.id]
        return results[call.id]

    async def _redact_one(self, call: ToolCall, result: ToolResult) -> ToolResult:
        assert self._redact is not None
        task_id = anyio.get_current_task().id
        self._redacting[task_id] = call.id
        try:
            content = self._redact(call, result.content)
            if isawaitable(content):
                content = await content
        finally:
            del self._redacting[task_id]
        try:
            content = check_content(content)
        except ValueError as error:
            raise ConfigError(
                f"redact returned something that is not content ({error}): return a text or content blocks"
            ) from error
        return replace(result, content=content, is_data=result.is_data and content == result.content)

    async def _refusal(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that must not run; None: it may."""
        if call.name not in self._tools:
            return _error(f"There is no tool {quoted(call.name)}. You can call: {', '.join(sorted(self._tools))}.")
        if self._approve is not None:
            verdict = self._approve(call)
            if isawaitable(verdict):
                verdict = await verdict
            if verdict is not True:
                return _error(f"The call was denied: {verdict}" if verdict else "The call was denied by the user.")
        return None

    async def _outcome(self, call: ToolCall, running: RunningCall) -> ToolResult:
        self._begun.add(call.id)
        try:
            return await self._tools[call.name].run(call.arguments, call=running)
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


_NOT_RUN = _error("This call was interrupted before its tool began, so it did not run.")
_NOT_REDACTED = _error(
    "This call has ended, but its result is not available: it could not be redacted. It may have changed something: "
    "check that before you call the tool again."
)
_REFUSAL_NOT_REDACTED = _error("This call was not run. The reason is not available: it could not be redacted.")
