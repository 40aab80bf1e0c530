"""What ends a program may come from anybody's code: the event loop goes on, and the session is left whole and free."""

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, tool
from ctxfs.eviction import Window
from ctxfs.messages import ToolCall
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.testing import ScriptedModel

_ID = "session_1"

Exit = type[SystemExit] | type[KeyboardInterrupt]


@tool("Do nothing", name="idle")
async def idle() -> str:
    await anyio.sleep_forever()
    return ""


@tool("Say a word", name="say")
async def say() -> str:
    return "a word"


def _settings(where: str, error: Exit) -> dict[str, Any]:
    """Settings with which a query, or opening or closing its agent, raises ``error``."""

    def ends(*_: object) -> Any:
        raise error(3)

    async def ends_later(*_: object) -> Any:
        await anyio.lowlevel.checkpoint()
        raise error(3)

    def say_in_a_thread() -> str:
        return str(ends())

    async def say_at_once() -> str:
        return str(await ends_later())

    tools = {"a tool": say_at_once, "a tool in a thread": say_in_a_thread}
    if where in tools:
        return {"tools": [idle, tool("Say a word", name="say")(tools[where])]}
    hook = where.removeprefix("async ")
    return {"tools": [say], hook: ends if hook == where else ends_later}


WHERE = ("approve", "async approve", "redact", "async redact", "a tool", "a tool in a thread")


def _runs_on(backend: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` to its end in an event loop: one that was stopped would not get there."""
    ended: list[bool] = []

    async def main() -> None:
        await work()
        ended.append(True)

    anyio.run(main, backend=backend)
    assert ended == [True]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", WHERE)
def test_an_exit_is_raised_where_the_agent_is_used(tmp_path: Path, where: str, error: Exit, backend: str) -> None:
    async def work() -> None:
        calls = [ToolCall("idle", {}), ToolCall("say", {})] if where.startswith("a tool") else [ToolCall("say", {})]
        config = AgentConfig(session_id=_ID, offload_root_path=tmp_path, **_settings(where, error))
        agent = Agent(ScriptedModel([calls, "done"]), config)
        with pytest.raises(error):
            await agent.query("go")
        assert agent.context.open_calls == ()
        assert agent.context.unrecorded == ()
        await agent.close()
        assert await _left(tmp_path) == ["user_message", "assistant_message", *["tool_result"] * len(calls)]

    _runs_on(backend, work)


async def _left(root: Path) -> list[str]:
    """The types of the items that the session has; its lock must be free."""
    async with ContextFileSystem(_ID, root_path=root) as fs:
        assert (await fs.verify()).ok
        return [item.item_type.value for item in await fs.items()]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_a_summariser_is_raised_where_the_context_is_used(tmp_path: Path, error: Exit, backend: str) -> None:
    async def ends(_: str) -> Any:
        await anyio.lowlevel.checkpoint()
        raise error(3)

    async def work() -> None:
        window = Window(window_tokens=2_500, reply_tokens=100, summarize=ends)
        context = Context(_ID, root_path=tmp_path, window=window)
        await context.open()
        for number in range(20):
            words = f"message {number}: " + "a few words " * 40
            await context.add(UserMessage(words), AssistantMessage(words))
        with pytest.raises(error):
            await context.messages()
        await context.add(UserMessage("go on"))
        kept = [item.item_type.value for item in context.items]
        await context.close()
        assert await _left(tmp_path) == kept

    _runs_on(backend, work)


def test_a_cancellation_of_a_tools_own_is_that_tools_error(tmp_path: Path) -> None:
    async def work() -> None:
        @tool("Wait for something that was cancelled", name="wait")
        async def wait() -> None:
            other = asyncio.create_task(asyncio.sleep(3600))
            other.cancel()
            await other

        config = AgentConfig(tools=[wait, say], session_id=_ID, offload_root_path=tmp_path)
        model = ScriptedModel([[ToolCall("wait", {}), ToolCall("say", {})], "done"])
        async with Agent(model, config) as agent:
            assert await agent.query("go") == "done"
            results = {i.tool_name: i.message for i in agent.context.items if isinstance(i.message, ToolMessage)}
        assert results["wait"].is_error
        assert str(results["wait"].content).startswith("CancelledError")
        assert results["say"].content == "a word"

    _runs_on("asyncio", work)


def test_a_tool_that_is_cancelled_before_its_first_step_is_not_reported_as_never_awaited(tmp_path: Path) -> None:
    async def cancels_all(_: ToolCall) -> bool:
        for task in asyncio.all_tasks():
            task.cancel()
        return True

    async def work() -> None:
        config = AgentConfig(tools=[say], session_id=_ID, offload_root_path=tmp_path, approve=cancels_all)
        agent = Agent(ScriptedModel([[ToolCall("say", {}) for _ in range(4)], "done"]), config)
        query = asyncio.create_task(agent.query("go"))
        with pytest.raises(asyncio.CancelledError):
            await query
        gc.collect()
        await agent.close()

    async def main() -> None:
        outer = asyncio.current_task()
        assert outer is not None
        try:
            await work()
        finally:
            while outer.cancelling():
                outer.uncancel()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
