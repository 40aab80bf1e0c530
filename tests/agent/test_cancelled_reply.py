"""A reply that was received and then cancelled is on the bill, at whatever moment the cancellation comes."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem
from ctxfs.eviction import Window
from ctxfs.messages import AssistantMessage, ModelEvent, ModelRequest, Reply, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SAID = "It is done. " * 600


class CancelsItself:
    """Cancels ``scope`` as it gives a reply, or a summary: just before, or ``late``, while it closes its stream."""

    model = "m"

    def __init__(self, scope: anyio.CancelScope, *, summary: bool, late: bool) -> None:
        self._scope = scope
        self._summary = summary
        self._late = late
        self.billed: list[int] = []

    def check(self) -> None: ...

    async def close(self) -> None: ...

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        is_now = self._summary == (not request.tools)
        if is_now and not self._late:
            self._scope.cancel()
        self.billed.append(len(self.billed) + 100)
        usage = Usage(input_tokens=self.billed[-1])
        yield Reply(message=AssistantMessage(SAID), usage=usage, stop_reason="end_turn", model="m")
        if is_now and self._late:
            self._scope.cancel()
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancelled_reply_is_recorded_with_its_bill(tmp_path: Path, late: bool) -> None:
    with anyio.CancelScope() as scope:
        model = CancelsItself(scope, summary=False, late=late)
        async with Agent(model, AgentConfig(session_id="session_1", offload_root_path=tmp_path)) as agent:
            await agent.query("go")
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert [i.message.content for i in agent.context.items] == ["go", SAID]
    async with ContextFileSystem("session_1", root_path=tmp_path, read_only=True) as fs:
        assert await fs.items() == agent.context.items
        assert [call.usage.input_tokens for call in fs.state.calls] == model.billed == [100]


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancelled_summary_is_billed(tmp_path: Path, late: bool) -> None:
    budget = Window(window_tokens=4_000, reply_tokens=500)
    config = AgentConfig(session_id="session_1", offload_root_path=tmp_path, window=budget, pricing=None)
    with anyio.CancelScope() as scope:
        model = CancelsItself(scope, summary=True, late=late)
        async with Agent(model, config) as agent:
            for n in range(9):
                await agent.query(f"question {n}")
    assert scope.cancelled_caught
    async with ContextFileSystem("session_1", root_path=tmp_path, read_only=True) as fs:
        assert [call.usage.input_tokens for call in fs.state.calls] == model.billed
        assert [call.summary for call in fs.state.calls] == [False] * (len(model.billed) - 1) + [True]
