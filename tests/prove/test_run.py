"""The runner of the proofs: a part that is done is not run again, and nothing that failed counts as done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from prove.parts import Part, Result
from prove.run import discover, main, report, run_part


def part_of(run: Callable[[], Result]) -> tuple[Part, list[float]]:
    budgets: list[float] = []

    def work(budget_s: float, state_dir: Path) -> Result:
        assert state_dir.is_dir()
        budgets.append(budget_s)
        return run()

    return Part(name="sample", title="a sample", run=work), budgets


def test_a_part_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    part, budgets = part_of(lambda: Result(figures={"states": 3}, controls={"broken": True}))
    outcomes = [run_part(part, 5.0, tmp_path) for _ in range(2)]
    assert budgets == [5.0]
    assert outcomes[1] == outcomes[0]
    assert outcomes[0].verdict == "ok"


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Result(complete=False), "not done"),
        (Result(violations=["lost"]), "FAILED"),
        (Result(controls={"broken": False}), "FAILED"),
    ],
)
def test_what_failed_or_is_not_done_is_run_again(tmp_path: Path, result: Result, verdict: str) -> None:
    part, budgets = part_of(lambda: result)
    outcomes = [run_part(part, 5.0, tmp_path) for _ in range(2)]
    assert [outcome.verdict for outcome in outcomes] == [verdict, verdict]
    assert len(budgets) == 2


def test_a_part_that_raises_has_failed(tmp_path: Path) -> None:
    def fails() -> Result:
        raise RuntimeError("no room")

    outcome = run_part(part_of(fails)[0], 5.0, tmp_path)
    assert outcome.verdict == "FAILED"
    assert "no room" in report([outcome])


def test_the_table_names_controls_that_were_missed(tmp_path: Path) -> None:
    part, _ = part_of(lambda: Result(figures={"states": 1234}, controls={"no sync": False}))
    table = report([run_part(part, 5.0, tmp_path)])
    assert "states 1,234" in table
    assert "'no sync' was not seen failing" in table


def test_every_part_is_found_by_its_name() -> None:
    names = [part.name for part in discover()]
    assert {"crash", "names"} <= set(names)
    assert len(set(names)) == len(names)
    assert [part.name for part in discover(["crash"])] == ["crash"]
    with pytest.raises(SystemExit, match="no such part: nothing"):
        main(["--only", "nothing"])
