"""Programs of npm behind ``ctxfs proxy``, whose old results leave and are read back, and with a wrapped MCP server."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer, GeminiServer, MessagesServer, ResponsesServer
from frameworks import flow
from frameworks.proxied import LONGEST_S, behind_the_proxy

PROGRAMS = Path(sys.prefix) / "npm" / "node_modules" / ".bin"
LOGS = 4
SERVER = [sys.executable, str(Path(__file__).resolve().parents[1] / "serve" / "server_to_wrap.py")]
STARTS_S = 500
"""For how long a client waits for an MCP server to start: on a busy machine, Python and the SDK take their time."""


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
    assert re.search(r"ctxfs: \d+ calls, \d+ with a bill; [1-9]\d* contents replaced", said), said


def in_input(body: Any) -> list[str]:
    """The results in a request to the Responses API."""
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return [one if isinstance(one, str) else "".join(part.get("text", "") for part in one) for one in outputs]


def in_messages(body: Any) -> list[str]:
    """The results in a request to the Messages API."""
    blocks = [block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]]
    contents = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [one if isinstance(one, str) else "".join(part.get("text", "") for part in one) for one in contents]


def in_contents(body: Any) -> list[str]:
    """The results in a request to Gemini's API."""
    parts = [part for content in body["contents"] for part in content["parts"]]
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return [str(next(iter(response.values()))) for response in responses]


def test_codex(work: Path) -> None:
    def turn(body: dict[str, Any]) -> Any:
        command = next_step(work, in_input(body))
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
    assert_read_back(in_input(server.requests[-1]), said)


