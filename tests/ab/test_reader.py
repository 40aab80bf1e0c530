"""The mechanical reader of the page of evidence shows what is lost where content is lost, and calls where it hides."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.service


def test_it_shows_losses_where_content_is_lost() -> None:
    program = [sys.executable, "benchmarks/mechanical_reader.py", "--tasks", "12"]
    done = subprocess.run(program, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    solved = {line.split("|")[1].strip(): int(line.split("|")[2].split()[0]) for line in done.stdout.splitlines()[2:]}
    assert solved["everything is sent"] == solved["ctxfs"] == 12
    assert solved["results cut to 1,000 tokens"] < solved["ctxfs"]
