"""``ctxfs mcp wrap`` between the MCP SDK's own client and servers, each a process of its own."""

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, Implementation

from ctxfs import History
from ctxfs.adapters.serve.wrap import Wrapper
from ctxfs.cli.app import run
from patience import HANGS_S

pytestmark = [pytest.mark.anyio, pytest.mark.service]

SERVER = [sys.executable, str(Path(__file__).with_name("server_to_wrap.py"))]
OURS = ["context_read", "context_tail", "context_grep", "context_list"]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The client's; the wrapper and its server are processes of their own."""
    return str(request.param)


@asynccontextmanager
async def client(root: Path, *server: str, name: str = "a client", **env: str) -> AsyncIterator[ClientSession]:
    """A session of the SDK's client with a server that is wrapped."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ctxfs", "mcp", "wrap", "--root", str(root), *server],
        env={**os.environ, **env},
        cwd=root,
    )
    with anyio.fail_after(HANGS_S):
        async with (
            stdio_client(command) as (incoming, outgoing),
            ClientSession(incoming, outgoing, client_info=Implementation(name=name, version="1")) as session,
        ):
            yield session


def text_of(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


async def called(session: ClientSession, tool: str, **arguments: Any) -> CallToolResult:
    result = await session.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


async def test_large_results_are_previewed_and_all_else_passes(tmp_path: Path) -> None:
    async with client(tmp_path, "--", *SERVER) as session:
        greeting = await session.initialize()
        assert greeting.server_info.name == "everything"
        assert greeting.instructions is not None
        assert greeting.instructions.startswith("Words of the server.\n\n")
        tools = (await session.list_tools()).tools
        assert [tool.name for tool in tools] == ["log", "rows", "shot", "fails", "counts", "waits", "header", *OURS]
        assert all(tool.output_schema is None for tool in tools)

        small = await called(session, "log", lines=2)
        assert text_of(small) == "0: served\n1: served\nERROR at last\n"
        assert small.structured_content == {"result": text_of(small)}
        large = text_of(await called(session, "log", lines=3_000))
        assert large.startswith("[Output stored in full: log, call log]\n")
        assert len(large) < 4_000
        assert "3001\tERROR at last" in text_of(await called(session, "context_tail", ref="log", lines=1))
        assert "1235:1234: served" in text_of(await called(session, "context_grep", ref="log", pattern="^1234:"))

        few = await called(session, "rows", count=2)
        assert few.structured_content == {"result": [{"number": 0, "double": 0}, {"number": 1, "double": 2}]}
        many = await called(session, "rows", count=2_000)
        assert many.structured_content is None
        assert "JSON lines, each like {number: 0, double: 0}" in text_of(many)
        assert '1001\t{"number":1000,"double":2000}' in text_of(
            await called(session, "context_read", ref="rows", offset=1_001, limit=1)
        )

        assert [block.type for block in (await called(session, "shot", lines=3_000)).content] == ["text", "image"]
        failed = await called(session, "fails", lines=3_000)
        assert failed.is_error
        assert text_of(failed).startswith("[Output stored in full: fails")

        assert [resource.uri for resource in (await session.list_resources()).resources] == ["note://one"]
        (read,) = (await session.read_resource("note://one")).contents
        assert len(read.text) > 30_000  # type: ignore[union-attr]
        (message,) = (await session.get_prompt("greet", {"name": "Ada"})).messages
        assert message.content.text == "Say hello to Ada"  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="note://none"):
            await session.read_resource("note://none")

        reported = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reported.append((progress, total, message))

        await session.call_tool("counts", {"to": 3}, progress_callback=report)
        assert reported == [(0, 3, "at 0"), (1, 3, "at 1"), (2, 3, "at 2")]


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    marker = tmp_path / "cancelled"
    async with client(tmp_path, "--", *SERVER) as session:
        await session.initialize()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called_with, session, "waits", {"marker": str(marker)})
            await called(session, "log", lines=1)  # the other one has been sent
            tasks.cancel_scope.cancel()
        while not marker.exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)
        assert "1: served" in text_of(await called(session, "log", lines=2))


async def called_with(session: ClientSession, tool: str, arguments: dict[str, Any]) -> None:
    await session.call_tool(tool, arguments)


async def test_a_client_has_one_session_which_survives_its_restart(tmp_path: Path) -> None:
    listed = []
    for name in ("one", "one", "other"):
        async with client(tmp_path, "--", *SERVER, name=name) as session:
            await session.initialize()
            listed.append(text_of(await called(session, "context_list")))
            large = text_of(await called(session, "log", lines=3_000))
            assert large.startswith("[Output stored in full: log, call log]")
            assert "ERROR at last" in text_of(await called(session, "context_tail", ref="log", lines=1))
    assert ["log: tool_result of log" in text for text in listed] == [False, True, False]
    assert sessions_in(tmp_path) == ["mcp-one", "mcp-other"]


def sessions_in(root: Path) -> list[str]:
    """The sessions, without the ends of their names."""
    return sorted(path.name.rpartition("-")[0] for path in root.glob("mcp-*"))


@pytest.fixture
def url() -> Iterator[str]:
    """The server, reached by HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*SERVER, str(port)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "running on" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


