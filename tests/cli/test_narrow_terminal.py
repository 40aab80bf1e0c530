"""No line is wider than the terminal, whatever names and paths are in the sessions; a pipe gets whole lines."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import anyio
import pytest
from rich.cells import cell_len

from ctxfs import Context
from ctxfs.cli.app import run
from ctxfs.cli.commands import COMMANDS, SUBCOMMANDS
from ctxfs.cli.lines import short_ids, wrapped
from ctxfs.cli.output import fitting
from ctxfs.messages import AssistantMessage, ToolMessage, UserMessage
from patience import HANGS_S
from terminal import on_a_terminal
from written_session import write_session

COUNT = 40
WIDE = "日本語のとても長い名前"
TOOL = f"look_into_{'deep_' * 8}"
THREADS = [f"thread-{number:03d}-8a44-4d7e-9b1c-{number:012d}" for number in range(COUNT)]
LONG = "a-session-with-a-name-as-long-as-that-of-a-thread-of-a-framework-0123456789abcdef"
ITEM = "toolu_01ABCDEFGHJKLMNPQRSTUVWX001"
USAGE = {"input_tokens": 9_000, "output_tokens": 10}
CONTENTS = ("cat", "grep")
"""Commands that print what sessions hold, line by line: a line that is cut or broken would be another one."""
TERMINALS: Sequence[tuple[int, Mapping[str, str]]] = (
    (40, {"NO_COLOR": "1"}),
    (80, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}),
    (200, {}),
)
"""A width in columns, and what is special about the terminal."""
RUN_ALL = """
import json, sys
from ctxfs.cli.app import run
for words in json.loads(sys.argv[1]):
    print("@@@", *words, flush=True)
    run(words)
    print(flush=True)
