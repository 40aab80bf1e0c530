"""The commands know a session of a history that a framework owns."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.cli.app import run
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part

Run = Callable[..., str]


@pytest.fixture
def ctxfs(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    def call(*arguments: str) -> str:
        capfdbinary.readouterr()
        code = run([*arguments, "--root", str(tmp_path)])
        out, err = capfdbinary.readouterr()
        assert code == 0, err
        return out.decode()

    return call


@pytest.fixture(autouse=True)
def session(tmp_path: Path) -> None:
    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"Read": 1}) as history:
        for n in range(3):
            parts.append(Part("reply", f"reading {n}", ("r", n)))
            parts.append(Part("call", {"path": f"/f{n}"}, ("c", n), f"c{n}", "Read"))
            parts.append(Part("result", f"words of {n}\n" * 400, ("o", n), f"c{n}", "Read"))
            history.rewrite(parts)
            history.replied({"input_tokens": 1_000, "output_tokens": 10}, "claude-sonnet-4-5")


def test_ls_shows_what_stands_for_what(ctxfs: Run) -> None:
    listed = json.loads(ctxfs("ls", "s", "--json"))
    assert [(row["item_id"], row["place"], row["tool_name"]) for row in listed] == [
        ("c0", "file", "Read"),
        ("c1", "file", "Read"),
    ]
    assert all(0 < row["tokens"] < row["content_tokens"] for row in listed)
    assert "the messages are not stored here: " in ctxfs("ls", "s")


def test_cat_grep_and_verify_read_what_was_replaced(ctxfs: Run) -> None:
    assert ctxfs("cat", "s", "c0") == "words of 0\n" * 400
    assert "words of 1" in ctxfs("grep", "s", "words of 1")
    assert "2" in ctxfs("check", "s")


def test_explain_says_why_and_what_that_saved(ctxfs: Run) -> None:
    explained = json.loads(ctxfs("explain", "s", "--json"))
    assert {item["item_id"]: item["why"] for item in explained["items"]} == {
        "c0": "Read keeps its last 1 (setting: keep_recent)",
        "c1": "Read keeps its last 1 (setting: keep_recent)",
    }
    assert (explained["replies"], explained["billed"]["calls"]) == (3, 3)
    assert explained["effect"]["evictions"] == 2
    assert explained["effect"]["saved"] > 0
    assert explained["context_tokens"] > 1_000


def test_explain_claims_nothing_of_read_backs_that_are_not_recorded(ctxfs: Run) -> None:
    with_all, of_one = ctxfs("explain", "s"), ctxfs("explain", "s", "c0")
    assert "without read-backs, which are not recorded: the loop has its messages; net " in with_all
    assert "on 0 read-backs" not in with_all
    assert "read back since then: not recorded: the loop has its messages" in of_one
    explained = json.loads(ctxfs("explain", "s", "--json"))
    assert [item["read_backs"] for item in explained["items"]] == [None, None]
    assert (explained["effect"]["read_backs"], explained["effect"]["reading_back"]) == (None, None)


def test_show_and_diff_say_that_a_framework_owns_the_messages(ctxfs: Run, tmp_path: Path) -> None:
    for arguments in (("show", "s"), ("show", "s", "--call", "2"), ("diff", "s", "1")):
        assert "not recorded: the messages: your framework, program or loop keeps them" in ctxfs(*arguments)
    assert "nothing that was sent has changed" not in ctxfs("diff", "s", "1")
    assert "the last request: " in ctxfs("explain", "s")
    assert run(["show", "s", "--request", "--root", str(tmp_path)]) == 2