def recipe_of_opencode(sessions: Path) -> str:
    """The configuration that its section of docs/proxy.md prints, with the directory of these sessions."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "proxy.md").read_text()
    section = page.partition("\n### opencode\n")[2].partition("\n### ")[0]
    found = re.search(r"```json\n(.+?)```", section, re.DOTALL)
    assert found, "the section has no configuration"
    assert "~/.agent/context" in found[1]
    return found[1].replace("~/.agent/context", sessions.as_posix())


def test_opencode(work: Path) -> None:
    def turn(body: dict[str, Any]) -> Any:
        if "bash" not in [tool.get("name") for tool in body.get("tools", ())]:
            return "A title"
        results = in_messages(body)
        if len(results) == LOGS:  # by the tool that asks before it opens a file outside of the project
            path = re.search(r"^Path: (.+)$", results[0], re.MULTILINE)
            assert path, results[0]
            return [ToolCall("read", {"filePath": path[1], "offset": 590, "limit": 20})]
        command = next_step(work, results)
        return "done" if command is None else [ToolCall("bash", {"command": command, "description": "read"})]

    allowed = recipe_of_opencode(work.parent / "sessions")
    with MessagesServer([turn] * 20) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        options = ("run", "--dir", str(work), "-m", "anthropic/claude-sonnet-4-5", "Read the logs.")
        said = printed_by(work, "bash", "opencode", *options, **keys, **quiet, OPENCODE_CONFIG_CONTENT=allowed)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_messages(body)]
    assert_read_back(in_messages(last), said)


def test_gemini_cli(work: Path) -> None:
    def turn(body: dict[str, Any]) -> Any:
        if not body.get("tools"):
            return "ok"
        command = next_step(work, in_contents(body))
        return "done" if command is None else [ToolCall("run_shell_command", {"command": command})]

    settings = work.parent / "home" / ".gemini"
    settings.mkdir(parents=True)
    (settings / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    with GeminiServer([turn] * 30) as server:
        keys = {"GEMINI_API_KEY": "any", "GOOGLE_GEMINI_BASE_URL": server.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        options = ("-m", "gemini-2.5-pro", "--yolo", "-p", "Read the logs.")
        said = printed_by(work, "run_shell_command", "gemini", *options, **keys)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_contents(body)]
    assert_read_back(in_contents(last), said)


def test_goose(work: Path) -> None:
    """It needs to be told its provider and its model; its key is that of the environment."""

    def turn(body: dict[str, Any]) -> Any:
        if "shell" not in [tool.get("name") for tool in body.get("tools", ())]:
            return "A title"
        command = next_step(work, in_messages(body))
        return "done" if command is None else [ToolCall("shell", {"command": command})]

    with MessagesServer([turn] * 20) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        chosen = {"GOOSE_PROVIDER": "anthropic", "GOOSE_MODEL": "claude-sonnet-4-5"}
        said = printed_by(work, "shell", "goose", "run", "--no-session", "-t", "Read the logs.", **keys, **chosen)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_messages(body)]
    assert_read_back(in_messages(last), said)


def test_cline(work: Path) -> None:
    """It reads its base URL from its settings, which a shell behind the proxy writes."""

    def results_of(body: Any) -> list[str]:
        contents = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return [one if one.startswith("[Content") else json.loads(one)[0]["result"] for one in contents]

    def turn(body: dict[str, Any]) -> Any:
        command = next_step(work, results_of(body))
        return "done" if command is None else [ToolCall("run_commands", {"commands": [command]})]

    cline = shlex.quote(str(PROGRAMS / "cline"))
    signs_in = f'{cline} auth -p openai-compatible -k any -m gpt-5 -b "$OPENAI_BASE_URL"'
    home = work.parent / "home"
    own = home / ".cline" / "data-ctxfs"
    home.mkdir()
    with ChatCompletionsServer([turn] * 20) as server:
        done = behind_the_proxy(
            ["sh", "-c", f"{signs_in} && {cline} -P openai-compatible 'Read the logs.'"],
            ["--keep-recent", "run_commands=1", "--read-tool", "run_commands"],
            sessions=work.parent / "sessions",
            cwd=work,
            # Otherwise it starts a process in the background, which outlives it, and keeps its output open.
            environment={
                "HOME": str(home),
                "OPENAI_BASE_URL": server.url,
                "CLINE_SESSION_BACKEND_MODE": "local",
                "CLINE_DATA_DIR": str(own),
            },
        )
    assert server.refusals == []
    assert_read_back(results_of(server.requests[-1]), done.stderr)
    settings = [path for path in home.rglob("*.json") if "http://127.0.0.1:" in path.read_text()]
    assert settings == [own / "settings" / "providers.json"], "the user's own settings point at a proxy that has ended"


# A wrapped MCP server -------------------------------------------------------------------------------------------------


def wrapped_in(home: Path, client: str) -> dict[str, str]:
    """Wrap the servers in the client's own configuration; the environment in which it runs then."""
    own = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    environment = {
        **own,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / "data"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), own["PATH"]]),
    }
    command = [sys.executable, "-m", "ctxfs", "mcp", "install", client, "--all", "--yes"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def run_client(work: Path, environment: dict[str, str], *command: str) -> str:
    """Run a client to its end, which must be a good one; all that it printed."""
    name, *arguments = command
    done = subprocess.run(
        [str(PROGRAMS / name), *arguments],
        cwd=work,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def asks_the_server(tools: Sequence[str], results: Sequence[str], wait: ToolCall | None = None) -> list[ToolCall] | str:
    """What the model does: a tool of the server that is wrapped, then one of ctxfs, which reads the result back.

    ``wait``: what it calls as long as the server has not started; None: the client waits for it.
    """
    logs = [name for name in tools if re.fullmatch(r"(?:.*records[_.]+)?log", name)]
    tails = [name for name in tools if name.endswith("context_tail")]
    if not logs and wait is not None and wait.name in tools:
        return [wait]
    previews = [result for result in results if "[Output stored in full: log" in result]
    if not logs or not tails:
        return f"There is no such tool among {', '.join(tools)}"
    if not previews:
        return [ToolCall(logs[0], {"lines": 20_000})]
    if previews[-1] == results[-1]:
        return [ToolCall(tails[0], {"ref": "log", "lines": 1})]
    return "done"


def assert_previewed(results: Sequence[str]) -> None:
    """The result came as a preview, and its last line by the tool beside the server's own."""
    *_, preview, last = results
    assert "[Output stored in full: log" in preview, preview[:300]
    assert len(preview) < 10_000
    assert "20001\tERROR at last" in last


def test_codex_with_a_wrapped_server(work: Path) -> None:
    home = work.parent / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(
        'model = "gpt-5"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        f"[mcp_servers.records]\ncommand = {json.dumps(SERVER[0])}\nargs = {json.dumps(SERVER[1:])}\n"
        f"startup_timeout_sec = {STARTS_S}\nrequired = true\n"
    )

    def turn(body: dict[str, Any]) -> Any:
        spaces = [tool for tool in body["tools"] if tool["type"] == "namespace"]
        tools = [f"{space['name']}.{tool['name']}" for space in spaces for tool in space["tools"]]
        return asks_the_server(tools, in_input(body))

    environment = wrapped_in(home, "codex")
    with ResponsesServer([turn] * 20) as server:
        environment |= {"OPENAI_API_KEY": "any"}
        told = f'openai_base_url="{server.url}"'
        run_client(work, environment, "codex", "exec", "-c", told, "--json", "Read the log.")
    assert server.refusals == []
    assert_previewed(in_input(server.requests[-1]))


def test_claude_code_with_a_wrapped_server(work: Path) -> None:
    home = work.parent / "home"
    home.mkdir()
    entry = {"type": "stdio", "command": SERVER[0], "args": SERVER[1:]}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"records": entry}}))

    def turn(body: dict[str, Any]) -> Any:
        tools = [str(tool.get("name")) for tool in body.get("tools", ())]
        return asks_the_server(tools, in_messages(body), ToolCall("WaitForMcpServers", {})) if tools else "ok"

    environment = wrapped_in(home, "claude-code")
    with MessagesServer([turn] * 20) as server:
        environment |= {
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_BASE_URL": server.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "MAX_THINKING_TOKENS": "0",
            "MCP_TIMEOUT": str(STARTS_S * 1000),
        }
        options = ("-p", "Read the log.", "--allowedTools", "mcp__records", "--model", "claude-sonnet-4-5")
        run_client(work, environment, "claude", *options)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_messages(body)]
    assert_previewed(in_messages(last))


