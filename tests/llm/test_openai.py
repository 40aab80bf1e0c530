"""``ChatOpenAI`` through the real SDK against a server on loopback, and the mapping of bodies."""

import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.agent import ChatOpenAI
from ctxfs.agent.llm.accumulate import INVALID_JSON
from ctxfs.agent.llm.chat_completions import ChatReplyBuilder
from ctxfs.errors import (
    ConfigError,
    ConnectionFailed,
    InvalidRequest,
    MissingApiKey,
    Overloaded,
    PromptTooLong,
    RateLimited,
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
from ctxfs.testing import Broken, ChatCompletionsServer, Cut, Failure
from ctxfs.testing.chat_server import violations
from ctxfs.testing.openai_server import Refused
from ctxfs.testing.strategies import png, transcripts

READ = ToolSchema(name="Read", description="Reads a file.", input_schema={"type": "object"})
READ_CALL = {"name": "Read", "arguments": "{}"}


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


@pytest.mark.slow
@pytest.mark.anyio
async def test_failures_are_tried_again_like_any_other_models() -> None:
    turns: list[Any] = [Broken(turn="half of an answer", after_events=1), Failure.rate_limited(0), "done"]
    async with ChatCompletionsServer(turns) as server:
        model = ChatOpenAI("local", base_url=server.url)
        events = await events_of(model, UserMessage("q"))
        await model.close()
    assert [type(e) for e in events].count(Retrying) == 2
    assert isinstance(events[-1], Reply)
    assert events[-1].message.text == "done"


@pytest.mark.not_measured
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


class StrictServer(ChatCompletionsServer):
    """Refuses what ``refused`` has as the content of a message that calls tools."""

    refused: tuple[str | None, ...] = ()

    def prompt(self, request: Any) -> list[Any]:
        for number, message in enumerate(request["messages"]):
            if "tool_calls" in message and message["content"] in self.refused:
                raise Refused(f"messages.{number}.content is {message['content']!r}")
        return super().prompt(request)


def called(call_id: str) -> list[Message]:
    call = {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}
    return [AssistantMessage((call,)), ToolMessage(call_id, "Read", "x")]


@pytest.mark.anyio
async def test_a_server_that_refuses_null_as_content_gets_empty_texts(caplog: pytest.LogCaptureFixture) -> None:
    async with StrictServer(["a", "b", "c"]) as server:
        server.refused = (None,)
        model = ChatOpenAI("local", base_url=server.url)
        await reply_of(model, UserMessage("q"))
        assert (await reply_of(model, UserMessage("q"), *called("a"))).message.text == "b"
        assert (await reply_of(model, UserMessage("q"), *called("a"), *called("b"))).message.text == "c"
        await model.close()
    assert [m["content"] for m in server.requests[2]["messages"]] == ["q", "", "x", "", "x"]
    assert len(server.refusals) == 1
    assert [r.message for r in caplog.records] == [
        "the server refuses null as content: calls without text get an empty one (messages.1.content is None)"
    ]


@pytest.mark.anyio
async def test_where_the_empty_text_is_refused_too_null_is_kept() -> None:
    async with StrictServer(["a"]) as server:
        server.refused = (None, "")
        model = ChatOpenAI("local", base_url=server.url)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match=r"messages\.1\.content is None"):
                await reply_of(model, UserMessage("q"), *called("a"))
        server.refused = ("",)
        assert (await reply_of(model, UserMessage("q"), *called("a"))).message.text == "a"
        await model.close()
    assert len(server.refusals) == 4


@pytest.mark.anyio
async def test_a_failure_of_the_second_form_is_told_as_what_it_is() -> None:
    async with StrictServer([Failure.overloaded()]) as server:
        server.refused = (None,)
        model = ChatOpenAI("local", base_url=server.url, max_retries=0)
        with pytest.raises(Overloaded):
            await reply_of(model, UserMessage("q"), *called("a"))
        await model.close()


