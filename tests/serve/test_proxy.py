"""The proxy between the real SDKs and the servers of ``ctxfs.testing``: what it changes, and what it does not."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.adapters.serve.bodies import TooLarge, unpacked
from ctxfs.adapters.serve.calls import branch_of, normal_path, thread_of
from ctxfs.adapters.serve.programs import program_of, told
from ctxfs.adapters.serve.proxy import Proxy
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.cli.app import run as ctxfs
from ctxfs.messages import AssistantMessage
from ctxfs.testing import ChatCompletionsServer, Failure, GeminiServer, MessagesServer, ResponsesServer
from patience import HANGS_S
from serve.conversations import LOG, chat_conversation, contents, conversation, items

MODEL = "claude-sonnet-5-5"
KEY = "sk-secret-of-the-user"
KEEP = {"keep_recent": {"read_log": 1}, "pricing": None}


@pytest.fixture
def servers() -> Iterator[tuple[MessagesServer, ChatCompletionsServer, ResponsesServer]]:
    with (
        MessagesServer(["fine"] * 9) as messages,
        ChatCompletionsServer(["fine"] * 9) as chat,
        ResponsesServer(["fine"] * 9) as responses,
    ):
        yield messages, chat, responses


def post(url: str, **given: Any) -> httpx2.Response:
    return httpx2.post(url, timeout=HANGS_S, **given)


def proxy(root: Path, **upstreams: str) -> Proxy:
    return Proxy(root, KEEP, upstreams, "run")


@pytest.mark.service
def test_the_messages_api_whole_and_streamed(tmp_path: Path, servers: Any) -> None:
    server = servers[0]
    with proxy(tmp_path, anthropic=server.url) as running:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=running.environment["ANTHROPIC_BASE_URL"], max_retries=0)
        tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "Read")]
        sent: Any = {"model": MODEL, "max_tokens": 99, "tools": tools, "metadata": {"user_id": "u_session_abc"}}
        for logs in (1, 2):
            assert sdk.messages.create(messages=conversation(logs), **sent).content[0].text == "fine"
        with sdk.messages.stream(messages=conversation(3), **sent) as stream:
            assert stream.get_final_text() == "fine"
            assert stream.get_final_message().usage.input_tokens > 1_000
        whole = sdk.messages.count_tokens(model=MODEL, messages=conversation(3), tools=tools).input_tokens
        sdk.close()
    assert server.refusals == []
    placeholder = server.requests[2]["messages"][2]["content"][0]["content"]
    assert placeholder.startswith(
        f"[Content offloaded]\nPath: {tmp_path}/abc/tool_result/read_log/call_0.txt\nUse Read tool"
    )
    assert server.requests[2]["messages"][6]["content"][0]["content"] == f"log 2\n{LOG}"
    assert (tmp_path / "abc/tool_result/read_log/call_0.txt").read_text() == f"log 0\n{LOG}"
    savings = running.savings
    assert (savings.calls, savings.heard, savings.problems) == (3, 3, {})
    assert 0.9 * whole < savings.sent_tokens + savings.freed_tokens - whole  # the two calls before
    assert savings.freed_tokens > 5_000
    assert 0 < savings.usd < savings.whole_usd
    assert "3 calls, 3 with a bill; 2 contents replaced" in savings.lines()
    journal = (tmp_path / "abc" / "journal.jsonl").read_text()
    assert journal.count(f'"model":"{MODEL}"') == 3


@pytest.mark.service
def test_a_websocket_is_refused_so_that_codex_goes_on_over_http_at_once(tmp_path: Path, servers: Any) -> None:
    server = servers[2]
    with proxy(tmp_path, openai=server.url) as running:
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
        answer = httpx2.get(f"{running.environment['OPENAI_BASE_URL']}/responses", headers=upgrade, timeout=HANGS_S)
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "HTTP/1.1")
    assert "send the request over HTTP" in answer.json()["error"]["message"]
    assert server.requests == server.refusals == []


@pytest.mark.service
def test_gemini_whole_and_streamed(tmp_path: Path) -> None:
    with GeminiServer(["fine"] * 2) as server, proxy(tmp_path, gemini=server.url) as running:
        address = f"{running.environment['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/gemini-2.5-pro"
        for method in ("generateContent", "streamGenerateContent?alt=sse"):
            assert "fine" in post(f"{address}:{method}", json={"contents": contents(2)}).text
        assert post(f"{address}:countTokens", json={"contents": contents(2)}).json()["totalTokens"] > 3_000
    assert server.refusals == []
    for request in server.requests:
        replaced = request["contents"][2]["parts"][0]["functionResponse"]["response"]["result"]
        assert replaced.startswith("[Content offloaded]")
    assert (running.savings.calls, running.savings.heard, running.requests) == (2, 2, 3)
    assert running.savings.usd > 0


@pytest.mark.service
@pytest.mark.parametrize("base", ["", "/v1"])
def test_a_base_url_may_end_with_the_version(tmp_path: Path, servers: Any, base: str) -> None:
    """Anthropic's SDKs ask for /v1/messages, and Vercel's AI SDK for /messages."""
    server = servers[0]
    with proxy(tmp_path, anthropic=f"{server.url}{base}") as running:
        body = {"model": MODEL, "max_tokens": 9, "messages": conversation(2)}
        for path in ("/v1/messages", "/messages"):
            url = running.environment["ANTHROPIC_BASE_URL"] + path
            assert post(url, json=body, headers={"x-api-key": KEY}).status_code == 200
        url = f"{running.environment['ANTHROPIC_BASE_URL']}/messages/count_tokens"
        assert post(url, json=body, headers={"x-api-key": KEY}).json()["input_tokens"] > 3_000
    for request in server.requests:
        assert request["messages"][2]["content"][0]["content"].startswith("[Content offloaded]")


@pytest.mark.parametrize(
    ("command", "after"),
    [
        (["codex", "exec", "Fix it"], 1),
        (["/usr/bin/codex.exe", "-m", "gpt-5"], 1),
        (["npx", "-y", "@openai/codex@0.169.0", "exec"], 3),
        (["npx", "codex", "exec"], 2),
        (["npx", "-y", "-p", "@openai/codex", "codex", "exec"], 5),
    ],
)
def test_codex_is_told_by_a_setting(command: list[str], after: int) -> None:
    told_command = told(command, {"OPENAI_BASE_URL": "http://127.0.0.1:9/x/openai/v1"}, Path("/sessions"))
    setting = ["-c", 'openai_base_url="http://127.0.0.1:9/x/openai/v1"']
    assert told_command == [*command[:after], *setting, *command[after:]]
    assert program_of(command).read_tool == "exec_command"


@pytest.mark.parametrize("command", [["python", "codex.py"], ["npx"], ["npx", "-y"], ["./run"]])
def test_other_programs_are_told_by_their_environment(command: list[str]) -> None:
    assert told(command, {}, Path("/sessions")) == command
    assert program_of(command).read_tool == "Read"


@pytest.mark.parametrize(("command", "after"), [(["claude", "codex"], 1), (["npx", "@anthropic-ai/claude-code"], 2)])
def test_claude_code_may_read_where_the_sessions_are(command: list[str], after: int) -> None:
    let_in = [*command[:after], "--add-dir=/sessions", *command[after:]]
    assert told(command, {}, Path("/sessions")) == let_in
    assert told(command, {}, None) == command, "no file of its own holds what is stored"
    assert program_of(command).read_tool == "Read"


@pytest.mark.service
def test_openais_apis_whole_and_streamed(tmp_path: Path, servers: Any) -> None:
    _, chat, responses = servers
    with proxy(tmp_path, openai=chat.url) as running:
        sdk = openai.OpenAI(api_key=KEY, base_url=running.environment["OPENAI_BASE_URL"], max_retries=0)
        whole = sdk.chat.completions.create(model="gpt-5", messages=chat_conversation(2))
        assert whole.choices[0].message.content == "fine"
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        pieces = list(sdk.chat.completions.create(model="gpt-5", messages=chat_conversation(3), **options))
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "fine"
        sdk.close()
    assert chat.refusals == []
    assert chat.requests[1]["messages"][2]["content"].startswith("[Content offloaded]")
    assert chat.requests[1]["messages"][6]["content"] == f"log 2\n{LOG}"
    assert (running.savings.heard, running.savings.problems) == (2, {})
    with proxy(tmp_path, openai=responses.url) as running:
        sdk = openai.OpenAI(api_key=KEY, base_url=running.environment["OPENAI_BASE_URL"], max_retries=0)
        assert sdk.responses.create(model="gpt-5", input=items(2)).output_text == "fine"
        with sdk.responses.stream(model="gpt-5", input=items(3), prompt_cache_key="thread-7") as stream:
            reply = stream.get_final_response()
        sdk.responses.create(model="gpt-5", input="and?", previous_response_id=reply.id)
        sdk.close()
    assert responses.refusals == []
    assert responses.requests[1]["input"][2]["output"].startswith("[Content offloaded]")
    assert (tmp_path / "thread-7").is_dir()
    assert running.savings.heard == 2
    (problem,) = [line for line in running.savings.problems if "previous_response_id is set" in line]
    assert problem.endswith("with arrive()")


@pytest.mark.service
def test_the_key_is_forwarded_and_nowhere_kept(
    tmp_path: Path, servers: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    with MessagesServer(["fine"], api_key=KEY) as server, proxy(tmp_path, anthropic=server.url) as running:
        sdk = anthropic.Anthropic(api_key=KEY, base_url=running.environment["ANTHROPIC_BASE_URL"], max_retries=0)
        sdk.messages.create(model=MODEL, max_tokens=9, messages=conversation(2))
        sdk.close()
    assert KEY not in caplog.text
    assert KEY not in "".join(capfd.readouterr())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.service
def test_errors_unknown_paths_and_what_is_no_request_pass_untouched(tmp_path: Path) -> None:
    turns = [Failure.rate_limited(retry_after_s=7), Failure.overloaded()]
    with MessagesServer(turns) as server, proxy(tmp_path, anthropic=server.url) as running:
        base, headers, gone = running.environment["ANTHROPIC_BASE_URL"], {"x-api-key": "any"}, server.url
        body = {"model": MODEL, "max_tokens": 9, "messages": conversation(2)}
        for status in (429, 529):
            reply = post(f"{base}/v1/messages?beta=true", headers=headers, json=body)
            assert reply.status_code == status
            assert reply.headers.get("retry-after") == ("7" if status == 429 else None)
        direct = post(f"{server.url}/v1/messages", headers=headers, content=b"{")
        through = post(f"{base}/v1/messages", headers=headers, content=b"{")
        assert (through.status_code, through.content) == (direct.status_code, direct.content)
        for path, made in (
            ("/v1/nothing", {"a": 1}),
            ("/v1/messages", {"model": MODEL, "messages": 5}),
            ("/v1/messages", {**body, "tools": 5}),
        ):
            direct = post(f"{server.url}{path}", headers=headers, json=made)
            through = post(f"{base}{path}", headers=headers, json=made)
            assert (through.status_code, through.content) == (direct.status_code, direct.content)
        assert (
            httpx2.get(f"{base}/v1/models", timeout=HANGS_S).status_code
            == httpx2.get(f"{server.url}/v1/models", timeout=HANGS_S).status_code
            == 405
        )
        for url in (base.replace(base.split("/")[3], "guess"), base.replace("/anthropic", "/other")):
            assert post(f"{url}/v1/messages", json=body).status_code == 404
    assert running.savings.heard == 0
    assert len(running.savings.problems) == 2
    with proxy(tmp_path, anthropic=gone) as running:
        reply = post(f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages", json=body)
    assert reply.status_code == 502
    assert "127.0.0.1 cannot be reached" in reply.json()["error"]["message"]


@pytest.mark.service
def test_what_is_not_replaced_is_sent_byte_for_byte(tmp_path: Path) -> None:
    raw = b'{"model": "m", "max_tokens": 1e2, "x": 1.0, "messages": [ {"role":"user","content":"\\u0068i"} ] }'
    with MessagesServer(["fine"]) as server, proxy(tmp_path, anthropic=server.url) as running:
        seen: list[bytes] = []
        real = server.answer
        server.answer = lambda path, headers, body: (seen.append(body), real(path, headers, body))[1]  # type: ignore[method-assign, func-returns-value]
        post(f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages", headers={"x-api-key": "any"}, content=raw)
    assert seen == [raw]


@pytest.mark.service
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_request_is_rewritten_too(tmp_path: Path, servers: Any, encoding: str) -> None:
    packed: Any = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}[encoding]
    raw = json.dumps({"model": MODEL, "max_tokens": 9, "messages": conversation(2)}).encode()
    headers = {"x-api-key": "any", "content-encoding": encoding}
    with proxy(tmp_path, anthropic=servers[0].url) as running:
        reply = post(f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages", headers=headers, content=packed(raw))
    assert reply.json()["content"][0]["text"] == "fine"
    assert servers[0].requests[0]["messages"][2]["content"][0]["content"].startswith("[Content offloaded]")
    assert running.savings.problems == {}


PACKERS: dict[str, Any] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "gzip, zstd": lambda data: zstd.compress(gzip.compress(data)),
    "identity": bytes,
}


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.parametrize("encoding", PACKERS)
def test_a_request_that_unpacks_to_too_much_is_refused_in_bounded_memory(
    tmp_path: Path, servers: Any, encoding: str
) -> None:
    message = {"role": "user", "content": "A" * (65 << 20)}
    packed = PACKERS[encoding](json.dumps({"model": MODEL, "messages": [message]}).encode())
    headers = {"x-api-key": "any", "content-encoding": encoding}
    with proxy(tmp_path, anthropic=servers[0].url) as running:
        answer = post(f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages", headers=headers, content=packed)
        if encoding == "identity":  # also where no length announces it
            whole = iter([packed[:1_000], packed[1_000:]])
            url = f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages"
            assert post(url, headers=headers, content=whole).status_code == 413
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "request_too_large"
    assert "67,108,864 bytes" in answer.json()["error"]["message"]
    assert servers[0].requests == []


@pytest.mark.service
@pytest.mark.parametrize("encoding", PACKERS)
def test_a_refusal_that_unpacks_to_too_much_passes_unread(tmp_path: Path, encoding: str) -> None:
    refusal = PACKERS[encoding](b'{"error": "prompt is too long"' + b" " * (3 << 20) + b"}")
    seen = list[str]()

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(400)
            self.send_header("content-encoding", encoding)
            self.send_header("content-length", str(len(refusal)))
            self.end_headers()
            self.wfile.write(refusal)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        with proxy(tmp_path, anthropic=f"http://127.0.0.1:{server.server_address[1]}") as running:
            url = f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages"
            body = {"model": MODEL, "max_tokens": 9, "messages": conversation(2)}
            with httpx2.stream("POST", url, json=body, timeout=HANGS_S) as answer:
                raw = b"".join(answer.iter_raw())
        server.shutdown()
        thread.join()
    assert (answer.status_code, len(seen)) == (400, 1)
    assert raw == refusal


@given(st.binary(max_size=3_000), st.sampled_from(sorted(PACKERS)), st.binary(max_size=4))
def test_what_is_unpacked_is_what_was_packed_or_nothing(data: bytes, encoding: str, behind: bytes) -> None:
    packed = PACKERS[encoding](data)
    assert unpacked(packed, encoding, 4_000) == data
    if encoding != "identity":
        for broken in (packed[:-1], packed + b"x" + behind):
            with pytest.raises(ValueError, match=r"."):
                unpacked(broken, encoding, 4_000)
    if len(data) > 100:
        with pytest.raises(TooLarge):
            unpacked(packed, encoding, 99)


def test_raw_deflate_is_known_too() -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert unpacked(packer.compress(b"text") + packer.flush(), "deflate", 10) == b"text"


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/v1/messages", "/v1/messages"),
        ("/v1/../v1/./messages", "/v1/messages"),
        ("/v1/%2E%2e/v1/messages", "/v1/messages"),
        ("/a%20b//c/", "/a%20b//c/"),
        ("/v1/a..b", "/v1/a..b"),
        ("/..", None),
        ("/v1/../../admin", None),
        ("/%2e./%2e%2e/admin", None),
        ("/..%2fadmin", None),
        ("/x\\..\\..\\admin", None),
        ("/x%5C..%5cadmin", None),
    ],
)
def test_no_path_leads_out_of_the_part_of_a_provider(path: str, normal: str | None) -> None:
    assert normal_path(path) == normal


def raw_request(running: Proxy, head: str, body: bytes = b"") -> bytes:
    base = httpx2.URL(running.environment["ANTHROPIC_BASE_URL"])
    with socket.create_connection(("127.0.0.1", base.port or 0), timeout=HANGS_S) as connection:
        connection.sendall(head.format(base=base.path).encode() + b"\r\n\r\n" + body)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return answer


@pytest.mark.service
def test_a_path_that_leads_elsewhere_and_two_lengths_are_refused(tmp_path: Path, servers: Any) -> None:
    with proxy(tmp_path, anthropic=servers[0].url) as running:
        dots = raw_request(running, "GET {base}/../../admin HTTP/1.1\r\nHost: x\r\nConnection: close")
        two = "POST {base}/v1/other HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"
        smuggled = raw_request(running, two, b"0\r\n\r\nPOST /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert dots.startswith(b"HTTP/1.1 404 ")
    assert smuggled.startswith(b"HTTP/1.1 400 ")
    assert b"send one of them" in smuggled
    assert servers[0].requests == []


@pytest.mark.service
def test_what_cannot_be_unpacked_goes_on_as_it_came_and_says_so(tmp_path: Path, servers: Any) -> None:
    with proxy(tmp_path, anthropic=servers[0].url) as running:
        url = f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages"
        for encoding in ("gzip", "unknown"):
            post(url, headers={"x-api-key": "any", "content-encoding": encoding}, content=b"\x1f\x8bsecret")
    assert list(running.savings.problems) == [
        "its body is compressed ('gzip') and cannot be unpacked",
        "its body is compressed ('unknown') and cannot be unpacked",
    ]


@pytest.mark.service
def test_a_prompt_that_is_refused_as_too_long_is_sent_again_with_more_replaced(tmp_path: Path) -> None:
    settings = {"pricing": None, "window": 100_000}
    with (
        MessagesServer(["fine"] * 9, context_window_tokens=8_000) as server,
        Proxy(tmp_path, settings, {"anthropic": server.url}, "run") as running,
    ):
        sdk = anthropic.Anthropic(api_key=KEY, base_url=running.environment["ANTHROPIC_BASE_URL"], max_retries=0)
        tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "Read")]
        given: Any = {"model": MODEL, "max_tokens": 99, "tools": tools}
        assert sdk.messages.create(messages=conversation(4), **given).content[0].text == "fine"
        assert [reason.startswith("prompt is too long") for reason in server.refusals] == [True]
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            sdk.messages.create(system=LOG * 9, messages=conversation(1), **given)
        sdk.close()
        assert len(server.refusals) == 2, "what cannot be made smaller is not sent again"
    assert (running.savings.calls, running.savings.heard) == (1, 1)
    (sent,) = server.requests
    assert "[Content offloaded]" in sent["messages"][2]["content"][0]["content"]


@pytest.mark.service
def test_thinking_that_no_longer_fits_is_left_out_after_the_first_refusal(tmp_path: Path) -> None:
    def thinking(body: dict[str, Any]) -> AssistantMessage:
        number = len(body["messages"])
        call = {"type": "tool_use", "id": f"call_{number // 2}", "name": "read_log", "input": {}}
        return AssistantMessage(({"type": "thinking", "thinking": "Hm.", "signature": f"s{number}"}, call))

    with (
        MessagesServer([thinking] * 9, binds_thinking=True) as server,
        proxy(tmp_path, anthropic=server.url) as running,
    ):
        sdk = anthropic.Anthropic(api_key=KEY, base_url=running.environment["ANTHROPIC_BASE_URL"], max_retries=0)
        tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("read_log", "Read")]
        messages: Any = [{"role": "user", "content": "What happened?"}]
        for _ in range(5):
            reply: Any = sdk.messages.create(
                model=MODEL,
                max_tokens=99,
                tools=tools,
                messages=messages,
                extra_headers={"anthropic-beta": "another-2026-01-01"},
            )
            result = {"type": "tool_result", "tool_use_id": reply.content[1].id, "content": LOG}
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
        sdk.close()
        assert ["bound to a different conversation" in refusal for refusal in server.refusals] == [True]
        assert server.dropped, "and it was sent again, without that thinking"
    asked = [body.get("thinking") for body in server.requests]
    first = next(n for n, thinking in enumerate(asked) if thinking is not None)
    drops = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert asked[first:] == [drops] * (5 - first)


@pytest.mark.service
def test_no_content_of_a_request_is_in_a_problem(tmp_path: Path, servers: Any) -> None:
    secret = "the secret of the message"
    wrong = [{"role": secret, "content": secret}, {"role": "user", "content": [{"type": secret}]}, secret, 5]
    with proxy(tmp_path, anthropic=servers[0].url, openai=servers[1].url) as running:
        for name, path in (("ANTHROPIC_BASE_URL", "/v1/messages"), ("OPENAI_BASE_URL", "/chat/completions")):
            for message in wrong:
                url = f"{running.environment[name]}{path}"
                post(url, json={"model": MODEL, "max_tokens": 9, "messages": [message]})
    assert running.savings.problems
    assert "secret" not in str(running.savings.problems)


# The command ---------------------------------------------------------------------------------------------------------

ASKS = """
import os, sys, json, httpx2
from pathlib import Path
body = json.loads(Path(sys.argv[1]).read_text())
url, headers = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", {"x-api-key": "any"}
reply = httpx2.post(url, headers=headers, json=body, timeout=None)
print(reply.status_code, os.environ["OPENAI_BASE_URL"].startswith("http://127.0.0.1:"))
sys.exit(int(sys.argv[2]))
"""


def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ctxfs", "proxy", *arguments]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}
    )


@pytest.mark.service
def test_the_command_runs_with_its_base_urls_and_its_exit_code_is_given_back(tmp_path: Path, servers: Any) -> None:
    server = servers[0]
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": MODEL, "max_tokens": 9, "messages": conversation(3)}))
    options = ("--root", str(tmp_path / "root"), "--keep-recent", "read_log=1", "--read-tool", "open_file")
    done = run(*options, "--", sys.executable, "-c", ASKS, str(body), "7", ANTHROPIC_BASE_URL=server.url)
    out, err = done.communicate(timeout=HANGS_S)
    assert (done.returncode, out) == (7, "200 True\n"), err
    assert "ctxfs: 1 call, 1 with a bill; 2 contents replaced" in err
    assert "prompt tokens were not sent" in err
    assert "Use open_file tool" in server.requests[0]["messages"][2]["content"][0]["content"]


@pytest.mark.service
def test_a_result_that_comes_again_is_a_line_with_the_option(tmp_path: Path, servers: Any) -> None:
    server = servers[0]
    messages = conversation(2)
    messages[4]["content"][0]["content"] = messages[2]["content"][0]["content"]
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": MODEL, "max_tokens": 9, "messages": messages}))
    for options, beginning in (((), "log 0\n"), (("--repeats",), "[The same as call_0, ")):
        root = ("--root", str(tmp_path / f"root{len(options)}"))
        done = run(*root, *options, "--", sys.executable, "-c", ASKS, str(body), "0", ANTHROPIC_BASE_URL=server.url)
        _, err = done.communicate(timeout=HANGS_S)
        assert done.returncode == 0, err
        assert server.requests[-1]["messages"][4]["content"][0]["content"].startswith(beginning)


@pytest.mark.service
def test_what_is_assumed_of_an_unknown_model_is_shown_when_the_program_has_ended(tmp_path: Path, servers: Any) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "new-model", "max_tokens": 9, "messages": conversation(1)}))
    asks = ASKS.replace("sys.exit(int(sys.argv[2]))", "print('the program ends', file=sys.stderr)")
    options = ("--root", str(tmp_path / "root"), "--", sys.executable, "-c", asks, str(body))
    done = run(*options, ANTHROPIC_BASE_URL=servers[0].url)
    _, err = done.communicate(timeout=HANGS_S)
    first, *rest = err.splitlines()
    assert first == "the program ends", err
    assert all(line.startswith("ctxfs: ") for line in rest), err
    assert "ctxfs: the model 'new-model' is unknown" in err


@pytest.mark.service
def test_a_program_that_does_not_reach_the_proxy_is_told_so(tmp_path: Path, servers: Any) -> None:
    for code, given_back in ((0, 1), (7, 7)):
        asks = f"import sys; print('the program ends', file=sys.stderr); sys.exit({code})"
        done = run("--root", str(tmp_path), "--", sys.executable, "-c", asks, ANTHROPIC_BASE_URL=servers[0].url)
        _, err = done.communicate(timeout=HANGS_S)
        ended, figures, error = err.splitlines()
        assert (ended, figures) == ("the program ends", "ctxfs: 0 calls, 0 with a bill; 0 contents replaced")
        reason = "the program ended with exit code 7 before any of its" if code else "none of the program's"
        assert error.startswith(f"ctxfs: error: {reason} requests came through the proxy")
        assert done.returncode == given_back


@pytest.mark.service
@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_requests_go_to_where_the_environment_led_before(tmp_path: Path, servers: Any, variable: str) -> None:
    server = servers[1]
    asks = """
