"""Claude Code itself, as it comes in the package claude-agent-sdk, with the plug-in of ctxfs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer
from frameworks import flow

ROOT = Path(__file__).resolve().parent.parent.parent
PLUGIN = ROOT / "plugins" / "claude-code"
CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
TOOLS = "mcp__plugin_ctxfs_ctxfs__"
LONGEST_S = 600


def results_of(body: dict[str, Any]) -> list[str]:
    """The texts of all tool results in a request."""
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                content = block["content"]
                found.append(content if isinstance(content, str) else "".join(b.get("text", "") for b in content))
    return found


def turns(move: Callable[[Sequence[str]], Any]) -> list[Any]:
    """A script: ``move`` says what the model does after these results; requests beside the conversation get a word."""

    def turn(body: dict[str, Any]) -> Any:
        names = [tool.get("name") for tool in body.get("tools", ())]
        return move(results_of(body)) if "Bash" in names else "ok"

    return [turn] * 80


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    for n in (1, 2, 3):
        (made / f"log{n}.txt").write_text(flow.service_log(n))
    return made


def claude(
    folder: Path, url: str, *arguments: str, allowed: Sequence[str], before: Sequence[str] = ()
) -> dict[str, Any]:
    """What Claude Code prints at the end of a run, asked by ``url`` and nothing else."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "any",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "MAX_THINKING_TOKENS": "0",
        "CTXFS_ROOT": str(folder.parent / "sessions"),
    }
    command = [*before, str(CLAUDE), "-p", flow.QUESTION, "--model", "claude-sonnet-5-5", "--max-turns", "8"]
    command += ["--allowedTools", ",".join(allowed), "--output-format", "json", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def cat(folder: Path, n: int) -> list[ToolCall]:
    return [ToolCall("Bash", {"command": f"cat {folder}/log{n}.txt", "description": "Read a log"})]


def test_large_output_goes_to_a_file_before_the_model_sees_it(folder: Path) -> None:
    def move(results: Sequence[str]) -> Any:
        if not results:
            return cat(folder, 1)
        if len(results) == 1:
            assert flow.NEEDLE not in results[0]
            ref = re.search(r'context_grep\(ref="([^"]+)"', results[0])
            assert ref is not None, results[0][:300]
            return [ToolCall(f"{TOOLS}context_grep", {"ref": ref[1], "pattern": "WARNING"})]
        if len(results) == 2:
            assert flow.NEEDLE in results[1], results[1][:300]
            return [ToolCall(f"{TOOLS}ctxfs_hook", {"session_id": "another"})]
        return f"The log says: {flow.NEEDLE if 'hooks only' in results[2] else results[2]}"

    allowed = ["Bash", f"{TOOLS}context_grep", f"{TOOLS}ctxfs_hook"]
    with MessagesServer(turns(move)) as server:
        said = claude(folder, server.url, "--plugin-dir", str(PLUGIN), allowed=allowed)
    assert server.refusals == []
    assert flow.NEEDLE in said["result"]
    stored = folder.parent / "sessions" / said["session_id"] / "tool_result" / "Bash"
    assert [path.read_text() for path in stored.iterdir()] == [flow.service_log(1)]
    with MessagesServer(turns(lambda results: "fine" if not results else "again")) as server:
        said = claude(folder, server.url, "--plugin-dir", str(PLUGIN), "--resume", said["session_id"], allowed=allowed)
        kept = results_of(server.requests[-1])[0]
    assert kept.startswith("[Output stored in full: Bash, call")  # what the transcript of Claude Code keeps


def test_an_output_that_claude_code_cuts_is_stored_whole(folder: Path) -> None:
    whole = "".join(flow.service_log(n) for n in (1, 2, 3)) + "the last line\n"
    assert len(whole) > 60_000
    (folder / "whole.txt").write_text(whole)

    def move(results: Sequence[str]) -> Any:
        if not results:
            return [ToolCall("Bash", {"command": f"cat {folder}/whole.txt", "description": "Read it"}, id="toolu_1")]
        if len(results) == 1:
            assert results[0].startswith("[Output stored in full: Bash, call toolu_1]"), results[0][:300]
            return [ToolCall(f"{TOOLS}context_grep", {"ref": "toolu_1", "pattern": "the last line"})]
        return results[1]

    with MessagesServer(turns(move)) as server:
        allowed = ["Bash", f"{TOOLS}context_grep"]
        said = claude(folder, server.url, "--plugin-dir", str(PLUGIN), allowed=allowed)
    assert server.refusals == []
    assert "the last line" in said["result"]
    (stored,) = (folder.parent / "sessions" / said["session_id"] / "tool_result" / "Bash").iterdir()
    assert stored.read_text() == whole


def test_old_results_are_evicted_on_the_wire_and_its_own_read_tool_opens_them(folder: Path) -> None:
    sessions = folder.parent / "sessions"

    def move(results: Sequence[str]) -> Any:
        if len(results) < 3:
            return cat(folder, len(results) + 1)
        if len(results) == 3:
            path = re.search(r"^Path: (.+)$", results[0], re.MULTILINE)
            assert path is not None, results[0][:300]
            return [ToolCall("Read", {"file_path": path[1], "offset": flow.NEEDLE_LINE, "limit": 1})]
        return f"The log says: {flow.NEEDLE if flow.NEEDLE in results[3] else results[3]}"

    proxy = [sys.executable, "-m", "ctxfs", "proxy", "--keep-recent", "Bash=1", "--root", str(sessions)]
    proxy += ["--preview-above-tokens", "20000", "--"]  # the logs are seen whole at first
    with MessagesServer(turns(move)) as server:
        said = claude(folder, server.url, allowed=["Bash"], before=proxy)
        bodies = [results_of(request) for request in server.requests if len(request.get("tools", ())) > 1]
    assert server.refusals == []
    assert flow.NEEDLE in said["result"]
    assert [len(results) for results in bodies] == [0, 1, 2, 3, 4]
    assert [result.startswith("[Content offloaded]") for result in bodies[3]] == [True, True, False]
    assert bodies[4][:3] == bodies[3], "what was sent is sent again by the same bytes"
    (session,) = sessions.iterdir()
    assert session.name == said["session_id"]
    stored = sorted((session / "tool_result" / "Bash").iterdir())
    assert [flow.NEEDLE in path.read_text() for path in stored] == [True, False]


def test_the_plug_in_is_valid() -> None:
    done = subprocess.run(
        [CLAUDE, "plugin", "validate", PLUGIN], check=False, capture_output=True, text=True, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
