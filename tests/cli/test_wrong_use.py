"""What the commands print when an option has no effect, nothing matches, or there is only one of something."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.cli.app import run
from ctxfs.cli.commands import COMMANDS, REPLACED
from ctxfs.cli.options import moment
from ctxfs.context import Context
from ctxfs.errors import ConfigError
from ctxfs.lab.recordings.discover import recordings_in
from ctxfs.lab.replay.policies import policy_named
from ctxfs.messages import ToolCall
from ctxfs.messages.rates import ANTHROPIC_RATES
from ctxfs.session import erase_plan
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from terminal import on_a_terminal

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
        (("cat", "s", "nope"), "no item 'nope' in this session: list the items (`ctxfs ls s`)"),
        (("cat", "s", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("explain", "s", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("pin", "s", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("restore", "s", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("erase", "s", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("grep", "s", "line", "--item", "mgs_001"), "did you mean 'msg_001'? list the items (`ctxfs ls s`)"),
        (("show", "last", "msg_001"), "unexpected msg_001: `ctxfs cat last ITEM` prints an item, and `ctxfs explain"),
        (("ls", "s", "msg_001"), "unexpected msg_001: `ctxfs cat s ITEM` prints an item"),
        (("cat", "s", "msg_001", "1:2", "x"), "unexpected 1:2 x: `ctxfs cat` takes SESSION ITEM"),
        (("doctor", "x"), "unexpected x: `ctxfs doctor` takes options only: see `ctxfs doctor --help`"),
        (("mcp", "serve"), "no such command 'mcp serve': use `ctxfs mcp SESSION`, or for a session of that name"),
        (("forget", "--keep-within", "30d"), "no such option: --keep-within: give --older-than"),
        (("doctor", "--store", "bad"), "use one of file://, s3://"),
        (("doctor", "--store", "ftp://host"), "use one of file://, s3://"),
        (("explain", str(Path(__file__).parent)), "is a folder: name one file in it"),
        (("--root", "x", "ls", "last"), "--root goes after the command"),
        (("rm", "s"), "no such command 'rm': use `ctxfs forget`: see"),
        (("verify", "--help"), "no such command 'verify': use `ctxfs check`: see"),
        (("ls",), "SESSION is missing: `ctxfs sessions` lists them, and 'last' is the newest"),
        (("cat", "s"), "ITEM is missing: `ctxfs ls s` lists them"),
        (("show", "s", "--call", "0"), "'--call': use 1 or more: see"),
        (("sessions", "-n", "few"), "'-n': use a whole number: see"),
        (("view", "--port", "99999"), "'--port': use 65535 or less: see"),
        (("sessions", "--since", "noon"), "2026-11-23 or yesterday"),
        (("export", "s"), "FILE is missing: see"),
        (("grep", "--all"), "PATTERN is missing: see"),
        (("ls", "s", "--jsn"), "no such option: --jsn: did you mean --json?: see"),
        (("replay", "--format", "x", "f"), "no such option: --format: see"),
        (
            ("proxy", "codex", "-c", "x"),
            "an option of the program goes after --, as in `ctxfs proxy -- COMMAND …`: see",
        ),
        (("proxy", "--nosuch", "--", "codex"), "no such option: --nosuch: see"),
        (("mcp", "wrap", "npx", "-y", "x"), "goes after --, as in `ctxfs mcp wrap -- SERVER …`: see"),
        (("proxy", "codex", "--windo", "9"), "no such option: --windo: did you mean --window?: see"),
        (("forget", "s", "--keep-last", "0"), "give forget sessions or rules, not both"),
    ],
)
def test_wrong_use_says_what_to_do(ctxfs: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_command_that_is_gone_is_answered_with_one_that_is_there() -> None:
    assert not REPLACED.keys() & COMMANDS.keys()
    assert {new.split()[0] for new in REPLACED.values()} <= COMMANDS.keys()


@pytest.mark.parametrize("answer", ["", "n\n"])
def test_a_question_that_is_not_agreed_to_has_its_own_line(
    ctxfs: Run, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, _, err = ctxfs("forget", "s")
    assert code == 1
    question, said = err.splitlines()
    assert question.startswith("Remove 1 session")
    assert said == "ctxfs: nothing was done"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("arguments", [("mcp", "nosuch"), ("mcp", "--claude-code", "--query")])
def test_a_server_that_is_refused_does_not_say_that_it_waits(
    ctxfs: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    code, _, err = ctxfs(*arguments)
    assert code == 2
    assert "waits" not in err


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
    assert "one: 1 of 1 content checked" in ctxfs("check", "one")[1]
    assert "1 eviction freed" in ctxfs("explain", "s")[1]
    assert "the sessions fit in 1 byte\n" in ctxfs("forget", "--max-size", "1", "--dry-run")[1]


def test_history_offers_no_undo_for_what_is_back(ctxfs: Run) -> None:
    assert "change_1" in ctxfs("explain", "s", "--changes")[1]
    assert ctxfs("restore", "s", "call_001")[0] == 0
    assert "change_1" not in ctxfs("explain", "s", "--changes")[1]
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


@pytest.mark.service
def test_reasons_that_have_no_room_in_a_table_stand_below_it(ctxfs: Run, tmp_path: Path) -> None:
    listed = ctxfs("ls", "s")[1]
    assert "tool_result/look/call_001.json" in listed
    assert "…" not in listed
    for command in (("explain", "s"), ("explain", "s", "--changes"), ("diff", "s", "2", "3")):
        words = [sys.executable, "-m", "ctxfs", *command, "--root", str(tmp_path)]
        shown = on_a_terminal(words, {**os.environ, "CTXFS_PAGER": ""})
        assert "\n(1) look keeps its last 1" in shown or "\n(2) look keeps its last 1" in shown
        assert any("  look keeps its last 1" in line for line in ctxfs(*command)[1].splitlines())


COMMANDS_ON_SESSIONS = (
    *(
        ("sessions",),
        ("ls", "last"),
        ("show", "last"),
        ("diff", "last", "1"),
        ("explain", "last", "--changes"),
        ("cat", "last", "x"),
    ),
    *(
        ("restore", "last", "x"),
        ("undo", "last"),
        ("pin", "last", "x"),
        ("pin", "last", "x", "--off"),
        ("fork", "last"),
    ),
    *(
        ("cat", "last", "x", "--tail", "1"),
        ("grep", "last", "x"),
        ("grep", "--all", "x"),
        ("explain", "last"),
        ("view", "last"),
    ),
    *(("mcp", "last"), ("check",), ("du",), ("tag", "last"), ("forget", "--keep-last", "1")),
    *(
        ("prune",),
        ("erase", "last", "x"),
        ("export", "last", "f"),
        ("copy", "last", "--to", "memory://x"),
        ("forget", "last"),
    ),
)


@pytest.mark.parametrize("command", COMMANDS_ON_SESSIONS, ids=" ".join)
def test_a_root_that_does_not_exist_is_an_error_of_each_command(
    command: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "absent"
    assert run([*command, "--root", str(absent)]) == 2
    assert f"there is no directory {absent}: name the one that holds sessions with --root DIR" in capfd.readouterr().err
    assert not absent.exists()


def test_the_default_root_need_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["sessions"]) == 0
    assert "`ctxfs demo` makes one" in capfd.readouterr().err


@pytest.mark.service
def test_rm_of_a_session_that_is_written_to_names_the_process(ctxfs: Run, tmp_path: Path) -> None:
    writes = (
        "import sys, anyio\n"
        "from ctxfs import Context\n"
        "async def main():\n"
        f"    async with Context('held', root_path={str(tmp_path)!r}) as context:\n"
        "        await context.add({'role': 'user', 'content': 'x'})\n"
        "        print('held', flush=True)\n"
        "        sys.stdin.read()\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        code, out, err = ctxfs("forget", "held", "-y")
        assert (code, out) == (2, "")
        assert f"session held is locked by process {writer.pid}: close the other writer" in err
        writer.communicate("")
    assert ctxfs("forget", "held", "-y")[0] == 0


def test_help_is_a_command_too(ctxfs: Run) -> None:
    code, out, _ = ctxfs("help", "ls")
    assert (code, out) == (0, ctxfs("ls", "--help")[1])


def test_a_root_of_sessions_is_no_folder_of_recordings(ctxfs: Run, tmp_path: Path) -> None:
    assert run(["replay", str(tmp_path)]) == 2
    with pytest.raises(ConfigError, match=r"holds sessions of ctxfs, .*`ctxfs explain SESSION --root"):
        recordings_in([tmp_path])


def test_a_policy_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"no policy 'economical': did you mean 'economic'\? The policies are none, "):
        policy_named("economical", rates=ANTHROPIC_RATES, count=len)
    with pytest.raises(ConfigError, match=r"no policy 'zzz'\. The policies are none, "):
        policy_named("zzz", rates=ANTHROPIC_RATES, count=len)


def test_days_have_names() -> None:
    today, yesterday = moment("today"), moment(" Yesterday")
    assert today <= time.time() < today + 2 * 86_400
    assert 22 * 3_600 < today - yesterday < 26 * 3_600
