"""What a user of a terminal and of pipes relies on: examples in the help, a pager, and no noise when a pipe closes."""

import os
import shlex
import subprocess
import sys
from json import loads
from pathlib import Path
from typing import Any

import pytest
import typer

from ctxfs.cli.app import app, run
from ctxfs.cli.commands import COMMANDS, SUBCOMMANDS
from patience import HANGS_S
from terminal import on_a_terminal as shown_on_a_terminal
from written_session import write_session

pytestmark = pytest.mark.service

CTXFS = [sys.executable, "-c", "import sys; from ctxfs.cli import main; sys.argv[0] = 'ctxfs'; main()"]
GROUP: Any = typer.main.get_command(app)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    write_session(root, *("".join(f"{start}: line {n}\n" for n in range(1, 200)) for start in "abc"), "wide " * 60)
    return root


def on_a_terminal(*arguments: object, columns: int = 80, **environment: str) -> str:
    """What a terminal shows of a command of ctxfs."""
    return shown_on_a_terminal([*CTXFS, *map(str, arguments)], {**os.environ, **environment}, columns=columns)


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
def test_the_help_of_every_command_has_examples_that_are_right(name: str) -> None:
    examples = {**COMMANDS, **SUBCOMMANDS}[name].examples
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])[1:]
        command, arguments = words[: len(name.split())], words[len(name.split()) :]
        assert command == name.split()
        GROUP.commands[name].make_context(name, arguments)  # wrong ones are refused


def test_a_person_finds_a_session_by_its_first_question(root: Path) -> None:
    asked = loads(subprocess.check_output([*CTXFS, "sessions", "--root", root, "--json"]))[0]["title"]
    assert asked
    assert asked in on_a_terminal("sessions", "--root", root, columns=200, CTXFS_PAGER="")
    assert asked in on_a_terminal("sessions", "--root", root, columns=200, CTXFS_PAGER="tee"), "a pager has its width"
    assert asked in on_a_terminal("sessions", "--root", root, COLUMNS="200", CTXFS_PAGER="")
    header = on_a_terminal("sessions", "--root", root, columns=40, CTXFS_PAGER="").partition("\n")[0]
    assert "size" in header
    assert "question" not in header, "figures and ids come first"
    assert asked.encode() not in subprocess.check_output([*CTXFS, "sessions", "--root", root])


def test_long_output_goes_through_a_pager_on_a_terminal(root: Path) -> None:
    shown = on_a_terminal("ls", "last", "--root", root, CTXFS_PAGER="sed s/^/paged:/")
    lines = shown.splitlines()
    assert lines
    assert all(line.startswith("paged:") for line in lines)
    assert "a.txt" not in on_a_terminal("--version", CTXFS_PAGER="sed s/^/paged:/")


@pytest.mark.parametrize("pager", ["", "cat", "no-such-pager", "unbalanced '"])
def test_without_a_pager_the_terminal_gets_it_all(root: Path, pager: str) -> None:
    shown = on_a_terminal("ls", "last", "--root", root, CTXFS_PAGER=pager)
    assert "paged:" not in shown
    assert "item" in shown


def test_what_goes_through_the_pager_is_as_harmless_as_on_the_terminal(root: Path, tmp_path: Path) -> None:
    write_session(tmp_path, "\x1b]0;owned\x07\n" * 50)
    shown = on_a_terminal("grep", "last", "owned", "--root", tmp_path, CTXFS_PAGER="tr a-z A-Z")
    assert "\x1b" not in shown
    assert "OWNED" in shown


def test_leaving_the_pager_early_is_no_error(root: Path) -> None:
    assert on_a_terminal("cat", "last", "call_001", "--root", root, CTXFS_PAGER="true") == ""


@pytest.mark.parametrize("command", ["ls", "explain", "cat"])
def test_a_closed_pipe_is_no_error(root: Path, command: str) -> None:
    item = ["call_001"] if command == "cat" else []
    process = subprocess.Popen(
        [*CTXFS, command, "last", *item, "--root", root], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=HANGS_S)
    assert (process.returncode, said) == (0, b"")


def test_a_missing_session_says_where_it_was_looked_for(capfd: pytest.CaptureFixture[str], root: Path) -> None:
    assert run(["ls", "nosuch", "--root", str(root)]) == 2
    said = capfd.readouterr().err
    assert str(root) in said
    assert "--root" in said


def test_help_on_a_terminal_of_hardly_any_columns_breaks_no_word() -> None:
    shown = on_a_terminal("grep", "--help", columns=2)
    assert "--ignore-case" in shown
    assert max(map(len, shown.splitlines())) < 80
