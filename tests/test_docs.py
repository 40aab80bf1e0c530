"""The Python in README and docs runs, top to bottom, a page at a time; what it says it prints is compared.

Each page runs in an empty directory of its own. ``<!--- skip: next "reason" -->`` before a block skips it.

A block of ``text`` directly after a block of Python, or after the line ``<!--- printed -->``, is what the Python before
it prints. ``…`` in it stands for any text, such as lines, or the beginning of a path.
"""

import ast
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from test_public_names import ADAPTERS, MEMBERS, PUBLIC

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
FRAMEWORKS = ("frameworks.md", "frameworks-without-adapter.md")
"""Pages that run where the frameworks are installed: tests/frameworks/test_shown.py."""
RUN_HERE = [page for page in PAGES if page.name not in FRAMEWORKS]


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What a page does to the loggers is undone: other tests run in the same process."""
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == "ctxfs"]
    loggers = [logging.getLogger(name) for name in ("", "ctxfs", "ctxfs.context", *names)]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


PRINTED = re.compile(r"(?s)```python\n((?!\n```).)*\n```\n\n$|<!--- printed -->\n$")
"""What is before a block of text that shows what the code prints."""


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""

    def compare(example: Example) -> None:
        if PRINTED.search(example.document.text[: example.start]):
            assert_printed(example.parsed, printed)

    sybil = Sybil([PythonCodeBlockParser(), CodeBlockParser("text", compare), SkipParser()], path=str(page.parent))
    for example in sybil.parse(page).examples():
        example.evaluate()
        printed = capsys.readouterr().out or printed


SIZE_OF_A_PLACEHOLDER = re.compile(r"\b\d+(?= tokens, the rest in a file)")
"""It depends on the length of the session's path, and on the session's id."""


def assert_printed(shown: str, printed: str) -> None:
    """``shown`` is what a program printed. Sizes that depend on a path may differ by 60 tokens."""
    sizes = [[int(size) for size in SIZE_OF_A_PLACEHOLDER.findall(text)] for text in (shown, printed)]
    assert sizes[0] == pytest.approx(sizes[1], abs=60)
    shown, printed = (SIZE_OF_A_PLACEHOLDER.sub("N", text) for text in (shown, printed))
    parts = (re.escape(part) for part in shown.rstrip("\n").split("…"))
    assert re.fullmatch("(?s)" + ".*".join(parts), printed.rstrip("\n")), f"it prints:\n{printed}"


def imports_in(code: str) -> Iterator[str]:
    """The full names that Python code imports from ctxfs."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


SHOWN = [*PAGES, *sorted((ROOT / "examples").glob("*.py"))]
INSTALLS = re.compile(r"(?m)^pip install 'ctxfs(\[[\w,]+\])'(.*)$")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_first_install_of_a_page_says_what_to_write_in_a_clone(page: Path) -> None:
    if found := INSTALLS.search(page.read_text()):
        assert f"not on PyPI yet: in a clone, '.{found[1]}'" in found[2]


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


def test_the_methods_that_the_page_for_maintainers_names_are_there() -> None:
    """ "Your first week" leads a reader from method to method."""
    week = MAINTAINERS.read_text().partition("## Your first week")[2].partition("\n## ")[0]
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", week)
    theirs = re.compile(rf"\bclass ({'|'.join(name for name, _ in named)})\b")
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    classes: dict[str, set[str]] = {}
    for source in filter(theirs.search, sources):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                functions = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
                classes.setdefault(node.name, set()).update(function.name for function in functions)
    assert len(named) > 20
    assert not [f"{name}.{method}" for name, method in named if method not in classes.get(name, ())]


def test_the_page_of_public_names_shows_every_module_that_has_some() -> None:
    rows = re.findall(r"(?m)^\| (`ctxfs.*?) \| (.*) \|$", (ROOT / "docs" / "public-names.md").read_text())
    shown = {name for modules, _ in rows for name in re.findall(r"`([\w.]+)`", modules)}
    assert shown == PUBLIC.keys() | ADAPTERS.keys()


def pages_in(nav: list[Any]) -> Iterator[str]:
    """The pages that a site's navigation leads to."""
    for entry in nav:
        target = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [target] if isinstance(target, str) else pages_in(target)


def test_the_page_of_public_names_shows_the_classes_that_are_public_in_part() -> None:
    page = (ROOT / "docs" / "public-names.md").read_text()
    rows = re.findall(r"(?m)^\| `([A-Z]\w+)` \| (.*) \|$", page)
    assert {name: re.findall(r"`(\w+)`", members) for name, members in rows} == {
        name: members.split() for name, members in MEMBERS.items()
    }


def test_the_site_leads_to_every_page_once() -> None:
    pages = list(pages_in(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert sorted(pages) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:])


def test_the_reference_has_a_page_for_every_module_with_public_names() -> None:
    modules = PUBLIC.keys() | ADAPTERS.keys()
    assert {page.stem for page in (ROOT / "docs" / "api").glob("*.md")} == modules
    assert all(f"::: {module}\n" in (ROOT / "docs" / "api" / f"{module}.md").read_text() for module in modules)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lists_are_laid_out_as_the_site_and_github_both_read_them(page: Path) -> None:
    """The site needs four spaces before what is inside of an item, and an empty line before a list."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "", page.read_text())
    item = r" *(?:[-*]|\d+\.) "
    assert not re.findall(rf"(?m)^(?=(?:    )* {{1,3}}\S){item}.*", text), "an item is indented by a multiple of four"
    assert not re.findall(r"(?m)(?<=\n\n) {1,3}\S.*", text), "a paragraph of an item is indented by four"
    for block in re.split(r"\n\s*\n", text):
        first, *rest = block.strip("\n").split("\n")
        if not re.match(item, first):
            assert not [line for line in rest if re.match(item, line)], "an empty line goes before a list"


def test_each_framework_s_section_says_what_the_model_sees() -> None:
    text = "".join((ROOT / "docs" / name).read_text() for name in FRAMEWORKS)
    sections = re.split(r"(?m)^## (?=[a-z_]+$)", text)[1:]
    assert len(sections) >= 15
    for section in sections:
        assert "[What does the model see?](context.md#what-does-the-model-see)" in section, section.split("\n")[0]
