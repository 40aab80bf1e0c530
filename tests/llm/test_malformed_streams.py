"""Whatever a server sends, a model gives a reply or raises a ``ModelError``: for both wire formats."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import astuple
from typing import Any

import anyio
import anyio.lowlevel
import httpx2  # noqa: F401 - what the SDKs load in a thread, before the event loop runs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.agent import ChatAnthropic, ChatOpenAI
from ctxfs.agent.llm.accumulate import ReplyBuilder
from ctxfs.agent.llm.chat_completions import ChatReplyBuilder
from ctxfs.agent.llm.retry import retrying
from ctxfs.agent.llm.sse import Builder, streamed_reply
from ctxfs.errors import ConnectionFailed, ModelError, Overloaded, PromptTooLong, RateLimited
from ctxfs.messages import ChatModel, ModelRequest, Reply, Retrying, UserMessage
from ctxfs.messages.serialize import to_messages_body
from ctxfs.testing.loopback import Answer, LoopbackServer
from ctxfs.text.jsontext import codec as json_codec

QUESTION = UserMessage("q")

MESSAGES_STREAM: list[Any] = [
    {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Reading."}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "a", "name": "Read", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"path": "b"}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
CALL = {"index": 0, "id": "a", "function": {"name": "Read", "arguments": '{"path": "b"}'}}
CHAT_STREAM: list[Any] = [
    {"model": "m", "choices": [{"delta": {"reasoning_content": "Hm."}}]},
    {"model": "m", "choices": [{"delta": {"content": "Reading."}, "finish_reason": None}]},
    {"model": "m", "choices": [{"delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}},
    },
]
FORMATS: list[tuple[Callable[[], Builder], list[Any]]] = [
    (ReplyBuilder, MESSAGES_STREAM),
    (ChatReplyBuilder, CHAT_STREAM),
]

WORDS = st.sampled_from(["text", "tool_use", "message_stop", "content_block_delta", "error", "stop", "index", "x", ""])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def damaged_streams(draw: st.DrawFn) -> tuple[Callable[[], Builder], list[bytes]]:
    """A stream with up to three of its events dropped, doubled, or with another value somewhere in them."""
    make, events = draw(st.sampled_from(FORMATS))
    damaged = list(events)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(damaged) - 1))
        new = draw(st.just([]) | st.just([damaged[at]] * 2) | st.lists(replaced(damaged[at]), min_size=1, max_size=1))
        damaged[at : at + 1] = new
        if not damaged:
            break
    return make, [draw(st.just(json_text(event)) | st.binary(max_size=5)) for event in damaged]


@st.composite
def replaced(draw: st.DrawFn, value: Any) -> Any:
    """``value`` with one value inside of it, or all of it, replaced or left out."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or draw(st.integers(0, 4)) == 0:
        return draw(JSON)
    key = draw(st.sampled_from(keys))
    copy = value.copy()
    if draw(st.integers(0, 4)) == 0:
        del copy[key]
    else:
        copy[key] = draw(replaced(value[key]))
    return copy


def json_text(value: Any) -> bytes:
    """``value`` as JSON, also what JSON cannot hold: NaN and the infinities."""
    return json.dumps(value).encode()


class Sent:
    """A response with these bytes, which come in pieces of ``size``."""

    def __init__(self, body: bytes, size: int) -> None:
        self.pieces = [body[i : i + size] for i in range(0, len(body), size)]

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await anyio.lowlevel.checkpoint()
            yield piece

    async def close(self) -> None:
        """Nothing is open."""


