"""A query that asyncio cancels, however often: what its tools have done is recorded, and the next query works."""

import asyncio
from pathlib import Path

import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.messages.messages import ToolCall
from ctxfs.testing import ScriptedModel

CALLS = [ToolCall("pay", {}), ToolCall("wait", {})]


async def _cancelled(root: Path, *, cancellations: int, apart: int) -> None:
    """Cancel a query while one of its tools has ended and one runs; all but the first hit its cleaning up."""
    queries: list[asyncio.Task[str]] = []

    async def cancel() -> None:
        for _ in range(cancellations):
            queries[0].cancel()
            for _ in range(apart):
                await asyncio.sleep(0)

    @tool("Pay an invoice")
    async def pay() -> str:
        cancelling.append(asyncio.create_task(cancel()))
        return "paid invoice 1"

    @tool("Wait for ever")
    async def wait() -> None:
        await asyncio.Event().wait()

    cancelling: list[asyncio.Task[None]] = []
    config = AgentConfig(tools=[pay, wait], session_id="session_1", offload_root_path=root)
    async with Agent(ScriptedModel([list(CALLS), "I am done"]), config) as agent:
        queries.append(asyncio.create_task(agent.query("go")))
        with pytest.raises(asyncio.CancelledError):
            await queries[0]
        await cancelling[0]
        assert agent.context.unrecorded == ()
        async with ContextFileSystem("session_1", root_path=root, read_only=True) as left_by_a_crash:
            assert await left_by_a_crash.items() == agent.context.items
        assert [str(i.message.content) for i in agent.context.items if i.tool_name == "pay"] == ["paid invoice 1"]
        assert await agent.query("go on") == "I am done"


@pytest.mark.parametrize("apart", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("cancellations", [1, 2, 3])
def test_what_tools_have_done_is_recorded_however_often_a_query_is_cancelled(
    tmp_path: Path, cancellations: int, apart: int
) -> None:
    asyncio.run(_cancelled(tmp_path, cancellations=cancellations, apart=apart))


def test_a_query_that_runs_out_of_time_is_answered_and_the_next_one_works(tmp_path: Path) -> None:
    async def run() -> None:
        @tool("Wait for ever")
        async def wait() -> None:
            limit.reschedule(0)
            await asyncio.Event().wait()

        config = AgentConfig(tools=[wait], session_id="session_1", offload_root_path=tmp_path)
        async with Agent(ScriptedModel([[ToolCall("wait", {})], "done"]), config) as agent:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    await agent.query("go")
            assert agent.context.open_calls == ()
            assert agent.context.unrecorded == ()
            assert await agent.query("go on") == "done"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(run())
