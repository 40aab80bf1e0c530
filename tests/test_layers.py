"""The import graph: two tiers of rooms, from root to leaf only, without cycles, optional packages at one place each.

Every import statement counts, also under TYPE_CHECKING and inside functions.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from pure_core_coverage import ROOT, measured, measured_folders

TESTS = Path(__file__).resolve().parent
SOURCE = Path(__file__).resolve().parent.parent / "src"

CORE = ("errors", "text", "messages", "eviction", "storage", "session", "tools", "context", "agent")
"""What every user runs. The modules of a room may import from each other, and from the rooms before it."""
AROUND = ("stores", "adapters", "lab", "view", "testing")
"""Each may import from the core, and from no other room around it."""
COMMANDS = ("cli", "__main__")
"""They may import from everywhere."""
LEAVES = ("version", "lazy")
"""Modules beside the rooms, which everything may import."""

# A room's __init__ only gathers its public names; it stands above all rooms, and nothing below imports from it.
FACADES = ("", *CORE, *AROUND, "cli")

# Packages that `pip install ctxfs` does not bring, or that cost too much to import with it, and where they live: a
# framework in its adapter, a web server in each program that serves.
HOMES = {
    "anthropic": "*.anthropic",
    "openai": "agent.llm.openai",
    "genai_prices": "messages.models.genai",
    "opentelemetry": "agent.telemetry.telemetry",
    "starlette": "adapters.serve.proxy view.app",
    "uvicorn": "adapters.serve.proxy view.server",
    "mcp": "adapters.serve.wrapped_url",
    "mcp_types": "adapters.serve.wrapped_url",
    "tomlkit": "adapters.serve.clients",
    "jinja2": "view.pages",
    "markupsafe": "view.pages",
    "obstore": "stores.objects.bucket",
    "psycopg": "stores.postgres",
    "tiktoken": "messages.tokens",
    "toktok": "messages.tokens",
    "typer": "cli.*",
    "click": "cli.*",
    "rich": "cli.*",
    "hypothesis": "testing.*",
    "atif": "lab.recordings.formats.atif",
    "deepagents": "adapters.deepagents",
    "langchain": "adapters.langchain*",
    "langchain_core": "adapters.*",  # of LangChain's, and of all that is built on it
    "langgraph": "adapters.langchain*",
}

NOT_WITH_CTXFS = (
    "anthropic",
    "openai",
    "obstore",
    "psycopg",
    "genai_prices",
    "tiktoken",
    "toktok",
    "typer",
    "rich",
    "trio",
    "hypothesis",
)


def module_name(path: Path) -> str:
    """Return a module's name inside ctxfs; "" for ctxfs itself."""
    parts = path.relative_to(SOURCE / "ctxfs").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((SOURCE / "ctxfs").rglob("*.py")) if "data" not in path.parts}