"""
"""Run commands in one program: starting a program for each of them would take most of the time."""


async def _write(root: Path) -> None:
    for name in THREADS:
        async with Context(name, root_path=root) as context:
            await context.add(UserMessage(f"What is {WIDE} in {name}? {'Say it in a long sentence. ' * 9}"))
    async with Context(LONG, root_path=root, keep_recent={TOOL: 1}) as context:
        await context.add(UserMessage(WIDE * 20))
        for number in range(1, 4):
            await context.messages()
            call_id = f"{ITEM[:-1]}{number}"
            path = f"/{'/'.join(['a-long-directory-name', WIDE] * 4)}/file_{number}.py"
            reply = AssistantMessage(({"type": "tool_use", "id": call_id, "name": TOOL, "input": {"path": path}},))
            result = ToolMessage(call_id, TOOL, f"{WIDE} {path}\n" * 200)
            await context.add(reply, result, usage=USAGE, model="claude-sonnet-4-5")
        await context.messages()
        await context.add(AssistantMessage("That is all."))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("a-directory-with-a-long-name") / WIDE
    anyio.run(_write, root)
    return root


def commands(folder: Path) -> list[list[str]]:
    """Every command, where it has something to print, and where it has only a reason why not."""
    recording = folder / "recording.json"
    recording.write_text(json.dumps([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]))
    archive = folder / f"{'long-name-' * 8}.ctxfs"
    lines = f"""
        sessions | sessions --model none | sessions --limit 3 --sort size
        ls last | ls nosuch | ls thread | ls thread-00 --tool x | ls {LONG} --type user_message
        cat last nosuch | cat last {ITEM} --lines 1:2
        show last | show last --call 2 | show last --call 99
        diff last 1 | diff last 2 3
        grep last {WIDE} -m 1 | grep --all -l 0{WIDE} | grep last (
        explain last | explain last {ITEM} | explain last --changes | explain {recording} | explain {recording}x
        view last --export {folder}/page.html | view last --export {folder}/page.html
        restore last {ITEM} | restore last {ITEM} | undo last | pin last {ITEM} | pin last nosuch
        tag last keep | tag last --remove other
        fork {LONG} --call 2 --as {"fork-" * 14}
        du | du --by tool | du --by item | du {LONG} --by item
        check {LONG} | check --sample 5% | prune --dry-run | prune {LONG}
        forget --keep-last {COUNT - 10} --dry-run | forget --keep-last {COUNT - 2} --yes | forget nosuch
        erase {LONG} {ITEM} --yes | erase {LONG} nosuch
        doctor | doctor --model claude-sonnet-4-5
        export {LONG} {archive} | import {archive} --as {"other-" * 12} | import {archive}x
        copy {LONG} --to file://{folder}/bucket | copy nosuch --to file://{folder}/bucket
        replay {recording} | replay {recording} --policies | replay {recording}x
        ab {folder}/none.jsonl -- true | mcp install nosuch | mcp install claude-code --all --dry-run
        mcp uninstall claude-code | mcp nosuch | mcp wrap | proxy | proxy --keep-recent x -- true | chat
        nosuch | help | --version
    """
    help_of_all = [f"{name} --help" for name in (*COMMANDS, *SUBCOMMANDS)]
    return [words.split() for line in (*lines.strip().splitlines(), *help_of_all) for words in line.split(" | ")]


def shown(words: Sequence[Sequence[str]], columns: int, root: Path, home: Path, **variables: str) -> Iterator[str]:
    """The lines that a terminal of this width gets; each begins with its command."""
    environment = {**os.environ, "HOME": str(home), "CTXFS_ROOT": str(root), "CTXFS_PAGER": "", "TERM": "xterm"}
    printed = on_a_terminal(
        [sys.executable, "-c", RUN_ALL, json.dumps(words)],
        {**environment, **variables},
        columns=columns,
        with_stderr=True,
    )
    if "NO_COLOR" in variables:
        assert re.findall(r"\x1b\[(?:3\d|9\d|[\d;]*[34]8;)[\d;]*m.*", printed) == []  # bold is no colour
    assert printed.isascii() or "PYTHONIOENCODING" not in variables
    command = ""
    for line in printed.split("\n"):
        plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line).split("\r")[-1].rstrip()
        if plain.startswith("@@@ "):
            command = plain[4:]
        else:
            assert not plain.startswith("Traceback"), command
            yield f"{command}\0{plain}"


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.parametrize(("columns", "variables"), TERMINALS)
def test_no_line_is_wider_than_the_terminal(
    root: Path, tmp_path: Path, columns: int, variables: Mapping[str, str]
) -> None:
    copy, folder = tmp_path / root.name, tmp_path / "folder"
    shutil.copytree(root, copy, copy_function=shutil.copy2)
    folder.mkdir()
    told = commands(folder)
    assert {*COMMANDS} - {words[0] for words in told} == set()
    if columns == 80:
        told.append(["demo"])
    wide = []
    widest = 0
    for line in shown(told, columns, copy, tmp_path, **variables):
        command, _, text = line.partition("\0")
        is_content = command.split()[0] in CONTENTS
        is_one_word = len(text.removeprefix("session ").split()) == 1  # a path, which a user copies
        is_command = text.strip().removeprefix("next ").strip().startswith("ctxfs ")  # so is one
        widest = max(widest, cell_len(text))
        if cell_len(text) > columns and not (is_content or is_one_word or is_command):
            wide.append((command, text))
    assert wide == []
    assert widest > 0.9 * columns, "the room is used"


@pytest.mark.service
@pytest.mark.slow
def test_in_a_pipe_a_line_is_whole_whatever_the_width_of_a_terminal(root: Path, tmp_path: Path) -> None:
    """Of every command. Help, which is a page of text, has one width."""
    copy, folder = tmp_path / root.name, tmp_path / "folder"
    folder.mkdir()
    program = [sys.executable, "-c", RUN_ALL, json.dumps(commands(folder))]

    def piped(**variables: str) -> list[str]:
        for made in (copy, folder):
            shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(root, copy, copy_function=shutil.copy2)
        folder.mkdir()
        commands(folder)
        environment = {**os.environ, "HOME": str(tmp_path), "CTXFS_ROOT": str(copy), **variables}
        done = subprocess.run(program, env=environment, capture_output=True, check=True, timeout=HANGS_S)
        assert b"\x1b[" not in done.stdout
        return re.sub(r"(s|min|h) ago|\d[\d.,]*| +", " ", done.stdout.decode()).splitlines()  # times differ

    assert piped(COLUMNS="40", LINES="5") == piped()


@pytest.mark.service
@pytest.mark.slow
def test_lists_name_sessions_by_what_can_be_typed(root: Path, tmp_path: Path) -> None:
    listed = [line.partition("\0")[2] for line in shown([["sessions"]], 80, root, tmp_path)]
    names = [line.split()[0] for line in listed if line.startswith("thread-")]
    assert len(names) == COUNT
    assert f"{THREADS[7][:10]}…" in names
    for typed in (f"{THREADS[7][:10]}…", THREADS[7][:10]):
        assert run(["tag", typed, "--root", str(root)]) == 0


@pytest.mark.slow
def test_items_are_named_by_their_beginnings_in_every_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_session(tmp_path, *(f"{start} line\n" * 300 for start in "abc"))
    where = ["--root", str(tmp_path)]
    for words in (
        ["cat", "last", "msg_001…"],
        ["pin", "last", "msg_001…"],
        ["pin", "last", "msg_001"],
        ["restore", "last", "call_001…"],
        ["erase", "last", "call_001…", "--dry-run"],
    ):
        assert run([*words, *where]) == 0, capfd.readouterr().err
    assert run(["pin", "last", "call_", *where]) == 2
    assert "is the beginning of 3 items" in capfd.readouterr().err
    assert run(["restore", "last", "nosuch", *where]) == 2
    assert "nosuch" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["short", "other"], ["short", "other"]),
        (["3f6d2c1e-8a44-4d7e-9b1c-1", "a1b2c3d4-8a44-4d7e-9b1c-1"], ["3f6d2c1e…", "a1b2c3d4…"]),
        (["thread-of-a-user-1", "thread-of-a-user-2"], ["thread-of-a-user-1", "thread-of-a-user-2"]),
        (["thread-of-user-1-and-more", "thread-of-user-2-and-more"], ["thread-of-user-1…", "thread-of-user-2…"]),
        (
            ["begins-another-session", "begins-another-session-2"],
            ["begins-another-session", "begins-another-session-2"],
        ),
        ([], []),
    ],
)
def test_a_short_id_is_one_that_only_it_begins_with(ids: list[str], expected: list[str]) -> None:
    names = short_ids(ids, whole_chars=12)
    assert [names[one] for one in ids] == expected
    for one, other in product(ids, repeat=2):
        assert one == other or not other.startswith(names[one].removesuffix("…")) or names[one] == one


def test_a_line_is_broken_at_spaces_and_a_path_stays_whole() -> None:
    assert wrapped("one two three", 7) == "one two\nthree"
    assert wrapped("see /a/very/long/path now", 8) == "see\n/a/very/long/path\nnow"
    assert wrapped("  two  spaces stay", 80) == "  two  spaces stay"
    assert wrapped("name  text that goes on", 12, indent="      ") == "name  text\n      that\n      goes\n      on"
    assert wrapped("", 10) == ""


def test_columns_that_do_not_fit_are_cut_or_left_out() -> None:
    assert fitting([10, 5, 8], [20, 80, 80], 80) == [10, 5, 8]
    assert fitting([90, 16, 7], [20, 20, 80], 80) == [20, 16, 7]
    assert fitting([90, 5, 60], [20, 80, 20], 80) == [20, 5, 51]
    assert fitting([12, 30, 30], [15, 60, 60], 60) == [12, 30]
    assert fitting([30, 16, 7, 8], [40, 20, 80, 80], 60) == [30, 16, 7], "an id is typed"
    assert fitting([12, 44, 30], [15, 60, 15], 60) == [12, 44]
