"""``ctxfs mcp install`` and ``uninstall`` on configurations as clients write them."""

import json
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.adapters.serve.clients import CLIENTS, JsonFile
from ctxfs.cli.app import run
from ctxfs.errors import ConfigError

CTXFS = str(Path(sys.executable).with_name("ctxfs"))

CLAUDE_CODE = """{
  "numStartups": 41,
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"],
      "env": {}
    },
    "issues": {
      "type": "http",
      "url": "https://example.org/mcp",
      "headers": { "Authorization": "Bearer abc" }
    }
  },
  "projects": { "/home/me": { "mcpServers": {}, "history": ["é", "\\ud83d\\ude00"] } }
}"""
SSE = '{"mcpServers": {"a": {"url": "https://example.org/sse", "type": "sse"}}}'
CODEX = """# mine
model = "gpt-5"   # the model

[mcp_servers.files]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem"]  # all of it
startup_timeout_sec = 20

[mcp_servers.files.env]
DEBUG = "1"

[mcp_servers.issues]
url = "https://example.org/mcp"
bearer_token_env_var = "ISSUES_TOKEN"
http_headers = { "X-Team" = "blue" }

[tui]
notifications = true
"""
VSCODE = """{
\t// Servers of mine
\t"inputs": [{ "id": "token", "type": "promptString", "password": true },],
\t"servers": {
\t\t"files": { "type": "stdio", "command": "npx", "args": ["-y", "files"] }, /* the first */
\t\t"issues": {
\t\t\t"type": "http",
\t\t\t"url": "https://example.org/mcp",
\t\t\t"headers": { "Authorization": "Bearer ${input:token}" },
\t\t},
\t},
}
"""
GEMINI = """{
  "selectedAuthType": "gemini-api-key",
  "mcpServers": {
    "files": {"command": "npx", "args": ["files"], "trust": true},
    "issues": {"httpUrl": "https://example.org/mcp"}
  }
}
"""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "files": { "type": "local", "command": ["npx", "files"], "enabled": true },
    "issues": { "type": "remote", "url": "https://example.org/mcp", "headers": { "X-Key": "{env:KEY}" } }
  }
}
"""
CURSOR = '{"mcpServers":{"files":{"command":"npx","args":["files"]},"issues":{"url":"https://example.org/mcp"}}}'
OWN = f'{{"mcpServers": {{"a": {{"command": "{CTXFS}", "args": ["mcp", "last"]}}}}}}'
WINDSURF = CURSOR.replace('"url"', '"serverUrl"')

FILES = {
    "claude-code": CLAUDE_CODE,
    "claude-desktop": CURSOR,
    "codex": CODEX,
    "cursor": CURSOR,
    "vscode": VSCODE,
    "gemini": GEMINI,
    "opencode": OPENCODE,
    "windsurf": WINDSURF,
}

Make = Callable[[str, str | None], Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a client's configuration at its usual place, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def made(client: str, text: str | None = None) -> Path:
        path = tmp_path / CLIENTS[client].places(sys.platform)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((FILES[client] if text is None else text).encode())
        path.chmod(0o640)
        return path

    return made


def servers_in(client: str, path: Path) -> dict[str, dict[str, object]]:
    text = path.read_text()
    if path.suffix == ".toml":
        return dict(tomllib.loads(text)["mcp_servers"])
    return dict(JsonFile(text, CLIENTS[client].key).servers)  # type: ignore[arg-type]


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_installed_is_uninstalled_byte_for_byte(
    client: str, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(client, None)
    before = path.read_bytes()
    others = {line for line in before.decode().splitlines() if "//" in line or line.startswith(("#", "model"))}

    assert run(["mcp", "install", client, "--all", "--dry-run"]) == 0
    assert path.read_bytes() == before
    shown = capsys.readouterr().out
    assert f"+++ {path}, changed" in shown

    assert run(["mcp", "install", client, "--all", "--yes"]) == 0
    assert capsys.readouterr().out.startswith(shown)
    new = servers_in(client, path)
    files, issues = new["files"], new["issues"]
    words = {
        name: [*entry["command"]] if client == "opencode" else [entry["command"], *entry["args"]]  # type: ignore[misc]
        for name, entry in new.items()
    }
    assert words["files"][:4] == [CTXFS, "mcp", "wrap", "--"]
    assert words["files"][4] == "npx"
    assert words["issues"][:5] == [CTXFS, "mcp", "wrap", "--url", "https://example.org/mcp"]
    assert not {"url", "httpUrl", "serverUrl", "headers"} & {*issues}
    assert all(line in path.read_text() for line in others if "http" not in line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    kept = {"claude-code": "env", "codex": "startup_timeout_sec", "gemini": "trust", "opencode": "enabled"}
    assert kept.get(client, "command") in files

    assert run(["mcp", "install", client, "--all", "--yes"]) == 0
    assert "nothing to wrap" in capsys.readouterr().out
    assert run(["mcp", "uninstall", client, "--yes"]) == 0
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert run(["mcp", "uninstall", client, "--yes"]) == 0
    assert "no server is wrapped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("client", "environment", "headers"),
    [
        ("claude-code", {"CTXFS_HEADER_1": "Bearer abc"}, ["Authorization={CTXFS_HEADER_1}"]),
        ("vscode", {"CTXFS_HEADER_1": "Bearer ${input:token}"}, ["Authorization={CTXFS_HEADER_1}"]),
        ("opencode", {"CTXFS_HEADER_1": "{env:KEY}"}, ["X-Key={CTXFS_HEADER_1}"]),
        ("codex", {"CTXFS_HEADER_1": "blue"}, ["X-Team={CTXFS_HEADER_1}", "Authorization=Bearer {ISSUES_TOKEN}"]),
    ],
)
def test_headers_are_sent_and_their_values_stand_in_no_command_line(
    client: str, environment: dict[str, str], headers: list[str], make: Make
) -> None:
    path = make(client, None)
    assert run(["mcp", "install", client, "--server", "issues", "--yes"]) == 0
    new = servers_in(client, path)["issues"]
    assert new[CLIENTS[client].environment] == environment
    words: list[str] = new["command"] if client == "opencode" else new["args"]  # type: ignore[assignment]
    assert [words[n + 1] for n, word in enumerate(words) if word == "--header"] == headers
    assert new.get("env_vars") == (["ISSUES_TOKEN"] if client == "codex" else None)
    assert new.get("type") == {"claude-code": "stdio", "vscode": "stdio", "opencode": "local"}.get(client)


@pytest.mark.parametrize("client", ["claude-code", "vscode", "codex"])
def test_what_was_changed_since_stays(client: str, make: Make) -> None:
    path = make(client, None)
    assert run(["mcp", "install", client, "--server", "files", "--yes"]) == 0
    changed = {"claude-code": ("41", "42"), "vscode": ("of mine", "of ours"), "codex": ("gpt-5", "gpt-6")}[client]
    path.write_text(path.read_text().replace(*changed))
    assert run(["mcp", "install", client, "--server", "issues", "--yes"]) == 0
    assert run(["mcp", "uninstall", client, "--yes"]) == 0
    assert path.read_text() == FILES[client].replace(*changed)


def test_one_server_after_the_other_is_uninstalled_at_once(make: Make) -> None:
    path = make("cursor", None)
    for name in ("files", "issues"):
        assert run(["mcp", "install", "cursor", "--server", name, "--yes"]) == 0
    assert run(["mcp", "uninstall", "cursor", "--yes"]) == 0
    assert path.read_text() == CURSOR


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["cursr", "--all"], CURSOR, "unknown client 'cursr': did you mean 'cursor'?: use one of claude-code, "),
        (["cursor"], CURSOR, "either --server NAME or --all"),
        (["cursor", "--all", "--server", "files"], CURSOR, "either --server NAME or --all"),
        (["cursor", "--server", "file"], CURSOR, "did you mean 'files'?: the configuration names files, issues"),
        (["cursor", "--all"], '{"mcpServers": {"a": {"command": "x"}}', "not JSON: line 1, column "),
        (["cursor", "--all"], '{"mcpServers": {"a": {"command": "x"}}} x', "not JSON: line 1, column 41: more follows"),
        (["cursor", "--all"], '{"mcpServers": {"a" {}}}', "a colon is missing"),
        (["cursor", "--all"], '{"mcpServers": {1: {}}}', "the name of a field must be a text"),
        (["cursor", "--all"], '{"mcpServers": {"a": {} "b": {}}}', "a comma or } is missing"),
        (["cursor", "--all"], "[" * 100_000, "nested too deeply"),
        (["cursor", "--all"], "{}", "it has no MCP servers ('mcpServers')"),
        (["cursor", "--all"], '{"mcpServers": {"a": 1}}', "the server 'a' is not an object"),
        (["cursor", "--server", "a"], SSE, "neither a command nor a URL"),
        (["cursor", "--server", "a"], OWN, "is one of ctxfs"),
        (["codex", "--all"], "[mcp_servers.a", "not TOML: "),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_an_error_and_nothing_is_changed(
    arguments: list[str], text: str, said: str, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(arguments[0] if arguments[0] in CLIENTS else "cursor", text)
    assert run(["mcp", "install", *arguments, "--yes"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert path.read_text() == text
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_all_wraps_what_can_be_and_names_the_rest(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"url": "https://example.org/sse", "type": "sse"}
    text = json.dumps({"mcpServers": {"old": old, "files": {"command": "npx"}, "odd": {"command": 1}}})
    path = make("cursor", text)
    assert run(["mcp", "install", "cursor", "--all", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "old stays as it is: it has neither a command nor a URL for Streamable HTTP" in said
    assert "odd stays as it is" in said
    assert "files wrapped" in said
    servers = json.loads(path.read_text())["mcpServers"]
    assert servers["old"] == old
    assert servers["files"]["args"] == ["mcp", "wrap", "--", "npx"]
    assert run(["mcp", "uninstall", "cursor", "--yes"]) == 0
    assert path.read_text() == text
    only = json.dumps({"mcpServers": {"old": old}})
    path.write_text(only)
    assert run(["mcp", "install", "cursor", "--all", "--yes"]) == 0
    assert "nothing to wrap" in capsys.readouterr().out
    assert path.read_text() == only


def test_a_server_that_is_wrapped_or_lost_is_said(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    path = make("cursor", None)
    assert run(["mcp", "install", "cursor", "--server", "files", "--yes"]) == 0
    assert run(["mcp", "install", "cursor", "--server", "files", "--yes"]) == 2
    assert "'files' is wrapped already" in capsys.readouterr().err
    path.with_name("mcp.json.before-ctxfs").unlink()
    installed = path.read_bytes()
    assert run(["mcp", "uninstall", "cursor", "--yes"]) == 2
    assert "no copy has the entries of before of files: change them by hand" in capsys.readouterr().err
    assert path.read_bytes() == installed


def test_a_client_without_a_configuration_and_bytes_that_are_no_text(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("cursor", None)
    assert run(["mcp", "install", "windsurf", "--all"]) == 2
    assert "name its configuration with --file" in capsys.readouterr().err
    (tmp_path / "latin.json").write_bytes(b'{"mcpServers": {"\xe9": {}}}')
    assert run(["mcp", "install", "cursor", "--all", "--file", str(tmp_path / "latin.json")]) == 2
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("linux", ".config/Claude"),
        ("darwin", "Library/Application Support/Claude"),
        ("win32", "AppData/Roaming/Claude"),
    ],
)
def test_a_client_with_windows_has_its_configuration_where_the_system_has_it(platform: str, folder: str) -> None:
    assert CLIENTS["claude-desktop"].places(platform) == (f"{folder}/claude_desktop_config.json",)
    assert CLIENTS["cursor"].places(platform) == (".cursor/mcp.json",)
    assert len(CLIENTS["opencode"].places(platform)) == 2


def test_a_no_changes_nothing_and_a_link_stays_one(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("cursor", None)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(__import__("typer").Abort()))
    assert run(["mcp", "install", "cursor", "--all", "--file", str(link)]) == 1
    assert path.read_text() == CURSOR
    assert run(["mcp", "install", "cursor", "--all", "--file", str(link), "--yes"]) == 0
    assert link.is_symlink()
    assert CTXFS in path.read_text()


@pytest.mark.parametrize("text", ['{"a": [1, {"b": "}"}], "k": {"x": {"y": "// no comment"}}}', VSCODE])
def test_replacing_nothing_changes_nothing(text: str) -> None:
    file = JsonFile(text, "servers" if text is VSCODE else "k")
    assert file.replaced({}) == text
    assert file.restored(file.servers, text) == text


def test_an_error_of_a_file_names_it() -> None:
    with pytest.raises(ConfigError, match=r"^not JSON: line 2, column 1: "):
        JsonFile("{\n", "k")
