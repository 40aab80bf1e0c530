"""What holds for every command: JSON where it prints data, no noise when a pipe closes, sessions where they are."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from ctxfs.cli.app import app, run
from ctxfs.cli.commands import COMMANDS
from ctxfs.testing import ChatCompletionsServer
from written_session import write_session

pytestmark = pytest.mark.slow

GROUP: Any = typer.main.get_command(app)
WITHOUT_JSON = {
    "view": "serves a page, or writes one to a file",
    "mcp": "speaks a protocol on standard output",
    "proxy": "leaves standard output to the program that it runs",
}
WITHOUT_ROOT = {
    "replay": "reads recordings",
    "ab": "keeps results in a file",
}
SERVERS = ("mcp", "proxy")
ONCE = ("demo",)
"""What plays for ten seconds: ``cli.test_process`` has the JSON of one run, which finds its root by the environment."""
CODES = {"ab": 1}
"""The exit codes that are not 0: the command that `ab` is given here sends no request, so that nothing is played."""
ARGUMENTS: Mapping[str, str] = {
    "demo": "",
    "chat": "Hello --model gpt-4o --base-url {url}",
    "sessions": "",
    "ls": "last",
    "show": "last",
    "diff": "last 1",
    "restore": "last call_001",
    "undo": "last",
    "pin": "last msg_001",
    "fork": "last --call 1",
    "cat": "last call_001",
    "grep": "last line",
    "explain": "last",
    "view": "last --export {folder}/page.html",
    "replay": "{folder}/recording.json --policy none",
    "ab": "--json {folder}/tasks.jsonl -- true",
    "check": "",
    "du": "",
    "tag": "last keep",
    "forget": "--keep-last 5",
    "prune": "",
    "erase": "last call_001 --yes",
    "export": "last {folder}/new.ctxfs",
    "import": "{folder}/old.ctxfs --as other",
    "copy": "last --to {bucket}",
    "doctor": "",
}
MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a session, and one of files that commands read."""
    made = tmp_path_factory.mktemp("made")
    (made / "folder").mkdir()
    write_session(made / "root", *("".join(f"{start} line {n}\n" for n in range(1, 300)) for start in "abcd"))
    root = ["--root", str(made / "root")]
    for name in ("recording.json", "recording_2.json"):
        (made / "folder" / name).write_text(json.dumps(MESSAGES))
    (made / "folder" / "tasks.jsonl").write_text(json.dumps({"id": "a", "prompt": "do it", "check": "true"}))
    assert run(["export", "last", str(made / "folder" / "old.ctxfs"), *root]) == 0
    return made


@pytest.fixture
def values(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    """What the arguments name; the session is where ``CTXFS_ROOT`` says, and nothing is where it would be else."""
    shutil.copytree(made, tmp_path / "made", copy_function=shutil.copy2)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CTXFS_ROOT", str(tmp_path / "made" / "root"))
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with ChatCompletionsServer(["Hello."]) as server:
        folder = tmp_path / "made" / "folder"
        yield {"folder": str(folder), "url": server.url, "bucket": f"file://{tmp_path / 'made' / 'bucket'}"}
    assert list((tmp_path / "home").rglob("journal*")) == []


def arguments(name: str, values: Mapping[str, str]) -> list[str]:
    return [name, *(word.format_map(values) for word in ARGUMENTS[name].split())]


def options(name: str) -> Mapping[str, Any]:
    return {option: param for param in GROUP.commands[name].params for option in param.opts}


def test_no_command_is_forgotten_here() -> None:
    assert set(ARGUMENTS) | set(SERVERS) == set(COMMANDS)


def test_every_command_that_prints_data_prints_json() -> None:
    assert {name for name in COMMANDS if "--json" not in options(name)} == set(WITHOUT_JSON)


def test_every_command_of_sessions_finds_them_by_the_environment() -> None:
    by_name = {name: options(name).get("--root") for name in COMMANDS}
    assert {name for name, root in by_name.items() if root is None} == set(WITHOUT_ROOT)
    assert {root.envvar for root in by_name.values() if root is not None} == {"CTXFS_ROOT"}


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {*WITHOUT_ROOT}))
def test_no_command_takes_an_option_for_the_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([name, "--root", "--help"]) == 2
    assert "--root needs a value before --help" in capfd.readouterr().err
    assert run([name, "--help", "--", "--root", "--help"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.service
@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in ONCE])
def test_every_command_follows_the_environment_and_its_json_is_json(
    name: str, values: Mapping[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    given = arguments(name, values)
    capfdbinary.readouterr()
    code = run(given if name in WITHOUT_JSON else [*given, "--json"])
    out, err = capfdbinary.readouterr()
    assert code == CODES.get(name, 0), err.decode()
    if name not in WITHOUT_JSON:
        assert out.endswith(b"\n")
        for document in out.splitlines() if name == "chat" else [out]:
            json.loads(document)


@pytest.mark.service
@pytest.mark.usefixtures("loop_may_block")  # where a test writes to a pipe, a command writes to its stdout
@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in ARGUMENTS
        for form in ((), ("--json",))
        if not form or name not in (*WITHOUT_JSON, *ONCE)
    ],
)
def test_a_closed_pipe_is_no_error_of_any_command(
    name: str, form: tuple[str, ...], values: Mapping[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    given = [*arguments(name, values), *form]
    capfd.readouterr()
    reader, writer = os.pipe()
    os.close(reader)
    out = io.TextIOWrapper(os.fdopen(writer, "wb"), encoding="utf-8")
    with contextlib.closing(out), contextlib.redirect_stdout(out):
        assert run(given) == 0
    assert "Traceback" not in capfd.readouterr().err