async def outcome(builder: Builder, events: list[bytes], size: int = 1000) -> Reply | ModelError:
    """What a model makes of a stream of ``events``."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Sent]:
        yield Sent(b"".join(b"data: %s\n\n" % event for event in events), size)

    try:
        async with aclosing(retrying(lambda: streamed_reply(opening(), builder), 0)) as stream:
            *_, last = [event async for event in stream]
    except ModelError as error:
        return error
    assert isinstance(last, Reply)
    return last


def is_usable(reply: Reply) -> bool:
    """Whether the reply is of its types all through, and can be sent back."""
    body = to_messages_body(ModelRequest(messages=(QUESTION, reply.message)), model=reply.model, max_tokens=9)
    values: list[tuple[object, type]] = [(reply.stop_reason, str), (reply.model, str), (reply.message.text, str)]
    values += [(count, int) for count in astuple(reply.usage)]
    return all(isinstance(value, kind) for value, kind in values) and bool(json_codec.dumps(body))


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "events"), FORMATS)
async def test_what_is_whole_is_read(make: Callable[[], Builder], events: list[Any]) -> None:
    reply = await outcome(make(), [json_text(event) for event in events], size=7)
    assert isinstance(reply, Reply)
    assert reply.message.text == "Reading."
    assert reply.message.tool_calls[0].arguments == {"path": "b"}


@pytest.mark.anyio
@given(stream=damaged_streams())
async def test_damaged_events_end_in_a_model_error_or_a_usable_reply(
    stream: tuple[Callable[[], Builder], list[bytes]],
) -> None:
    make, events = stream
    got = await outcome(make(), events)
    assert isinstance(got, ModelError) or is_usable(got)


@pytest.mark.anyio
@pytest.mark.parametrize("make", [ReplyBuilder, ChatReplyBuilder])
@given(events=st.lists(st.binary(max_size=9) | JSON.map(json_text), max_size=5))
async def test_anything_at_all_ends_in_a_model_error(make: Callable[[], Builder], events: list[bytes]) -> None:
    assert isinstance(await outcome(make(), events), ModelError)


class Says(LoopbackServer):
    """Answers everything with ``said``."""

    def __init__(self, said: Answer) -> None:
        super().__init__()
        self.said = said

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return self.said


async def error_of(said: Answer, make: Callable[[str], ChatModel]) -> ModelError:
    async with Says(said) as server:
        model = make(server.url)
        with pytest.raises(ModelError) as caught:
            async with aclosing(model.stream(ModelRequest(messages=(QUESTION,)))) as stream:
                assert [type(event) async for event in stream] == [Retrying]
        await model.close()
    return caught.value


BOTH = pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda url: ChatAnthropic("m", base_url=url, api_key="k", max_retries=1), id="anthropic"),
        pytest.param(lambda url: ChatOpenAI("m", base_url=url, max_retries=1), id="openai"),
    ],
)


@pytest.mark.not_measured
@pytest.mark.anyio
@BOTH
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"error": "model overloaded"}', Overloaded),
        (b'{"error": {"message": "slow down", "type": "rate_limit_error"}}', RateLimited),
        (b'{"error": {"message": 5, "type": ["a"]}}', Overloaded),
        (b"[]", ConnectionFailed),
        (b"null", ConnectionFailed),
        (b"\xff", ConnectionFailed),
        (b"[DONE]", ConnectionFailed),
        (b'{"type": "content_block_delta", "index": 3, "choices": [{"delta": "x"}]}', ConnectionFailed),
    ],
)
async def test_what_cannot_be_read_is_tried_again(
    make: Callable[[str], ChatModel], data: bytes, error: type[ModelError]
) -> None:
    assert type(await error_of(Answer(200, events=[b"data: %s\n\n" % data]), make)) is error


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")  # out of reach, inside of the client
@BOTH
async def test_bytes_that_cannot_be_unpacked_are_a_connection_that_failed(make: Callable[[str], ChatModel]) -> None:
    packed = Answer(200, events=[b"data: {}\n\n"], headers={"content-encoding": "gzip"})
    assert type(await error_of(packed, make)) is ConnectionFailed


@pytest.mark.anyio
@BOTH
@pytest.mark.parametrize("body", [{"error": {"message": 5, "type": ["a"]}}, {"error": "text"}, [], None, "busy"])
async def test_errors_of_any_form_are_told(make: Callable[[str], ChatModel], body: Any) -> None:
    assert type(await error_of(Answer(503, body), make)) is Overloaded


@pytest.mark.not_measured
@pytest.mark.anyio
@BOTH
@pytest.mark.parametrize("indented", [False, True])
async def test_an_error_under_a_status_of_200_is_told(make: Callable[[str], ChatModel], indented: bool) -> None:
    said = {"error": {"type": "exceed_context_size_error", "message": "No.", "n_prompt_tokens": 14_429, "n_ctx": 8192}}
    text = json.dumps(said, indent=2 if indented else None).encode()
    error = await error_of(Answer(200, events=[text[:20], text[20:]]), make)
    assert isinstance(error, PromptTooLong)
    assert (error.limit_tokens, error.actual_tokens, error.attempts) == (8192, 14_429, 1)


@pytest.mark.anyio
async def test_a_reply_of_a_server_that_does_not_stream_is_read() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"path": "b"}'}}
    choice = {"index": 0, "message": {"content": "Reading.", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    whole = {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
    builder = ChatReplyBuilder()
    async with Says(Answer(200, whole)) as server:
        model = ChatOpenAI("m", base_url=server.url, max_retries=0)
        async with aclosing(model.stream(ModelRequest(messages=(QUESTION,)))) as events:
            *deltas, reply = [event async for event in events]
        await model.close()
    assert isinstance(reply, Reply)
    assert [*builder.feed(whole)] == deltas
    assert reply == builder.reply()
    assert [c.arguments for c in reply.message.tool_calls] == [{"path": "b"}]
