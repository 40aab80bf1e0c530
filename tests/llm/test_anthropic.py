"""``ChatAnthropic`` through the real SDK against a server on loopback, on asyncio and trio."""

from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ctxfs.agent import ChatAnthropic
from ctxfs.agent.llm.accumulate import INVALID_JSON
from ctxfs.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    MissingApiKey,
    ModelError,
    Overloaded,
    PromptTooLong,
    RateLimited,
    UnsupportedCacheTtl,
)
from ctxfs.messages import (
    AssistantMessage,
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
from ctxfs.testing import Broken, Cut, Failure, MessagesServer

pytestmark = pytest.mark.anyio

READ = ToolSchema(name="Read", description="Reads a file.", input_schema={"type": "object"})


def chat(server: MessagesServer, **settings: Any) -> ChatAnthropic:
    return ChatAnthropic(**{"base_url": server.url, "api_key": "test", **settings})


async def events_of(model: ChatAnthropic, *messages: Message, **settings: Any) -> list[ModelEvent]:
    async with aclosing(model.stream(ModelRequest(messages=messages, **settings))) as stream:
        return [event async for event in stream]


async def reply_of(model: ChatAnthropic, *messages: Message, **settings: Any) -> Reply:
    *_, reply = await events_of(model, *messages, **settings)
    assert isinstance(reply, Reply)
    return reply


async def test_an_answer_streams_and_ends_in_its_reply() -> None:
    text = "The answer, in more than one piece, of course. 答え 😀\u2028end"
    async with MessagesServer([text]) as server:
        model = chat(server)
        *deltas, reply = await events_of(model, SystemMessage("Be brief."), UserMessage("Why?"))
        await model.close()
    assert len(deltas) > 1
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == text
    assert isinstance(reply, Reply)
    assert reply.message == AssistantMessage(({"type": "text", "text": text},))
    assert reply.stop_reason == "end_turn"
    assert reply.model == model.model
    assert server.requests[0]["system"][0]["text"] == "Be brief."


async def test_a_tool_loop_with_thinking_goes_back_verbatim() -> None:
    thought: dict[str, Any] = {"type": "thinking", "thinking": "Let me see. " * 9, "signature": "c2lnbmF0dXJl"}
    hidden = {"type": "redacted_thinking", "data": "b3BhcXVl"}
    calls = [
        {"type": "tool_use", "id": f"toolu_{i}", "name": "Read", "input": {"path": "\ud800" * i, "n": 2**70}}
        for i in range(3)
    ]
    said = AssistantMessage((thought, hidden, {"type": "text", "text": "Reading."}, *calls))
    async with MessagesServer([said, "done"]) as server:
        model = chat(server, options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
        question = UserMessage("Look.")
        *deltas, reply = await events_of(model, question, tools=(READ,))
        assert isinstance(reply, Reply)
        assert reply.message == said
        assert reply.stop_reason == "tool_use"
        assert [list(b) for b in reply.message.content] == [list(b) for b in said.content], "keys in their order, too"
        assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == thought["thinking"]
        results = [ToolMessage(c.id, c.name, "x") for c in reply.message.tool_calls]
        assert (await reply_of(model, question, reply.message, *results, tools=(READ,))).message.text == "done"
        await model.close()
    assert server.requests[1]["messages"][1]["content"][:2] == [thought, hidden]


async def test_thinking_that_was_changed_in_an_open_loop_is_refused() -> None:
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    async with MessagesServer([AssistantMessage((thought, call)), "never"]) as server:
        model = chat(server)
        await reply_of(model, UserMessage("Look."))
        forged = AssistantMessage(({**thought, "thinking": "Let me not."}, call))
        with pytest.raises(InvalidRequest, match="cannot be modified"):
            await reply_of(model, UserMessage("Look."), forged, ToolMessage("toolu_1", "Read", "x"))
        await model.close()


async def test_usage_has_all_three_input_counts() -> None:
    async with MessagesServer(["a" * 40, "b"]) as server:
        model = chat(server)
        first = await reply_of(model, SystemMessage("s" * 400), UserMessage("q" * 40))
        second = await reply_of(
            model, SystemMessage("s" * 400), UserMessage("q" * 40), first.message, UserMessage("r" * 40)
        )
        await model.close()
    assert first.usage == Usage(cache_creation_input_tokens=110, output_tokens=10)
    assert second.usage == Usage(cache_read_input_tokens=110, cache_creation_input_tokens=20, output_tokens=1)


async def test_without_caching_nothing_is_marked_and_nothing_cached() -> None:
    async with MessagesServer(["a"]) as server:
        model = chat(server, cache_ttl=None)
        assert (await reply_of(model, UserMessage("q" * 40))).usage == Usage(input_tokens=10, output_tokens=1)
        await model.close()
    assert "cache_control" not in str(server.requests)


@pytest.mark.not_measured
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure.rate_limited(0), RateLimited),
        (Failure.overloaded(), Overloaded),
        (Failure(status=500, kind="api_error", message="Internal server error"), Overloaded),
        (Failure(status=408, kind="timeout_error", message="Timed out"), ConnectionFailed),
        (Broken(turn="half of an answer that never ends"), ConnectionFailed),
        (Broken(turn="half of an answer that never ends", clean=True), ConnectionFailed),
        (Broken(turn="half of an answer", error=Failure.overloaded()), Overloaded),
    ],
)
async def test_what_may_pass_is_tried_again(failure: Failure | Broken, error: type[ModelError]) -> None:
    async with MessagesServer([failure, "done", *[failure] * 3]) as server:
        model = chat(server, max_retries=2)
        events = await events_of(model, UserMessage("q"))
        assert [type(e) for e in events].count(Retrying) == 1
        assert isinstance(events[-1], Reply)
        assert events[-1].message.text == "done"
        with pytest.raises(error):
            await events_of(model, UserMessage("q"))
        await model.close()
    assert len(server.requests) == 5


