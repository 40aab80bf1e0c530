"""``ctxfs replay``: what it prints, writes and refuses."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxfs.cli.app import run
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.lab.replay.answer import LIMITS
from recording_samples import claude_code, codex
from terminal import on_a_terminal

pytestmark = pytest.mark.slow

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctxfs(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run a command in this process, as the installed script would."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def messages(turns: int) -> list[dict[str, Any]]:
    """A session that prints a lot and looks at none of it again."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Look around"}]
    for n in range(turns):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"make step-{n}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n} of what was printed\n" * 300}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*told, {"role": "assistant", "content": "done"}]


@pytest.fixture
def recorded(tmp_path: Path) -> list[Path]:
    """Two sessions, small enough to be replayed without starting processes."""
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, turns in zip(paths, (12, 30), strict=True):
        path.write_text(json.dumps({"messages": messages(turns)}))
    return paths


def test_the_markdown_table_has_a_line_for_each_policy(ctxfs: Command, recorded: list[Path]) -> None:
    asked = ("--policy", "economic", "--policy", "none", "--tokens", "chars4", "--markdown")
    code, out, err = ctxfs("replay", *recorded, *asked)
    assert (code, err) == (0, "")
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in out.splitlines()]
    assert [line[0] for line in lines[:4]] == ["policy", "---", "economic", "none"]
    assert float(lines[2][1]) < 1.0 == float(lines[3][1])


