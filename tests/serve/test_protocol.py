"""The messages of the Model Context Protocol that a server of tools answers, as lines."""

import io
import json
import logging
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Context
from ctxfs.adapters.serve.mcp import Call, Server, serve_stdio
from ctxfs.adapters.serve.protocol import greet
from ctxfs.cli.app import INTERRUPTED
from ctxfs.errors import ToolError
from ctxfs.tools.base import Tool, ToolResult
from patience import HANGS_S

pytestmark = pytest.mark.anyio


async def run(call: Call) -> ToolResult:
    if call.arguments.get("text") == "fail":
        raise RuntimeError("a secret")
    return ToolResult(json.dumps([dict(call.arguments), dict(call.meta)]), is_error=call.arguments == {})


async def unused(_: Mapping[str, Any]) -> ToolResult:
    raise ToolError("run() runs it")


ECHO = Tool(name="echo", description="Echo", input_schema={"type": "object"}, handler=unused, read_only=True)
SERVER = Server([ECHO], run)


async def pieces(*data: bytes) -> AsyncGenerator[bytes, None]:
    """What comes on a stream."""
    for one in data:
        yield one


async def answered(message: Any) -> Any:
    line = message if isinstance(message, bytes) else json.dumps(message).encode()
    answer = await SERVER.answer(line)
    return None if answer is None else json.loads(answer)


def request(method: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05"), ("2099-01-01", "2025-11-25"), ([], "2025-11-25")],
)
async def test_a_version_that_both_know_is_agreed_on(asked: Any, agreed: str) -> None:
    answer = await answered(request("initialize", "a", protocolVersion=asked))
    assert answer["id"] == "a"
    assert answer["result"]["protocolVersion"] == agreed
    assert answer["result"]["capabilities"] == {"tools": {"listChanged": False}}


async def test_tools_are_listed_and_called() -> None:
    (tool,) = (await answered(request("tools/list")))["result"]["tools"]
    assert (tool["name"], tool["annotations"]["readOnlyHint"]) == ("echo", True)
    called = await answered(request("tools/call", name="echo", arguments={"a": 1}, _meta={"b": 2}))
    content = [{"type": "text", "text": '[{"a": 1}, {"b": 2}]'}]
    assert called["result"] == {"content": content, "isError": False, "resultType": "complete"}
    assert (await answered(request("tools/call", name="echo")))["result"]["isError"]
    assert (await answered(request("ping")))["result"] == {}


@pytest.mark.parametrize(
    "message", [{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 7, "result": {}}]
)
async def test_what_expects_no_answer_gets_none(message: Any) -> None:
    assert await answered(message) is None


@pytest.mark.parametrize(
    ("message", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"\xff\xff", -32700, None),
        ([request("ping")], -32600, None),
        (request("ping", True), -32600, None),
        (request("ping", {}), -32600, None),
        (request("server/discover"), -32601, 1),
        (request("tools/call", name="echo", arguments=[1]), -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}, -32602, 1),
    ],
)
async def test_what_cannot_be_answered_is_refused(message: Any, code: int, request_id: Any) -> None:
    answer = await answered(message)
    assert (answer["error"]["code"], answer["id"]) == (code, request_id)


async def test_a_defect_in_a_tool_is_logged_and_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "ctxfs.adapters.serve"):
        answer = await answered(request("tools/call", name="echo", arguments={"text": "fail"}))
    assert answer["error"] == {"code": -32603, "message": "echo failed: RuntimeError"}
    assert "a secret" in caplog.text


async def test_each_line_is_answered_until_the_input_ends() -> None:
    lines = [json.dumps(request("ping", n)) for n in range(20)]
    outgoing = io.BytesIO()
    await serve_stdio(SERVER, pieces("\n\n".join(lines).encode()), outgoing)
    assert {json.loads(line)["id"] for line in outgoing.getvalue().splitlines()} == set(range(20))


async def test_the_greeting_is_answered_before_there_is_a_server_and_as_by_one() -> None:
    hello = json.dumps(request("initialize", protocolVersion="2025-06-18")).encode()
    outgoing = io.BytesIO()
    assert greet(io.BytesIO(hello + b"\nthe next line"), outgoing) == b""
    assert outgoing.getvalue() == await SERVER.answer(hello)


@pytest.mark.parametrize("line", [b"", b"\n", b"{\n", b"[]\n", json.dumps(request("ping")).encode()])
async def test_a_line_that_is_no_greeting_is_left_to_the_server(line: bytes) -> None:
    greeted = io.BytesIO()
    first = greet(io.BytesIO(line), greeted)
    assert (first, greeted.getvalue()) == (line, b"")
    outgoing = io.BytesIO()
    await serve_stdio(SERVER, pieces(), outgoing, first=first)
    assert outgoing.getvalue() == (await SERVER.answer(line) if line.strip() else b"")


class _Closed(io.BytesIO):
    def write(self, _: Any) -> int:
        raise BrokenPipeError


async def test_a_client_that_reads_no_longer_ends_it() -> None:
    await serve_stdio(SERVER, pieces(json.dumps(request("ping")).encode()), _Closed())


HELLO = json.dumps(request("initialize", protocolVersion="2025-06-18")) + "\n"


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CTXFS_")}


