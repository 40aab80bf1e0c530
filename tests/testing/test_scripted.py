"""The scripted model: what it plays, what it keeps, what it refuses."""

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

import pytest

from ctxfs.errors import InvalidRequest, RateLimited, TranscriptError
from ctxfs.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    Reply,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from ctxfs.testing import Cut, ScriptedModel

pytestmark = pytest.mark.anyio


async def reply_of(model: ScriptedModel, *messages: Message) -> Reply:
    async with aclosing(model.stream(ModelRequest(messages=messages))) as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def test_a_string_is_the_final_answer() -> None:
    model = ScriptedModel(["done"])
    model.check()
    reply = await reply_of(model, UserMessage("q"))
    assert (reply.message.text, reply.stop_reason, reply.model) == ("done", "end_turn", model.model)
    await model.close()


async def test_calls_get_ids_that_are_always_the_same() -> None:
    turn: list[Any] = ["Reading.", ToolCall("Read", {"path": "a"}), ToolCall("Read", {"path": "b"}, id="mine")]
    model = ScriptedModel([turn, [ToolCall("Bash", {})]])
    first = await reply_of(model, UserMessage("q"))
    assert first.message.text == "Reading."
    assert first.stop_reason == "tool_use"
    assert [(c.id, c.name, dict(c.arguments)) for c in first.message.tool_calls] == [
        ("call_001", "Read", {"path": "a"}),
        ("mine", "Read", {"path": "b"}),
    ]
    results = [ToolMessage(c.id, c.name, "x") for c in first.message.tool_calls]
    second = await reply_of(model, UserMessage("q"), first.message, *results)
    assert [c.id for c in second.message.tool_calls] == ["call_002"]


async def test_every_request_is_kept_as_a_messages_api_body() -> None:
    model = ScriptedModel(["a"], model="m", max_tokens=7)
    await reply_of(model, SystemMessage("s"), UserMessage("q"))
    assert model.requests == [
        {
            "model": "m",
            "max_tokens": 7,
            "system": [{"type": "text", "text": "s"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}],
        }
    ]


async def test_a_transcript_that_a_provider_refuses_fails_the_test() -> None:
    with pytest.raises(TranscriptError, match="unexpected tool_use_id"):
        await reply_of(ScriptedModel(["never"]), UserMessage("q"), ToolMessage("nobody", "Read", "x"))


async def test_a_function_answers_by_the_request() -> None:
    model = ScriptedModel([lambda body: [ToolCall("Read", {"n": len(body["messages"])})]])
    assert dict((await reply_of(model, UserMessage("q"))).message.tool_calls[0].arguments) == {"n": 1}


async def test_an_error_is_raised() -> None:
    model = ScriptedModel([RateLimited("slow down"), lambda body: RateLimited("again"), "done"])
    for _ in range(2):
        with pytest.raises(RateLimited):
            await reply_of(model, UserMessage("q"))
    assert (await reply_of(model, UserMessage("q"))).message.text == "done"
    assert len(model.requests) == 3


async def test_a_message_is_played_word_for_word() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said = AssistantMessage((thought, {"type": "text", "text": "So."}, {"type": "text", "text": ""}))
    model = ScriptedModel([said])
    async with aclosing(model.stream(ModelRequest(messages=(UserMessage("q"),)))) as stream:
        events = [event async for event in stream]
    assert events[:2] == [ThinkingDelta("Hm."), TextDelta("So.")]
    assert isinstance(events[-1], Reply)
    assert events[-1].message is said


@pytest.mark.parametrize("turn", ["half", ["half"], AssistantMessage("half")])
async def test_a_turn_may_be_cut(turn: Any) -> None:
    reply = await reply_of(ScriptedModel([Cut(turn)]), UserMessage("q"))
    assert (reply.message.text, reply.stop_reason) == ("half", "max_tokens")


@pytest.mark.parametrize("turns", [[], ["only"]])
async def test_after_the_last_turn_it_says_what_to_do(turns: Iterable[str]) -> None:
    model = ScriptedModel(turns)
    for _ in range(model.script.remaining):
        await reply_of(model, UserMessage("q"))
    with pytest.raises(InvalidRequest, match="add a turn"):
        await reply_of(model, UserMessage("q"))


async def test_usage_is_that_of_a_prompt_cache() -> None:
    model = ScriptedModel(["a" * 40, "b", "c"])
    question = UserMessage("q" * 400)
    first = await reply_of(model, question)
    second = await reply_of(model, question, first.message, UserMessage("r" * 40))
    changed = await reply_of(model, UserMessage("Q" * 400), first.message, UserMessage("r" * 40))
    assert first.usage == Usage(cache_creation_input_tokens=100, output_tokens=10)
    assert second.usage == Usage(cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1)
    assert changed.usage == Usage(cache_creation_input_tokens=120, output_tokens=1)
