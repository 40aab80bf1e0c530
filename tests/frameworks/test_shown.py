"""What a user of the framework sees first: its example and its section of docs/frameworks.md run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from frameworks.flow import blocks_of, run_page

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_example_runs(framework: str, tmp_path: Path) -> None:
    program = ROOT / "examples" / f"with_{framework}.py"
    command = [sys.executable, str(ROOT / "tests" / "loopback_only.py"), str(program)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows what it does"


def test_the_page_runs(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "frameworks.md"
    assert blocks_of(page, framework)
    run_page(page, framework)
