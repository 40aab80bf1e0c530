"""``ctxfs ab``: programs that know nothing of ctxfs, behind proxies, against a scripted model."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxfs.cli.app import run
from ctxfs.lab.ab.report import LIMITS
from ctxfs.testing import GeminiServer
from needle_agent import MODEL, PROGRAM, command, looks, loops, server, written
from patience import HANGS_S

pytestmark = pytest.mark.slow


def ab(tasks: Path, url: str, *options: str, program: str = PROGRAM) -> int:
    return run(["ab", str(tasks), "--upstream-anthropic", url, *options, "--", *command(program)])


@pytest.mark.service
def test_what_an_arm_hides_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = written(tmp_path, 6)
    page = tmp_path / "page.html"
    arms = ["--arms", "none,default,exact:1,clear:5k"]
    with server(looks) as model:
        options = [*arms, "--budget", "20", "--parallel", "2"]
        assert ab(tasks, model.url, *options, "--json", "--html", str(page), "--keep", str(tmp_path / "kept")) == 0
        found = json.loads(capsys.readouterr().out)
        played = len(model.requests)
        assert model.refusals == []
        assert ab(tasks, model.url, *options, "--margin", "5") == 1
        assert len(model.requests) == played, "everything was done already"
    none, default, exact, clear = found["arms"]
    assert (none["solved"], default["solved"], clear["solved"]) == (6, 6, 0)
    assert none["usd"] > default["usd"] > 0
    assert none["usd"] > exact["usd"]
    assert (none["read_backs"], default["read_backs"]) == (0, 6)
    assert sum(one["usd"] for one in found["sessions"]) == pytest.approx(found["spent_usd"])
    assert (
        "clear:5k solved 0 of 6, none 6; not worse by more than 5 points is not shown"
        in found["against"][2]["sentence"]
    )
    text = capsys.readouterr().out
    assert LIMITS in text.splitlines(), "sentences are whole in a pipe"
    assert "none" in text
    html = page.read_text()
    assert "clear:5k solved 0 of 6, none 6" in html
    assert "script-src" in html
    assert len(list((tmp_path / "kept").glob("task*/output.txt"))) == 24
    assert not list((tmp_path / "kept").glob("*none*")), "no name tells a model its arm"
    assert ab(tasks, "http://127.0.0.1:9", *arms, "--seed", "3") == 2
    assert "begun with other seed (0 then, 3 now)" in capsys.readouterr().err


@pytest.mark.service
def test_a_model_that_loops_is_stopped_by_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = written(tmp_path, 2)
    with server(loops) as model:
        assert ab(tasks, model.url, "--budget", "0.5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.1 < found["spent_usd"] <= 0.5
    assert [one["outcome"] for one in found["sessions"]] == ["budget"]
    assert found["unplayed"] == 4


@pytest.mark.service
def test_a_second_start_goes_on_after_ctrl_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = written(tmp_path, 4)
    results = tmp_path / "tasks.results.jsonl"
    with server(looks) as model:
        words = [sys.executable, "-m", "ctxfs", "ab", str(tasks), "--upstream-anthropic", model.url, "--", *command()]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            while not results.exists() or results.read_text().count('"kind":"session"') < 2:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=HANGS_S)
        finally:
            process.kill()
        assert process.returncode == 130, said
        assert b"Traceback" not in said
        kept = results.read_text().count('"kind":"session"')
        assert 2 <= kept < 8
        assert ab(tasks, model.url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["sessions"]) == 8
    assert found["unplayed"] == 0
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    ended = [(one["task"], one["arm"]) for one in lines if one["kind"] == "session"]
    assert len(ended) == len(set(ended)) == 8, "no session that ended was played again"


@pytest.mark.service
def test_other_paths_and_unknown_models_are_refused_and_ends_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
import os, sys, urllib.error, urllib.request
for path, body in (("/v1/messages/batches", b"{}"), ("/v1/messages", b'{"model": "nobody-7", "messages": []}')):
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + path, body, {"x-api-key": "k"})
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode(), file=open("said.txt", "a"))
print("to the user"); sys.exit(3)
"""
    tasks = written(tmp_path, 1)
    with server(looks) as model:
        assert ab(tasks, model.url, "--budget", "1", "--json", "--keep", str(tmp_path / "kept"), program=program) == 1
        assert model.requests == []
    found = json.loads(capsys.readouterr().out)
    assert {one["outcome"] for one in found["sessions"]} == {"failed"}
    said = (tmp_path / "kept/task0-0-0/work/said.txt").read_text()
    assert said.startswith("403")
    assert "402" in said
    assert "no prices are known of the model 'nobody-7'" in said
    assert (tmp_path / "kept/task0-0-0/output.txt").read_text() == "to the user\n"