def test_json_has_the_policies_as_they_were_asked_for(ctxfs: Command, recorded: list[Path]) -> None:
    asked = ["exact-1", "none", "economic"]
    code, out, err = ctxfs("replay", *recorded, *(a for name in asked for a in ("--policy", name)), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert [policy["policy"] for policy in told["policies"]] == asked
    none = told["policies"][1]
    assert none["relative_cost"] == 1.0
    assert none["cost"] == pytest.approx(sum(session["cost_of_none"] for session in told["sessions"]))
    assert [session["calls"] for session in told["sessions"]] == [13, 31]
    assert told["tokens"] == "o200k"


def test_other_policies_are_compared_on_request_only(ctxfs: Command, recorded: list[Path]) -> None:
    def named(*options: str) -> list[str]:
        code, out, _ = ctxfs("replay", recorded[0], "--tokens", "chars4", "--json", *options)
        assert code == 0
        return [policy["policy"] for policy in json.loads(out)["policies"]]

    assert named() == ["none", "economic"]
    assert {"none", "economic", "ski-rental"} < set(named("--policies"))
    assert named("--policies", "--policy", "eager-5k")[-1] == "eager-5k"


def test_a_policy_that_costs_less_is_never_shown_without_a_word(ctxfs: Command, recorded: list[Path]) -> None:
    code, out, _ = ctxfs("replay", *recorded, "--tokens", "chars4", "--policy", "economic", "--policy", "eager-100")
    told = " ".join(out.split())
    assert code == 0
    assert "eager-100 costs less here" in told
    assert "it hides results before the model has seen them." in told


def test_of_what_the_bill_is_made_is_said_before_any_table(ctxfs: Command, home: Path) -> None:
    code, out, _ = ctxfs("replay", "--tokens", "chars4")
    told = " ".join(out.split())
    assert code == 0
    shares = re.search(r"Without ctxfs the money goes to (.*?)\. Only tool results .* can leave: (\d+)%", told)
    assert shares is not None
    parts = {name: int(share) for name, share in re.findall(r"([a-z ]+) (\d+)%", shares[1])}
    assert 98 <= sum(parts.values()) <= 102
    assert abs(parts.get("tool results", 0) + parts.get("arguments of calls", 0) - int(shares[2])) <= 1
    assert told.index("Without ctxfs") < told.index("agent sessions paid with ctxfs")
    groups = {"Claude Code, under 50 calls", "Codex, under 50 calls"}
    found = [line for line in out.splitlines() if line.startswith(tuple(groups))]
    assert {line.split("  ")[0] for line in found} == groups
    assert all(line.endswith("no gain") for line in found)
    assert out.count("sessions    ") == 1  # one table


def test_files_that_are_skipped_for_one_reason_share_a_line(ctxfs: Command, recorded: list[Path]) -> None:
    folder = recorded[0].parent
    for number in range(5):
        (folder / f"{number}.times.json").write_text('{"at": [1], "turn": ["human"]}')
    code, _, err = ctxfs("replay", folder, "--tokens", "chars4")
    assert code == 0
    assert err.count("\n") == 1
    assert err.startswith("skipped, JSON, but in none of the known formats (it has at, turn): ")
    assert err.endswith(" and 3 more\n")
    assert str(folder) not in err


def test_a_folder_of_our_own_sessions_is_for_other_commands(ctxfs: Command, tmp_path: Path) -> None:
    journal = tmp_path / "session_1" / "journal.jsonl"
    journal.parent.mkdir()
    journal.touch()
    code, out, err = ctxfs("replay", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"ctxfs: {tmp_path} holds sessions of ctxfs, which are no recordings: `ctxfs explain SESSION "
    )


def test_the_html_report_is_one_file(ctxfs: Command, recorded: list[Path], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    code, out, err = ctxfs(
        "replay", *recorded, "--policy", "economic", "--tokens", "chars4", "--html", report, "--json"
    )
    assert code == 0
    assert json.loads(out)["policies"]
    assert err == f"the report is in {report}\n"
    page = report.read_text()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_tuned_parameters_are_a_policy(ctxfs: Command, recorded: list[Path], tmp_path: Path) -> None:
    code, out, err = ctxfs("replay", "--tune", *recorded, "--tokens", "chars4")
    assert (code, err) == (0, "")
    EvictionParameters.from_mapping(tomllib.loads(out))
    (tmp_path / "mine.toml").write_text(out)
    code, out, _ = ctxfs("replay", recorded[0], "--policy", tmp_path / "mine.toml", "--tokens", "chars4", "--json")
    assert code == 0
    assert [policy["policy"] for policy in json.loads(out)["policies"]] == ["mine"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "nowhere.json"),
        ("replay", "folder"),
        ("replay", "one.json", "--model", "model-of-nobody"),
        ("replay", "one.json", "--model", "gpt-5.4", "--rates", "0.1,1.25,5"),
        ("replay", "one.json", "--model", "gpt-5.4", "--ttl", "12h"),
        ("replay", "one.json", "--rates", "0.1,1.25"),
        ("replay", "one.json", "--rates", "0.1,1.25,5,-3"),
        ("replay", "one.json", "--rates", "2,1,5"),
        ("replay", "text.txt"),
        ("replay", "one.json", "--policy", "frugal"),
        ("replay", "one.json", "--policy", "missing.toml"),
        ("replay", "one.json", "--policy", "wrong.toml"),
        ("replay", "one.json", "--html", "no/such/report.html"),
        ("replay", "--tune", "one.json"),
        ("replay", "--tune", "one.json", "text.txt"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_2(
    ctxfs: Command, recorded: list[Path], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded[0].parent
    monkeypatch.chdir(folder)
    (folder / "folder").mkdir()
    (folder / "text.txt").write_text("no recording\n")
    (folder / "wrong.toml").write_text("patience = 3\n")
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("ctxfs: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", [(), ("--tune",)])
def test_a_file_that_is_not_there_is_named_before_anything_is_read(
    ctxfs: Command, recorded: list[Path], option: tuple[str, ...]
) -> None:
    missing = recorded[0].parent / "missing.json"
    for files in ([missing], [recorded[0], missing]):
        code, out, err = ctxfs("replay", *option, *files)
        assert (code, out) == (2, "")
        assert err == f"ctxfs: there is no file or folder {missing}\n"


@pytest.mark.parametrize("arguments", [("replay",), ("replay", "--tune"), ("replay", "one.json", "--tokens", "words")])
def test_wrong_arguments_are_2(
    ctxfs: Command, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("ctxfs: ")
    assert err.count("\n") == 1


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with two sessions of Claude Code's, one of Codex', and files that are none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    projects, sessions = tmp_path / ".claude" / "projects" / "-p", tmp_path / ".codex" / "sessions" / "2026"
    for folder in (projects / "s" / "subagents", sessions):
        folder.mkdir(parents=True)
    claude_code(projects / "one.jsonl")
    (projects / "s" / "subagents" / "two.jsonl").write_text((projects / "one.jsonl").read_text())  # a copy
    codex(sessions / "rollout-three.jsonl")
    (projects / "empty.jsonl").touch()
    (projects / "bytes.jsonl").write_bytes(bytes(range(256)))
    (projects / "notes.txt").write_text("never looked at")
    return tmp_path


def test_without_a_path_it_finds_what_was_recorded_and_says_what_it_cost(ctxfs: Command, home: Path) -> None:
    code, out, err = ctxfs("replay", "--tokens", "chars4")
    assert code == 0
    first, *_ = out.splitlines()
    # gpt-5.4 costs 2.5, 0.25 and 15 dollars a million: two sessions of 1,600, 2,500 and 30, one of which is a copy
    assert first.startswith("You paid $0.0101 for 3 sessions; with ctxfs it would have been $0.0101 (")
    assert err.count("skipped") == 2
    assert f"skipped, empty: {home}/.claude/projects/-p/empty.jsonl\n" in err
    assert "not UTF-8 text" in err
    assert LIMITS in out.splitlines(), "sentences are whole in a pipe"


def test_the_answer_fits_the_terminal_whatever_names_say(ctxfs: Command, home: Path) -> None:
    path = home / ".claude" / "projects" / "-p" / "one.jsonl"
    path.write_text(path.read_text().replace('"/p"', json.dumps("/very" * 40 + "\x1b[31m\nend")))
    command = [sys.executable, "-m", "ctxfs", "replay", "--tokens", "chars4"]
    shown = on_a_terminal(command, os.environ)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "2.3 times as many turns" in shown.replace("\n", " ")
    _, piped, _ = ctxfs(*command[3:])
    assert "/very" * 40 in piped


def test_sessions_without_a_price_are_not_among_those_that_were_paid(
    ctxfs: Command, home: Path, recorded: list[Path]
) -> None:
    code, out, _ = ctxfs("replay", home / ".codex", recorded[0], "--tokens", "chars4")
    assert code == 0
    assert re.match(r"You paid \$0\.\d+ for 1 of 2 sessions; with ctxfs ", out)


def test_the_check_has_a_row_for_each_agent_and_marks_what_is_not_reliable(
    ctxfs: Command, home: Path, tmp_path: Path
) -> None:
    told = messages(6)
    for n, message in enumerate(m for m in told if m["role"] == "assistant"):
        message["usage"] = {"input_tokens": 1_000 * 2**n, "output_tokens": 40}  # it doubles, whatever was added
    (tmp_path / "odd.json").write_text(json.dumps({"model": "claude-sonnet-4-5", "messages": told}))
    code, out, _ = ctxfs("replay", home / ".claude", tmp_path / "odd.json", "--tokens", "chars4")
    assert code == 0
    rows = {line[:11].strip(): line for line in out.partition("\ncheck ")[2].splitlines()}
    assert rows["messages"].endswith("  not reliable")
    assert not rows["Claude Code"].endswith("reliable")


def test_one_answer_has_one_total_however_many_policies(ctxfs: Command, home: Path) -> None:
    code, out, _ = ctxfs("replay", "--tokens", "chars4", "--policies")
    assert code == 0
    (total,) = re.findall(r"with ctxfs it would have been (\$[\d.]+)", " ".join(out.split()))
    (row,) = [line for line in out.splitlines() if line.startswith("economic (ctxfs)")]
    assert total in row.split()


def test_projects_have_lines_of_their_own(ctxfs: Command, home: Path) -> None:
    for name, project, day in (("one", "/alpha", "2026-02-01"), ("four", "/beta", "2026-03-01")):
        path = home / ".claude" / "projects" / "-p" / f"{name}.jsonl"
        claude_code(path)
        said = path.read_text().replace('"/p"', f'"{project}"').replace('"m1"', f'"{name}"')
        path.write_text(re.sub(r'"timestamp": "[^T]*T', f'"timestamp": "{day}T', said))
    _, out, _ = ctxfs("replay", home / ".claude" / "projects" / "-p", "--tokens", "chars4")
    lines = [line.split()[:2] for line in out.splitlines()]
    assert ["/alpha", "1"] in lines
    assert ["/beta", "1"] in lines


def test_a_model_and_rates_of_ones_own_price_the_replay(ctxfs: Command, recorded: list[Path]) -> None:
    asked = ("--tokens", "chars4", "--policy", "none", "--policy", "economic")
    costs = {}
    for name, own in {
        "rates": ("--rates", "0.1,1.25,5,3"),
        "model": ("--model", "claude-sonnet-4-5"),
        "hour": ("--model", "claude-sonnet-4-5", "--ttl", "1h"),
    }.items():
        _, out, _ = ctxfs("replay", *recorded, *asked, *own, "--json")
        costs[name] = json.loads(out)["policies"][0]["usd"]
    assert costs["rates"] == pytest.approx(costs["model"], rel=0.01)  # which does not cache short prefixes
    assert costs["hour"] > costs["model"] * 1.2
    _, out, _ = ctxfs("replay", *recorded, *asked, "--model", "claude-sonnet-4-5")
    assert out.startswith("At list prices 2 sessions cost $")


def test_of_a_session_that_names_no_model_no_dollars_are_made_up(ctxfs: Command, recorded: list[Path]) -> None:
    code, out, _ = ctxfs("replay", *recorded, "--tokens", "chars4")
    assert code == 0
    assert re.match(r"With ctxfs the input of 2 sessions costs 0\.\d\d of never evicting; no price is known\.\n", out)
    assert "$0" not in out
    assert re.search(r"(?m)^\S.* \?  .*\d% less\*$", out)
    told = " ".join(out.split())
    assert (
        "* No price is known of a model that is not named: Anthropic's ratios were taken. Give --model or --rates."
        in told
    )


def test_tuning_can_be_read_by_programs(ctxfs: Command, recorded: list[Path]) -> None:
    code, out, _ = ctxfs("replay", "--tune", *recorded, "--tokens", "chars4", "--json")
    told = json.loads(out)
    assert code == 0
    assert {"read_backs", "by_size", "events", "held_out", "held_out_default", "folds", "skipped"} <= told.keys()
    assert len(told["folds"]) == 2