@pytest.mark.service
@pytest.mark.slow
def test_a_server_imports_nothing_that_makes_it_start_late() -> None:
    """A host does not wait for a server that starts late: it goes on without its tools and hooks."""
    code = "import sys; import ctxfs.cli.app, ctxfs.cli.mcp; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    slow = {"mcp", "mcp_types", "rich", "httpx", "httpx2", "starlette", "uvicorn", "tiktoken", "toktok"}
    assert not slow & set(loaded)
    # The plug-in of Claude Code imports these once it has answered the greeting.
    assert not {"pydantic", "sqlite3", "ctxfs.tools.retrieval", "ctxfs.context.history.history"} & set(loaded)


@pytest.mark.service
def test_a_plug_in_greets_before_the_command_line_is_imported(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "class Answered:\n"
        "    def write(self, line): os.write(2, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "class Output: buffer = Answered()\n"
        "sys.argv = ['ctxfs', 'mcp', '--claude-code']; sys.stdout = Output()\n"
        "from ctxfs.cli import main; main()"
    )
    environment = {**_without_settings(), "CTXFS_ROOT": str(tmp_path / "new")}
    ran = subprocess.run(
        [sys.executable, "-c", code], input=HELLO, env=environment, capture_output=True, text=True, check=True
    )
    assert "ctxfs.adapters.serve.protocol" in ran.stderr
    assert not {"typer", "pydantic", "anyio", "ctxfs.session"} & set(ran.stderr.split())


@pytest.mark.service
def test_a_server_of_a_session_greets_before_its_tools_are_imported(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "class Answered:\n"
        "    def write(self, line): os.write(2, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "class Output: buffer = Answered()\n"
        "sys.argv = ['ctxfs', 'mcp', 's']; sys.stdout = Output()\n"
        "from ctxfs.cli import main; main()"
    )
    anyio.run(_made, tmp_path)
    environment = {**_without_settings(), "CTXFS_ROOT": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], input=HELLO, env=environment, capture_output=True, text=True, check=True
    )
    assert "ctxfs.session.filesystem" in ran.stderr.split()
    assert not {"ctxfs.adapters.serve.mcp", "ctxfs.tools.retrieval"} & set(ran.stderr.split())


async def _made(root: Path) -> None:
    async with Context("s", root_path=root) as context:
        await context.add({"role": "user", "content": "go"})


@pytest.mark.service
@pytest.mark.parametrize("settings", [{}, {"CTXFS_PREVIEW_ABOVE_TOKENS": "9000"}])
def test_a_plug_in_greets_once_and_goes_on(settings: dict[str, str], tmp_path: Path) -> None:
    environment = {**_without_settings(), "CTXFS_ROOT": str(tmp_path), **settings}
    lines = HELLO + json.dumps(request("tools/list", 2)) + "\n"
    command = [sys.executable, "-m", "ctxfs", "mcp", "--claude-code"]
    ran = subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "serverInfo" in answers[0]["result"]


@pytest.mark.service
@pytest.mark.parametrize("wrong", ["CTXFS_ROOT", "CTXFS_STORE", "CTXFS_PREVIEW_ABOVE_TOKENS"])
def test_a_plug_in_whose_environment_is_wrong_does_not_greet(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "500").write_text("a file, no place for sessions, and too small a number of tokens")
    environment = {**_without_settings(), wrong: "500"}
    command = [sys.executable, "-m", "ctxfs", "mcp", "--claude-code"]
    ran = subprocess.run(
        command, input=HELLO, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("ctxfs: ")


@pytest.mark.service
@pytest.mark.parametrize(
    "root", ["~/file", "~/file/below", "~nobody-has-this-name/x", "~/" + "a" * 300], ids=lambda root: root[:9]
)
def test_a_plug_in_whose_root_cannot_hold_sessions_does_not_greet(root: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**_without_settings(), "CTXFS_ROOT": root, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "ctxfs", "mcp", "--claude-code"]
    ran = subprocess.run(command, input=HELLO, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("ctxfs: ")


@pytest.mark.service
def test_a_plug_in_without_the_command_line_does_not_greet(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['typer'] = None; sys.argv = ['ctxfs', 'mcp', '--claude-code']\n"
        "from ctxfs.cli import main; main()"
    )
    environment = {**_without_settings(), "CTXFS_ROOT": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], input=HELLO, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "needs typer" in ran.stderr


@pytest.mark.service
def test_a_plug_in_that_cannot_serve_does_not_greet(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ctxfs", "mcp", "--claude-code", "--preview-above-tokens", "500"]
    command += ["--root", str(tmp_path)]
    ran = subprocess.run(command, input=HELLO, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "preview_above_tokens" in ran.stderr


async def _make(root: Path) -> None:
    async with Context(session_id="s1", root_path=root) as context:
        await context.add({"role": "user", "content": "Hello"})


@pytest.mark.slow
@pytest.mark.parametrize("greets", [False, True])
def test_the_first_interrupt_ends_it(greets: bool, tmp_path: Path) -> None:
    anyio.run(_make, tmp_path)
    command = [sys.executable, "-m", "ctxfs", "mcp", "s1", "--root", str(tmp_path)]
    terminal, end = pty.openpty()
    with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(end)
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"waits for an MCP client" in process.stderr.readline()
        if greets:
            os.write(terminal, f"{HELLO}{json.dumps(request('ping', 2))}\n".encode())
            assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [1, 2]
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGS_S) == INTERRUPTED
    os.close(terminal)
