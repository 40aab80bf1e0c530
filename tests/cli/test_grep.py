"""``ctxfs grep`` in one session and in all, with ripgrep's options."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.cli import grep as grep_command
from ctxfs.cli.app import run
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.search import LinesOfContent, Query, Row
from terminal import on_a_terminal

LINES = [f"line {n} {'ERROR port 8080' if n % 10 == 0 else 'fine'}" for n in range(1, 31)]


@tool("A log", ephemeral=1)
def log() -> str:
    return "\n".join(LINES) + "\n"


@tool("Bytes")
def raw() -> bytes:
    return b"caf\xe9 ERROR\n"


async def _make(root: Path) -> None:
    async with Agent(
        ScriptedModel([[ToolCall("log", {}), ToolCall("raw", {})], [ToolCall("log", {})], "done"]),
        AgentConfig(tools=[log, raw], offload_root_path=root, session_id="s1"),
    ) as agent:
        await agent.query("Is there an ERROR?")
    async with Context(session_id="s2", root_path=root) as context:
        await context.add({"role": "user", "content": "an error.\nErrors (many)\nERROR\n"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("root")
    anyio.run(_make, made)
    return made


Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def grep(capfdbinary: pytest.CaptureFixture[bytes], root: Path) -> Run:
    def call(*arguments: str, of: Path = root) -> tuple[int, list[str], str]:
        capfdbinary.readouterr()
        code = run(["grep", *arguments, "--root", str(of)])
        out, err = capfdbinary.readouterr()
        return code, out.decode("latin-1").splitlines(), err.decode()

    return call


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-i", "error"], ["1:an error.", "2:Errors (many)", "3:ERROR"]),
        (["-F", "error."], ["1:an error."]),
        (["-F", "(many)"], ["2:Errors (many)"]),
        (["-wi", "error"], ["1:an error.", "3:ERROR"]),
        (["-v", "ERROR"], ["1:an error.", "2:Errors (many)"]),
        (["-N", "ERROR"], ["ERROR"]),
        (["-c", "-i", "error"], ["3"]),
        (["-m1", "-i", "error"], ["1:an error."]),
        (["-n", "-A1", "^an"], ["1:an error.", "2-Errors (many)"]),
        (["-B", "1", "^ERROR"], ["2-Errors (many)", "3:ERROR"]),
        (["-C1", "many"], ["1-an error.", "2:Errors (many)", "3-ERROR"]),
    ],
    ids=" ".join,
)
def test_the_options_are_ripgreps(grep: Run, options: list[str], expected: list[str]) -> None:
    code, lines, _ = grep("s2", *options)
    assert code == 0
    assert [line.removeprefix("msg_001")[1:] for line in lines] == expected


def test_only_the_items_that_match(grep: Run) -> None:
    assert grep("s1", "-l", "ERROR")[1] == ["msg_001", "call_001", "call_002", "call_003"]
    assert grep("s1", "-l", "ERROR", "--type", "tool_result", "--tool", "l*")[1] == ["call_001", "call_003"]
    assert grep("s1", "-l", "ERROR", "-t", "user_message")[1] == ["msg_001"]
    assert grep("s1", "ERROR", "--tool", "other")[0] == 1


def test_groups_of_lines_are_separated(grep: Run) -> None:
    _, lines, _ = grep("s1", "--item", "call_001", "-A1", "ERROR")
    assert lines == [
        *("call_001:10:line 10 ERROR port 8080", "call_001-11-line 11 fine", "--"),
        *("call_001:20:line 20 ERROR port 8080", "call_001-21-line 21 fine", "--"),
        "call_001:30:line 30 ERROR port 8080",
    ]


@pytest.fixture(params=["in this process", "on two processes"])
def processes(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Path:
    """The sessions, or so many that processes are started."""
    if request.param == "in this process":
        return root
    anyio.run(_make, tmp_path)
    for n in range(grep_command.MANY_SESSIONS):
        (tmp_path / f"empty{n:03}").mkdir(mode=0o700)
        (tmp_path / f"empty{n:03}" / "journal.jsonl").touch()
    return tmp_path


@pytest.mark.service
def test_all_sessions_are_searched_the_newest_first(grep: Run, processes: Path) -> None:
    code, lines, said = grep("--all", "^(line 10|an|ERROR$)", of=processes)
    assert code == 0, said
    assert lines == [
        *("s2:msg_001:1:an error.", "s2:msg_001:3:ERROR"),
        *("s1:call_001:10:line 10 ERROR port 8080", "s1:call_003:10:line 10 ERROR port 8080"),
    ]
    assert grep("--all", "nowhere to be found", of=processes)[0] == 1
    assert grep("--all", "-c", "port", of=processes)[1] == ["s1:call_001:3", "s1:call_003:3"]


@pytest.mark.service
def test_the_json_of_all_is_ripgreps(grep: Run, processes: Path) -> None:
    code, lines, _ = grep("--all", "--json", "-B1", "caf|many", of=processes)
    assert code == 0
    objects = [json.loads(line) for line in lines]
    assert [found["type"] for found in objects] == ["begin", "context", "match", "end", "begin", "match", "end"]
    match = objects[2]["data"]
    assert match["path"] == {"text": "s2/msg_001"}
    assert (match["session_id"], match["item_id"], match["line_number"]) == ("s2", "msg_001", 2)
    assert match["lines"] == {"text": "Errors (many)\n"}
    assert match["absolute_offset"] == len("an error.\n")
    assert match["submatches"] == [{"match": {"text": "many"}, "start": 8, "end": 12}]
    assert objects[3]["data"]["stats"] == {"matched_lines": 1}
    assert base64.b64decode(objects[5]["data"]["lines"]["bytes"]) == b"caf\xe9 ERROR\n"


def test_the_json_of_one_session_is_a_list_of_matches(grep: Run) -> None:
    _, lines, _ = grep("s2", "--json", "-C1", "many")
    assert json.loads(lines[0]) == [{"item_id": "msg_001", "line": 2, "text": "Errors (many)"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ERROR"], "SESSION"),
        (["s1", "ERROR", "--all"], "--all"),
        (["s1", "(", "--json"], "RE2"),
        (["s1", "a", "--json", "-c"], "--json"),
        (["s1", "a", "--since", "7d"], "--all"),
        (["--all", "a", "--item", "x"], "--item"),
        (["--all", "("], "RE2"),
        (["s1", "a", "--type", "other"], "other"),
        (["nosuch", "a"], "nosuch"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_wrong_use_is_refused(grep: Run, arguments: list[str], said: str) -> None:
    code, lines, error = grep(*arguments)
    assert (code, lines) == (2, [])
    assert said in error


def test_a_damaged_session_is_named_and_the_others_are_searched(grep: Run, tmp_path: Path) -> None:
    anyio.run(_make, tmp_path)
    (tmp_path / "s1").chmod(0o777)
    code, lines, said = grep("--all", "-l", "ERROR", of=tmp_path)
    assert (code, lines) == (1, ["s2:msg_001"])
    assert "s1" in said


@pytest.mark.slow
def test_a_root_that_was_never_listed_is_searched_before_it_is(tmp_path: Path) -> None:
    anyio.run(_make, tmp_path)
    (tmp_path / "s2" / "journal.jsonl").touch()  # the newest
    next((tmp_path / "s1" / "tool_result").glob("log/*")).unlink()
    command = [sys.executable, "-m", "ctxfs", "grep", "--all", "Errors", "--root", str(tmp_path)]
    first = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (first.returncode, first.stdout.splitlines()[0]) == (1, "s2:msg_001:2:Errors (many)")
    assert "session s1" in first.stdout, "what it has lost might have matched"
    os.utime(tmp_path / "s1" / "journal.jsonl")
    again = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert "session s1" in again.stdout.splitlines()[0], "by now they are listed, and s1 is known"
    assert sorted(first.stdout.splitlines()) == sorted(again.stdout.splitlines())


@pytest.mark.service
@pytest.mark.parametrize("pager", ["", "cat -u"], ids=["no pager", "a pager"])
def test_a_terminal_shows_how_far_the_search_is(processes: Path, pager: str) -> None:
    command = [sys.executable, "-m", "ctxfs", "grep", "--all", "Errors", "--root", str(processes)]
    shown = on_a_terminal(command, os.environ | {"CTXFS_PAGER": pager, "TERM": "dumb"}, with_stderr=True)
    is_large = len(list(processes.glob("empty*"))) > 0
    assert ("searching 102 sessions: 100%" in shown) == (is_large and not pager)
    assert "s2:msg_001:2:Errors (many)\n" in shown


@pytest.mark.service
def test_a_reader_that_leaves_ends_the_search(processes: Path) -> None:
    code = "import sys; from ctxfs.cli import main; main()"
    command = [sys.executable, "-c", code, "grep", "--all", "", "--root", str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


@given(
    lines=st.lists(st.text(alphabet="ab\r", max_size=3), max_size=12),
    size=st.integers(1, 5),
    invert=st.booleans(),
    before=st.integers(0, 2),
    after=st.integers(0, 2),
    most=st.none() | st.integers(1, 3),
)
def test_lines_around_are_those_of_a_plain_search(  # noqa: PLR0917 - of hypothesis
    lines: list[str], size: int, invert: bool, before: int, after: int, most: int | None
) -> None:
    query = Query(pattern="a", invert=invert, before=before, after=after, max_count=most)
    search = LinesOfContent(query, query.compiled(CpuBudget(None)))
    data = [f"{line}\n".encode() for line in lines]
    rows: list[Row] = []
    for start in range(0, len(data), size):
        rows += search.feed(b"".join(data[start : start + size]))
    wanted = [n for n, line in enumerate(lines) if ("a" in line) is not invert][:most]
    shown = {n for found in wanted for n in range(found - before, found + after + 1) if 0 <= n < len(lines)}
    assert [(row.number - 1, row.matches) for row in rows] == [(n, n in wanted) for n in sorted(shown)]
    assert all(row.text == data[row.number - 1] for row in rows)
    assert all(row.offset == len(b"".join(data[: row.number - 1])) for row in rows)
    assert search.found == len(wanted)
    for earlier, row in pairwise(rows):
        assert row.after_gap == (row.number > earlier.number + 1 and bool(before or after))


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=12))
def test_plain_text_is_found_as_it_is(text: str) -> None:
    query = Query(pattern=text, fixed=True)
    search = LinesOfContent(query, query.compiled(CpuBudget(None)))
    assert len(list(search.feed(f"x{text}y\n".encode()))) == 1
    other: Any = re.sub(".", "_", text)
    if text not in other:
        assert not list(search.feed(other.encode()))