async def test_a_server_at_a_url_is_wrapped(tmp_path: Path, url: str) -> None:
    header = "X-Token=Bearer {THE_TOKEN}"
    async with client(tmp_path, "--url", url, "--header", header, THE_TOKEN="secret") as session:
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools][-4:] == OURS
        assert text_of(await called(session, "header")) == "Bearer secret"
        large = text_of(await called(session, "log", lines=200_000))
        assert "200,001 lines" in large
        assert "200001\tERROR at last" in text_of(await called(session, "context_tail", ref="log", lines=1))
        reported = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reported.append(progress)

        await session.call_tool("counts", {"to": 3}, progress_callback=report)
        assert reported == [0, 1, 2]


class Closed(BaseHTTPRequestHandler):
    """A server that refuses who has no token, or the wrong one."""

    def do_POST(self) -> None:
        given = self.headers.get("authorization")
        self.send_response(401 if given is None else 403)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Print nothing."""


@pytest.fixture
def closed() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        running.join()


@pytest.mark.parametrize(("status", "headers"), [(401, ()), (403, ("--header", "Authorization=Bearer {WRONG}"))])
async def test_a_server_that_wants_a_token_says_how_to_give_it_one(
    status: int, headers: tuple[str, ...], tmp_path: Path, closed: str
) -> None:
    async with client(tmp_path, "--url", closed, *headers, WRONG="secret") as session:
        with pytest.raises(MCPError) as refused:
            await session.initialize()
    said = str(refused.value)
    assert f"the MCP server answers {status}: ctxfs does not sign in by OAuth" in said
    assert "--header 'Authorization=Bearer {TOKEN}'" in said
    assert "secret" not in said


class Breaks(BaseHTTPRequestHandler):
    """A server that hangs up in the middle of each second answer."""

    answers = 0
    encoding = ""

    def broken(self, body: bytes) -> bytes:
        return body[:5]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        type(self).answers += 1
        greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        result = greeting if request["method"] == "initialize" else {}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.answers % 2 == 0 and self.encoding:
            self.send_header("Content-Encoding", self.encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.answers % 2 else self.broken(body))
        self.close_connection = True

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Print nothing."""


class Unpacked(Breaks):
    """A server that says of each second answer that it is packed, and it is not."""

    answers = 0
    encoding = "gzip"

    def broken(self, body: bytes) -> bytes:
        return body


@pytest.mark.parametrize("broken", [Breaks, Unpacked])
async def test_an_answer_that_breaks_off_is_an_error_and_the_next_call_is_answered(
    tmp_path: Path, broken: type[Breaks]
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), broken) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        try:
            async with client(tmp_path, "--url", f"http://127.0.0.1:{server.server_port}/mcp") as session:
                await session.initialize()
                with pytest.raises(MCPError, match=r"the MCP server at 127\.0\.0\.1:\d+ gave no answer: \w+: \w"):
                    await session.send_ping()
                await session.send_ping()
        finally:
            server.shutdown()
            running.join()


