"""What a user's type checker sees. mypy checks this file; nothing runs it.

A ``type: ignore`` says that the line is an error for the user too: an unused one fails the check.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

import anthropic.types
import openai.types
import openai.types.responses

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, ContextItem, ItemType, tool
from ctxfs.agent import ChatAnthropic, ChatOpenAI
from ctxfs.messages import CharsCounter, ChatModel, O200kCounter, TokenCounter, Usage, UserMessage, load_counter
from ctxfs.messages.messages import Content, Message
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import ScriptedModel


@tool("Add two numbers.", ephemeral=2)
async def add(a: int, b: int = 0) -> int:
    return a + b


@tool("Shout.")
def shout(text: str) -> str:
    return text.upper()


async def tools_stay_functions() -> None:
    assert_type(await add(1, b=2), int)
    assert_type(shout("a"), str)
    await add("1")  # type: ignore[arg-type]


async def an_agent_is_typed(model: ScriptedModel, fs: ContextFileSystem) -> None:
    config = AgentConfig(tools=[add, shout], offload_root_path=Path("/tmp/x"), ephemeral_keep_recent=None)
    AgentConfig(tool=[add])  # type: ignore[call-arg]
    async with Agent(model, config) as agent:
        assert_type(await agent.query("hello"), str)
        for item in agent.context.items:
            assert_type(item, ContextItem)
            assert_type(item.item_type, ItemType)
            assert_type(item.message, Message)
            assert_type(item.offload_path, str | None)
            item.offloaded = True  # type: ignore[misc]
        async for event in agent.stream("more"):
            assert not isinstance(event, str)
    assert_type(await fs.load("call_1"), Content)
    stored: Mapping[str, object] = fs.state.stored
    assert stored


async def a_context_takes_what_the_sdks_give(
    context: Context,
    reply: anthropic.types.Message,
    chat: openai.types.CompletionUsage,
    responses: openai.types.responses.ResponseUsage,
) -> None:
    await context.add(reply, usage=reply.usage, model=reply.model)
    await context.add({"role": "assistant", "content": reply.content}, usage={"input_tokens": 1})
    await context.add(UserMessage("x"), usage=chat)
    await context.add(UserMessage("x"), usage=responses)
    await context.add(UserMessage("x"), usage=Usage(input_tokens=1))
    await context.add("x")  # type: ignore[arg-type]
    await context.add(UserMessage("x"), usage=12)  # type: ignore[arg-type]
    assert_type(Usage.of(reply.usage), Usage)


async def counters_are_counters() -> None:
    counters: list[TokenCounter] = [CharsCounter(), default_counter()]
    assert_type(counters[0].count(""), int)
    assert_type(await load_counter(), O200kCounter)


def models_are_models() -> list[ChatModel]:
    return [ChatAnthropic(), ChatOpenAI(model="local"), ScriptedModel(["done"])]