@pytest.mark.anyio
async def test_other_refusals_are_not_asked_again() -> None:
    async with ChatCompletionsServer([Failure(status=400, kind="invalid_request_error", message="no")]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        with pytest.raises(InvalidRequest, match="no"):
            await reply_of(model, UserMessage("q"), *called("a"))
        await model.close()
    assert len(server.requests) == 1


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
    return ChatOpenAI("m", api_key="k", max_tokens=9).body(ModelRequest(messages=messages))


@given(transcripts(hostile_ids=True))
def test_every_transcript_becomes_one_that_is_accepted(messages: tuple[Message, ...]) -> None:
    assert violations(chat_body(*messages)) == []


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


def call_delta(index: Any, call_id: Any, name: str | None, arguments: Any) -> dict[str, Any]:
    """A delta of one call; an index of ``...`` is left out."""
    at = {} if index is ... else {"index": index}
    return {**at, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


T, U = ToolCall("t", {"x": 1}, id="a"), ToolCall("u", {"x": 2}, id="b")


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        ([call_delta(0, "a", "t", '{"x":1}'), call_delta(1, "b", "u", '{"x":2}')], [T, U]),
        ([call_delta(0, "a", "t", '{"x":1}'), call_delta(0, "b", "u", '{"x":2}')], [T, U]),
        ([call_delta(..., "a", "t", '{"x":1}'), call_delta(..., "b", "u", '{"x":2}')], [T, U]),
        ([call_delta(None, "a", "t", '{"x":1}'), call_delta(None, "b", "u", '{"x":2}')], [T, U]),
        # the arguments come in pieces
        (
            [
                call_delta(0, "a", "t", ""),
                call_delta(0, None, None, '{"x"'),
                call_delta(0, None, None, ":1}"),
                call_delta(0, "b", "u", '{"x"'),
                call_delta(0, None, None, ":2}"),
            ],
            [T, U],
        ),
        (
            [
                call_delta(0, "a", "t", ""),
                call_delta(1, "b", "u", ""),
                call_delta(0, None, None, '{"x":1}'),
                call_delta(1, None, None, '{"x":2}'),
            ],
            [T, U],
        ),
        (
            [
                call_delta(..., "a", "t", '{"x"'),
                call_delta(..., "", "", ":1}"),
                call_delta(..., "b", "u", '{"x"'),
                call_delta(..., None, None, ":2}"),
            ],
            [T, U],
        ),
        # id and name are repeated, also while other calls come
        ([call_delta(0, "a", "t", '{"x"'), call_delta(0, "a", "t", ":1}")], [T]),
        (
            [
                call_delta(0, "a", "t", '{"x"'),
                call_delta(0, "b", "u", '{"x"'),
                call_delta(0, "a", "t", ":1}"),
                call_delta(0, "b", "u", ":2}"),
            ],
            [T, U],
        ),
        # a new id in every piece, as some versions of vLLM sent it
        ([call_delta(0, "a", "t", '{"x"'), call_delta(0, "other", None, ":1}")], [T]),
        # no ids at all: a call that is whole is not gone on with
        (
            [call_delta(0, "", "t", '{"x":1}'), call_delta(0, "", "t", '{"x":2}'), call_delta(0, "", "u", "{}")],
            [
                ToolCall("t", {"x": 1}, id="call_1"),
                ToolCall("t", {"x": 2}, id="call_2"),
                ToolCall("u", {}, id="call_3"),
            ],
        ),
        ([call_delta(0, None, "t", '{"x"'), call_delta(0, None, "t", ":1}")], [ToolCall("t", {"x": 1}, id="call_1")]),
        ([call_delta(0, "a", "t", '{"x":1}'), call_delta(1, "a", "u", "{}")], [T, ToolCall("u", {}, id="a")]),
        # the id comes late
        ([call_delta(0, None, "t", ""), call_delta(0, "a", None, '{"x":1}')], [T]),
        # arguments that are an object
        ([call_delta(0, "a", "t", {"x": 1}), call_delta(0, "b", "u", {"x": 2})], [T, U]),
        ([call_delta(0, "a", "t", None)], [ToolCall("t", {}, id="a")]),
    ],
)
@pytest.mark.parametrize("in_one_chunk", [True, False])
def test_calls_are_told_apart_however_a_server_numbers_them(
    deltas: list[dict[str, Any]], calls: list[ToolCall], in_one_chunk: bool
) -> None:
    chunks = [chunk(tool_calls=deltas)] if in_one_chunk else [chunk(tool_calls=[delta]) for delta in deltas]
    _, reply = reply_to([*chunks, chunk("tool_calls")])
    assert list(reply.message.tool_calls) == calls
    assert reply.stop_reason == "tool_use"


