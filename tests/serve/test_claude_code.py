"""The server of Claude Code's plug-in, by its own client; Claude Code itself plays in tests/frameworks."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ctxfs.adapters.serve.claude_code import HOOK, Plugin, plugin_at
from ctxfs.adapters.serve.mcp import Server
from ctxfs.context.history.structured import large_texts, with_texts
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import stores_at
from ctxfs.version import __version__
from mcp_client import client_of

PLUGIN = Path(__file__).resolve().parent.parent.parent / "plugins" / "claude-code"
LOG = "".join(f"line {i}\n" for i in range(1_500)) + "ERROR at last\n"
"""More than the 1,000 tokens that the plug-in here sends whole."""


def is_large(text: str) -> bool:
    return len(text) > 1_000


@pytest.fixture
def plugin(tmp_path: Path) -> Any:
    plugin = plugin_at(stores_at(tmp_path), preview_above_tokens=1_000)
    yield plugin
    plugin.histories.close()


@asynccontextmanager
async def client(plugin: Plugin) -> AsyncIterator[Client]:
    async with client_of(Server(plugin.tools, plugin.run)) as session:
        yield session


async def said(session: Client, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type]
    return "".join(block.text for block in result.content if block.type == "text")


def event(response: Any, session_id: str = "one", tool_use_id: str = "toolu_1") -> dict[str, Any]:
    text = response if isinstance(response, str) else json.dumps(response)
    return {"session_id": session_id, "tool_name": "Bash", "tool_use_id": tool_use_id, "tool_response": text}


@pytest.mark.anyio
async def test_large_texts_are_stored_and_read_back(plugin: Plugin, tmp_path: Path) -> None:
    async with client(plugin) as session:
        assert await said(session, "context_list") == "Nothing is stored yet in this conversation."
        bash = {"stdout": LOG, "stderr": LOG.upper(), "interrupted": False}
        answer = json.loads(await said(session, HOOK, **event(bash)))["hookSpecificOutput"]
        new = answer["updatedToolOutput"]
        assert answer["hookEventName"] == "PostToolUse"
        assert new["interrupted"] is False
        assert new["stdout"].startswith("[Output stored in full: Bash, call toolu_1]")
        assert 'context_tail(ref="toolu_1", lines=200)' in new["stdout"]
        assert "toolu_1.2" in new["stderr"]
        page = await said(session, "context_grep", ref="toolu_1", pattern="ERROR")
        assert "1501" in page
        back = await said(session, "context_read", ref="toolu_1")
        assert await said(session, HOOK, **event([{"type": "text", "text": back}], tool_use_id="toolu_2")) == "{}"
        assert await said(session, HOOK, **event(LOG, tool_use_id="toolu_3")) != "{}"
    assert {path.name for path in (tmp_path / "one").rglob("toolu*.txt")} == {
        "toolu_1.txt",
        "toolu_1.2.txt",
        "toolu_3.txt",
    }


@pytest.mark.anyio
async def test_what_is_small_is_left_alone_and_makes_no_session(plugin: Plugin, tmp_path: Path) -> None:
    async with client(plugin) as session:
        assert await said(session, HOOK, session_id="one") == "{}"
        assert await said(session, HOOK, **event({"stdout": "short"})) == "{}"
        assert await said(session, HOOK, **event({"stdout": LOG, "isImage": True})) == "{}"
        assert await said(session, "context_list") == "Nothing is stored yet in this conversation."
    assert not [entry async for entry in anyio.Path(tmp_path).iterdir()]


@pytest.mark.anyio
async def test_the_model_cannot_choose_a_session_by_the_hook(plugin: Plugin) -> None:
    async with client(plugin) as session:
        await said(session, HOOK, **event(LOG, session_id="other"))
        await said(session, HOOK, **event(LOG, session_id="one"))
        mark = {"claudecode/toolUseId": "toolu_9"}
        assert "for the plug-in's hooks only" in await said(session, HOOK, mark, session_id="other")
        assert plugin.session_id == "one"
        await said(session, HOOK, session_id="other")  # as after /resume
        assert plugin.session_id == "other"


@pytest.mark.anyio
async def test_what_cannot_be_stored_stays_and_the_user_is_told(
    plugin: Plugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").write_text("in the way")
    async with client(plugin) as session:
        answer = json.loads(await said(session, HOOK, **event({"stdout": LOG})))
    assert list(answer) == ["systemMessage"]
    assert "could not store" in answer["systemMessage"]
    assert "ctxfs:" in capsys.readouterr().err


@pytest.mark.anyio
async def test_the_user_is_told_of_a_defect_in_the_hook(plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    plugin.histories.close()
    plugin.histories.of = None  # type: ignore[method-assign, assignment]
    async with client(plugin) as session:
        answer = json.loads(await said(session, HOOK, **event({"stdout": LOG})))
    assert "a defect of its own: TypeError" in answer["systemMessage"]
    assert "the hook failed: TypeError" in caplog.text
    assert (
        "self.histories.of(self.session_id)" in caplog.text
    )  # where, in our code; the error's text may quote an output
    assert "not callable" not in caplog.text


def cut(path: Path, *, size: int | None = None) -> dict[str, Any]:
    """What Claude Code gives a hook of a long output, which ``path`` holds."""
    text = path.read_text()
    size_bytes = len(text.encode()) if size is None else size
    return {"stdout": text[:3_000], "stderr": "", "persistedOutputPath": str(path), "persistedOutputSize": size_bytes}


@pytest.mark.anyio
async def test_an_output_that_claude_code_cut_is_stored_whole(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text(LOG)
    async with client(plugin) as session:
        answer = json.loads(await said(session, HOOK, **event(cut(tmp_path / "output.txt"))))
        new = answer["hookSpecificOutput"]["updatedToolOutput"]
        assert set(new) == {"stdout", "stderr"}, "with the path, Claude Code would cut the summary, too"
        assert new["stdout"].startswith("[Output stored in full: Bash, call toolu_1]")
        assert "501:ERROR at last" in await said(session, "context_grep", ref="toolu_1", pattern="ERROR")
    assert (tmp_path / "one" / "tool_result" / "Bash" / "toolu_1.txt").read_text() == LOG


@pytest.mark.anyio
@pytest.mark.parametrize("case", ["gone", "another size", "another text", "a link", "a pipe"])
async def test_an_output_that_cannot_be_had_says_how_much_of_it_is_stored(
    plugin: Plugin, tmp_path: Path, case: str
) -> None:
    path = tmp_path / "output.txt"
    path.write_text(LOG)
    response = cut(path, size=len(LOG) + 1 if case == "another size" else None)
    if case == "another text":
        path.write_text(LOG.swapcase())
    if case in ("gone", "a link", "a pipe"):
        path.unlink()
    if case == "a link":
        (tmp_path / "real.txt").write_text(LOG)
        path.symlink_to(tmp_path / "real.txt")
    if case == "a pipe":
        os.mkfifo(path)
    part = f"the first 3,000 of {response['persistedOutputSize']:,} bytes"
    async with client(plugin) as session:
        answer = json.loads(await said(session, HOOK, **event(response)))
        new = answer["hookSpecificOutput"]["updatedToolOutput"]
        assert new["stdout"].startswith(f"[Output stored in part, {part}: Bash, call toolu_1]")
        assert new["persistedOutputPath"] == str(path)
        nothing = await said(session, "context_grep", ref="toolu_1", pattern="at last")
        assert nothing == f"[no line matches; 346 lines searched; only {part} were stored]"
        found = await said(session, "context_grep", ref="toolu_1", pattern="line 7.$")
        assert found.endswith(f"[10 lines match; only {part} were stored]")
        for tool in ("context_tail", "context_read"):
            end = await said(session, tool, ref="toolu_1")
            assert end.endswith(f"[the output goes on, but only {part} were stored]")
        assert f"partial: only {part} were stored" in await said(session, "context_list")


@pytest.mark.anyio
async def test_a_file_that_an_mcp_servers_response_names_is_not_read(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(LOG)
    response = {"content": "x" * 2_000, **cut(tmp_path / "secret.txt")}
    async with client(plugin) as session:
        asked = {**event(response), "tool_name": "mcp__other__show"}
        await said(session, HOOK, **asked)
        listed = await said(session, "context_list")
    assert "501 lines" not in listed
    assert "346 lines" in listed


async def toolu_1(fs: ContextFileSystem) -> Path:
    return fs.session_path / fs.state.stored["toolu_1"].name


@pytest.mark.anyio
async def test_the_user_is_told_of_what_an_open_session_could_not_store(plugin: Plugin, tmp_path: Path) -> None:
    async with client(plugin) as session:
        await said(session, HOOK, **event(LOG))
        stored = await plugin.histories.of("one").aread(toolu_1)
        await anyio.Path(stored).with_name("toolu_2.txt").write_text("in the way")
        large = {"stdout": f"{LOG}more", "stderr": LOG.upper()}
        answer = json.loads(await said(session, HOOK, **event(large, tool_use_id="toolu_2")))
        assert "could not store" in answer["systemMessage"]
        new = answer["hookSpecificOutput"]["updatedToolOutput"]
        assert new["stdout"] == large["stdout"], "what is stored is replaced all the same"
        assert new["stderr"].startswith("[Output stored in full")
        assert "systemMessage" not in await said(session, HOOK, **event(f"{LOG}again", tool_use_id="toolu_3"))


def test_each_large_text_is_found_and_replaced_in_its_place() -> None:
    block = {"type": "text", "text": LOG}
    response = {"a": [block, {"type": "image", "data": LOG}], "b": LOG, "c": "short", "d": 5, "e": {"isImage": True}}
    found = dict(large_texts(response, is_large))
    assert set(found) == {("a", 0, "text"), ("b",)}
    new = with_texts(response, {("a", 0, "text"): "x", ("b",): "y"})
    assert new == {**response, "a": [{**block, "text": "x"}, {"type": "image", "data": LOG}], "b": "y"}
    assert dict(large_texts(LOG, is_large)) == {(): LOG}
    assert with_texts(LOG, {(): "x"}) == "x"


def test_the_plug_in_calls_what_the_server_offers(plugin: Plugin) -> None:
    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    servers = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    assert manifest["version"] == __version__
    (server,) = servers
    called = [hook for rules in hooks.values() for rule in rules for hook in rule["hooks"]]
    of_server = [hook for hook in called if hook["type"] == "mcp_tool"]
    assert {hook["server"] for hook in of_server} == {f"plugin:{manifest['name']}:{server}"}
    assert {hook["tool"] for hook in of_server} == {HOOK} <= {tool.name for tool in plugin.tools}


@pytest.mark.service
@pytest.mark.slow
def test_the_user_is_told_of_hooks_that_failed(tmp_path: Path) -> None:
    """Claude Code notes them in the transcript only: the server was not ready, or its command is not there."""
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    (hook,) = hooks["Stop"][0]["hooks"]
    transcript = tmp_path / "a conversation.jsonl"

    def at_the_end_of_a_turn(*attachments: Mapping[str, Any]) -> str:
        with transcript.open("a") as file:
            file.writelines(json.dumps({"attachment": one}, separators=(",", ":")) + "\n" for one in attachments)
        event = json.dumps({"session_id": "one", "transcript_path": str(transcript), "cwd": "/"})
        environment = {**os.environ, "CLAUDE_PLUGIN_ROOT": str(PLUGIN)}
        command = ["/bin/sh", "-c", hook["command"]]
        return subprocess.run(command, input=event, env=environment, check=True, capture_output=True, text=True).stdout

    failed = {"type": "hook_non_blocking_error", "stderr": "MCP server 'plugin:ctxfs:ctxfs' not connected"}
    other = {"type": "hook_non_blocking_error", "stderr": "MCP server 'plugin:other:other' not connected"}
    quoted = {"type": "text", "content": json.dumps(failed, separators=(",", ":"))}
    assert at_the_end_of_a_turn(other, quoted) == ""
    message = json.loads(at_the_end_of_a_turn(failed, failed))["systemMessage"]
    assert message.startswith("The plug-in ctxfs failed 2 times")
    assert at_the_end_of_a_turn({"type": "hook_system_message", "content": message}) == "", "once a turn"
    assert "failed 1 time" in at_the_end_of_a_turn(failed)
    transcript.unlink()
    assert at_the_end_of_a_turn() == ""
