"""What fails is run once more by ``make test``: what passes then is named, what fails again fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.service

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "run_tests.py"
TESTS = """
import os
import pathlib
import pytest

def passes_the_second_time(name):
    marker = pathlib.Path(__file__).with_name(name)
    tried = marker.exists()
    marker.touch()
    return tried

@pytest.fixture(scope="module")
def shared():
    assert passes_the_second_time("shared")

@pytest.fixture
def left_clean():
    yield
    assert passes_the_second_time("left_clean")

def test_good(): pass
def test_with_a_shared_fixture(shared): pass
def test_ends_clean(left_clean): pass
def test_kills_its_process():
    if not passes_the_second_time("kills"):
        os._exit(3)
def test_by_chance():
    what_was_wrong = "by " + "chance"
    assert passes_the_second_time("chance")
"""
BY_CHANCE = {"test_with_a_shared_fixture", "test_ends_clean", "test_kills_its_process", "test_by_chance"}


IN_TWO_PROCESSES = ("-p", "xdist", "--numprocesses=2", "--dist=worksteal")


def run(folder: Path, text: str, *options: str) -> tuple[int, list[str]]:
    file = folder / "test_some.py"
    file.write_text(text)
    (folder / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, str(SCRIPT), *options, str(file)]
    without_plugins = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=without_plugins, check=False, capture_output=True, text=True)
    print(done.stdout, done.stderr)  # shown where a test fails
    return done.returncode, done.stdout.splitlines()


def named(lines: list[str], start: str) -> set[str]:
    return {line.rpartition("::")[2] for line in lines if line.startswith(start)}


def test_that_passes_when_run_again_is_named(tmp_path: Path) -> None:
    code, lines = run(tmp_path, TESTS, *IN_TWO_PROCESSES)
    assert code == 0
    assert named(lines, "FAILED ONCE, PASSED WHEN RUN AGAIN: ") == BY_CHANCE
    assert "what_was_wrong = 'by chance'" in lines, "the run that failed shows why"


def test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, lines = run(tmp_path, TESTS + "def test_bad(): assert False\n", *IN_TWO_PROCESSES)
    assert code == 1
    assert named(lines, "FAILED ONCE, PASSED WHEN RUN AGAIN: ") == BY_CHANCE
    assert named(lines, "FAILED TWICE: ") == {"test_bad"}


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("def test_good(): pass", (), 0),
        ("import not_there", (), 2),
        ("import not_there", IN_TWO_PROCESSES, 1),
        ("import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_bad(n): assert False", (), 1),
        ("", (), 5),
    ],
)
def test_nothing_is_run_again_after_anything_else(
    tmp_path: Path, text: str, options: tuple[str, ...], code: int
) -> None:
    found, lines = run(tmp_path, text, *options)
    assert found == code
    assert not any("Once more" in line for line in lines)
