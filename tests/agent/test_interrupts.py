"""Ctrl-C that hits an agent where it opens, works or closes, wherever it does: closing ends, and the lock is free."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, tool
from ctxfs.agent.runner import ToolRunner
from ctxfs.messages import ToolCall
from ctxfs.session.records import ItemAdded
from ctxfs.testing import ScriptedModel
from interrupting import Interrupt, interrupted_by

pytestmark = pytest.mark.slow

_ID = "session_1"


def _agent(root: Path) -> Agent:
    config = AgentConfig(session_id=_ID, offload_root_path=root, system_prompt="Be brief.")
    return Agent(ScriptedModel(["an answer"]), config)


async def _opens(root: Path, interrupt: Interrupt) -> None:
    agent = _agent(root)
    with interrupted_by(interrupt):
        await agent.open()
    await agent.close()


async def _works(root: Path, interrupt: Interrupt) -> None:
    async with _agent(root) as agent:
        with interrupted_by(interrupt):
            await agent.query("a question")


async def _works_again(root: Path, interrupt: Interrupt) -> None:
    """The task that was hit goes on with its agent, as a prompt for commands does."""
    async with _agent(root) as agent:
        try:
            with interrupted_by(interrupt):
                await agent.context.add({"role": "user", "content": "a question"})
        except KeyboardInterrupt:
            await agent.context.add({"role": "user", "content": "another one"})
            raise


async def _closes(root: Path, interrupt: Interrupt) -> None:
    agent = _agent(root)
    await agent.open()
    with interrupted_by(interrupt):
        await agent.close()


async def _is_whole(root: Path) -> bool:
    """Whether the session can be opened, is not damaged, and has each message once."""
    async with ContextFileSystem(_ID, root_path=root) as fs:  # raises SessionLocked
        added = [record.item.id for record in await fs.history() if isinstance(record, ItemAdded)]
        return (await fs.verify()).ok and len(added) == len(set(added))


@pytest.fixture
def no_collection() -> Iterator[None]:
    """An object that is dropped releases its lock: nothing may count on when."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("use", "stride"),
    [(_opens, 11), (_works, 13), (_works_again, 3), (_closes, 5)],
    ids=["opens", "works", "works again", "closes"],
)
def test_an_interrupt_keeps_no_agent_from_closing(
    tmp_path: Path, use: Callable[[Path, Interrupt], Coroutine[Any, Any, None]], stride: int
) -> None:
    hit: list[str] = []
    number = 2  # the first call is that of the agent's method, which has not begun anything
    while True:
        root = tmp_path / str(number)
        interrupt = Interrupt(number)
        with suppress(KeyboardInterrupt):
            asyncio.run(use(root, interrupt))
        if interrupt.where is None:
            break
        hit.append(interrupt.where)
        assert asyncio.run(_is_whole(root)), hit[-1]
        number += stride
    assert len(hit) > 10


def test_who_goes_on_after_an_interrupt_on_trio_records_nothing_twice(tmp_path: Path) -> None:
    hit: list[str] = []
    number = 2
    while True:
        root = tmp_path / str(number)
        interrupt = Interrupt(number, on_trio=True)
        with suppress(KeyboardInterrupt):
            anyio.run(_works_again, root, interrupt, backend="trio")
        if interrupt.where is None:
            break
        hit.append(interrupt.where)
        assert anyio.run(_is_whole, root), hit[-1]
        number += 3
    assert len(hit) > 10


@pytest.mark.asyncio
async def test_an_interrupt_right_after_the_tools_keeps_what_they_returned(tmp_path: Path) -> None:
    runs, paid = ToolRunner.run.__code__, []

    @tool("Pay an invoice")
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    def trace(frame: FrameType, _event: str, _argument: object) -> None:
        is_after = frame.f_back is not None and frame.f_back.f_code is Agent._run_tools.__code__  # noqa: SLF001
        if paid and is_after and frame.f_code is not runs:
            sys.settrace(None)
            raise KeyboardInterrupt

    config = AgentConfig(session_id=_ID, offload_root_path=tmp_path, tools=[pay])
    async with Agent(ScriptedModel([[ToolCall("pay", {})], "done"]), config) as agent:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                await agent.query("pay it")
        finally:
            sys.settrace(before)
        assert agent.context.items[-1].message.content == "paid"
        assert not agent.context.unrecorded


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["_settle", "_add_results"])
async def test_a_second_interrupt_while_results_are_recorded_loses_none(tmp_path: Path, method: str) -> None:
    wrapper = getattr(Agent, method)
    caller = Agent.stream.__code__ if method == "_settle" else Agent._settle.__wrapped__.__code__  # type: ignore[attr-defined]  # noqa: SLF001
    paid: list[str] = []
    hit: list[str] = []

    @tool("Pay an invoice")
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    @tool("Press Ctrl-C")
    async def stop() -> str:
        raise KeyboardInterrupt

    def trace(frame: FrameType, _event: str, _argument: object) -> None:
        back = frame.f_back
        if paid and frame.f_code is wrapper.__code__ and back is not None and back.f_code is caller:
            hit.append(method)
            raise KeyboardInterrupt  # ends the tracing

    config = AgentConfig(session_id=_ID, offload_root_path=tmp_path, tools=[pay, stop])
    async with Agent(ScriptedModel([[ToolCall("pay", {}), ToolCall("stop", {})], "done"]), config) as agent:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                await agent.query("pay it")
        finally:
            sys.settrace(before)
    assert hit == [method]
    async with Context(_ID, root_path=tmp_path) as context:
        assert [item.message.content for item in context.items][-2] == "paid"


def test_an_interrupt_of_a_closed_agent_closes_no_context_of_yours(tmp_path: Path) -> None:
    async def use(root: Path, interrupt: Interrupt) -> None:
        agent = _agent(root)
        await agent.open()
        await agent.close()
        async with Context(agent.context.fs) as yours:
            with suppress(KeyboardInterrupt), interrupted_by(interrupt):
                await agent.close()
            await yours.add({"role": "user", "content": "a question"})

    hit: list[str] = []
    for number in count(2):
        interrupt = Interrupt(number)
        with suppress(KeyboardInterrupt):  # it may hit where the loop calls ctxfs
            asyncio.run(use(tmp_path / str(number), interrupt))
        if interrupt.where is None:
            break
        hit.append(interrupt.where)
    assert len(hit) > 3
