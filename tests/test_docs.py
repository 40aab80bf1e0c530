"""The Python in README and docs runs, top to bottom, a page at a time; what it says it prints is compared.

Each page runs in an empty directory of its own. ``<!--- skip: next "reason" -->`` before a block skips it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from test_public_names import ADAPTERS, PUBLIC

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
FRAMEWORKS = ROOT / "docs" / "frameworks.md"  # runs where they are installed: tests/frameworks/test_shown.py
RUN_HERE = [page for page in PAGES if page != FRAMEWORKS]


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], path=str(page.parent)).parse(page)
    for example in document.examples():
        example.evaluate()


def imports_in(code: str) -> Iterator[str]:
    """The full names that Python code imports from ctxfs."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


SHOWN = [*PAGES, *sorted((ROOT / "examples").glob("*.py"))]
MAINTAINERS = ROOT / "docs" / "architecture.md"  # it names modules, for those who change them


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_docs_and_examples_name_what_is_public(page: Path) -> None:
    text = page.read_text()
    blocks = [text] if page.suffix == ".py" else re.findall(r"(?ms)^```python\n(.*?)^```", text)
    modules = {**PUBLIC, **ADAPTERS}
    public = {f"{module}.{name}" for module, names in modules.items() for name in names.split()} | modules.keys()
    imported = {name for code in blocks for name in imports_in(code) if name.split(".")[0] == "ctxfs"}
    assert not imported - public
    if page != MAINTAINERS:
        assert not set(re.findall(r"`(ctxfs(?:\.\w+)+)", text)) - public


def test_the_page_of_public_names_shows_every_module_that_has_some() -> None:
    rows = re.findall(r"(?m)^\| (`ctxfs.*?) \| (.*) \|$", (ROOT / "docs" / "public-names.md").read_text())
    shown = {name for modules, _ in rows for name in re.findall(r"`([\w.]+)`", modules)}
    assert shown == PUBLIC.keys() | ADAPTERS.keys()