"""All but the project of the demo, which is data."""


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the full names of all modules that ``module`` imports anywhere in its text."""
    return frozenset(_imports(module, ast.parse(MODULES[module].read_text())))


def _imports(module: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            base = str(node.module)
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix("ctxfs.")
                yield f"ctxfs.{inner}" if inner in MODULES and base.startswith("ctxfs") else base


def inner_imports(module: str) -> set[str]:
    """Return the modules of ctxfs that ``module`` imports, named inside ctxfs."""
    return {n.removeprefix("ctxfs").removeprefix(".") for n in imports_of(module) if n.split(".")[0] == "ctxfs"}


def room_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def allowed(room: str) -> tuple[str, ...]:
    """Return the rooms that the modules of a room may import from."""
    if room in CORE:
        return (*LEAVES, *CORE[: CORE.index(room) + 1])
    if room in AROUND:
        return (*LEAVES, *CORE, room)
    return (*LEAVES, *CORE, *AROUND, *COMMANDS) if room in COMMANDS else (*LEAVES, "errors")


INNER = [module for module in MODULES if module not in FACADES]


def test_every_module_is_in_a_room_and_every_room_has_modules() -> None:
    assert {room_of(module) for module in INNER} == {*LEAVES, *CORE, *AROUND, *COMMANDS}


def test_the_core_never_imports_around_and_rooms_around_do_not_import_each_other() -> None:
    wrong = {
        f"{module} imports {name}"
        for module in INNER
        for name in inner_imports(module)
        if name not in FACADES and room_of(name) not in allowed(room_of(module))
    }
    assert not wrong


def test_the_pure_core_and_the_folders_of_its_tests_are_there() -> None:
    """``scripts/pure_core_coverage.py`` measures them at the end of a long run."""
    assert not [pattern for pattern in measured() if not list(ROOT.glob(pattern))]
    modules = [module for pattern in measured() for module in ROOT.glob(pattern)]
    assert len(modules) == len(set(modules)), "each is named once"
    folders = {path.parent.name for path in TESTS.rglob("test_*.py")}
    assert not measured_folders() - folders


def test_the_architecture_page_shows_every_room_in_order() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## The rooms")[2].partition("## ")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    shown = [room for first in firsts for room in re.findall(r"`(\w+)`", first)]
    assert shown == [*CORE, *AROUND, "cli"]


@pytest.mark.parametrize("name", ["architecture.md", "rules.md"])
def test_the_modules_that_the_pages_for_maintainers_name_are_there(name: str) -> None:
    page = (SOURCE.parent / "docs" / name).read_text()
    rooms = {*CORE, *AROUND, "cli"}
    named = {name for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", page) if room_of(name) in rooms}
    assert len(named) > 20
    assert not named - set(MODULES)


def test_modules_import_where_a_name_lives() -> None:
    gathered = set(FACADES) - {"", "errors", "cli"}  # what an error is called is known everywhere
    wrong = {module: inner_imports(module) & gathered for module in INNER}
    assert not {module: facades for module, facades in wrong.items() if facades}


def test_facades_only_gather_names() -> None:
    for facade in set(FACADES) - {"cli"}:  # which answers `ctxfs --version` itself
        docstring, *rest = ast.parse(MODULES[facade].read_text()).body
        assert isinstance(docstring, ast.Expr), facade
        functions = [n.name for n in rest if isinstance(n, ast.FunctionDef)]
        assert not set(functions) - {"__getattr__", "__dir__"}, facade
        assert not [n for n in rest if isinstance(n, ast.ClassDef)], facade


def test_there_is_no_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(inner_imports(module) & set(INNER)):
                visit(name, (*path, module))
            done.add(module)

    for module in INNER:
        visit(module, ())


def test_optional_and_heavy_packages_have_one_home() -> None:
    for package, homes in HOMES.items():
        importers = {module for module in MODULES for name in imports_of(module) if name.split(".")[0] == package}
        assert not [m for m in importers if not any(fnmatch(m, home) for home in homes.split())], package


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_ctxfs_imports_no_sdk_and_no_vocabulary() -> None:
    loaded = python("import ctxfs, ctxfs.agent, ctxfs.tools, ctxfs.context, sys; print(*sys.modules)").split()
    assert not [name for name in NOT_WITH_CTXFS if name in loaded]


def test_pydantic_is_imported_with_the_first_tool() -> None:
    """It makes the schemas of tools, and is a third of what importing an agent would cost."""
    loaded = python("from ctxfs import Agent, AgentConfig, Context; import sys; print(*sys.modules)").split()
    assert not {"pydantic", "pydantic_core"} & set(loaded)


@pytest.mark.slow
def test_every_package_can_be_the_first_one_imported() -> None:
    facades = sorted(f"ctxfs.{name}".rstrip(".") for name in FACADES)
    others = sorted(f"ctxfs.{name}" for name in INNER if room_of(name) != "adapters")  # their frameworks are elsewhere
    code = f"""
import importlib, sys
for name in {facades!r}:
    for loaded in [m for m in sys.modules if m.split(".")[0] == "ctxfs"]:
        del sys.modules[loaded]
    importlib.import_module(name)
for name in {others!r}:
    importlib.import_module(name)
"""
    python(code)


def test_no_docstring_only_points_to_another_one() -> None:
    """A method that does what its interface says is marked with ``override``, and needs no words of its own."""
    pointing = re.compile(r'"""See ``[^`]+``\.?"""')
    assert [name for name, path in MODULES.items() if pointing.search(path.read_text())] == []
