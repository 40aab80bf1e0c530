"""Every program in examples/ runs to its end, without a key and without a network.

Those that need a framework run where it is installed: tests/frameworks/test_shown.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANGS_S

pytestmark = pytest.mark.service

ROOT = Path(__file__).resolve().parent.parent
SHOWN = {"web_workers.py": "web-workers.md"}
"""The page that shows what a program prints."""
PROGRAMS = sorted(path for path in (ROOT / "examples").rglob("*.py") if not path.name.startswith("with_"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.relative_to(ROOT).as_posix())
def test_an_example_runs(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "tests" / "loopback_only.py"), str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=HANGS_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows what it does"
    if program.name in SHOWN:
        assert f"```text\n{done.stdout}```\n" in (ROOT / "docs" / SHOWN[program.name]).read_text()
    if program.name == "behind_a_proxy.py":
        assert_the_page_of_the_proxy_shows(done.stderr)


TOOLS = [*sorted((ROOT / "scripts").glob("*.py")), ROOT / "benchmarks" / "run.py"]


@pytest.mark.parametrize("program", TOOLS, ids=lambda program: program.name)
def test_a_script_that_is_asked_for_help_does_nothing_else(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(program), "--help"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {program.name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "page_name"),
    [("own_loop.py", "your-own-loop.md"), ("own_sync_loop.py", "your-own-loop.md"), ("own_store.py", "own-store.md")],
)
def test_a_page_shows_the_program_as_it_is(name: str, page_name: str) -> None:
    # Examples are checked by mypy as strictly as everything else; so what the page shows is, too.
    page = (ROOT / "docs" / page_name).read_text()
    assert f"```python\n{(ROOT / 'examples' / name).read_text()}```\n" in page


def assert_the_page_of_the_proxy_shows(printed: str) -> None:
    shown = re.search(r"```text\n(ctxfs: .*?)```\n", (ROOT / "docs" / "proxy.md").read_text(), re.DOTALL)
    assert shown
    # Placeholders hold paths, whose lengths differ from machine to machine: the figures do too, by a little.
    number = re.compile(r"\d[\d,.]*")
    told, page = ([float(n.replace(",", "")) for n in number.findall(text)] for text in (printed, shown[1]))
    assert told == pytest.approx(page, rel=0.02)
    assert number.sub("#", printed) == number.sub("#", shown[1])