async def test_an_error_tells_how_often_it_was_tried_and_what_the_provider_said() -> None:
    async with MessagesServer([Failure.rate_limited(0)] * 2) as server:
        model = chat(server, max_retries=1)
        with pytest.raises(RateLimited) as caught:
            await reply_of(model, UserMessage("q"))
        await model.close()
    assert (caught.value.status, caught.value.retry_after_s, caught.value.attempts) == (429, 0, 2)


@pytest.mark.not_measured
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure(status=400, kind="invalid_request_error", message="max_tokens: too large"), InvalidRequest),
        (Failure(status=403, kind="permission_error", message="not yours"), AuthenticationFailed),
        (Failure(status=404, kind="not_found_error", message="model: none"), InvalidRequest),
        (Failure(status=413, kind="request_too_large", message="Request exceeds the maximum size"), PromptTooLong),
    ],
)
async def test_what_cannot_pass_is_not_tried_again(failure: Failure, error: type[ModelError]) -> None:
    async with MessagesServer([failure, "never"]) as server:
        model = chat(server)
        with pytest.raises(error, match=failure.message):
            await reply_of(model, UserMessage("q"))
        await model.close()
    assert len(server.requests) == 1


async def test_a_prompt_over_the_window_tells_its_numbers() -> None:
    async with MessagesServer(["never"], context_window_tokens=100) as server:
        model = chat(server)
        with pytest.raises(PromptTooLong) as caught:
            await reply_of(model, UserMessage("q" * 4000))
        await model.close()
    assert (caught.value.actual_tokens, caught.value.limit_tokens) == (1000, 100)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_reply_that_the_limit_cut_says_so(reason: str) -> None:
    async with MessagesServer([Cut("half a sen", reason)]) as server:
        model = chat(server)
        reply = await reply_of(model, UserMessage("q"))
        await model.close()
    assert (reply.message.text, reply.stop_reason) == ("half a sen", reason)


async def test_a_call_that_the_limit_cut_keeps_the_text_of_its_arguments() -> None:
    async with MessagesServer([Cut([ToolCall("Read", {"path": "p" * 100})])]) as server:
        model = chat(server)
        reply = await reply_of(model, UserMessage("q"))
        await model.close()
    (call,) = reply.message.tool_calls
    assert reply.stop_reason == "max_tokens"
    assert list(call.arguments) == [INVALID_JSON]
    assert call.arguments[INVALID_JSON].startswith('{"path":"ppp')


