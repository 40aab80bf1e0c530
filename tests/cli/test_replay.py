"""``ctxfs replay`` and ``ctxfs tune``: what they print, write and refuse."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxfs.cli.app import run
from ctxfs.economics.parameters import EvictionParameters

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
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n} of what was printed\n" * 400}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*told, {"role": "assistant", "content": "done"}]


@pytest.fixture
def recorded(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, turns in zip(paths, (12, 30), strict=True):
        path.write_text(json.dumps({"messages": messages(turns)}))
    return paths


def test_the_table_has_a_line_for_each_policy(ctxfs: Command, recorded: list[Path]) -> None:
    code, out, err = ctxfs("replay", *recorded, "--policy", "economic", "--policy", "none", "--tokens", "chars4")
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


def test_without_a_policy_several_are_compared(ctxfs: Command, recorded: list[Path]) -> None:
    code, out, _ = ctxfs("replay", recorded[0], "--tokens", "chars4", "--json")
    assert code == 0
    named = [policy["policy"] for policy in json.loads(out)["policies"]]
    assert {"none", "economic", "ski-rental"} <= set(named)


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
    code, out, err = ctxfs("tune", *recorded, "--tokens", "chars4")
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
        ("replay", "."),
        ("replay", "text.txt"),
        ("replay", "one.json", "--policy", "frugal"),
        ("replay", "one.json", "--policy", "missing.toml"),
        ("replay", "one.json", "--policy", "wrong.toml"),
        ("replay", "one.json", "--html", "no/such/report.html"),
        ("tune", "one.json"),
        ("tune", "one.json", "text.txt"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_2(
    ctxfs: Command, recorded: list[Path], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded[0].parent
    monkeypatch.chdir(folder)
    (folder / "text.txt").write_text("no recording\n")
    (folder / "wrong.toml").write_text("patience = 3\n")
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("ctxfs: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("replay",), ("tune",), ("replay", "one.json", "--tokens", "words")])
def test_wrong_arguments_are_2(ctxfs: Command, arguments: tuple[str, ...]) -> None:
    code, out, err = ctxfs(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("ctxfs: ")
    assert err.count("\n") == 1
