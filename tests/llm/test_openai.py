"""``ChatOpenAI`` through the real SDK against a server on loopback, and the mapping of bodies."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given

from ctxfs.errors import ConnectionFailed, InvalidRequest, MissingApiKey, PromptTooLong, RateLimited
from ctxfs.llm import (
    AssistantMessage,
    ChatOpenAI,
    Message,
    ModelEvent,
    ModelRequest,
    Reply,
    Retrying,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from ctxfs.llm.accumulate import INVALID_JSON
from ctxfs.llm.chat_completions import ChatReplyBuilder, to_chat_body
from ctxfs.llm.retry import RetryPolicy
from ctxfs.llm.serialize import to_messages_body
from ctxfs.testing import Broken, ChatCompletionsServer, Cut, Failure
from ctxfs.testing.chat_server import violations
from ctxfs.testing.strategies import png, transcripts

READ = ToolSchema(name="Read", description="Reads a file.", input_schema={"type": "object"})
NO_WAIT = RetryPolicy(jitter=0, base_delay_s=0)


async def events_of(model: ChatOpenAI, *messages: Message, **settings: Any) -> list[ModelEvent]:
    async with aclosing(model.stream(ModelRequest(messages=messages, **settings))) as stream:
        return [event async for event in stream]


async def reply_of(model: ChatOpenAI, *messages: Message, **settings: Any) -> Reply:
    *_, reply = await events_of(model, *messages, **settings)
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.anyio
async def test_a_tool_loop_with_a_local_server_that_needs_no_key() -> None:
    turn: list[Any] = ["Reading.", ToolCall("Read", {"path": "p" * 60}), ToolCall("Read", {"path": "b"})]
    async with ChatCompletionsServer([turn, "It says 答え."]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        model.check()
        question = UserMessage("What does it say?")
        first = await reply_of(model, SystemMessage("Be brief."), question, tools=(READ,))
        assert first.stop_reason == "tool_use"
        assert [(c.id, dict(c.arguments)) for c in first.message.tool_calls] == [
            ("call_001", {"path": "p" * 60}),
            ("call_002", {"path": "b"}),
        ]
        results = [ToolMessage(c.id, c.name, "x", is_error=c.id == "call_002") for c in first.message.tool_calls]
        *deltas, last = await events_of(
            model, SystemMessage("Be brief."), question, first.message, *results, tools=(READ,)
        )
        await model.close()
    assert isinstance(last, Reply)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == last.message.text == "It says 答え."
    assert last.stop_reason == "end_turn"
    assert last.usage.cache_read_input_tokens > 0
    assert [m["role"] for m in server.requests[1]["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [m["content"] for m in server.requests[1]["messages"][3:]] == ["x", "Error: x"]
    assert server.requests[0]["tools"][0]["function"]["name"] == "Read"
    assert server.requests[0]["max_tokens"] > 0


@pytest.mark.anyio
async def test_options_go_into_the_body_as_they_are() -> None:
    async with ChatCompletionsServer(["a"]) as server:
        model = ChatOpenAI("local", base_url=server.url, max_tokens=7, options={"temperature": 0.5, "top_k": 3})
        await reply_of(model, UserMessage("q"))
        await model.close()
    (request,) = server.requests
    assert (request["max_tokens"], request["temperature"], request["top_k"]) == (7, 0.5, 3)


@pytest.mark.anyio
async def test_failures_are_tried_again_like_any_other_models() -> None:
    turns: list[Any] = [Broken(turn="half of an answer", after_events=1), Failure.rate_limited(0), "done"]
    async with ChatCompletionsServer(turns) as server:
        model = ChatOpenAI("local", base_url=server.url, retry=NO_WAIT)
        events = await events_of(model, UserMessage("q"))
        await model.close()
    assert [type(e) for e in events].count(Retrying) == 2
    assert isinstance(events[-1], Reply)
    assert events[-1].message.text == "done"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (Failure.rate_limited(), RateLimited),
        (Broken(turn="x", after_events=1), ConnectionFailed),
        (Broken(turn="x", after_events=1, clean=True), ConnectionFailed),
        (Failure(status=400, kind="invalid_request_error", message="no"), InvalidRequest),
        (
            Failure(status=400, kind="invalid_request_error", message="maximum context length is 8 tokens, 9 tokens"),
            PromptTooLong,
        ),
    ],
)
async def test_failures_end_in_our_errors(turn: Any, error: type[Exception]) -> None:
    async with ChatCompletionsServer([turn]) as server:
        model = ChatOpenAI("local", base_url=server.url, max_retries=0)
        with pytest.raises(error):
            await events_of(model, UserMessage("q"))
        await model.close()


@pytest.mark.anyio
async def test_a_cut_reply_says_so_and_a_lost_answer_is_refused() -> None:
    async with ChatCompletionsServer([Cut("half")]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        assert (await reply_of(model, UserMessage("q"))).stop_reason == "max_tokens"
        call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
        with pytest.raises(InvalidRequest, match="did not have response messages: a"):
            await reply_of(model, UserMessage("q"), AssistantMessage((call,)), UserMessage("r"))
        await model.close()


@pytest.mark.anyio
async def test_a_stream_that_is_stopped_early_leaves_the_model_usable() -> None:
    async with ChatCompletionsServer(["a long answer in pieces, many of them", "b"]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        async with aclosing(model.stream(ModelRequest(messages=(UserMessage("q"),)))) as stream:
            async for _ in stream:
                break
        assert (await reply_of(model, UserMessage("q"))).message.text == "b"
        await model.close()


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(MissingApiKey, match="OPENAI_API_KEY"):
        ChatOpenAI("gpt").check()
    ChatOpenAI("gpt", api_key="k").check()


def chat_body(*messages: Message) -> dict[str, Any]:
    body = to_messages_body(ModelRequest(messages=messages), model="m", max_tokens=9, cache=False)
    return to_chat_body(body, max_tokens_field="max_completion_tokens")


@given(transcripts(hostile_ids=True))
def test_every_transcript_becomes_one_that_is_accepted(messages: tuple[Message, ...]) -> None:
    assert list(violations(chat_body(*messages)["messages"])) == []


def test_images_of_results_follow_the_results() -> None:
    data = png(1, 1)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    result = ToolMessage("a", "Read", ({"type": "text", "text": "Here:"}, image))
    sent = chat_body(UserMessage("q"), AssistantMessage((thought, call)), result)["messages"]
    assert sent[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}],
    }
    assert sent[2]["content"] == "Here:\n[attached below]"
    assert sent[3]["role"] == "user"
    assert sent[3]["content"][1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a"}},
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
        ({"type": "document", "source": {"type": "text", "data": "t"}}, {"type": "text", "text": "t"}),
        ({"type": "search_result", "n": 1}, {"type": "text", "text": '{"type":"search_result","n":1}'}),
    ],
)
def test_blocks_have_their_counterparts(block: dict[str, Any], part: dict[str, Any]) -> None:
    sent = chat_body(UserMessage(({"type": "text", "text": "q"}, block)))["messages"]
    assert sent == [{"role": "user", "content": [{"type": "text", "text": "q"}, part]}]


def test_a_reply_that_nothing_is_left_of_is_not_sent() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said = AssistantMessage((thought, {"type": "of_another_kind"}))
    assert [m["role"] for m in chat_body(UserMessage("q"), said, UserMessage("r"))["messages"]] == ["user", "user"]


def reply_to(chunks: Sequence[dict[str, Any]]) -> tuple[list[Any], Reply]:
    builder = ChatReplyBuilder()
    deltas = [delta for chunk in chunks for delta in builder.feed(chunk)]
    assert builder.finished
    return deltas, builder.reply()


def chunk(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("of_next_year", "end_turn")],
)
def test_finish_reasons_have_their_counterparts(reason: str, stop_reason: str) -> None:
    assert reply_to([chunk(content="a"), chunk(reason)])[1].stop_reason == stop_reason


def test_servers_that_are_less_strict_are_understood() -> None:
    calls = [{"function": {"name": "Read", "arguments": "{not json"}}]
    deltas, reply = reply_to([chunk(reasoning_content="Hm."), chunk("stop", tool_calls=calls), {"choices": None}])
    assert deltas == [ThinkingDelta("Hm.")]
    assert reply.stop_reason == "tool_use"
    assert reply.usage == Usage()
    assert reply.message.tool_calls == (ToolCall("Read", {INVALID_JSON: "{not json"}, id="call_1"),)


def test_cached_tokens_are_not_counted_twice() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
    assert reply_to([chunk("stop"), {"choices": [], "usage": usage}])[1].usage == Usage(
        input_tokens=20, cache_read_input_tokens=80, output_tokens=5
    )
