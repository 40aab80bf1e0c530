"""Reading turns: the model reads back inside of one request of a program that knows nothing of the reading tools."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types

from ctxfs.adapters.serve.proxy import Proxy
from ctxfs.adapters.transport import history_transport
from ctxfs.context import History
from ctxfs.errors import StorageError
from ctxfs.messages import AssistantMessage, ToolCall
from ctxfs.testing import ChatCompletionsServer, Failure, GeminiServer, MessagesServer, ResponsesServer
from serve.conversations import LOG, chat_conversation, contents, conversation, items

KEEP: Any = {"keep_recent": {"read_log": 1}, "pricing": None}
MODEL = "claude-sonnet-5-5"
OWN = ("Read", "context_read", "context_tail", "context_grep", "context_list")
SCHEMA: Any = {"type": "object", "properties": {"n": {"type": "integer"}}}
PROGRAMS = ("read_log", "note")
TOOLS: Any = [{"name": name, "input_schema": SCHEMA} for name in PROGRAMS]
FUNCTIONS: Any = [{"name": name, "parameters": SCHEMA} for name in PROGRAMS]
CHAT_TOOLS: Any = [{"type": "function", "function": function} for function in FUNCTIONS]
RESPONSES_TOOLS: Any = [{"type": "function", "strict": False, **function} for function in FUNCTIONS]
SENT: Any = {"model": MODEL, "max_tokens": 99, "tools": TOOLS}
GREP = ToolCall("context_grep", {"ref": "call_0", "pattern": "^log"}, id="read_1")
"""What is offloaded of the first log is found by the id of its call."""


def reads(body: Any) -> list[Any]:
    """The model reads the first log by the id of its only stored content."""
    del body
    return ["Let me look.", GREP]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History("run", root_path=tmp_path, **KEEP) as history:
        yield history


def sdk_of(url: str, transport: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key="key", base_url=url, max_retries=0, http_client=httpx2.Client(transport=transport)
    )


def names(request: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_the_model_reads_inside_of_one_request(history: History, streams: bool) -> None:
    transport = history_transport(history, reading_turns=8)
    with MessagesServer([reads, "It says log 0."]) as server, sdk_of(server.url, transport) as sdk:
        if streams:
            with sdk.messages.stream(messages=conversation(2), **SENT) as stream:
                reply: Any = stream.get_final_message()
        else:
            reply = sdk.messages.create(messages=conversation(2), **SENT)
    assert [block.text for block in reply.content] == ["It says log 0."]
    assert reply.stop_reason == "end_turn"
    assert server.refusals == []
    first, second = server.requests
    assert names(first) == names(second) == [*PROGRAMS, *OWN]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    asked, result = second["messages"][len(first["messages"]) :]
    assert asked["content"][1]["name"] == "context_grep"
    assert "log 0" in result["content"][0]["content"]
    savings = transport.savings
    assert (savings.calls, savings.heard, savings.reading_turns) == (2, 2, 1)
    assert "1 reading turn answered inside of the program's requests" in savings.lines()


@pytest.mark.service
@pytest.mark.anyio
@pytest.mark.parametrize("streams", [False, True])
async def test_the_asynchronous_client(history: History, streams: bool) -> None:
    transport = history_transport(history, reading_turns=8)
    async with MessagesServer([reads, "It says log 0."]) as server:
        client = httpx2.AsyncClient(transport=transport)
        async with anthropic.AsyncAnthropic(api_key="key", base_url=server.url, http_client=client) as sdk:
            if streams:
                async with sdk.messages.stream(messages=conversation(2), **SENT) as stream:
                    assert await stream.get_final_text() == "It says log 0."
            else:
                reply: Any = await sdk.messages.create(messages=conversation(2), **SENT)
                assert reply.content[0].text == "It says log 0."
    assert len(server.requests) == 2
    assert transport.savings.heard == 2


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_calls_of_both_kinds_in_one_reply(history: History, streams: bool) -> None:
    """The program gets its own call only; its next request has both results again, and the turn before."""
    mixed: Any = ["Both.", GREP, ToolCall("note", {"n": 9}, id="own_1")]
    earlier = [ToolCall("context_list", {}, id="read_0")]
    transport = history_transport(history, reading_turns=8)
    with MessagesServer([earlier, mixed, "done"]) as server, sdk_of(server.url, transport) as sdk:
        asked = conversation(2)
        if streams:
            with sdk.messages.stream(messages=asked, **SENT) as stream:
                reply: Any = stream.get_final_message()
        else:
            reply = sdk.messages.create(messages=asked, **SENT)
        assert [block.type for block in reply.content] == ["text", "tool_use"]
        assert reply.content[1].id == "own_1"
        assert reply.content[1].input == {"n": 9}
        assert reply.stop_reason == "tool_use"
        results = [{"type": "tool_result", "tool_use_id": "own_1", "content": "log 9"}]
        asked += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
        assert sdk.messages.create(messages=asked, **SENT).content[0].text == "done"
    assert server.refusals == []
    before, last = server.requests[1], server.requests[2]
    assert last["messages"][: len(before["messages"])] == before["messages"]
    said, answers = last["messages"][len(before["messages"]) :]
    assert [block["type"] for block in said["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["tool_use_id"] for block in answers["content"]] == ["read_1", "own_1"]


@pytest.mark.service
@pytest.mark.parametrize("turns", [1, 2])
def test_the_turns_of_a_request_are_bounded(history: History, turns: int) -> None:
    transport = history_transport(history, reading_turns=turns)
    script: list[Any] = [[ToolCall("context_list", {}, id=f"read_{n}")] for n in range(turns + 1)]
    with MessagesServer([*script, "enough"]) as server, sdk_of(server.url, transport) as sdk:
        assert sdk.messages.create(messages=conversation(2), **SENT).content[0].text == "enough"
    assert len(server.requests) == turns + 2
    *_, told, last = server.requests
    assert "This was the last page" in told["messages"][-1]["content"][0]["content"]
    assert last["messages"][-1]["content"][0]["is_error"]
    assert names(told) == [*PROGRAMS, *OWN]
    assert names(last) == [*PROGRAMS]
    assert transport.savings.reading_turns == turns


@pytest.mark.service
def test_a_call_of_a_tool_that_is_no_longer_offered_is_left_out(history: History) -> None:
    calls = [ToolCall("context_list", {}, id=f"read_{n}") for n in range(3)]
    transport = history_transport(history, reading_turns=1)
    with MessagesServer([[call] for call in calls]) as server, sdk_of(server.url, transport) as sdk:
        assert sdk.messages.create(messages=conversation(2), **SENT).content == []


@pytest.mark.service
def test_bound_thinking_stands_behind_what_it_followed(history: History) -> None:
    """Nothing is refused, and nothing left out, as long as nothing before it is replaced."""

    def thinking(n: int, *blocks: dict[str, Any]) -> AssistantMessage:
        return AssistantMessage(({"type": "thinking", "thinking": f"{n}?", "signature": f"sig{n}"}, *blocks))

    read = {"type": "tool_use", "id": "read_1", "name": "context_list", "input": {}}
    own = {"type": "tool_use", "id": "own_1", "name": "note", "input": {}}
    turns: list[Any] = [thinking(1, read), thinking(2, own), thinking(3, {"type": "text", "text": "So."}), "bye"]
    transport = history_transport(history, reading_turns=8)
    with MessagesServer(turns, binds_thinking=True) as server, sdk_of(server.url, transport) as sdk:
        asked: Any = [{"role": "user", "content": "What happened?"}]
        settings = {**SENT, "max_tokens": 2_000, "thinking": {"type": "enabled", "budget_tokens": 1_024}}
        for answer in ("a log", "Thanks."):
            reply = sdk.messages.create(messages=asked, **settings)
            asked.append({"role": "assistant", "content": reply.content})
            calls = [block.id for block in reply.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call, "content": answer} for call in calls]
            asked.append({"role": "user", "content": results or answer})
        assert sdk.messages.create(messages=asked, **settings).content[0].text == "bye"
    assert server.refusals == []
    assert server.dropped == []
    signed = [b["signature"] for m in server.requests[-1]["messages"] for b in m["content"] if "signature" in b]
    assert signed == ["sig1", "sig2", "sig3"]


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_chat_completions(history: History, streams: bool) -> None:
    mixed = [GREP, ToolCall("note", {"n": 9}, id="own_1")]
    transport = history_transport(history, reading_turns=8)
    with ChatCompletionsServer([[ToolCall("context_list", {}, id="read_0")], mixed, "done"]) as server:
        client = httpx2.Client(transport=transport)
        with openai.OpenAI(api_key="key", base_url=server.url, http_client=client, max_retries=0) as sdk:
            asked = chat_conversation(2)
            settings: Any = {"model": "gpt-5", "tools": CHAT_TOOLS}
            if streams:
                with sdk.chat.completions.stream(messages=asked, **settings) as stream:
                    reply: Any = stream.get_final_completion().choices[0].message
            else:
                reply = sdk.chat.completions.create(messages=asked, **settings).choices[0].message
            assert [call.id for call in reply.tool_calls] == ["own_1"]
            assert json.loads(reply.tool_calls[0].function.arguments) == {"n": 9}
            asked += [
                {"role": "assistant", "content": None, "tool_calls": [chat_call("own_1")]},
                {"role": "tool", "tool_call_id": "own_1", "content": "log 9"},
            ]
            assert sdk.chat.completions.create(messages=asked, **settings).choices[0].message.content == "done"
    assert server.refusals == []
    before, last = server.requests[1:]
    assert last["messages"][: len(before["messages"])] == before["messages"]
    said, *answers = last["messages"][len(before["messages"]) :]
    assert [call["id"] for call in said["tool_calls"]] == ["read_1", "own_1"]
    assert [answer["tool_call_id"] for answer in answers] == ["read_1", "own_1"]


def chat_call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "note", "arguments": '{"n": 9}'}}


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_the_responses_api(history: History, streams: bool) -> None:
    mixed: Any = ["Both.", GREP, ToolCall("note", {"n": 9}, id="own_1")]
    transport = history_transport(history, reading_turns=8)
    with ResponsesServer([[ToolCall("context_list", {}, id="read_0")], mixed, "done"]) as server:
        client = httpx2.Client(transport=transport)
        with openai.OpenAI(api_key="key", base_url=server.url, http_client=client, max_retries=0) as sdk:
            asked = items(2)
            settings: Any = {"model": "gpt-5", "tools": RESPONSES_TOOLS}
            if streams:
                with sdk.responses.stream(input=asked, **settings) as stream:
                    reply: Any = stream.get_final_response()
            else:
                reply = sdk.responses.create(input=asked, **settings)
            assert [item.type for item in reply.output] == ["message", "function_call"]
            asked += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
            for item in asked:
                for part in item.get("content", ()) if item.get("type") == "message" else ():
                    part.pop("parsed", None)
            asked.append({"type": "function_call_output", "call_id": "own_1", "output": "log 9"})
            assert sdk.responses.create(input=asked, **settings).output_text == "done"
    assert server.refusals == []
    before, last = server.requests[1:]
    assert last["input"][: len(before["input"])] == before["input"]
    added = [item.get("call_id") or item["type"] for item in last["input"][len(before["input"]) :]]
    assert added == ["message", "own_1", "read_1", "read_1", "own_1"]


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_gemini(history: History, streams: bool) -> None:
    mixed = [GREP, ToolCall("note", {"n": 9}, id="own_1")]
    transport = history_transport(history, reading_turns=8)
    options = types.HttpOptions(client_args={"transport": transport})
    with GeminiServer([[ToolCall("context_list", {}, id="read_0")], mixed, "done"]) as server:
        options.base_url = server.url
        sdk = genai.Client(api_key="key", http_options=options)
        declared: Any = [{"name": name, "parameters_json_schema": SCHEMA} for name in PROGRAMS]
        config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=declared)],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        settings: Any = {"model": "gemini-2.5-pro", "config": config}
        asked: Any = [types.Content.model_validate(content) for content in contents(2)]
        if streams:
            (reply,) = sdk.models.generate_content_stream(contents=asked, **settings)
        else:
            reply = sdk.models.generate_content(contents=asked, **settings)
        assert [call.name for call in reply.function_calls or ()] == ["note"]
        assert reply.candidates
        result: Any = {"function_response": {"name": "note", "response": {"result": "log 9"}}}
        asked += [reply.candidates[0].content, types.Content(role="user", parts=[result])]
        assert sdk.models.generate_content(contents=asked, **settings).text == "done"
    assert server.refusals == []
    before, last = server.requests[1:]
    assert last["contents"][: len(before["contents"])] == before["contents"]
    said, answers = last["contents"][len(before["contents"]) :]
    assert [part["functionCall"]["name"] for part in said["parts"]] == ["context_grep", "note"]
    assert [part["functionResponse"]["name"] for part in answers["parts"]] == ["context_grep", "note"]


@pytest.mark.service
@pytest.mark.parametrize("streams", [False, True])
def test_the_proxy(tmp_path: Path, streams: bool) -> None:
    with (
        MessagesServer([reads, "It says log 0."]) as server,
        Proxy(tmp_path, KEEP, {"anthropic": server.url}, "run", reading_turns=8) as running,
        anthropic.Anthropic(api_key="key", base_url=running.environment["ANTHROPIC_BASE_URL"], max_retries=0) as sdk,
    ):
        if streams:
            with sdk.messages.stream(messages=conversation(2), **SENT) as stream:
                assert stream.get_final_text() == "It says log 0."
        else:
            reply = sdk.messages.create(messages=conversation(2), **SENT)
            assert reply.content[0].text == "It says log 0."
    assert len(server.requests) == 2
    assert (running.savings.heard, running.savings.reading_turns) == (2, 1)


@pytest.mark.service
def test_a_program_that_offers_a_reading_tool_answers_it(history: History) -> None:
    transport = history_transport(history, reading_turns=8)
    own: Any = [*TOOLS, {"name": "Read", "input_schema": {"type": "object"}}]
    call = ToolCall("Read", {"file_path": "x"}, id="own_1")
    with MessagesServer([[call]]) as server, sdk_of(server.url, transport) as sdk:
        reply = sdk.messages.create(messages=conversation(2), **{**SENT, "tools": own})
        assert [block.type for block in reply.content] == ["tool_use"]
    assert names(server.requests[0]) == [*PROGRAMS, "Read", *OWN[1:]]


@pytest.mark.service
@pytest.mark.parametrize("change", [{"tools": []}, {}])
def test_a_request_without_tools_stays_as_it_is(history: History, change: Any) -> None:
    transport = history_transport(history, reading_turns=8)
    body = {key: value for key, value in SENT.items() if key != "tools"}
    with MessagesServer(["fine"]) as server, sdk_of(server.url, transport) as sdk:
        sdk.messages.create(messages=conversation(1), **body, **change)
    assert not server.requests[0].get("tools")


@pytest.mark.service
def test_an_error_of_a_later_turn_is_the_programs(history: History) -> None:
    transport = history_transport(history, reading_turns=8)
    with (
        MessagesServer([reads, Failure.rate_limited()]) as server,
        sdk_of(server.url, transport) as sdk,
        pytest.raises(anthropic.RateLimitError),
    ):
        sdk.messages.create(messages=conversation(2), **SENT)
    assert transport.savings.calls == 1


@pytest.mark.service
def test_wrong_arguments_are_told_to_the_model(history: History) -> None:
    transport = history_transport(history, reading_turns=8)
    wrong = ToolCall("context_grep", {"nothing": 1}, id="read_1")
    with MessagesServer([[wrong], "sorry"]) as server, sdk_of(server.url, transport) as sdk:
        assert sdk.messages.create(messages=conversation(2), **SENT).content[0].text == "sorry"
    result = server.requests[1]["messages"][-1]["content"][0]
    assert result["is_error"]
    assert "ref" in result["content"]


@pytest.mark.parametrize("raw", [b"not JSON", b'{"answer": 42}', b'data: {"type": "ping"}\n\n'])
def test_what_is_no_reply_passes_as_it_came(history: History, raw: bytes) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw)

    transport = history_transport(history, reading_turns=8, inner=httpx2.MockTransport(answer))
    with httpx2.Client(transport=transport) as client:
        for path in ("v1/messages", "chat/completions", "responses", "models/gemini-2.5-pro:generateContent"):
            body: Any = {"model": "any", "messages": conversation(1), "tools": TOOLS}
            if path == "responses":
                body = {"model": "any", "input": "Hello", "tools": RESPONSES_TOOLS}
            elif path == "chat/completions":
                body = {"model": "any", "messages": chat_conversation(1), "tools": CHAT_TOOLS}
            elif "models" in path:
                body = {"contents": contents(1), "tools": [{"functionDeclarations": [{"name": "read_log"}]}]}
            assert client.post(f"https://any.example/{path}", json=body).content == raw


def test_a_compressed_reply_is_unpacked_and_an_unknown_compression_passes(history: History) -> None:
    reply = {"role": "assistant", "content": [{"type": "text", "text": "fine"}], "usage": {"input_tokens": 1}}
    packed = gzip.compress(json.dumps(reply).encode())
    encodings = iter(["gzip", "br"])

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Pieces(packed), headers={"content-encoding": next(encodings)})

    class Pieces(httpx2.SyncByteStream):
        def __init__(self, raw: bytes) -> None:
            self.raw = raw

        def __iter__(self) -> Iterator[bytes]:
            yield self.raw

    transport = history_transport(history, reading_turns=8, inner=httpx2.MockTransport(answer))
    with httpx2.Client(transport=transport) as client:
        body = {**SENT, "messages": conversation(1)}
        assert client.post("https://any.example/v1/messages", json=body).json() == reply
        with client.stream("POST", "https://any.example/v1/messages", json=body) as passed:
            assert b"".join(passed.iter_raw()) == packed


DAMAGED = {
    "the compressed body ends too early": gzip.compress(b'{"content": []}')[:-9],
    "incorrect header check": b'{"content": []}',
    "67,108,864 bytes when it is unpacked": gzip.compress(b" " * (65 << 20)),
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_a_reply_that_cannot_be_unpacked_is_an_error_of_the_library(history: History, reason: str) -> None:
    class Answers(httpx2.MockTransport):
        """Replies whose content is not unpacked before they are here."""

    class Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield DAMAGED[reason]

        async def __aiter__(self) -> Any:
            yield DAMAGED[reason]

    inner = Answers(lambda _: httpx2.Response(200, stream=Pieces(), headers={"content-encoding": "gzip"}))
    transport = history_transport(history, reading_turns=8, inner=inner)
    body = {**SENT, "messages": conversation(1)}

    async def posted() -> None:
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.post("https://any.example/v1/messages", json=body)

    with httpx2.Client(transport=transport) as client, pytest.raises(httpx2.DecodingError, match=reason):
        client.post("https://any.example/v1/messages", json=body)
    with pytest.raises(httpx2.DecodingError, match=reason):
        asyncio.run(posted())


@pytest.mark.service
@pytest.mark.parametrize("reason", [*DAMAGED, "more than 67,108,864 bytes"])
def test_a_reply_that_cannot_be_unpacked_is_said_by_the_proxy(tmp_path: Path, reason: str) -> None:
    raw = DAMAGED.get(reason, b"\0" * (65 << 20))

    class Replies(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-encoding", "gzip")
            self.end_headers()
            try:
                self.wfile.write(raw)
            except ConnectionError:  # too much was read
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Replies) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        upstreams = {"anthropic": f"http://127.0.0.1:{server.server_address[1]}"}
        try:
            with Proxy(tmp_path, KEEP, upstreams, "run", reading_turns=8) as running:
                url = f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages"
                answer = httpx2.post(url, json={**SENT, "messages": conversation(1)}, timeout=60)
        finally:
            server.shutdown()
            thread.join()
    assert answer.status_code == 502
    assert "the provider's reply cannot be read" in answer.json()["error"]["message"]
    assert reason in answer.json()["error"]["message"]


@pytest.mark.service
def test_a_later_turn_that_cannot_be_rewritten_is_sent_as_it_is(tmp_path: Path) -> None:
    """The store fails between the turns: the program gets its reply, and the savings say what happened."""

    class Failing(History):
        turns = 0

        def rewritten(self, *given: Any, **settings: Any) -> Any:
            self.turns += 1
            if self.turns > 1:
                raise StorageError("the disk is gone")
            return super().rewritten(*given, **settings)

    with Failing("run", root_path=tmp_path, **KEEP) as history, MessagesServer([reads, "It says log 0."]) as server:
        transport = history_transport(history, reading_turns=8)
        with sdk_of(server.url, transport) as sdk:
            assert sdk.messages.create(messages=conversation(2), **SENT).content[0].text == "It says log 0."
    assert server.requests[1]["messages"][-1]["content"][0]["tool_use_id"] == "read_1"
    assert transport.savings.problems == {"StorageError: a later turn of the request could not be rewritten": 1}


@pytest.mark.service
def test_the_first_log_is_replaced_also_where_the_program_has_no_reading_tool(history: History) -> None:
    transport = history_transport(history, reading_turns=1)
    with MessagesServer(["fine"]) as server, sdk_of(server.url, transport) as sdk:
        sdk.messages.create(messages=conversation(2), **SENT)
    assert server.requests[0]["messages"][2]["content"][0]["content"].startswith("[Content offloaded]")
    assert server.requests[0]["messages"][4]["content"][0]["content"] == f"log 1\n{LOG}"
