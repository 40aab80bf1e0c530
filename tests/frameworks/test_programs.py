"""Programs of npm behind ``ctxfs proxy``: old results leave, and are read back by the programs' own tools."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import GeminiServer, MessagesServer, ResponsesServer
from frameworks import flow
from frameworks.proxied import behind_the_proxy

PROGRAMS = Path(sys.prefix) / "npm" / "node_modules" / ".bin"
LOGS = 4


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder of logs, in which the program runs, with a home of its own beside it."""
    made = tmp_path / "work"
    made.mkdir()
    subprocess.run(["git", "init", "--quiet", str(made)], check=True)
    for n in range(LOGS):
        (made / f"log{n}.txt").write_text(flow.service_log(n))
    return made


def printed_by(work: Path, tool: str, *command: str, **environment: str) -> str:
    """Run a program behind the proxy, which keeps the last result of its shell; what it printed at the end."""
    home = work.parent / "home"
    home.mkdir(exist_ok=True)
    own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}
    name, *arguments = command
    done = behind_the_proxy(
        [str(PROGRAMS / name), *arguments],
        ["--keep-recent", f"{tool}=1"],
        sessions=work.parent / "sessions",
        cwd=work,
        environment={**own, **environment},
    )
    return done.stderr


def next_step(work: Path, results: list[str]) -> str | None:
    """The command that the model runs next: each log, then the file that a placeholder names; None: it ends."""
    if len(results) < LOGS:
        return f"cat {work}/log{len(results)}.txt"
    if len(results) == LOGS:
        found = re.search(r"^Path: (.+)$", results[0], re.MULTILINE)
        assert found, results[0]
        return f"tail -n 1 {found[1]}"
    return None


def assert_read_back(results: list[str], said: str) -> None:
    """The first result had left, and its last line came back through the program's own tool."""
    assert results[0].startswith("[Content offloaded]"), results[0][:300]
    assert flow.service_log(0).splitlines()[-1] in results[LOGS]
    assert re.search(r"ctxfs: \d+ calls, \d+ of them with a bill; [1-9]\d* contents replaced", said), said


def test_codex(work: Path) -> None:
    def results_of(body: Any) -> list[str]:
        outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        return [one if isinstance(one, str) else "".join(part.get("text", "") for part in one) for one in outputs]

    def turn(body: dict[str, Any]) -> Any:
        command = next_step(work, results_of(body))
        if command is None:
            return "done"
        return [ToolCall("exec_command", {"cmd": command, "max_output_tokens": 20_000})]

    home = work.parent / "codex"
    home.mkdir()
    settings = 'model = "gpt-5"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    (home / "config.toml").write_text(settings)
    with ResponsesServer([turn] * 20) as server:
        keys = {"CODEX_HOME": str(home), "OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.url}
        said = printed_by(work, "exec_command", "codex", "exec", "--json", "Read the logs.", **keys)
    assert server.refusals == []
    assert "Reconnecting" not in said, "it tried a WebSocket more than once"
    assert_read_back(results_of(server.requests[-1]), said)


def test_opencode(work: Path) -> None:
    def results_of(body: Any) -> list[str]:
        blocks = [
            block
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        contents = [block["content"] for block in blocks if block["type"] == "tool_result"]
        return [one if isinstance(one, str) else "".join(part.get("text", "") for part in one) for one in contents]

    def turn(body: dict[str, Any]) -> Any:
        if "bash" not in [tool.get("name") for tool in body.get("tools", ())]:
            return "A title"
        command = next_step(work, results_of(body))
        return "done" if command is None else [ToolCall("bash", {"command": command, "description": "read"})]

    allowed = {"permission": {"bash": "allow", "external_directory": "allow"}}
    with MessagesServer([turn] * 20) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        options = ("run", "--dir", str(work), "-m", "anthropic/claude-sonnet-4-5", "Read the logs.")
        said = printed_by(
            work, "bash", "opencode", *options, **keys, **quiet, OPENCODE_CONFIG_CONTENT=json.dumps(allowed)
        )
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if results_of(body)]
    assert_read_back(results_of(last), said)


def test_gemini_cli(work: Path) -> None:
    def results_of(body: Any) -> list[str]:
        parts = [part for content in body["contents"] for part in content["parts"]]
        responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return [str(next(iter(response.values()))) for response in responses]

    def turn(body: dict[str, Any]) -> Any:
        if not body.get("tools"):
            return "ok"
        command = next_step(work, results_of(body))
        return "done" if command is None else [ToolCall("run_shell_command", {"command": command})]

    settings = work.parent / "home" / ".gemini"
    settings.mkdir(parents=True)
    (settings / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    with GeminiServer([turn] * 30) as server:
        keys = {"GEMINI_API_KEY": "any", "GOOGLE_GEMINI_BASE_URL": server.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        options = ("-m", "gemini-2.5-pro", "--yolo", "-p", "Read the logs.")
        said = printed_by(work, "run_shell_command", "gemini", *options, **keys)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if results_of(body)]
    assert_read_back(results_of(last), said)