import os, sys, httpx2
body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
url, headers = os.environ[sys.argv[1]] + "/chat/completions", {"authorization": "Bearer any"}
httpx2.post(url, headers=headers, json=body, timeout=None)
"""
    unset = {"OPENAI_BASE_URL": "", "OPENAI_API_BASE": ""}
    options = ("--root", str(tmp_path), "--", sys.executable, "-c", asks, variable)
    done = run(*options, **{**unset, variable: server.url})
    _, err = done.communicate(timeout=HANGS_S)
    assert done.returncode == 0, err
    assert len(server.requests) == 1


@pytest.mark.service
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_goes_to_the_command_and_the_proxy_dies_with_it(tmp_path: Path) -> None:
    waits = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(600)"
    done = run("--root", str(tmp_path), "--", sys.executable, "-c", waits, "--help", "-x")
    assert done.stdout is not None
    assert done.stdout.readline() == "['--help', '-x']\n"
    done.send_signal(signal.SIGTERM)
    done.communicate(timeout=HANGS_S)
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--", "/nothing/here"), "/nothing/here cannot be run: No such file or directory"),
        (("--keep-recent", "Bash", "--", "true"), "give TOOL=N"),
        (("--keep-recent", "Bash=0", "--", "true"), "keep_recent['Bash']"),
        (("--upstream-openai", "localhost", "--", "true"), "is not a URL: it must begin with https://"),
        (("--read-tool", "a b", "--", "true"), "cannot be a tool's name"),
        (("--repeats", "--preview-above-tokens", "0", "--", "true"), "--repeats has no effect with"),
        (("--root", __file__, "--", "true"), "test_proxy.py is not a directory, and sessions are kept in one"),
        (("--root", f"{__file__}/sessions", "--", "true"), "test_proxy.py/sessions is not a directory, and sessions"),
        (("--store", "memory://x", "--", "true"), "leave out the directory"),
        (("--session", "a/b", "--", "true"), "a/b"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    assert ctxfs(["proxy", "--root", str(tmp_path), *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# What a request says -------------------------------------------------------------------------------------------------


def test_a_conversation_is_known_by_what_its_client_says() -> None:
    json_id = json.dumps({"device_id": "d", "session_id": "one"})
    for user, thread in ((json_id, "one"), ("user_x_account__session_two", "two"), ("someone", "run"), ("{}", "run")):
        assert thread_of({}, {"metadata": {"user_id": user}}, otherwise="run") == thread
    assert thread_of({"session_id": "three"}, {"prompt_cache_key": "four"}, otherwise="run") == "three"
    assert thread_of({}, {"prompt_cache_key": "four", "metadata": None}, otherwise="run") == "four"


def test_branches_differ_in_tools_and_in_the_first_call_only() -> None:
    from ctxfs.context.history.wire_messages import MESSAGES

    def branch(body: Any) -> str:
        return branch_of(body, MESSAGES.parts_of(body))

    main = {"messages": conversation(2), "tools": [{"name": "a"}]}
    changed = [{"role": "user", "content": "another beginning"}, *conversation(2)[1:]]
    assert branch(main) == branch({**main, "messages": conversation(3)}) == branch({**main, "messages": changed})
    assert branch(main) != branch({**main, "tools": [{"type": "function", "function": {"name": "b"}}]})
    assert branch(main) != branch({**main, "messages": conversation(1)[:1]})


def test_usage_is_heard_of_replies_and_of_events() -> None:
    heard = UsageReader()
    start = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 9, "input_tokens": None}}
    for data in (start, delta, "usage", ["usage"], {"usage": None}):
        heard.feed(b"data: %b\n\n" % json.dumps(data).encode())
    heard.feed(b'data: {"usage": \n\n')
    assert heard.bill() == ({"input_tokens": 5, "output_tokens": 9}, "m")
    assert heard.bill() is None
    whole = UsageReader()
    whole.feed(b'{"model": "n", "usage"')
    whole.feed(b': {"input_tokens": 3}}')
    assert whole.bill() == ({"input_tokens": 3}, "n")
