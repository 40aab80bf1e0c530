"""The import graph: from root to leaf only, without cycles, optional packages at one place each.

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

SOURCE = Path(__file__).resolve().parent.parent / "src"

# Leaf first. A room is a package, or a module beside the packages. Its modules may import from each other and from the
# rooms before it.
ROOMS = (
    *(
        "errors",
        "version",
        "spelling",
        "lazy",
        "steps",
        "patterns",
        "checks",
        "media",
        "events",
    ),
    *("jsontext", "models", "llm", "tokens", "items"),
    *("storage", "content", "redaction", "session"),
    *("placeholder", "eviction", "economics", "timeline", "context"),
    *("materialize", "tools", "recall", "history", "telemetry", "agent"),
    *("messages", "workspace", "transfer", "testing", "recordings", "replay", "listing", "cleanup"),
    *("adapters", "serve", "view", "cli", "__main__"),
)
LARGEST_ROOM = 0.12
"""A room's share of the source, at most: one that is larger is two ideas."""

# Packages' __init__ modules only gather public names; they stand above all rooms, and nothing below imports from them.
FACADES = (
    *("", "jsontext", "models", "llm", "storage", "content", "session", "placeholder", "eviction", "economics"),
    *(
        "timeline",
        "context",
        "tools",
        "history",
        "telemetry",
        "agent",
        "testing",
        "replay",
        "workspace",
        "transfer",
        "listing",
        "cleanup",
        "adapters",
        "serve",
        "view",
    ),
)

# Packages that `pip install ctxfs` does not bring, or that cost too much to import with it, and where they live: a
# framework in its adapter, a web server in each program that serves.
HOMES = {
    "anthropic": "*.anthropic",
    "openai": "llm.openai",
    "genai_prices": "models.genai",
    "opentelemetry": "telemetry.telemetry",
    "starlette": "serve.proxy view.app",
    "uvicorn": "serve.proxy view.server",
    "jinja2": "view.pages",
    "markupsafe": "view.pages",
    "obstore": "storage.objects.bucket",
    "psycopg": "storage.postgres",
    "tiktoken": "tokens",
    "toktok": "tokens",
    "typer": "cli.*",
    "click": "cli.*",
    "rich": "cli.*",
    "hypothesis": "testing.*",
    "atif": "recordings.formats.atif",
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


MODULES = {module_name(path): path for path in sorted((SOURCE / "ctxfs").rglob("*.py"))}


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


INNER = [module for module in MODULES if module not in FACADES]


def test_every_module_is_in_a_room_and_every_room_has_modules() -> None:
    assert {room_of(module) for module in INNER} == set(ROOMS)


@pytest.mark.parametrize("module", INNER)
def test_imports_point_to_the_leaves(module: str) -> None:
    allowed = ROOMS[: ROOMS.index(room_of(module)) + 1]
    above = {name for name in inner_imports(module) if name not in FACADES and room_of(name) not in allowed}
    assert not above, f"{module} must not import {sorted(above)}"


def test_the_architecture_page_shows_every_room_in_order() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## The rooms")[2].partition("## ")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [room for first in firsts for room in re.findall(r"`(\w+)`", first)] == [r for r in ROOMS if r != "__main__"]


def test_the_modules_that_the_architecture_page_names_are_there() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text()
    named = {name for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", page) if room_of(name) in ROOMS}
    assert len(named) > 20
    assert not named - set(MODULES)


def test_no_room_is_larger_than_one_idea() -> None:
    lines = {module: len(path.read_text().splitlines()) for module, path in MODULES.items() if module}
    share = {
        room: sum(n for module, n in lines.items() if room_of(module) == room) / sum(lines.values()) for room in ROOMS
    }
    assert not {room: round(part, 3) for room, part in share.items() if part > LARGEST_ROOM}


@pytest.mark.parametrize("module", INNER)
def test_modules_import_where_a_name_lives(module: str) -> None:
    facades = inner_imports(module) & set(FACADES)
    assert not facades, f"{module} imports from {sorted(facades)}: those only gather public names"


@pytest.mark.parametrize("facade", FACADES)
def test_facades_only_gather_names(facade: str) -> None:
    body = ast.parse(MODULES[facade].read_text()).body
    docstring, *rest = body or [ast.Pass()]
    assert isinstance(docstring, ast.Expr)
    functions = [n for n in rest if isinstance(n, ast.FunctionDef) and n.name not in ("__getattr__", "__dir__")]
    classes = [n for n in rest if isinstance(n, ast.ClassDef)]
    assert not functions
    assert not classes


def test_llm_never_imports_context() -> None:
    wrong = {m: n for m in INNER if m.startswith("llm.") for n in inner_imports(m) if n.startswith("context")}
    assert not wrong


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


@pytest.mark.parametrize("package", HOMES)
def test_optional_and_heavy_packages_have_one_home(package: str) -> None:
    importers = {module for module in MODULES for name in imports_of(module) if name.split(".")[0] == package}
    assert not [module for module in importers if not any(fnmatch(module, home) for home in HOMES[package].split())]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_ctxfs_imports_no_sdk_and_no_vocabulary() -> None:
    loaded = python(
        "import ctxfs, ctxfs.llm, ctxfs.tools, ctxfs.context, ctxfs.agent, sys; print(*sys.modules)"
    ).split()
    assert not [name for name in NOT_WITH_CTXFS if name in loaded]


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
