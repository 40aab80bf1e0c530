"""What every test runs under: both event loops, no network, no blocked loop, no real home directory."""

import gc
import importlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from blockbuster import BlockBusterFunction, blockbuster_ctx
from coverage.collector import Collector
from hypothesis import HealthCheck, settings

import loopback_only
from prove.parts import MEMORY
from pure_core_coverage import measured_folders, measured_modules

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
MEASURED = measured_folders()

ON_BOTH_LOOPS = {"prove", "storage"}
"""Folders whose code starts tasks, locks or hands work to threads at each call: their tests run on both event loops.
Elsewhere those do that are marked ``both_loops``: they start tasks or processes, cancel, or have two callers at once.
The rest only awaits what is tested there, and asyncio is enough but for random examples."""

loopback_only.install()
# What a shell starts in the background ignores interrupts, and what it starts in its turn would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing here depends on the speed of the machine: no deadline, and slow generation is no failure.
settings.register_profile(
    "default",
    max_examples=30,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=5)
settings.register_profile("random", settings.get_profile("default"), max_examples=60, derandomize=False)
settings.register_profile("prove", settings.get_profile("random"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


MEMORY_BYTES = 2 << 30
"""What the temporary files of all tests together need at most, several times over."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make quick`` run each test once, whatever it is parametrized with."""
    parser.addoption("--first-case", action="store_true", help="of each parametrized test, run the first case alone")


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary files into memory where there is enough of it: most of the time would go into waiting for a disk.

    ``PYTEST_DEBUG_TEMPROOT`` or ``--basetemp`` put them elsewhere. What ``tests/storage`` writes is always on a disk.
    """
    if MEMORY is not None and not config.option.basetemp and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class Coverage(Protocol):
    """What pytest-cov measures with in a process."""

    started: bool

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def _coverage(config: pytest.Config) -> Coverage | None:
    """What measures coverage in this process; None: nothing does, without ``--cov``."""
    plugin: Any = config.pluginmanager.getplugin("_cov")
    return None if plugin is None else cast("Coverage | None", plugin.cov_controller)


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Iterator[None]:
    """Measure how the modules of the pure core are imported, and nothing more before the first test that is measured.

    The process that hands out the tests runs none of them, and measures nothing. In each worker process pytest-cov
    begins twice: before it knows that it is in one, and then again. Later only the second collector is paused, so the
    first one ends here.
    """
    hands_out = session.config.getoption("dist", "no") != "no"
    is_worker = hasattr(session.config, "workerinput")
    begun = _coverage(session.config)
    if begun is not None and (hands_out or is_worker):
        begun.pause()
    yield
    measuring = _coverage(session.config)
    if measuring is not None and measuring.started and not session.config.getoption("cov_context", None):
        for module in measured_modules():
            importlib.import_module(module)
        measuring.pause()


IS_MEASURED = pytest.StashKey[bool]()
"""Whether coverage is measured in a test: in what it and its fixtures do, not in what pytest does around it."""

UNMEASURED = ("hypothesis", "slow", "service", "not_measured", "no_cover")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note whether the test that comes is measured, and end what pytest-cov begins after one marked ``no_cover``."""
    item.config.stash[IS_MEASURED] = item.stash[IS_MEASURED]
    measuring = _coverage(item.config)
    if measuring is not None and measuring.started and not item.config.getoption("cov_context", None):
        measuring.pause()


@contextmanager
def _measured(config: pytest.Config, *, is_shared: bool = False) -> Iterator[None]:
    """Measure coverage meanwhile, in threads of its own, if the test that runs is measured, or what runs ``is_shared``.

    A thread that was started while nothing was measured is never measured, and ctxfs keeps its threads for the next
    call: which lines a run covers would depend on the order of the tests.
    """
    measuring = _coverage(config)
    if measuring is None or measuring.started or not (is_shared or config.stash[IS_MEASURED]):
        yield
        return
    from ctxfs.storage import threads  # what is imported before it is measured is not measured

    threads._threads.cache_clear()  # noqa: SLF001 - nobody else ends them, and they end when nothing refers to them
    measuring.resume()
    try:
        yield
    finally:
        measuring.pause()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    with _measured(request.config, is_shared=request.scope != "function"):  # whichever test comes first
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    with _measured(pyfuncitem.config):
        return (yield)


def _is_again(item: pytest.Item) -> bool:
    """Whether a test runs on trio what it runs on asyncio, though scheduling does not matter to it.

    A test that names trio itself means it. Hypothesis derives the same examples on each event loop.
    """
    if not isinstance(item, pytest.Function) or "trio" not in item.name:
        return False
    if item.get_closest_marker("hypothesis"):
        return True
    on_both = item.get_closest_marker("both_loops") or not ON_BOTH_LOOPS.isdisjoint(item.path.parts)
    callspec = getattr(item, "callspec", None)  # of tests with parameters alone
    return not on_both and callspec is not None and callspec.params.get("anyio_backend") == "trio"


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    yield
    if metafunc.config.getoption("first_case"):
        del metafunc._calls[1:]  # noqa: SLF001 - left out later, they would take as long as a tenth of the tests that run


SOME_MARKED = {
    "service": re.compile(r"\bmark\.service\b|\bserve\.places\b"),
    "slow and not service": re.compile(r"\bmark\.slow\b"),
}
"""By what is chosen: what a module says in which it may be."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module of which no test is chosen: some import three providers' SDKs, for seconds."""
    chosen = str(config.getoption("markexpr"))
    if not collection_path.match("test_*.py"):
        return None
    if chosen in SOME_MARKED:
        return None if SOME_MARKED[chosen].search(collection_path.read_text()) else True
    if not re.fullmatch(r"not \w+( and not \w+)*", chosen):
        return None
    left_out = "|".join(re.findall(r"not (\w+)", chosen))
    all_marked = re.search(rf"^pytestmark = .*\bmark\.({left_out})\b", collection_path.read_text(), re.MULTILINE)
    return True if all_marked else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose what runs on which event loop, and where coverage is measured.

    Tests of code that only awaits run on asyncio. So do the examples that hypothesis derives, which are the same on
    both event loops; random ones (``make properties``) are tried on both. Coverage is measured in the fast tests of the
    pure core's own rooms that do the same every time, on one event loop: a module of it is covered by tests that stand
    beside it, not by a command that happens to run it or by what hypothesis draws, and all else runs at full speed:
    other tests, those marked ``not_measured``, which run nothing of it that quicker ones do not run, and the collection
    of tests. Where ``--cov-context`` asks which lines each test runs, all of them are measured.
    """
    if settings().derandomize:
        again = {item for item in items if _is_again(item)}
        config.hook.pytest_deselected(items=list(again))
        items[:] = [item for item in items if item not in again]
    measures_all = config.getoption("cov_context", None) is not None
    for item in items:
        unlike_others = "trio" in item.name or any(map(item.get_closest_marker, UNMEASURED))
        is_own = item.path.parent.name in MEASURED and not unlike_others
        item.stash[IS_MEASURED] = is_own or (measures_all and not item.get_closest_marker("no_cover"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: nothing that is imported and collected goes before the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what stays to the end: each time, going through it took a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["asyncio", "trio"], scope="session")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each ``@pytest.mark.anyio`` test on asyncio and on trio."""
    return str(request.param)


@pytest.fixture(autouse=True, scope="session")
def imported_packages() -> None:
    """Import ``genai-prices`` and pydantic before an event loop runs: their imports read files, once in a process."""
    import ctxfs.tools.decorator  # noqa: F401 - importing it is all that is wanted
    from ctxfs.messages.models.genai import live_rows

    live_rows()


TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR")
"""What would make the command's output, and its line breaks, those of the terminal that the tests run in."""


@pytest.fixture(autouse=True, scope="session")
def isolated_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the tests a home directory, no API keys and no terminal: ``~/.agent`` and accounts are never touched."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        environment.setenv("USERPROFILE", str(home))
        accounts = [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_"))]
        for name in (*accounts, *TERMINAL):
            environment.delenv(name, raising=False)
        yield home


# blockbuster knows the common blocking calls; these are the ones that ctxfs's storage makes.
MORE_BLOCKING_CALLS = ("os.open", "os.fsync", "os.ftruncate", "os.pread", "os.pwrite", "fcntl.flock")


def _is_lock_of_coverage(lock: object, *_: object) -> bool:
    """At each call that coverage measures it takes a lock, which a worker thread may hold just then.

    Its tracer is written in C, and takes the lock without a frame of its own: only the lock itself tells.
    """
    return any(lock is collector.data_lock for collector in Collector._collectors)  # noqa: SLF001 - nothing else knows them


@pytest.fixture(autouse=True, scope="session")
def loop_never_blocks() -> Iterator[Sequence[BlockBusterFunction]]:
    """Raise ``BlockingError`` in any test in which code of ctxfs makes a blocking call on a running asyncio loop.

    It looks for files of ctxfs in the call's stack, so what tests themselves do is not its business. It knows asyncio
    only: the same test's run on trio is not watched.
    """
    with blockbuster_ctx("ctxfs") as blockbuster:
        # A relative root is that of the moment; asking for the working directory waits for no disk.
        blockbuster.functions["os.getcwd"].can_block_in("ctxfs/session/filesystem.py", "__init__")
        locks = blockbuster.functions["threading.Lock.acquire"].deactivate()
        waits_for_nobody = locks.can_block_predicate
        locks.can_block_predicate = lambda *a, **k: _is_lock_of_coverage(*a) or waits_for_nobody(*a, **k)
        locks.activate()
        # Whether an import waits for another thread, which imports the same module, is chance.
        locks_of_modules = ("__enter__", "_lock_unlock_module")
        locks.can_block_in("<frozen importlib._bootstrap>", locks_of_modules)
        # A command that has the event loop to itself may do work in it: see ``without_threads``.
        in_place = ("ctxfs/storage/threads.py", "_in_place")
        for known in blockbuster.functions.values():
            known.can_block_in(*in_place)
        more = [BlockBusterFunction(None, name, scanned_modules="ctxfs") for name in MORE_BLOCKING_CALLS]
        for function in more:
            # Releasing the lock of a session that was dropped waits for nothing.
            function.can_block_in("ctxfs/storage/local.py", "__del__").can_block_in(*in_place).activate()
        yield [*blockbuster.functions.values(), *more]
        for function in more:
            function.deactivate()


@pytest.fixture
def loop_may_block(loop_never_blocks: Sequence[BlockBusterFunction]) -> Iterator[None]:
    """Allow blocking calls, for tests whose loop does all work itself: each check searches the stack."""
    for function in loop_never_blocks:
        function.deactivate()
    yield
    for function in loop_never_blocks:
        function.activate()


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """Give a directory in memory where there is one: what a sync does to a disk is not what is examined."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def traces() -> list[Path]:
    """Return the recorded sessions under CTXFS_TRACES (default: ../shared/traces); skip when there are none."""
    folder = Path(os.environ.get("CTXFS_TRACES", ROOT.parent / "shared" / "traces"))
    found = sorted(folder.glob("*.json"))
    if not found:
        pytest.skip(f"NOT TESTED on real sessions: no *.json in {folder}; set CTXFS_TRACES to a folder of recordings")
    return found
