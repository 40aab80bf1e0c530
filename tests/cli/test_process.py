"""The installed command as a process: the demo, chat, pipes, interrupts, and what is said without the extra."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cli.test_pages import keys_named
from ctxfs.cli.app import run
from ctxfs.cli.commands import COMMANDS, SUBCOMMANDS
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer, Failure, MessagesServer
from patience import HANGS_S
from written_session import write_session

pytestmark = pytest.mark.service

ROOT = Path(__file__).resolve().parent.parent.parent
Inside = Callable[..., subprocess.CompletedProcess[str]]
MAIN = "import sys; from ctxfs.cli import main; sys.argv[0] = 'ctxfs'; main()"


def ctxfs(*arguments: object, text: str = "", code: str = MAIN, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *(str(argument) for argument in arguments)]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=HANGS_S,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The same without a process of its own, for what needs none: to import an SDK takes a second or two each time."""

    def ran(*arguments: object, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        words = [str(argument) for argument in arguments]
        code = run(words)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return ran


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "inner").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "inner/c.txt", "inner/d.py"):
        (made / name).write_text("".join(f"{name} line {n}: TODO write more\n" for n in range(1, 300)))
    (made / "binary.dat").write_bytes(bytes(range(256)) * 40)
    (made / "empty").write_text("")
    (made / "two\nlines.txt").write_text("x" * 300)
    return made


# The command itself --------------------------------------------------------------------------------------------------


def test_the_version_and_the_help_load_no_command() -> None:
    """What is asked for most must not wait for the agent, for rich and for pydantic."""
    code = MAIN.replace("main()", "import atexit; atexit.register(lambda: print(*sys.modules)); main()")
    for option in ("--version", "--help"):
        done = ctxfs(option, code=code)
        assert done.returncode == 0, done.stderr
        loaded = set(done.stdout.splitlines()[-1].split())
        assert not loaded & {"rich", "pydantic", "anyio", "ctxfs.agent", "ctxfs.context", "ctxfs.lab.replay.lab"}


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "ctxfs", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == ctxfs("--version").stdout


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
def test_the_list_of_commands_shows_the_first_sentence_of_each(name: str) -> None:
    listed = {**COMMANDS, **SUBCOMMANDS}[name]
    module, _, function = listed.place.partition(".")
    command = getattr(import_module(f"ctxfs.cli.{module}"), function)
    assert command.__doc__.startswith(listed.summary)
    assert listed.summary.count(".") == 1


# The demo ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the demo says with --json; its session is under ``root``, which the environment names."""
    root = tmp_path_factory.mktemp("demo")
    done = ctxfs("demo", "--json", CTXFS_ROOT=str(root))
    assert (done.returncode, done.stderr) == (0, "")
    return {"root": root, **json.loads(done.stdout)}