@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), st.text('{}"a', max_size=5), max_size=2), max_size=4),
    st.sampled_from([0, None, ..., "right"]),
    st.booleans(),
    st.integers(1, 9),
)
def test_calls_with_ids_come_whole_whatever_their_pieces_and_numbers(
    arguments: list[dict[str, str]], index: Any, repeated: bool, size: int
) -> None:
    deltas = []
    for number, value in enumerate(arguments):
        text, at, call_id = json.dumps(value), number if index == "right" else index, f"id_{number}"
        deltas.append(call_delta(at, call_id, "t", text[:size]))
        again, name = (call_id, "t") if repeated else (None, None)
        deltas += [call_delta(at, again, name, text[i : i + size]) for i in range(size, len(text), size)]
    _, reply = reply_to([*(chunk(tool_calls=[delta]) for delta in deltas), chunk("tool_calls")])
    assert [(c.id, c.arguments) for c in reply.message.tool_calls] == [(f"id_{n}", v) for n, v in enumerate(arguments)]


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(function_call={"name": "t", "arguments": '{"x"'}), chunk(function_call={"arguments": ":1}"})],
        [{"choices": [{"message": {"content": None, "function_call": {"name": "t", "arguments": '{"x":1}'}}}]}],
    ],
)
def test_the_legacy_function_call_is_a_call(chunks: list[dict[str, Any]]) -> None:
    _, reply = reply_to([*chunks, chunk("function_call")])
    assert reply.message.tool_calls == (ToolCall("t", {"x": 1}, id="call_1"),)
    assert reply.stop_reason == "tool_use"


def test_a_message_in_one_piece_is_read_and_one_that_repeats_the_deltas_is_not() -> None:
    calls = [{"id": "a", "function": {"name": "t", "arguments": '{"x":1}'}}, {"id": "b", "function": {"name": "u"}}]
    whole = {"index": 0, "message": {"content": "So:", "tool_calls": calls}, "finish_reason": "tool_calls"}
    _, reply = reply_to([{"model": "m", "choices": [whole]}])
    assert (reply.message.text, [c.id for c in reply.message.tool_calls]) == ("So:", ["a", "b"])
    deltas, reply = reply_to([chunk(content="So:"), {"choices": [whole]}])
    assert (deltas, reply.message.text) == ([TextDelta("So:")], "So:")


def test_of_several_choices_the_first_is_the_reply_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    other = {"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}
    deltas, reply = reply_to([{"choices": [other]}, chunk(content="A"), {"choices": [other]}, chunk("length")])
    assert (deltas, reply.message.text, reply.stop_reason) == ([TextDelta("A")], "A", "max_tokens")
    assert [r.message for r in caplog.records] == [
        "the server sent several choices: only the first is the reply, choice 1 is dropped"
    ]


@pytest.mark.parametrize("options", [{"n": 2}, {"stream": False}])
def test_options_that_would_change_what_a_reply_is_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="leave out"):
        ChatOpenAI("m", options=options)


LONG_NAME = "mcp__" + "a_long_name_of_a_server__" * 4
IDS = ("a" * 41, "b" * 64, "c" * 1500, "d.e")


