"""The ground itself: the fixtures that watch every test do see what they are there for."""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from blockbuster import BlockingError

import ctxfs

BLOCKING: dict[str, Callable[[Path], object]] = {
    "open": lambda path: os.open(path, os.O_RDONLY),
    "stat": lambda path: path.stat(),
    "fsync": lambda path: os.fsync(0),
    "read": lambda path: path.read_text(),
}


def as_if_in_ctxfs(call: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a function that makes the call from a file of ctxfs."""
    name = str(Path(ctxfs.__file__).parent / "imagined.py")
    scope: dict[str, Callable[[Path], object]] = {}
    exec(compile("def library(path): return call(path)", name, "exec"), {"call": call}, scope)
    return scope["library"]


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_blocking_call_of_the_library_is_seen(kind: str) -> None:
    library = as_if_in_ctxfs(BLOCKING[kind])

    async def on_the_loop() -> None:
        library(Path(__file__))

    with pytest.raises(BlockingError):
        anyio.run(on_the_loop)


def test_worker_threads_and_tests_may_block() -> None:
    library = as_if_in_ctxfs(Path.read_text)

    async def beside_the_loop() -> None:
        assert await to_thread.run_sync(library, Path(__file__))

    anyio.run(beside_the_loop)


def test_home_is_not_the_users(isolated_home: Path) -> None:
    assert Path.home() == isolated_home
    assert not [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_"))]


def test_traces_are_sessions(traces: list[Path]) -> None:
    assert all("messages" in json.loads(path.read_bytes()) for path in traces)


@pytest.mark.anyio
async def test_both_event_loops_run(anyio_backend: str) -> None:
    await anyio.lowlevel.checkpoint()
    assert anyio_backend in ("asyncio", "trio")


STARTS = ("storage.object_servers", "storage.postgres_server", "view.chromium", "serve.places")
"""What starts a server or a browser."""


@pytest.mark.parametrize("module", STARTS)
def test_who_starts_a_server_or_a_browser_is_marked(module: str) -> None:
    folder = Path(__file__).parent
    assert (folder / f"{module.replace('.', '/')}.py").is_file()
    users = [path for path in folder.rglob("test_*.py") if f"from {module} import" in path.read_text()]
    assert users
    marked = (folder / "serve" / "places.py").read_text() if module == "serve.places" else ""
    assert not [path for path in users if "mark.service" not in path.read_text() + marked]


@pytest.mark.no_cover
def test_what_is_not_measured_runs_at_full_speed() -> None:
    assert sys.gettrace() is None
    assert threading.gettrace() is None
