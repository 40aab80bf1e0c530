"""``ctxfs mcp`` as a program, asked by the MCP SDK's own client over standard input and output."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from ctxfs import History
from ctxfs.adapters.serve.mcp import Server
from ctxfs.cli.app import run
from ctxfs.testing import strategies
from ctxfs.tools import Materialize
from ctxfs.tools.base import Tool, ToolResult
from mcp_client import client_of
from patience import HANGS_S

pytestmark = [pytest.mark.anyio, pytest.mark.service]

ROWS = json.dumps({"rows": [{"n": n, "name": f"row {n}"} for n in range(2_000)]}, indent=1)


def log(n: int) -> str:
    return "".join(f"{n}: line {i}\n" for i in range(2_000)) + f"{n}: ERROR at last\n"


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The client's; the server is a process of its own."""
    return str(request.param)


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    with History("other", root_path=tmp_path, materialize=Materialize(max_inline_chars=1_000)) as other:
        other.arrive(log(9), tool="read_log", call_id="call_9")
    with History("thread", root_path=tmp_path, materialize=Materialize(max_inline_chars=1_000)) as history:
        history.arrive(log(1), tool="read_log", call_id="call_1")
        history.arrive(ROWS, tool="query", call_id="call_2")
        yield history


@asynccontextmanager
async def client(*arguments: str) -> AsyncIterator[ClientSession]:
    """A session of the SDK's client with ``ctxfs mcp`` as a process of its own."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "ctxfs", "mcp", *arguments], env=dict(os.environ)
    )
    with anyio.fail_after(HANGS_S):
        async with stdio_client(command) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
            await session.initialize()
            yield session


async def said(session: ClientSession, tool: str, **arguments: Any) -> tuple[str, bool]:
    result = await session.call_tool(tool, arguments)
    return "".join(block.text for block in result.content if block.type == "text"), bool(result.is_error)


async def test_a_model_reads_one_session_while_it_is_written(tmp_path: Path, writer: History) -> None:
    async with client("thread", "--root", str(tmp_path)) as session:
        tools = (await session.list_tools()).tools
        assert [tool.name for tool in tools] == ["context_read", "context_tail", "context_grep", "context_list"]
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert "call_2: tool_result of query" in (await said(session, "context_list"))[0]
        assert (await said(session, "context_read", ref="call_1", offset=7, limit=1))[0].startswith("7\t1: line 6")
        assert "2001\t1: ERROR at last" in (await said(session, "context_tail", ref="call_1"))[0]
        assert "1: ERROR at last" in (await said(session, "context_grep", ref="call_1", pattern="ERR.R"))[0]
        part = await said(session, "context_read", ref="call_2", path="$.rows[1500].name")
        assert "row 1500" in part[0]
        await anyio.to_thread.run_sync(lambda: writer.arrive(log(3), tool="read_log", call_id="call_3"))
        assert "call_3" in (await said(session, "context_list"))[0]  # refreshed by each call
        assert "call_9" not in (await said(session, "context_list"))[0]
        for ref in ("call_9", f"{tmp_path}/other/artifacts/tool/call_9.txt", "../other/artifacts/tool/call_9.txt"):
            text, is_error = await said(session, "context_read", ref=ref)
            assert is_error
            assert "9: line" not in text


async def test_what_cannot_be_done_is_said_to_the_model(tmp_path: Path, writer: History) -> None:
    async with client("thread", "--root", str(tmp_path)) as session:
        for tool, arguments, reason in (
            ("context_read", {}, "ref"),
            ("context_grep", {"ref": "call_1", "pattern": "("}, "not a valid regular expression"),
            ("context_read", {"ref": "nothing"}, "nothing"),
            ("Bash", {"command": "ls"}, "there is no tool 'Bash'"),
        ):
            text, is_error = await said(session, tool, **arguments)
            assert is_error, tool
            assert reason in text
        results = []
        async with anyio.create_task_group() as tasks:
            for n in range(8):

                async def read(n: int = n) -> None:
                    results.append(await said(session, "context_read", ref="call_1", offset=n + 1, limit=1))

                tasks.start_soon(read)
        assert {text.partition("\n")[0] for text, _ in results} == {f"{n + 1}\t1: line {n}" for n in range(8)}


def test_a_session_that_is_not_there_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", "nothing", "--root", str(tmp_path)]) == 2
    assert "nothing" in capsys.readouterr().err


async def test_images_and_documents_come_as_the_protocol_has_them() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": strategies.png(2, 2)}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]

    async def show(_: Any) -> ToolResult:
        return ToolResult(tuple(blocks))

    tool = Tool(name="show", description="Show", input_schema={"type": "object"}, handler=show)
    server = Server([tool], lambda call: call.tool.run(call.arguments))
    async with client_of(server) as session:
        content = (await session.call_tool("show", {})).content
    assert [block.type for block in content] == ["text", "image", "resource", "text"]
    assert "https://example.org/a.png" in content[3].text  # type: ignore[union-attr]
