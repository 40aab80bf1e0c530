"""What the commands print when an option has no effect, nothing matches, or there is only one of something."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.cleanup import erase_plan
from ctxfs.cli.app import run
from ctxfs.context import Context
from ctxfs.testing import ScriptedModel, ToolCall
from ctxfs.testing.scripted import Turn

Run = Callable[..., tuple[int, str, str]]


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return f"{place}\n" + "a line of the output\n" * 400


async def make(root: Path, session_id: str = "s", places: str = "ab") -> None:
    turns: list[Turn] = [*([ToolCall("look", {"place": place})] for place in places), "done"]
    config = AgentConfig(offload_root_path=root, session_id=session_id, tools=[look])
    async with Agent(ScriptedModel(turns), config) as agent:
        await agent.query("Look around")


@pytest.fixture
def ctxfs(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    anyio.run(make, tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run([*arguments, "--root", str(tmp_path)])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("du", "last", "--by", "session"), "leave out SESSION"),
        (("check", "--seed", "3"), "add --sample"),
        (("grep", "last", "-l", "-c", "line"), "use one of them"),
        (("show", "last", "--request", "--full"), "leave out --last and --full"),
        (("forget",), "--keep-last 20"),
        (("cat", "s", "nope"), "`ctxfs ls SESSION`"),
        (("doctor", "--store", "bad"), "use one of file://, s3://"),
        (("doctor", "--store", "ftp://host"), "use one of file://, s3://"),
        (("explain", str(Path(__file__).parent)), "is a folder: name one file in it"),
        (("--root", "x", "ls", "last"), "--root goes after the command"),
    ],
)
def test_wrong_use_says_what_to_do(ctxfs: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("option", ["--tool=nosuch", "--place=archive"])
def test_a_list_without_a_match_says_so(ctxfs: Run, option: str) -> None:
    assert ctxfs("ls", "s", option) == (0, "", "none of the 6 items matches\n")


def test_a_tag_that_is_not_there_is_named(ctxfs: Run) -> None:
    assert ctxfs("tag", "s", "--remove", "nosuch") == (0, "s: no tags\n", "s has no tag 'nosuch'\n")
    ctxfs("tag", "s", "kept")
    assert ctxfs("tag", "s", "--remove", "kept") == (0, "s: no tags\n", "")


def test_a_session_that_is_named_twice_counts_once(ctxfs: Run) -> None:
    assert "from 1 session\n" in ctxfs("prune", "last", "s", "--dry-run")[1]


def test_one_of_something_is_singular(ctxfs: Run, tmp_path: Path) -> None:
    anyio.run(make, tmp_path, "one", "a")
    assert "one: 1 content (" in ctxfs("verify", "one")[1]
    assert "1 of 1 content checked" in ctxfs("check", "one")[1]
    assert "1 eviction freed" in ctxfs("explain", "s")[1]
    assert "the sessions fit in 1 byte\n" in ctxfs("forget", "--max-size", "1", "--dry-run")[1]


def test_history_offers_no_undo_for_what_is_back(ctxfs: Run) -> None:
    assert "change_1" in ctxfs("history", "s")[1]
    assert ctxfs("restore", "s", "call_001")[0] == 0
    assert "change_1" not in ctxfs("history", "s")[1]
    assert ctxfs("undo", "s")[0] != 0


def test_many_items_that_quote_an_erased_one_take_two_lines(ctxfs: Run, tmp_path: Path) -> None:
    async def quote() -> tuple[str, ...]:
        async with Context("quotes", root_path=tmp_path) as context:
            await context.add(*({"role": "user", "content": f"{n}\nmy password is hunter2-and-more"} for n in range(9)))
        return (await erase_plan("quotes", ["msg_001"], root_path=tmp_path)).quoted_in

    assert len(anyio.run(quote)) == 8
    _, out, _ = ctxfs("erase", "quotes", "msg_001", "--dry-run")
    assert "8 others quote it, and stay: erase them too if they have to go:\n" in out
    assert "  msg_002, msg_003, msg_004, msg_005 and 4 more (--json lists all)\n" in out


def test_80_columns_show_whole_paths_and_reasons(ctxfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = ctxfs("ls", "s")[1]
    assert "tool_result/look/call_001.json" in listed
    assert "…" not in listed
    for command in (("explain", "s"), ("history", "s"), ("diff", "s", "2", "3")):
        shown = ctxfs(*command)[1]
        assert "\n(1) look keeps its last 1" in shown or "\n(2) look keeps its last 1" in shown
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
def test_the_next_commands_of_the_demo_can_be_started(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("A project.\n")
    names = {"HOME": str(tmp_path), "PATH": "", "CTXFS_STORE": "memory://elsewhere", "COLUMNS": "200"}
    program = Path(sys.executable).with_name("ctxfs")
    done = subprocess.run(
        [program, "demo", tmp_path / "project"], env=names, check=True, capture_output=True, text=True
    )
    command = f"{program} ls last --root {tmp_path}/.agent/context"
    assert f"{command}\n" in done.stdout
    subprocess.run(shlex.split(command), env=names, check=True, capture_output=True)