async def test_a_server_that_is_not_there_is_an_error_and_may_come_later(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and not listening: nobody else answers there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with client(tmp_path, "--url", f"http://127.0.0.1:{port}/mcp") as session:
            for _ in range(2):
                with pytest.raises(MCPError, match=rf"at 127\.0\.0\.1:{port} gave no answer: ConnectError: \w"):
                    await session.initialize()


async def test_the_newest_protocol_which_has_no_handshake(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK's client speaks an older protocol with a server that takes longer, as on a busy machine.
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", HANGS_S)
    for server in (("--", *SERVER), ("--url", url)):
        command = [sys.executable, "-m", "ctxfs", "mcp", "wrap", "--root", str(tmp_path), *server]
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        with anyio.fail_after(HANGS_S):
            async with Client(stdio_client(parameters)) as session:
                assert session.protocol_version == "2026-07-28"
                assert [tool.name for tool in (await session.list_tools()).tools][-4:] == OURS
                result = await session.call_tool("log", {"lines": 3_000})
                assert text_of(result).startswith("[Output stored in full: log")
                assert "ERROR at last" in text_of(await session.call_tool("context_tail", {"ref": "log"}))


def test_who_starts_it_in_a_terminal_reads_what_it_waits_for(tmp_path: Path) -> None:
    server = (sys.executable, "-c", "import sys; sys.stdin.read()")
    command = [sys.executable, "-m", "ctxfs", "mcp", "wrap", "--root", str(tmp_path), "--", *server]
    terminal, end = pty.openpty()
    try:
        with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            os.write(terminal, b"\x04")  # Ctrl-D: there is no more to come
            out, err = process.communicate(timeout=HANGS_S)
    finally:
        os.close(terminal)
        os.close(end)
    assert (process.returncode, out) == (0, "")
    assert err.startswith("ctxfs: this waits for an MCP client")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "either a server's command after --, or its --url"),
        (["--url", "http://127.0.0.1", "--", "server"], "either a server's command after --, or its --url"),
        (["--url", "example.org"], "must begin with https:// or http://"),
        (["--url", "http://[::1"], "'http://[::1' is not a URL"),
        (["--url", "http:///mcp"], "'http:///mcp' is not a URL: it names no host"),
        (["--header", "A=b", "--", "server"], "--header is sent to a --url"),
        (["--url", "http://127.0.0.1", "--header", "A"], "give NAME=VALUE"),
        (["--url", "http://127.0.0.1", "--header", "A={NO_SUCH}"], "the environment has no NO_SUCH"),
        (["--session", "../other", "--", "server"], "session id '../other'"),
        (["--", "no-such-server"], "'no-such-server' cannot be run"),
    ],
)
def test_what_cannot_be_wrapped_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["mcp", "wrap", "--root", str(tmp_path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_server_that_ends_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ctxfs", "mcp", "wrap", "--root", str(tmp_path), "--", sys.executable, "-c", ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.read() == "ctxfs: the MCP server has ended, so this ends, too\n"
        assert process.wait(HANGS_S) == 1


# The lines themselves ------------------------------------------------------------------------------------------------


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[Wrapper]:
    wrapper = Wrapper(
        lambda session_id: History(session_id, root_path=tmp_path, read_tool="context_read"), server=["a", "b"]
    )
    yield wrapper
    wrapper.close()


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


async def answered(wrapper: Wrapper, method: str, **answer: Any) -> Any:
    """What the client gets of this answer to a request."""
    assert wrapper.own_call(line(id=1, method=method, params={"name": "log"})) is None
    return json.loads(await wrapper.from_server(line(id=1, **answer)))


@pytest.mark.parametrize(
    "given",
    [
        b"not JSON\n",
        b'{"jsonrpc": "2.0",  "method": "notifications/message", "params": {"data": "spaces stay"}}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}\n',
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}\n',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}\n',
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}\n',
        b'"a text"\n',
    ],
)
async def test_a_line_that_does_not_concern_us_is_the_same_bytes(wrapper: Wrapper, given: bytes) -> None:
    for method in ("tools/call", "resources/read"):
        assert wrapper.own_call(line(id=1, method=method, params={"name": "log"})) is None
    assert await wrapper.from_server(given) == given
    assert wrapper.own_call(given) is None


async def test_a_batch_of_answers_is_previewed(wrapper: Wrapper) -> None:
    calls = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "log"}} for n in (1, 2)]
    assert wrapper.own_call(json.dumps(calls).encode()) is None
    texts = ["small", "large\n" * 5_000]
    contents = [{"content": [{"type": "text", "text": text}]} for text in texts]
    answers = [{"jsonrpc": "2.0", "id": n, "result": one} for n, one in enumerate(contents, 1)]
    small, large = json.loads(await wrapper.from_server(json.dumps(answers).encode()))
    assert small == answers[0]
    assert large["result"]["content"][0]["text"].startswith("[Output stored in full: log")