def test_gemini_cli_with_a_wrapped_server(work: Path) -> None:
    home = work.parent / "home"
    (home / ".gemini").mkdir(parents=True)
    entry = {"command": SERVER[0], "args": SERVER[1:], "timeout": STARTS_S * 1000, "trust": True}
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "mcpServers": {"records": entry}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))

    def turn(body: dict[str, Any]) -> Any:
        declared = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
        return asks_the_server([one["name"] for one in declared], in_contents(body)) if declared else "ok"

    environment = wrapped_in(home, "gemini")
    with GeminiServer([turn] * 30) as server:
        environment |= {
            "GEMINI_API_KEY": "any",
            "GOOGLE_GEMINI_BASE_URL": server.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
        run_client(work, environment, "gemini", "-m", "gemini-2.5-pro", "--yolo", "-p", "Read the log.")
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_contents(body)]
    assert_previewed(in_contents(last))


def test_opencode_with_a_wrapped_server(work: Path) -> None:
    home = work.parent / "home"
    (home / ".config" / "opencode").mkdir(parents=True)
    entry = {"type": "local", "command": SERVER, "timeout": STARTS_S * 1000}
    settings = {"mcp": {"records": entry}, "permission": {"*": "allow"}}
    (home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))

    def turn(body: dict[str, Any]) -> Any:
        tools = [str(tool.get("name")) for tool in body.get("tools", ())]
        return asks_the_server(tools, in_messages(body)) if "bash" in tools else "A title"

    environment = wrapped_in(home, "opencode")
    with MessagesServer([turn] * 20) as server:
        environment |= {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": f"{server.url}/v1"}
        environment |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        options = ("run", "--dir", str(work), "-m", "anthropic/claude-sonnet-4-5", "Read the log.")
        run_client(work, environment, "opencode", *options)
    assert server.refusals == []
    [*_, last] = [body for body in server.requests if in_messages(body)]
    assert_previewed(in_messages(last))