@pytest.mark.anyio
async def test_long_ids_and_names_are_sent_as_others_and_come_back_as_themselves() -> None:
    def answer(body: dict[str, Any]) -> list[Any]:
        return [ToolCall(body["tools"][0]["function"]["name"], {}), ToolCall("Read", {}), ToolCall("unknown", {})]

    tools = (ToolSchema(name=LONG_NAME, description="Long.", input_schema={"type": "object"}), READ)
    calls = tuple({"type": "tool_use", "id": i, "name": LONG_NAME, "input": {}} for i in IDS)
    results = [ToolMessage(i, LONG_NAME, f"of {i}") for i in reversed(IDS)]
    async with ChatCompletionsServer([answer, "done"]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        messages: list[Message] = [UserMessage("q"), AssistantMessage(calls), *results]
        reply = await reply_of(model, *messages, tools=tools)
        assert [c.name for c in reply.message.tool_calls] == [LONG_NAME, "Read", "unknown"]
        answers = [ToolMessage(c.id, c.name, "x") for c in reply.message.tool_calls]
        await reply_of(model, *messages, reply.message, *answers, tools=tools)
        await model.close()
    assert server.refusals == []
    first, second = server.requests
    assert second["messages"][: len(first["messages"])] == first["messages"]
    sent = {m["tool_call_id"]: m["content"] for m in first["messages"] if m["role"] == "tool"}
    assert [sent[c["id"]] for c in first["messages"][1]["tool_calls"]] == [f"of {i}" for i in IDS]
    assert all(len(i) <= 40 for i in sent)


@pytest.mark.not_measured
@pytest.mark.anyio
@pytest.mark.parametrize("count", [128, 129, 300])
async def test_more_calls_than_a_message_may_hold_are_sent_in_several(count: int) -> None:
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "Read", "input": {"n": n}} for n in range(count)]
    said = AssistantMessage(({"type": "text", "text": "Many."}, *calls))
    results = [ToolMessage(f"c{n}", "Read", f"r{n}") for n in reversed(range(count))]
    async with ChatCompletionsServer(["done"]) as server:
        model = ChatOpenAI("local", base_url=server.url)
        await reply_of(model, UserMessage("q"), said, *results, UserMessage("go on"), tools=(READ,))
        await model.close()
    messages = server.requests[0]["messages"]
    assert messages[-1] == {"role": "user", "content": "go on"}
    sent = [c["id"] for m in messages for c in m.get("tool_calls", ())]
    assert sent == [c["id"] for c in calls]
    assert {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"} == {
        f"c{n}": f"r{n}" for n in range(count)
    }
    assert [m["content"] for m in messages if m["role"] == "assistant"] == ["Many.", None, None][: -(-count // 128)]


MISTRAL_ID = re.compile("[a-zA-Z0-9]{9}")


@given(transcripts(hostile_ids=True))
def test_mistral_accepts_every_transcript(messages: tuple[Message, ...]) -> None:
    model = ChatOpenAI("m", base_url="https://api.mistral.ai/v1", max_tokens=9)
    assert violations(model.body(ModelRequest(messages=messages)), "mistral") == []


@pytest.mark.anyio
async def test_mistral_gets_ids_of_nine_letters_and_digits_and_no_user_right_after_a_tool() -> None:
    own = "aB3dE6gH9"
    ids = ("call_001", own, "toolu_x", "é")
    calls = tuple({"type": "tool_use", "id": i, "name": "Read", "input": {}} for i in ids)
    results = [ToolMessage(i, "Read", f"of {i}") for i in ids]
    async with ChatCompletionsServer([[ToolCall("Read", {})], "done"], dialect="mistral") as server:
        model = ChatOpenAI("m", base_url=server.url, dialect="mistral")
        messages: list[Message] = [UserMessage("q"), AssistantMessage(calls), *results, UserMessage("and now?")]
        reply = await reply_of(model, *messages, tools=(READ,))
        answers = [ToolMessage(c.id, c.name, "x") for c in reply.message.tool_calls]
        await reply_of(model, *messages, reply.message, *answers, tools=(READ,))
        await model.close()
    assert server.refusals == []
    assert reply.usage.total_input_tokens > 0, "which its API sends unasked"
    first, second = (request["messages"] for request in server.requests)
    assert second[: len(first)] == first
    sent = {m["tool_call_id"]: m["content"] for m in first if m["role"] == "tool"}
    assert sent[own] == f"of {own}"
    assert len(sent) == 4
    assert all(MISTRAL_ID.fullmatch(call_id) for call_id in sent)
    assert [m["role"] for m in first[-2:]] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("url", "mistral"),
    [
        ("https://api.mistral.ai/v1", True),
        ("https://codestral.mistral.ai/v1", True),
        ("https://notmistral.ai/v1", False),
        ("http://localhost:1/v1", False),
        (None, False),
    ],
)
def test_mistral_is_known_by_its_host(url: str | None, mistral: bool) -> None:
    calls = ({"type": "tool_use", "id": "call_001", "name": "Read", "input": {}},)
    messages = (UserMessage("q"), AssistantMessage(calls), ToolMessage("call_001", "Read", "x"))
    body = ChatOpenAI("m", base_url=url, api_key="k").body(ModelRequest(messages=messages))
    assert (body["messages"][1]["tool_calls"][0]["id"] != "call_001") == mistral


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stream_options": {"include_usage": True}}, "include_usage: extra inputs"),
        ({"max_completion_tokens": 9}, "max_completion_tokens: extra inputs"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "a", "content": ""}, {"role": "user", "content": "q"}]},
            "unex",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": i, "type": "function", "function": READ_CALL}]}
                    for i in ("short", "under_sco", "of-ten-cha")
                ]
            },
            "length of 9",
        ),
    ],
)
def test_what_mistral_refuses_and_openai_does_not_is_found(change: dict[str, Any], reason: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], **change}
    assert any(reason in found for found in violations(body, "mistral"))
    assert not any(reason in found for found in violations(body))


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConfigError, match="dialect is 'claude': use one of openai, mistral"):
        ChatOpenAI("m", dialect="claude")  # type: ignore[arg-type]