async def test_a_server_without_tools_has_ours(wrapper: Wrapper) -> None:
    greeting = await answered(wrapper, "initialize", result={"capabilities": {"prompts": {}}})
    assert greeting["result"]["capabilities"] == {"prompts": {}, "tools": {}}
    listed = await answered(wrapper, "tools/list", error={"code": -32601, "message": "no such method"})
    assert [tool["name"] for tool in listed["result"]["tools"]] == OURS


async def test_our_tools_are_on_the_last_page(wrapper: Wrapper) -> None:
    first = await answered(wrapper, "tools/list", result={"tools": [{"name": "a"}], "nextCursor": "2"})
    assert first["result"] == {"tools": [{"name": "a"}], "nextCursor": "2"}
    last = await answered(wrapper, "tools/list", result={"tools": [{"name": "b"}], "ttlMs": 5})
    assert [tool["name"] for tool in last["result"]["tools"]] == ["b", *OURS]
    assert last["result"]["ttlMs"] == 5


async def test_a_server_with_tools_of_our_names_is_refused(wrapper: Wrapper) -> None:
    listed = await answered(wrapper, "tools/list", result={"tools": [{"name": "context_read"}]})
    assert "tools of its own named context_read: run it as it is" in listed["error"]["message"]


async def test_structured_content_that_the_text_does_not_say_is_previewed_beside_it(wrapper: Wrapper) -> None:
    rows = {"rows": [{"number": n} for n in range(3_000)]}
    told = {"content": [{"type": "text", "text": "3,000 rows"}], "structuredContent": rows}
    result = (await answered(wrapper, "tools/call", result=told))["result"]
    assert [block["text"].partition(":")[0] for block in result["content"]] == ["3,000 rows", "[Output stored in full"]
    assert "structuredContent" not in result
    same = {"content": [{"type": "text", "text": json.dumps(rows)}], "structuredContent": rows}
    (block,) = (await answered(wrapper, "tools/call", result=same))["result"]["content"]
    assert block["text"].startswith("[Output stored in full: log, call log~2]")
    text = "".join(f"{n}: served\n" for n in range(3_000))
    wrapped = {"content": [{"type": "text", "text": text}], "structuredContent": {"content": text}}
    (block,) = (await answered(wrapper, "tools/call", result=wrapped))["result"]["content"]
    assert block["text"].startswith("[Output stored in full: log, call log~3]")


async def test_rows_can_be_asked_with_sql(tmp_path: Path) -> None:
    wrapper = Wrapper(lambda name: History(name, root_path=tmp_path), server=["a"], query=True)
    listed = await answered(wrapper, "tools/list", result={"tools": []})
    assert "context_query" in [tool["name"] for tool in listed["result"]["tools"]]
    rows = [{"number": n} for n in range(9_000)]
    await answered(wrapper, "tools/call", result={"content": [{"type": "text", "text": json.dumps(rows)}]})
    arguments = {"ref": "log", "sql": "SELECT sum(number) FROM rows"}
    call = wrapper.own_call(line(id=2, method="tools/call", params={"name": "context_query", "arguments": arguments}))
    assert call is not None
    answer = json.loads(await wrapper.answer(call) or b"")
    assert answer["result"]["content"][0]["text"] == '["sum(number)"]\n[40495500]\n[1 row]'
    await anyio.to_thread.run_sync(wrapper.close)


async def test_texts_of_resources_are_previewed_with_the_others(wrapper: Wrapper) -> None:
    link = {"type": "resource_link", "uri": "note://one", "name": "one"}
    content = [
        link,
        {"type": "text", "text": "see:"},
        {"type": "resource", "resource": {"uri": "note://two", "text": "large\n" * 5_000}},
    ]
    first, second = (await answered(wrapper, "tools/call", result={"content": content}))["result"]["content"]
    assert first == link
    assert "5,001 lines" in second["text"]


async def test_what_cannot_be_stored_is_passed_on_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "root").write_text("in the way")
    wrapper = Wrapper(lambda session_id: History(session_id, root_path=tmp_path / "root"), server=["a"])
    answer = {"content": [{"type": "text", "text": "large\n" * 5_000}]}
    assert (await answered(wrapper, "tools/call", result=answer))["result"] == answer
    assert "a result of log cannot be stored, and is passed on whole" in caplog.text


