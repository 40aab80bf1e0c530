"""A comparison as ``ctxfs view`` shows it: read from the file of results, while it is played and when it is damaged."""

from pathlib import Path

import anyio
import pytest

from ctxfs.errors import ConfigError, ReplayFormatError
from ctxfs.lab.ab.compared_page import ComparedFiles
from ctxfs.lab.ab.results import Header, Outcome, Results, SessionKey, SessionResult, is_results

HEADER = Header(seed=1, arms=("none", "default"), repeats=1, tasks="x")


def played(file: Path) -> None:
    with Results(file, HEADER) as results:
        for task in ("port", "name"):
            for arm in ("default", "none"):
                solved = arm == "none" or task == "port"
                outcome: Outcome = "solved" if solved else "unsolved"
                results.ended(SessionResult(task=task, repeat=0, arm=arm, outcome=outcome, usd=0.25, calls=3))


def test_a_comparison_is_shown_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.results.jsonl"
    played(file)
    assert is_results(file)
    files = ComparedFiles([file])
    page = anyio.run(files.page, 0)
    assert page.name == "tasks.results.jsonl"
    assert page.sentences[0].startswith("default solved 1 of 2, none 2; ")
    assert ("solved", ["2", "1"]) in page.rows
    assert page.noughts[:3] == ["ended by time", "ended by their budget", "crashed"]
    assert not {name for name, _ in page.rows} & set(page.noughts)
    assert [[(one.task, one.arm) for one in pair] for pair in page.tasks] == [
        [("name", "none"), ("name", "default")],
        [("port", "none"), ("port", "default")],
    ]
    assert not [note for note in page.notes if "not played" in note]
    with pytest.raises(ReplayFormatError, match="no comparison 1: 1 were given"):
        anyio.run(files.page, 1)


def test_a_comparison_that_goes_on_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with Results(file, HEADER) as results:
        begun = anyio.run(ComparedFiles([file]).page, 0)
        assert (begun.tasks, [name for name, _ in begun.rows]) == ([], ["sessions", "solved"])
        results.sent(SessionKey("port", 0, "none"), 1, 0.5)
        results.ended(SessionResult(task="port", repeat=0, arm="none", outcome="solved"))
        with file.open("ab") as half:
            half.write(b'{"kind":"session","ta')
        page = anyio.run(ComparedFiles([file]).page, 0)
    assert page.comparison.spent_usd == 0.5
    assert [[one.arm for one in pair] for pair in page.tasks] == [["none"]]
    assert "1 session not played" in " ".join(page.notes)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"kind":"comparison","version":1}\n',
        b'{"kind":"comparison","version":1,"seed":1,"arms":["a"],"repeats":1,"tasks":"x","command":""}\n[1]\n',
    ],
)
def test_a_file_that_is_damaged_says_so(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(damage)
    with pytest.raises(ConfigError, match=r"r\.jsonl is not a file of results"):
        anyio.run(ComparedFiles([file]).page, 0)


def test_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    assert not is_results(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match=r"none\.jsonl cannot be read"):
        anyio.run(ComparedFiles([tmp_path / "none.jsonl"]).page, 0)
