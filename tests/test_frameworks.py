"""What belongs to an adapter is there: an extra, tests with its framework, an example, its part of the page."""

import re
import tomllib
from pathlib import Path

import pytest

from run_frameworks import environments, oldest
from test_layers import MODULES
from test_public_names import ADAPTERS

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "frameworks"
ROWS = tomllib.loads((TESTS / "table.toml").read_text())
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OF_ADAPTERS = [name.removeprefix("adapters.") for name in MODULES if name.startswith("adapters.")]
ADAPTER_MODULES = [
    name for name in OF_ADAPTERS if not name.endswith(("_messages", "_storage"))
]  # which are parts of theirs
LONGEST_ADAPTER = 160
"""Lines of an adapter, at most: one that needs more does what the seam should do."""


@pytest.mark.parametrize("name", ADAPTER_MODULES)
def test_an_adapter_is_installed_by_its_extra_and_tested(name: str) -> None:
    assert f"ctxfs.adapters.{name}" in ADAPTERS
    assert EXTRAS[name]
    assert "requires" not in ROWS[name]
    assert len(MODULES[f"adapters.{name}"].read_text().splitlines()) <= LONGEST_ADAPTER


@pytest.mark.parametrize("name", ROWS)
def test_a_framework_has_tests_an_example_and_its_part_of_the_page(name: str) -> None:
    assert (TESTS / f"test_{name}.py").exists()
    assert (ROOT / "examples" / f"with_{name}.py").exists()
    page = (ROOT / "docs" / "frameworks.md").read_text()
    assert f"\n## {name}\n" in page
    assert re.search(rf"(?m)^\| \[{name}\]\(#{name}\) \|", page), "its row in the first table"


def test_the_newest_and_the_oldest_release_are_tested() -> None:
    table = {"a": {"also": ["x"]}, "b": {"requires": ["b>=1.5,<3", "c>=2"]}}
    made = {one.name: one.requires for one in environments(table, {"a": ["a[full]>=2.0"]})}
    assert made == {
        "a-newest": ("a[full]>=2.0", "x", "pytest>=9"),
        "a-oldest": ("a[full]==2.0", "x", "pytest>=9"),
        "b-newest": ("b>=1.5,<3", "c>=2", "pytest>=9"),
        "b-oldest": ("b==1.5", "c==2", "pytest>=9"),
    }


def test_a_requirement_says_which_release_is_the_oldest() -> None:
    with pytest.raises(SystemExit, match="say with >= which release is the oldest"):
        oldest("a==1.0")
