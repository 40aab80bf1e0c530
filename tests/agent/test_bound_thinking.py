"""An agent with a model that takes its thinking back only behind what stood before it."""

from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import ChatAnthropic
from ctxfs.messages import AssistantMessage
from ctxfs.testing import MessagesServer
from ctxfs.tools.base import Tool

pytestmark = [pytest.mark.anyio, pytest.mark.service]

CALLS = 8


def read_log(day: int) -> str:
    return f"day {day}: request served\n" * 300


def thinking(body: dict[str, Any]) -> AssistantMessage:
    """The next day's log, with a thought about it; then what was found."""
    day = len(body["messages"]) // 2
    said: dict[str, Any] = {"type": "text", "text": "Nothing."}
    if day < CALLS:
        said = {"type": "tool_use", "id": f"call_{day}", "name": "read_log", "input": {"day": day}}
    return AssistantMessage(({"type": "thinking", "thinking": f"Day {day}.", "signature": f"s{day}"}, said))


async def ask(root: Path, reader: Tool) -> tuple[MessagesServer, int]:
    """Ask an agent with that tool; the server, and how many results were evicted."""
    async with MessagesServer([thinking] * (CALLS + 1), binds_thinking=True) as server:
        config = AgentConfig(tools=[reader], offload_root_path=str(root), pricing=None)
        async with Agent(ChatAnthropic(api_key="any", base_url=server.url), config) as agent:
            assert await agent.query("What went wrong?") == "Nothing."
            return server, sum(item.offloaded for item in agent.context.items)


async def test_without_an_eviction_all_thinking_fits(tmp_path: Path) -> None:
    server, evicted = await ask(tmp_path, tool("Read the log of a day")(read_log))
    assert not evicted
    assert server.refusals == server.dropped == []
    assert not any("thinking" in body for body in server.requests)


async def test_after_an_eviction_what_no_longer_fits_is_left_out(tmp_path: Path) -> None:
    server, evicted = await ask(tmp_path, tool("Read the log of a day", ephemeral=2)(read_log))
    assert evicted == CALLS - 2
    assert len(server.refusals) == 1
    assert server.dropped, "the request was sent again, without"
    assert len(server.requests) == CALLS + 1