def test_the_demo_runs_and_says_what_to_type_next(tmp_path: Path) -> None:
    """Also where no command is on the path, sessions are looked for elsewhere, and the terminal has no Unicode."""
    names = {"HOME": str(tmp_path), "PATH": "", "CTXFS_STORE": "memory://elsewhere", "PYTHONIOENCODING": "ascii"}
    program = Path(sys.executable).with_name("ctxfs")
    done = subprocess.run([program, "demo"], env=names, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    root = tmp_path / ".agent" / "context"
    (session,) = (one for one in root.iterdir() if one.is_dir())
    assert any(line.endswith("Short ones save next to nothing.") for line in done.stdout.splitlines())
    assert "1 read-back" in done.stdout
    assert str(session) in done.stdout
    following = done.stdout.partition("next  ")[2].splitlines()
    commands = [shlex.split(line) for line in following]
    assert [command[:2] for command in commands] == [[str(program), name] for name in ("explain", "cat", "sessions")]
    assert commands[-1][2:] == ["--root", str(root)]
    for command in commands:
        subprocess.run(command, env=names, check=True, capture_output=True)


def test_the_demos_keys_are_those_that_its_page_names(told: dict[str, Any]) -> None:
    assert told.keys() - {"root"} == keys_named("demo")


def test_the_demos_figures_are_those_of_its_session(told: dict[str, Any], inside: Inside, tmp_path: Path) -> None:
    """What it prints is what `sessions`, `explain`, `ls` and the page say of the same session."""
    assert told["ok"]
    items = json.loads(inside("ls", told["session_id"], "--root", told["root"], "--json").stdout)
    assert told["calls"][-1]["tokens"] == sum(item["tokens"] for item in items)
    read_back = [item for item in items if item["tool_name"] == "Read"]
    assert len(read_back) == told["effect"]["read_backs"] == 1
    without = told["calls"][-1]["tokens_without"]
    assert without == sum(i["content_tokens"] for i in items if i not in read_back)
    assert (
        f"without ctxfs, it would hold {without:,}" in inside("ls", told["session_id"], "--root", told["root"]).stdout
    )
    left = {gone["item_id"]: gone for call in told["calls"] for gone in call["left"]}
    assert set(left) == {item["item_id"] for item in items if item["place"] == "file"}
    assert all(Path(gone["path"]).is_file() for gone in left.values())
    explained = json.loads(inside("explain", "last", "--root", told["root"], "--json").stdout)
    assert explained["effect"] == told["effect"]
    assert explained["billed"]["usd"] == told["cost_usd"]
    (listed,) = json.loads(inside("sessions", "--root", told["root"], "--json").stdout)
    assert listed["cost_usd"] == pytest.approx(told["cost_usd"])
    assert listed["saved_usd"] == pytest.approx(told["without_usd"] - told["cost_usd"])
    page = tmp_path / "page.html"
    inside("view", "last", "--root", told["root"], "--export", page)
    shown = page.read_text()
    assert f"${told['cost_usd']:.2f}" in shown
    assert f"${told['without_usd']:.2f}" in shown


def test_what_the_demos_agent_finds_is_true(told: dict[str, Any], inside: Inside) -> None:
    """Its reports say before and after the change what its answer says."""
    commands = [(n, ask["arguments"].get("command")) for n, call in enumerate(told["calls"]) for ask in call["asks"]]
    changed = next(n for n, call in enumerate(told["calls"]) for ask in call["asks"] if ask["name"] == "edit")
    items = json.loads(inside("ls", "last", "--root", told["root"], "--json").stdout)
    ids = [item["item_id"] for item in items if item["item_type"] == "tool_result"]
    results = dict(zip(commands, ids, strict=True))

    def printed(command: str, *, after: bool) -> str:
        (item,) = (item for (n, asked), item in results.items() if asked == command and (n > changed) == after)
        return inside("cat", "last", item, "--root", told["root"]).stdout

    report = "python -m tariff invoice 1042 2024-03"
    assert "205.50 EUR" in printed(report, after=False)
    assert "206.96 EUR" in printed(report, after=True)
    wrong = set()
    for command in {command for _, command in commands if command and "check" in command}:
        before, after = (printed(command, after=when).splitlines() for when in (False, True))
        customers = [b.split()[0] for b, a in zip(before, after, strict=True) if b != a]
        if customers:
            wrong.add(command.rpartition(" ")[2])
            assert customers == ["1007", "1019", "1023", "1042", "1066"]  # 1058 has the contract "flat"
    assert wrong == {"2024-03", "2027-10"}
    tests = [item for (_, asked), item in results.items() if asked and "unittest" in asked]
    ends = [inside("cat", "last", item, "--root", told["root"]).stdout.splitlines()[-1] for item in tests]
    assert ends == ["OK", "FAILED (failures=1)", "OK"]


def test_the_recorded_picture_shows_what_the_demo_prints(told: dict[str, Any]) -> None:
    """A token of a path more or less is no other figure."""
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text()
    paid, without, model, calls = re.findall(
        r">\$([\d.]+) instead of \$([\d.]+) at the list prices of (\S+), for (\d+) ", picture
    )[0]
    assert float(paid) == pytest.approx(told["cost_usd"], abs=0.01)
    assert float(without) == pytest.approx(told["without_usd"], abs=0.01)
    assert (model, int(calls)) == (told["model"], len(told["calls"]))
    assert "<script" not in picture


def test_an_interrupt_ends_the_demo_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "demo", "--root", str(tmp_path / "root")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "network operator" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert ctxfs("check", "last", "--root", tmp_path / "root").returncode == 0


def test_a_full_disk_is_told_and_the_figures_are_shown(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk."""
    code = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {{limit}}; {MAIN}"
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))"
    done = ctxfs("demo", "--root", tmp_path, code=code.format(limit=limit))
    assert done.returncode == 1, done.stderr
    assert "could not store" in done.stdout
    assert "The context ends with" in done.stdout
    assert "Traceback" not in done.stderr


# Chat ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [(), ("--model", "gpt-any")], ids=["Anthropic", "OpenAI"])
def test_chat_without_a_key(inside: Inside, tmp_path: Path, model: tuple[str, ...]) -> None:
    done = inside("chat", *model, "--root", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "API_KEY" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--root", "--store"])
def test_chat_answers_one_prompt_and_goes_on_later(inside: Inside, folder: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "root").mkdir()
    place = (option, tmp_path / "root" if option == "--root" else f"objects+{(tmp_path / 'root').as_uri()}")
    turns: list[Any] = [[ToolCall("list_dir", {})], "There are five files.", "As I said."]
    with MessagesServer(turns) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        first = inside("chat", "What is here?", "--dir", folder, *place, **keys)
        assert (first.returncode, first.stdout) == (0, "There are five files.\n"), first.stderr
        assert "list_dir" in first.stderr
        second = inside("chat", "Sure?", "--session", "last", *place, **keys)
        assert (second.returncode, second.stdout) == (0, "As I said.\n"), second.stderr
    assert server.refusals == []
    assert "a.txt" in json.dumps(server.requests[1]["messages"])
    assert "What is here?" in json.dumps(server.requests[2]["messages"])


def test_chat_reads_questions_until_the_end(inside: Inside, tmp_path: Path) -> None:
    with ChatCompletionsServer(["one\x1b[31m", "two"]) as server:
        done = inside(
            "chat", "--model", "gpt-4o", "--base-url", server.url, "--root", tmp_path, text="first\n\nsecond\n"
        )
    assert (done.returncode, done.stdout) == (0, "one\\x1b[31m\ntwo\n"), done.stderr


def test_chat_tells_events_as_lines_of_json(folder: Path, tmp_path: Path) -> None:
    turns: list[Any] = [[ToolCall("list_dir", {})], "There are five\nfiles.\x1b[31m", "As I said."]
    with MessagesServer(turns) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        given = ("chat", "--json", "--dir", folder, "--root", tmp_path / "root")
        done = ctxfs(*given, text="What is here?\n\nSure?\n", **keys)
    assert (done.returncode, done.stderr) == (0, "")
    session, *events = map(json.loads, done.stdout.splitlines())
    assert session == {"type": "session", "session_id": session["session_id"], "path": session["path"]}
    assert Path(session["path"]).is_dir()
    started, ended = (next(e for e in events if e["type"] == kind) for kind in ("tool_started", "tool_ended"))
    assert started["call"] == ended["call"] == {"name": "list_dir", "arguments": {}, "id": started["call"]["id"]}
    assert "a.txt" in ended["whole"]["content"]
    assert [e["text"] for e in events if e["type"] == "done"] == ["There are five\nfiles.\x1b[31m", "As I said."]
    assert "".join(e["text"] for e in events if e["type"] == "text_delta") == "There are five\nfiles.\x1b[31mAs I said."
    assert events[-1]["type"] == "done"
    usage = next(e for e in events if e["type"] == "usage_reported")
    assert {"usage", "model", "context_tokens"} < set(usage)


def test_chat_tells_an_answer_that_failed_and_goes_on(inside: Inside, tmp_path: Path) -> None:
    with MessagesServer(
        [Failure(status=400, kind="invalid_request_error", message="no such thing"), "Still here."]
    ) as server:
        keys = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        done = inside("chat", "--json", "--root", tmp_path, text="first\nsecond\n", **keys)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (failed,) = (line for line in lines if line["type"] == "failed")
    assert "no such thing" in failed["error"]
    assert lines[-1] == {"type": "done", "text": "Still here.", "stop_reason": "end_turn", "turns": 1}


def test_an_interrupt_stops_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    started, interrupted = threading.Event(), threading.Event()

    def wait(_: object) -> str:
        started.set()
        interrupted.wait(HANGS_S)
        return "too late"

    turns: list[Any] = [[ToolCall("list_dir", {})], wait, "Still here."]
    command = [sys.executable, "-c", MAIN, "chat", "--root", str(tmp_path)]
    with MessagesServer(turns) as server:
        environment = {**os.environ, "ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
            assert process.stdin is not None
            process.stdin.write("first\n")
            process.stdin.flush()
            assert started.wait(HANGS_S)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            while "stopped" not in process.stderr.readline():
                assert process.poll() is None
            interrupted.set()
            out, errors = process.communicate("second\n", timeout=HANGS_S)
    assert (process.returncode, out) == (0, "Still here.\n"), errors
    assert server.refusals == []


# The process ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    write_session(tmp_path, "a line\n" * 300, "another line\n" * 300)
    script = f"{sys.executable} -c \"{MAIN}\" grep last . --root '{tmp_path}' | head -1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(package: str) -> None:
    done = ctxfs("sessions", code=f"import sys; sys.modules[{package!r}] = None\n{MAIN}")
    assert done.returncode == 2
    assert done.stderr == f"ctxfs: the command line needs {package}: pip install 'ctxfs[cli]'\n"


@pytest.mark.parametrize("arguments", [("proxy", "true"), ("ab", "tasks.jsonl", "--", "true")])
def test_a_command_without_its_own_extra_says_how_to_get_it(tmp_path: Path, arguments: Sequence[str]) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "p", "check": ["true"]}\n')
    code = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.modules['uvicorn'] = None\n{MAIN}"
    done = ctxfs(*arguments, code=code)
    assert done.returncode == 2
    assert done.stderr == "ctxfs: this command needs uvicorn: pip install 'ctxfs[proxy]'\n"


@pytest.mark.parametrize("command", ["proxy", "ab"])
def test_the_help_of_a_command_needs_no_extra(command: str) -> None:
    done = ctxfs(command, "--help", code=f"import sys; sys.modules.update(uvicorn=None, httpx2=None)\n{MAIN}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ctxfs {command}" in done.stdout


def test_the_script_of_the_package_is_this_command() -> None:
    script = Path(sys.executable).with_name("ctxfs")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.returncode == 0
    assert "keep tidy  du " in done.stdout


def test_a_terminal_is_never_told_what_to_do(tmp_path: Path) -> None:
    write_session(tmp_path, "\x1b]0;owned\x07 and \x1b[2J\n" * 50)
    shown = _on_a_terminal("grep", "last", "owned", "--root", str(tmp_path))
    assert b"owned" in shown
    assert b"\x1b]0" not in shown
    assert b"\x07" not in shown


def _on_a_terminal(*arguments: str) -> bytes:
    """What the command prints to a terminal, here a pseudo-terminal."""
    main, side = os.openpty()
    with subprocess.Popen([sys.executable, "-c", MAIN, *arguments], stdout=side) as process:
        os.close(side)
        shown = b""
        try:
            while piece := os.read(main, 65_536):
                shown += piece
        except OSError:  # the other side was closed: Linux says so with an error, macOS with an end
            pass
        process.wait(timeout=HANGS_S)
    os.close(main)
    return shown