async def test_a_call_of_our_tools_can_be_cancelled(wrapper: Wrapper) -> None:
    call = wrapper.own_call(line(id="a", method="tools/call", params={"name": "context_list"}))
    assert call is not None
    assert wrapper.own_call(line(method="notifications/cancelled", params={"requestId": "a"})) is None
    assert await wrapper.answer(call) is None


# Servers that people run ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three servers from the registries, in a folder of their own."""
    folder = tmp_path_factory.mktemp("servers")
    uv = Path(sys.executable).with_name("uv")
    npm = shutil.which("npm")
    if npm is None or not uv.exists():
        pytest.skip("NOT TESTED with servers of others: npm or uv is not installed")
    for command in (
        [npm, "install", "--silent", "--prefix", str(folder), "@modelcontextprotocol/server-everything",
         "@modelcontextprotocol/server-filesystem"],
        [str(uv), "venv", "--quiet", "--python", sys.executable, str(folder / "python")],
        [str(uv), "pip", "install", "--quiet", "--python", str(folder / "python" / "bin" / "python"), "mcp-server-git"],
    ):  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"NOT TESTED with servers of others: they cannot be installed: {done.stderr[-300:]}")
    return folder


@pytest.mark.service
async def test_the_file_systems_server_is_wrapped(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "large.txt").write_text("".join(f"{n}: of a file\n" for n in range(5_000)))
    program = installed / "node_modules" / ".bin" / "mcp-server-filesystem"
    async with client(tmp_path, "--", str(program), str(tmp_path)) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        assert {"read_text_file", *OURS} <= set(tools)
        large = text_of(await called(session, "read_text_file", path=str(tmp_path / "large.txt")))
        assert large.startswith("[Output stored in full: read_text_file")
        found = await called(session, "context_grep", ref="read_text_file", pattern="^4321:")
        assert "4322:4321: of a file" in text_of(found)
        gone = await called(session, "read_text_file", path=str(tmp_path / "gone.txt"))
        assert gone.is_error


@pytest.mark.service
async def test_the_server_with_everything_is_wrapped(tmp_path: Path, installed: Path) -> None:
    program = installed / "node_modules" / ".bin" / "mcp-server-everything"
    async with client(tmp_path, "--", str(program)) as session:
        await session.initialize()
        assert set(OURS) <= {tool.name for tool in (await session.list_tools()).tools}
        assert "Echo: hello" in text_of(await called(session, "echo", message="hello"))
        assert (await session.list_prompts()).prompts
        assert (await session.list_resources()).resources
        image = await called(session, "get-tiny-image")
        assert "image" in [block.type for block in image.content]
        structured = await called(session, "get-structured-content", location="Chicago")
        assert structured.structured_content is not None
        reported = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reported.append(progress)

        operation = {"duration": 1, "steps": 2}
        await session.call_tool("trigger-long-running-operation", operation, progress_callback=report)
        assert reported == [1, 2]


@pytest.mark.service
async def test_the_git_server_is_wrapped(tmp_path: Path, installed: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "notes").mkdir(parents=True)
    (repository / "notes" / "large.txt").write_text("".join(f"{n}: committed\n" for n in range(5_000)))
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        await anyio.run_process(["git", "-C", str(repository), *command])
    program = installed / "python" / "bin" / "mcp-server-git"
    async with client(tmp_path, "--", str(program), "--repository", str(repository)) as session:
        await session.initialize()
        shown = text_of(await called(session, "git_show", repo_path=str(repository), revision="HEAD"))
        assert shown.startswith("[Output stored in full: git_show")
        found = text_of(await called(session, "context_grep", ref="git_show", pattern="4321: committed"))
        assert "4321: committed" in found


@pytest.mark.service
@pytest.mark.parametrize("arguments", [["--claude-code"], ["wrap", "--", "cat"]], ids=["plug-in", "wrap"])
def test_a_process_without_standard_input_is_refused(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ctxfs", "mcp", *arguments]
    environment = {**os.environ, "CTXFS_ROOT": str(tmp_path)}
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    ran = subprocess.run(closed, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "this process has none" in ran.stderr
    assert "Traceback" not in ran.stderr