async def test_tokens_are_counted_by_the_provider() -> None:
    async with MessagesServer([]) as server:
        model = chat(server, options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
        assert await model.count_tokens(ModelRequest(messages=(UserMessage("q" * 40),), tools=(READ,))) > 10
        with pytest.raises(InvalidRequest, match="at least one message"):
            await model.count_tokens(ModelRequest(messages=()))
        await model.close()


async def test_a_missing_key_is_told_before_any_work() -> None:
    async with MessagesServer(["never"]) as server:
        model = ChatAnthropic(base_url=server.url)
        with pytest.raises(MissingApiKey, match="ANTHROPIC_API_KEY"):
            model.check()
        with pytest.raises(MissingApiKey):
            await reply_of(model, UserMessage("q"))
        await model.close()
    assert server.requests == []


async def test_a_wrong_key_is_told() -> None:
    async with MessagesServer(["never"], api_key="right") as server:
        model = chat(server, api_key="wrong")
        model.check()
        with pytest.raises(AuthenticationFailed, match="invalid x-api-key"):
            await reply_of(model, UserMessage("q"))
        await model.close()


async def test_a_server_that_is_not_there_is_a_connection_that_failed() -> None:
    async with MessagesServer() as server:
        url = server.url
    model = ChatAnthropic(base_url=url, api_key="k", max_retries=0)
    with pytest.raises(ConnectionFailed):
        await reply_of(model, UserMessage("q"))
    await model.close()


async def test_it_can_be_closed_twice_and_used_again() -> None:
    async with MessagesServer(["a", "b"]) as server:
        model = chat(server)
        await model.close()
        await reply_of(model, UserMessage("q"))
        await model.close()
        await model.close()
        assert (await reply_of(model, UserMessage("q"))).message.text == "b"
        await model.close()


@pytest.mark.both_loops
async def test_two_calls_at_a_time() -> None:
    async with MessagesServer(["a", "a"]) as server:
        model = chat(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reply_of, model, UserMessage("q"))
            tasks.start_soon(reply_of, model, UserMessage("q"))
        await model.close()
    assert len(server.requests) == 2


@pytest.mark.both_loops
async def test_a_stream_that_is_stopped_early_leaves_the_model_usable() -> None:
    async with MessagesServer(["a long answer in pieces, many of them", "b"]) as server:
        model = chat(server)
        with anyio.CancelScope() as scope:
            async with aclosing(model.stream(ModelRequest(messages=(UserMessage("q"),)))) as stream:
                async for _ in stream:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
        assert (await reply_of(model, UserMessage("q"))).message.text == "b"
        await model.close()


async def test_options_go_into_the_body_as_they_are() -> None:
    async with MessagesServer(["a"]) as server:
        model = chat(server, max_tokens=77, options={"temperature": 0.5, "metadata": {"user_id": "u"}})
        await reply_of(model, UserMessage("q"))
        await model.close()
    (request,) = server.requests
    assert (request["max_tokens"], request["temperature"], request["metadata"]) == (77, 0.5, {"user_id": "u"})


async def test_a_tool_choice_names_the_tool_as_it_is_sent_and_is_left_out_without_tools() -> None:
    tool = ToolSchema(name="files.read", description="Reads.", input_schema={"type": "object"})
    async with MessagesServer(["a", "a summary"]) as server:
        model = chat(server, options={"tool_choice": {"type": "tool", "name": "files.read"}})
        await reply_of(model, UserMessage("q"), tools=(tool,))
        await reply_of(model, UserMessage("Summarize."))
        await model.close()
    assert server.refusals == []
    first, second = server.requests
    assert first["tool_choice"] == {"type": "tool", "name": first["tools"][0]["name"]}
    assert first["tools"][0]["name"].startswith("files_read_")
    assert "tool_choice" not in second


def test_a_time_that_the_messages_api_does_not_take_is_refused() -> None:
    with pytest.raises(UnsupportedCacheTtl, match=r"'30m'.* offers '5m', '1h'"):
        ChatAnthropic(api_key="any", cache_ttl="30m")


THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
LOOK = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
AFTER_EVICTION = (
    UserMessage("Look."),
    AssistantMessage((THOUGHT, LOOK)),
    ToolMessage("toolu_1", "Read", "lines"),
)
CHANGED = (UserMessage("[Content offloaded]"), *AFTER_EVICTION[1:])
DROPS = {"prefix_mismatch_behavior": "drop_block"}


async def test_thinking_that_no_longer_fits_is_left_out_after_the_first_refusal() -> None:
    said: list[Any] = [AssistantMessage((THOUGHT, LOOK)), *["so"] * 3]
    async with MessagesServer(said, binds_thinking=True) as server:
        model = chat(server, max_retries=0)
        await reply_of(model, AFTER_EVICTION[0])
        assert (await reply_of(model, *AFTER_EVICTION)).message.text == "so"
        assert server.refusals == server.dropped == []
        assert "thinking" not in server.requests[-1], "nothing was refused yet"

        *events, reply = await events_of(model, *CHANGED)
        assert isinstance(reply, Reply)
        assert not any(isinstance(event, Retrying) for event in events), "nothing was streamed that would be void"
        assert len(server.refusals) == 1
        assert server.dropped == ["messages.1.content.0"]
        assert server.requests[-1]["thinking"] == {"type": "adaptive", "block_binding": DROPS}

        await reply_of(model, *CHANGED)
        assert await model.count_tokens(ModelRequest(messages=CHANGED)) > 0
        await model.close()
    assert len(server.refusals) == 1, "it is asked for from then on"


async def test_counting_tokens_leaves_out_such_thinking_too() -> None:
    async with MessagesServer([AssistantMessage((THOUGHT, LOOK))], binds_thinking=True) as server:
        model = chat(server, options={"thinking": {"type": "adaptive", "display": "summarized"}})
        await reply_of(model, AFTER_EVICTION[0])
        assert await model.count_tokens(ModelRequest(messages=CHANGED)) > 0
        asked = {"type": "adaptive", "display": "summarized", "block_binding": DROPS}
        assert model.body(ModelRequest(messages=CHANGED))["thinking"] == asked
        await model.close()
    assert len(server.refusals) == 1


@pytest.mark.parametrize(
    "thinking", [{"type": "disabled"}, {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}]
)
async def test_what_the_developer_says_about_thinking_stays(thinking: dict[str, Any]) -> None:
    async with MessagesServer([AssistantMessage((THOUGHT, LOOK))], binds_thinking=True) as server:
        model = chat(server, options={"thinking": thinking})
        await reply_of(model, AFTER_EVICTION[0])
        with pytest.raises(InvalidRequest, match="bound to a different conversation"):
            await reply_of(model, *CHANGED)
        assert model.body(ModelRequest(messages=CHANGED))["thinking"] == thinking
        await model.close()
