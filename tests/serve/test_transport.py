"""The transport inside of the real SDKs, against the servers of ``ctxfs.testing``: what it changes, and what not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from anyio import to_thread
from google import genai
from google.genai import types

from ctxfs.adapters.transport import history_transport
from ctxfs.context import Histories, History
from ctxfs.errors import ConfigError
from ctxfs.testing import ChatCompletionsServer, Failure, GeminiServer, MessagesServer, ResponsesServer
from serve.conversations import LOG, chat_conversation, contents, conversation, items

KEEP: Any = {"keep_recent": {"read_log": 1}, "pricing": None}
TOOLS: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "Read")]
SENT: Any = {"model": "claude-sonnet-5-5", "max_tokens": 99, "tools": TOOLS}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History("run", root_path=tmp_path, **KEEP) as history:
        yield history


def anthropic_sdk(server: MessagesServer, transport: Any) -> anthropic.Anthropic:
    client = httpx2.Client(transport=transport)
    return anthropic.Anthropic(api_key="key", base_url=server.url, max_retries=0, http_client=client)


@pytest.mark.service
def test_the_messages_api_whole_and_streamed(tmp_path: Path, history: History) -> None:
    transport = history_transport(history)
    with MessagesServer(["fine"] * 4) as server, anthropic_sdk(server, transport) as sdk:
        assert sdk.messages.create(messages=conversation(1), **SENT).content[0].text == "fine"
        with sdk.messages.stream(messages=conversation(2), **SENT) as stream:
            assert stream.get_final_text() == "fine"
        assert sdk.messages.count_tokens(model="claude-sonnet-5-5", messages=conversation(2)).input_tokens > 3_000
    assert server.refusals == []
    first, last = server.requests[0], server.requests[1]
    assert first["messages"][2]["content"][0]["content"] == f"log 0\n{LOG}"
    placeholder = last["messages"][2]["content"][0]["content"]
    assert placeholder.startswith(f"[Content offloaded]\nPath: {tmp_path}/run/tool_result/read_log/call_0.txt")
    savings = transport.savings
    assert (savings.calls, savings.heard, savings.replaced, savings.problems) == (2, 2, 1, {})
    assert savings.freed_tokens > 1_000
    history.close()
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"model":"claude-sonnet-5-5"') == 2


@pytest.mark.service
@pytest.mark.anyio
async def test_the_asynchronous_client(history: History) -> None:
    transport = history_transport(history)
    async with MessagesServer(["fine"] * 4) as server:
        client = httpx2.AsyncClient(transport=transport)
        async with anthropic.AsyncAnthropic(api_key="key", base_url=server.url, http_client=client) as sdk:
            assert (await sdk.messages.create(messages=conversation(1), **SENT)).content[0].text == "fine"
            async with sdk.messages.stream(messages=conversation(2), **SENT) as stream:
                assert await stream.get_final_text() == "fine"
    assert server.requests[1]["messages"][2]["content"][0]["content"].startswith("[Content offloaded]")
    assert (transport.savings.calls, transport.savings.heard) == (2, 2)


@pytest.mark.service
def test_openais_apis(history: History) -> None:
    transport = history_transport(history)
    with ChatCompletionsServer(["fine"] * 4) as chat, ResponsesServer(["fine"] * 4) as responses:
        client = httpx2.Client(transport=transport)
        with openai.OpenAI(api_key="key", base_url=chat.url, http_client=client) as sdk:
            options: Any = {"stream": True, "stream_options": {"include_usage": True}}
            pieces = list(sdk.chat.completions.create(model="gpt-5", messages=chat_conversation(2), **options))
            assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "fine"
        with openai.OpenAI(
            api_key="key", base_url=responses.url, http_client=httpx2.Client(transport=transport)
        ) as sdk:
            assert sdk.responses.create(model="gpt-5", input=items(3)).output_text == "fine"
    assert chat.refusals == responses.refusals == []
    assert chat.requests[0]["messages"][2]["content"].startswith("[Content offloaded]")
    assert responses.requests[0]["input"][2]["output"].startswith("[Content offloaded]")
    assert responses.requests[0]["input"][6]["output"] == f"log 2\n{LOG}"
    assert transport.savings.heard == 2


@pytest.mark.service
@pytest.mark.anyio
async def test_httpx_of_before(history: History) -> None:
    transport = history_transport(history)
    async with ChatCompletionsServer(["fine"] * 4) as server:
        body = {"model": "gpt-5", "messages": chat_conversation(2)}

        def ask() -> None:
            with httpx.Client(transport=transport) as client:
                answer = client.post(f"{server.url}/chat/completions", json=body)
                assert answer.json()["choices"][0]["message"]["content"] == "fine"

        await to_thread.run_sync(ask)
        async with httpx.AsyncClient(transport=transport) as client:
            answer = await client.post(f"{server.url}/chat/completions", json=body)
            assert answer.json()["choices"][0]["message"]["content"] == "fine"
    assert server.requests[0] == server.requests[1]
    assert server.requests[0]["messages"][2]["content"].startswith("[Content offloaded]")
    assert transport.savings.heard == 2


@pytest.mark.service
def test_a_prompt_that_is_too_long_is_cut_and_sent_again(tmp_path: Path) -> None:
    with (
        MessagesServer(["fine"] * 2, context_window_tokens=8_000) as server,
        History("run", root_path=tmp_path, window=100_000, pricing=None) as history,
        anthropic_sdk(server, history_transport(history)) as sdk,
    ):
        assert sdk.messages.create(messages=conversation(4), **SENT).content[0].text == "fine"
    assert len(server.refusals) == 1
    assert len(server.requests) == 1


@pytest.mark.service
def test_a_refusal_that_cannot_be_mended_reaches_the_program(history: History) -> None:
    refusal = Failure(status=400, kind="invalid_request_error", message="max_tokens: must be smaller")
    with (
        MessagesServer([refusal, "fine"]) as server,
        anthropic_sdk(server, history_transport(history)) as sdk,
        pytest.raises(anthropic.BadRequestError, match="must be smaller"),
    ):
        sdk.messages.create(messages=conversation(1), **SENT)


@pytest.mark.service
def test_many_conversations_by_header(tmp_path: Path) -> None:
    with (
        Histories(tmp_path, **KEEP) as histories,
        MessagesServer(["fine"] * 4) as server,
        anthropic_sdk(server, transport := history_transport(histories)) as sdk,
    ):
        for thread in ("one", "two"):
            sdk.messages.create(messages=conversation(2), extra_headers={"x-session-id": thread}, **SENT)
        sdk.messages.create(messages=conversation(2), **SENT)
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}
    assert "one/tool_result" in server.requests[0]["messages"][2]["content"][0]["content"]
    assert server.requests[2]["messages"][2]["content"][0]["content"] == f"log 0\n{LOG}"
    [problem] = transport.savings.problems
    assert "set the header x-session-id" in problem


def test_a_given_transport_sends_the_requests(history: History) -> None:
    asked: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json={"answer": 42})

    with httpx2.Client(transport=history_transport(history, inner=httpx2.MockTransport(answer))) as client:
        assert client.get("https://any.example/v1/models").json() == {"answer": 42}
        body = {"model": "gpt-5", "messages": chat_conversation(2)}
        client.post("https://any.example/openai/deployments/x/chat/completions?api-version=1", json=body)
    assert asked[1].url.params["api-version"] == "1"
    assert b"[Content offloaded]" in asked[1].content


def test_anything_but_a_history_is_refused() -> None:
    with pytest.raises(ConfigError, match="use History"):
        history_transport("session")  # type: ignore[arg-type]


@pytest.mark.service
def test_gemini_by_googles_sdk(tmp_path: Path, history: History) -> None:
    transport = history_transport(history)
    options = types.HttpOptions(client_args={"transport": transport})
    with GeminiServer(["fine"] * 3) as server:
        options.base_url = server.url
        sdk = genai.Client(api_key="key", http_options=options)
        model = "gemini-2.5-pro"
        asked: Any = [types.Content.model_validate(content) for content in contents(2)]
        assert sdk.models.generate_content(model=model, contents=asked).text == "fine"
        streamed = sdk.models.generate_content_stream(model=model, contents=asked)
        assert "".join(piece.text or "" for piece in streamed) == "fine"
        assert sdk.models.count_tokens(model=model, contents=asked).total_tokens
    assert server.refusals == []
    assert server.requests[0]["contents"] == server.requests[1]["contents"]
    replaced = server.requests[0]["contents"][2]["parts"][0]["functionResponse"]["response"]["result"]
    assert replaced.startswith(f"[Content offloaded]\nPath: {tmp_path}/run/tool_result/read_log/")
    assert server.requests[0]["contents"][4]["parts"][0]["functionResponse"]["response"]["result"] == f"log 1\n{LOG}"
    history.close()
    assert (tmp_path / "run" / "journal.jsonl").read_text().count(f'"model":"{model}"') == 2
