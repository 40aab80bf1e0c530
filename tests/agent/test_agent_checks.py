"""What cannot work is refused before anything enters the session."""

from pathlib import Path

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import ChatOpenAI
from ctxfs.errors import ConfigError, MissingApiKey
from ctxfs.messages import LegacyToolCalls
from ctxfs.tools.base import Tool

pytestmark = pytest.mark.anyio


def many(count: int) -> list[Tool]:
    def made(number: int) -> Tool:
        @tool("Does nothing.", name=f"t{number}")
        def nothing() -> str:
            return ""

        return nothing

    return [made(number) for number in range(count)]


def test_more_tools_than_the_model_takes_are_refused_when_the_agent_is_made(tmp_path: Path) -> None:
    config = AgentConfig(tools=many(128), offload_root_path=tmp_path)
    openai = ChatOpenAI("gpt-5", api_key="k")
    with pytest.raises(ConfigError, match=r"1\d\d tools, \d of them ctxfs's own: gpt-5 takes 128, so leave some out"):
        Agent(openai, config)
    assert not list(tmp_path.iterdir())
    Agent(ChatOpenAI("gpt-5", base_url="http://localhost:1"), config)  # another server may take more
    Agent(LegacyToolCalls(openai), config)  # it is told of them in a text
    with pytest.raises(ConfigError) as refused:
        Agent(openai, config)
    own = int(str(refused.value).split()[0]) - 128
    Agent(openai, AgentConfig(tools=many(128 - own), offload_root_path=tmp_path))


async def test_a_key_that_is_gone_by_now_is_missed_before_the_query_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with Agent(ChatOpenAI("gpt-5"), AgentConfig(offload_root_path=tmp_path)) as agent:
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(MissingApiKey):
            await agent.query("go")
        assert agent.context.items == ()