ASKS_ONCE = f"""
import json, os, urllib.request
body = {{"model": {MODEL!r}, "max_tokens": 9, "messages": [{{"role": "user", "content": "hello"}}]}}
headers = {{"content-type": "application/json"}}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


@pytest.mark.service
def test_the_program_gets_a_copy_of_the_directory_and_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "start.txt").write_text("start\n")
    task: dict[str, Any] = {"id": "a", "prompt": "say it", "directory": "given"}
    task["check"] = ["grep", "-qx", "start say it", "end.txt"]
    slow = {**task, "id": "slow", "timeout_s": 3.0, "check": "true"}
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(one) + "\n" for one in (task, slow)))
    script = (
        'read prompt; echo "$(cat start.txt) $prompt" > end.txt; "$0" -c "$1"; '
        "case $PWD in *slow*) sleep 600;; esac; exit 4"
    )
    options = ["--json", "--keep", str(tmp_path / "kept")]
    with server(lambda _: "hello") as model:
        options += ["--upstream-anthropic", model.url]
        assert run(["ab", str(tasks), *options, "--", "sh", "-c", script, sys.executable, ASKS_ONCE]) == 0
    found = json.loads(capsys.readouterr().out)
    outcomes = {(one["task"], one["outcome"]) for one in found["sessions"]}
    assert outcomes == {("a", "solved"), ("slow", "timeout")}
    assert [path.name for path in given.iterdir()] == ["start.txt"]
    assert run(["ab", str(tasks), "--results", str(tmp_path / "x"), "--", "no-such-program"]) == 2
    assert "no-such-program cannot be run" in capsys.readouterr().err


@pytest.mark.service
def test_a_program_without_a_tool_that_reads_needs_reading_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = written(tmp_path, 2)
    without = PROGRAM.replace('("read_log", "Read")', '("read_log",)')
    with server(looks) as model:
        assert ab(tasks, model.url, "--arms", "none,default", "--json", program=without) == 0
        found = json.loads(capsys.readouterr().out)
        assert [one["replaced"] for one in found["arms"]] == [0, 0]
        assert "nothing was replaced in default, so it shows nothing" in found["notes"][0]
        options = ["--arms", "none,default", "--reading-turns", "8"]
        assert ab(tasks, model.url, *options, program=without) == 2
        assert "begun with other command" in capsys.readouterr().err
        options[1] += ",clear:5k"
        options += ["--results", str(tmp_path / "other.jsonl"), "--json"]
        assert ab(tasks, model.url, *options, program=without) == 0
        tools = [len(request["tools"]) for request in model.requests]
    found = json.loads(capsys.readouterr().out)
    none, default, clear = found["arms"]
    assert (none["solved"], default["solved"], clear["solved"]) == (2, 2, 0)
    assert (none["replaced"], none["read_backs"]) == (0, 0)
    assert default["replaced"] > 0
    assert default["read_backs"] == 2
    assert clear["replaced"] > 0
    assert default["calls"] == none["calls"] + 2, "the turn in which it read is a call that was billed"
    assert found["notes"] == []
    assert set(tools) == {1, 6}, "what is only measured, or cleared, gets no tools of ours"


@pytest.mark.service
def test_codex_is_told_where_the_proxy_is_and_reads_with_its_own_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Codex takes no base URL from its environment, and has no tool named Read."""
    program = PROGRAM.replace('"Read"', '"exec_command"').replace("prompt = sys.argv[1]", "prompt = sys.argv[3]")
    given = 'sys.argv[2].partition(chr(34))[2].rstrip(chr(34)).replace("openai/v1", "anthropic")'
    program = program.replace('os.environ["ANTHROPIC_BASE_URL"]', given)
    codex = tmp_path / "codex"
    codex.write_text(f"#!{sys.executable}\n{program}")
    codex.chmod(0o755)

    def model_looks(body: dict[str, Any]) -> Any:
        turn: Any = looks(body)
        if isinstance(turn, str):
            return turn
        return [replace(call, name=call.name.replace("Read", "exec_command")) for call in turn]

    tasks = written(tmp_path, 1)
    with server(model_looks) as model:
        options = ["--upstream-anthropic", model.url, "--arms", "none,default", "--json"]
        assert run(["ab", str(tasks), *options, "--", str(codex), "{prompt}"]) == 0
    found = json.loads(capsys.readouterr().out)
    none, default = found["arms"]
    assert (none["solved"], default["solved"]) == (1, 1)
    assert default["read_backs"] == 1


def test_a_program_that_goes_around_the_proxy_is_not_played_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it spends is not counted, and so no budget would hold."""
    tasks = written(tmp_path, 5)
    assert ab(tasks, "http://127.0.0.1:9", "--budget", "1", "--json", program="open('nowhere.txt')") == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in found["sessions"]] == ["failed"]
    assert found["unplayed"] == 10
    reason = "the program ended with exit code 1 before any of its requests came through the proxy"
    assert any(reason in note for note in found["notes"])
    assert any("Exit code 1: FileNotFoundError: " in note for note in found["notes"]), "what the program printed last"


@pytest.mark.service
def test_gemini_is_counted_by_the_model_in_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """
import json, os, sys, urllib.request
base = os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:"
contents = [{"role": "user", "parts": [{"text": sys.argv[1]}]}]
config = {"maxOutputTokens": 100}
for method, more in (("countTokens", {}), ("generateContent", {"generationConfig": config})):
    body = json.dumps({"contents": contents, **more}).encode()
    request = urllib.request.Request(base + method, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        said = json.load(reply)
open("answer.txt", "w").write(said["candidates"][0]["content"]["parts"][0]["text"])
"""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "prompt": "say 4", "check": "grep -qx 4 answer.txt"}) + "\n")
    with GeminiServer(["4"] * 2) as model:
        options = ["--upstream-gemini", model.url, "--budget", "1", "--json"]
        assert run(["ab", str(tasks), *options, "--", *command(program)]) == 0
        assert model.refusals == []
    found = json.loads(capsys.readouterr().out)
    assert [(one["solved"], one["calls"]) for one in found["arms"]] == [(1, 1), (1, 1)]
    assert 0 < found["spent_usd"] < 0.01
    assert not any(one["unpriced_calls"] or one["unbilled_calls"] for one in found["arms"])
