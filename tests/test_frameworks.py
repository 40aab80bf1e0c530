"""What belongs to an adapter is there: an extra, tests with its framework, an example, its part of the page."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.adapters.serve.programs import PACKAGES
from run_frameworks import BrokenError, Environment, NotInstalledError, built, environments, mypy_settings, oldest
from test_layers import MODULES
from test_public_names import ADAPTERS

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "frameworks"
ROWS = tomllib.loads((TESTS / "table.toml").read_text())
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OF_ADAPTERS = [name.removeprefix("adapters.") for name in MODULES if re.fullmatch(r"adapters\.(?!serve)\w+", name)]
ADAPTER_MODULES = [
    name
    for name in OF_ADAPTERS
    if not name.endswith(("_messages", "_storage")) and name not in ("extras", "beside", "transport")
]  # which are parts of theirs; the transport needs no framework, and is tested with the SDKs in tests/serve
WITHOUT_FRAMEWORKS = """
import importlib.abc, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {{"ctxfs", *sys.stdlib_module_names, *INSTALLED}}:
            raise ModuleNotFoundError(name, name=name)

import ctxfs.context.history.history  # what the core needs is imported before
import anyio, pydantic_core
INSTALLED = {{name.split(".")[0] for name in sys.modules}}
sys.meta_path.insert(0, Nothing())
try:
    import ctxfs.adapters.{name}
except ctxfs.errors.MissingExtra as error:
    print(error.extra)
"""


@pytest.mark.parametrize("name", ADAPTER_MODULES)
def test_an_adapter_is_installed_by_its_extra_and_tested(name: str) -> None:
    assert f"ctxfs.adapters.{name}" in ADAPTERS
    assert EXTRAS[name]
    assert "requires" not in ROWS[name]


@pytest.mark.service
@pytest.mark.parametrize("name", ADAPTER_MODULES)
def test_an_adapter_names_the_extra_that_is_missing(name: str) -> None:
    """A fresh process, in which no framework can be imported."""
    program = WITHOUT_FRAMEWORKS.format(name=name)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [name]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not {"npm", "apart"} & row.keys()])
def test_a_framework_has_tests_an_example_and_its_part_of_the_page(name: str) -> None:
    assert (TESTS / f"test_{name}.py").exists()
    assert (ROOT / "examples" / f"with_{name}.py").exists()
    page = (ROOT / "docs" / "frameworks.md").read_text()
    other = "frameworks-without-adapter.md"
    assert f"\n## {name}\n" in page + (ROOT / "docs" / other).read_text()
    assert re.search(rf"(?m)^\| \[{name}\]\((?:{other})?#{name}\) \|", page), "its row in the first table"


def test_the_page_of_frameworks_stays_short() -> None:
    assert len((ROOT / "docs" / "frameworks.md").read_text().split()) <= 2_500


def test_a_program_is_in_the_proxys_table() -> None:
    page = (ROOT / "docs" / "proxy.md").read_text()
    commands = [PACKAGES[package] for package in ROWS["programs"]["npm"]]
    commands += [name for name, row in ROWS.items() if "apart" in row]
    assert "aider" in commands
    for command in commands:
        assert f"`{command} …`" in page


def test_the_newest_and_the_oldest_release_are_tested() -> None:
    table: dict[str, dict[str, Any]] = {
        "a": {"also": ["x"]},
        "b": {"requires": ["b>=1.5,<3", "c>=2"]},
        "c": {"requires": ["d>=1"], "oldest": False},
        "d": {"requires": ["e>=1"], "apart": ["f>=1"]},
    }
    made = {one.name: one.requires for one in environments(table, {"a": ["a[full]>=2.0"]})}
    assert made == {
        "a-newest": ("a[full]>=2.0", "x", "pytest>=9"),
        "a-oldest": ("a[full]==2.0", "x", "pytest>=9"),
        "b-newest": ("b>=1.5,<3", "c>=2", "pytest>=9"),
        "b-oldest": ("b==1.5", "c==2", "pytest>=9"),
        "c-newest": ("d>=1", "pytest>=9"),
        "d-newest": ("e>=1", "pytest>=9"),
    }


def test_a_requirement_says_which_release_is_the_oldest() -> None:
    with pytest.raises(SystemExit, match="say with >= which release is the oldest"):
        oldest("a==1.0")


@pytest.mark.parametrize(("refused", "error"), [("a>=2", NotInstalledError), (str(ROOT), BrokenError)])
def test_a_framework_that_cannot_be_installed_is_no_broken_ctxfs(refused: str, error: type[Exception]) -> None:
    def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int(refused in command), stdout="no such release")

    with pytest.raises(error, match=r"^a-newest[^\n]*:\nno such release$"):
        built(Environment("a", "newest", ("a>=2",), typed=True), "", fresh=True, run=run)


def test_a_program_that_cannot_be_installed_apart_is_named() -> None:
    def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int("f>=1" in command), stdout="no such release")

    with pytest.raises(NotInstalledError, match=r"^d-newest could not be made:\nno such release$"):
        built(Environment("d", "newest", ("e>=1",), typed=True, apart=("f>=1",)), "", fresh=True, run=run)


def test_the_types_of_a_framework_are_checked_as_strictly_as_all_others() -> None:
    settings = mypy_settings("langchain").splitlines()
    assert "strict = True" in settings
    assert settings[settings.index("[mypy-anthropic.*]") :] == [
        "[mypy-anthropic.*]",
        "follow_imports = skip",
        "ignore_missing_imports = True",
    ]
    assert "[mypy-anthropic.*]" not in mypy_settings("anthropic").splitlines()