def many_tools(count: int) -> tuple[ToolSchema, ...]:
    return tuple(ToolSchema(name=f"t{n}", description="x", input_schema={"type": "object"}) for n in range(count))


def test_more_tools_than_openai_takes_are_refused_before_anything_is_sent() -> None:
    def request(count: int) -> ModelRequest:
        return ModelRequest(messages=(UserMessage("q"),), tools=many_tools(count))

    openai, local = ChatOpenAI("m", api_key="k"), ChatOpenAI("m", base_url="http://localhost:1")
    assert len(openai.body(request(128))["tools"]) == 128
    with pytest.raises(InvalidRequest, match="129 tools: OpenAI takes at most 128, so leave some out"):
        openai.body(request(129))
    assert len(local.body(request(129))["tools"]) == 129, "another server may take more"


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    "choice",
    [
        named(LONG_NAME),
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("Read"), named(LONG_NAME)]}},
        "required",
    ],
)
@pytest.mark.anyio
async def test_a_tool_choice_names_the_tool_as_it_is_sent(choice: Any) -> None:
    tools = (ToolSchema(name=LONG_NAME, description="Long.", input_schema={"type": "object"}), READ)
    async with ChatCompletionsServer(["done", "summary"]) as server:
        model = ChatOpenAI("m", base_url=server.url, options={"tool_choice": choice, "parallel_tool_calls": False})
        await reply_of(model, UserMessage("q"), tools=tools)
        await reply_of(model, UserMessage("Summarize."))
        await model.close()
    assert server.refusals == []
    first, second = server.requests
    sent = first["tools"][0]["function"]["name"]
    assert sent != LONG_NAME
    assert first["tool_choice"] == json.loads(json.dumps(choice).replace(LONG_NAME, sent))
    assert first["parallel_tool_calls"] is False
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & second.keys(), "refused without tools"


@pytest.mark.parametrize(
    ("choice", "tools", "reason"),
    [
        ("auto", [], "tool_choice: only allowed when tools are specified"),
        ("any", [named("Read")], "one of auto, none, required"),
        ({"type": "function"}, [named("Read")], "one of auto, none, required"),
        (named("Write"), [named("Read"), "x"], "the function 'Write' is not among the tools"),
    ],
)
def test_a_tool_choice_that_openai_refuses_is_found(choice: Any, tools: list[Any], reason: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools, "tool_choice": choice}
    assert any(reason in found for found in violations(body))


def test_cached_tokens_are_not_counted_twice() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
    assert reply_to([chunk("stop"), {"choices": [], "usage": usage}])[1].usage == Usage(
        input_tokens=20, cache_read_input_tokens=80, output_tokens=5
    )
