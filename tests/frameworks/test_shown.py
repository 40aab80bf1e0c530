"""What a user of the framework sees first: its example and its section of the documentation run as they are."""

import runpy
from pathlib import Path

import pytest

from frameworks.flow import blocks_of, page_of, run_page

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_example_runs(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(ROOT / "examples" / f"with_{framework}.py")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(program, run_name="__main__")  # a process of its own would import the framework once more
    assert capsys.readouterr().out.strip(), "an example shows what it does"


def test_the_page_runs(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_of(framework)
    assert blocks_of(page, framework)
    run_page(page, framework)
