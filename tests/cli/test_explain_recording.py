"""``ctxfs explain FILE``: what would have left a recorded session."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.cli.app import run
from recording_samples import codex

Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(capfdbinary: pytest.CaptureFixture[bytes]) -> Explain:
    def call(*arguments: object) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run(["explain", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Large outputs of commands, of which a reply needs the first again at the end."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "look"}]
    for n in range(12):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash\x1b[31m", "input": {"command": f"make step-{n}"}}
        lines = "\n".join(f"the_value_of_{n}_{k} was made" for k in range(400))
        found = {"type": "tool_result", "tool_use_id": f"c{n}", "content": lines}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]
    path = tmp_path / "session.json"
    path.write_text(json.dumps([*messages, {"role": "assistant", "content": "the_value_of_0_333 was made"}]))
    return path


def test_it_shows_what_left_when_and_why(explain: Explain, recorded: Path) -> None:
    code, out, err = explain(recorded)
    assert (code, err) == (0, "")
    assert out.startswith("session\nWith ctxfs the input of 1 session costs 0.")
    assert "Bash\\x1b[31m" in out
    assert "\x1b[31m" not in out
    assert " of 24 results and arguments would have left; " in out
    assert "2.3 times as many turns" in out
    assert "No times were recorded, so the prompt cache never counts as lost." in out


@pytest.mark.parametrize(("pause", "left"), [(200, 0), (1_000, 1)])
def test_a_pause_as_long_as_the_caches_time_to_live_loses_it(
    explain: Explain, tmp_path: Path, pause: int, left: int
) -> None:
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    found = {"type": "tool_result", "tool_use_id": "c", "content": "a line that was printed\n" * 60}
    rows: list[dict[str, object]] = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [call]}]
    rows.append({"role": "user", "content": [found, {"type": "text", "text": "why? " * 10_000}]})
    rows += [{"role": role, "content": "so"} for _ in range(30) for role in ("assistant", "user")]
    rows.append({"role": "assistant", "content": "so"})
    at = [n + pause * (n >= len(rows) - 2) for n in range(len(rows))]
    times = [f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z" for seconds in at]
    path = tmp_path / "paused.json"
    path.write_text(json.dumps([{**row, "timestamp": time} for row, time in zip(rows, times, strict=True)]))
    code, out, _ = explain(path)
    assert (code, f"{left} of 2 results and arguments would have left" in out) == (0, True)
    assert "After 300 seconds without a call the prompt cache counts as lost." in out


def test_its_json_has_each_item(explain: Explain, recorded: Path) -> None:
    code, out, _ = explain(recorded, "--json")
    (told,) = json.loads(out)["recordings"]
    assert (code, told["session"], len(told["items"])) == (0, "session", 24)
    results = [item for item in told["items"] if item["kind"] == "result"]
    left = [item for item in results if item["left_before_call"] is not None]
    assert [item["call"] for item in results] == list(range(2, 14))
    assert all(item["left_before_call"] >= item["call"] for item in left)
    assert all(item["tokens_after"] < item["tokens"] and item["why"] for item in left)
    assert results[0]["read_backs"] == 1


def test_a_bill_is_told_too(explain: Explain, tmp_path: Path) -> None:
    codex(tmp_path / "rollout.jsonl")
    code, out, _ = explain(tmp_path / "rollout.jsonl")
    assert (code, out.splitlines()[1][:17]) == (0, "You paid $0.0051 ")


@pytest.mark.parametrize("content", ["", "words", '[{"role": "user", "content": "no reply"}]'])
def test_a_file_that_is_no_recording_is_one_line_and_2(explain: Explain, content: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(content)
    code, out, err = explain(tmp_path / "file.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "file.json" in err


def test_a_file_that_is_not_there_is_named(explain: Explain, tmp_path: Path) -> None:
    for missing in ("nothing.jsonl", tmp_path / "nothing"):
        code, out, err = explain(missing, "--root", tmp_path)
        assert (code, out) == (2, "")
        assert err == f"ctxfs: there is no file {missing}, and no session with that name under {tmp_path}\n"
    assert explain("nothing", "--root", tmp_path)[2].startswith("ctxfs: no session 'nothing' under")
