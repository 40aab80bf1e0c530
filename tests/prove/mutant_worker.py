"""Runs tests against mutants: pytest collects once, and each mutant is a forked child with other code in its functions.

``python mutant_worker.py TREE [pytest's arguments]`` in a copy of the project. A job is a line of JSON on its input, a
``Job``; what came of it is a line on the file descriptor that ``CTXFS_MUTANTS_FD`` names. A mutant that changes more
than functions (a constant, a default, a class), or one that runs only at the import, is tried in a fresh process.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import TextIO

import pytest

__all__ = ["Job", "Verdict", "changed_functions"]

MEMORY_BYTES = 6 << 30
COMPUTES_S, WAITS_S = 10.0, 60.0
SLOWER = 10.0
"""A test may compute, and wait, so many times as long as it takes without a mutant, and so many seconds more."""

PASSED, FAILED, MISSING = b"p", b"f", b"m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A mutant: the source file below the tree, its text, and the tests to run, in order, with their usual seconds.

    ``anew``: it makes a difference only when the file is imported again.
    """

    path: str
    text: str
    tests: list[tuple[str, float]]
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``killed_by``: the test that failed or hung, None when the mutant survived all of them."""

    killed_by: str | None
    hung: bool = False
    ran: int = 0
    seconds: float = 0.0


def changed_functions(path: str, original: str, mutated: str) -> dict[tuple[str, int], CodeType] | None:
    """Return the outermost functions that differ, by qualified name and first line; None when more than these does."""
    before, after = compile(original, path, "exec"), compile(mutated, path, "exec")
    changed: dict[tuple[str, int], CodeType] = {}
    return changed if _same_but_functions(before, after, changed) else None


def _same_but_functions(before: CodeType, after: CodeType, changed: dict[tuple[str, int], CodeType]) -> bool:
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags")
    if any(getattr(before, name) != getattr(after, name) for name in names):
        return False
    if len(before.co_consts) != len(after.co_consts):
        return False
    for old, new in zip(before.co_consts, after.co_consts, strict=True):
        if isinstance(old, CodeType) and isinstance(new, CodeType):
            if old == new:
                continue
            if not old.co_flags & 0x02:  # CO_NEWLOCALS: a function; a class has none
                if not _same_but_functions(old, new, changed):
                    return False
            elif old.co_freevars != new.co_freevars or old.co_qualname != new.co_qualname:
                return False
            else:
                changed[old.co_qualname, old.co_firstlineno] = new
        elif type(old) is not type(new) or old != new:
            return False
    return True


_Place = tuple[str, str, int]
"""Where a function stands: its file, its qualified name, its first line."""


def _loaded_functions(folder: str) -> dict[_Place, list[FunctionType]]:
    """Return the functions of the files below ``folder``; of one place there may be several, of a decorator's, say."""
    found: dict[_Place, list[FunctionType]] = defaultdict(list)
    for function in [thing for thing in gc.get_objects() if type(thing) is FunctionType]:
        code = function.__code__
        if code.co_filename.startswith(folder):
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(function)
    return found


class _Server:
    """The plugin that takes over once the tests are collected."""

    def __init__(self, tree: Path, jobs: TextIO, answers: TextIO) -> None:
        self._tree = tree
        self._jobs = jobs
        self._answers = answers
        self._failed: str | None = None
        self._functions: dict[_Place, list[FunctionType]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        self._functions = _loaded_functions(str(self._tree / "src"))
        gc.freeze()  # what is there by now stays: no child has to look through it
        self._say({"ready": len(items)})
        for line in self._jobs:
            self._say(asdict(self._tried(Job(**json.loads(line)), items)))
        return True

    def _say(self, data: dict[str, object]) -> None:
        print(json.dumps(data), file=self._answers, flush=True)

    def _tried(self, job: Job, items: dict[str, pytest.Item]) -> Verdict:
        path = self._tree / job.path
        original = path.read_text()
        started = time.monotonic()
        with _written(path, original, job.text):
            changed = None if job.anew else changed_functions(str(path), original, job.text)
            verdict = None if changed is None else self._forked(str(path), changed, job, items)
            verdict = verdict or _fresh(self._tree, job)
        return Verdict(**{**asdict(verdict), "seconds": time.monotonic() - started})

    def _forked(
        self, path: str, changed: dict[tuple[str, int], CodeType], job: Job, items: dict[str, pytest.Item]
    ) -> Verdict | None:
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reads)
                os.setpgid(0, 0)
                self._child(path, changed, [(items[name], usual_s) for name, usual_s in job.tests], writes)
            finally:
                os._exit(0)
        os.close(writes)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, child)
        try:
            return _watch(reads, job.tests)
        finally:
            os.close(reads)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _child(
        self, path: str, changed: dict[tuple[str, int], CodeType], items: Sequence[tuple[pytest.Item, float]], told: int
    ) -> None:
        """Run the tests until one fails; a letter for each that ends."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        if not self._swap_code(path, changed):
            os.write(told, MISSING)
            return
        for number, (item, usual_s) in enumerate(items):
            _allow(COMPUTES_S + usual_s * SLOWER)
            after = items[number + 1][0] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            os.write(told, FAILED if self._failed else PASSED)
            if self._failed:
                return

    def _swap_code(self, path: str, changed: dict[tuple[str, int], CodeType]) -> bool:
        """Give the loaded functions their other code; False when one of them is not there."""
        functions = {place: self._functions.get((path, *place), []) for place in changed}
        for place, found in functions.items():
            for function in found:
                function.__code__ = changed[place]
        return all(functions.values())


def _allow(seconds: float) -> None:
    """End this process when it computes for longer: an endless loop does, on however busy a machine."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _watch(told: int, tests: Sequence[tuple[str, float]]) -> Verdict | None:
    """Read what a child says, a letter for each test that ended; None when it has no such function."""
    for number, (name, usual_s) in enumerate(tests):
        ready, _, _ = select.select([told], [], [], WAITS_S + usual_s * SLOWER)
        said = os.read(told, 1) if ready else b""
        if said == MISSING:
            return None
        if said != PASSED:  # nothing: it died
            return Verdict(killed_by=name, hung=not ready, ran=number + 1)
    return Verdict(killed_by=None, ran=len(tests))


@contextlib.contextmanager
def _written(path: Path, original: str, mutated: str) -> Iterator[None]:
    """Let processes that a test starts find the mutant too; the times differ, or its old bytecode would be used."""
    before = path.stat()
    path.write_text(mutated)
    os.utime(path, (before.st_atime, before.st_mtime + 7))
    try:
        yield
    finally:
        path.write_text(original)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _fresh(tree: Path, job: Job) -> Verdict:
    """Try a mutant in a process that imports it."""
    names = [name for name, _ in job.tests]
    listed = tree.parent / f"{tree.name}.tests"
    listed.write_text("\n".join(names))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"@{listed}"]
    limit = 2 * WAITS_S + SLOWER * sum(seconds for _, seconds in job.tests)
    with subprocess.Popen(
        command, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        process_group=0,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Verdict(killed_by="a test of a fresh process", hung=True, ran=len(names))
    if process.returncode == 0:
        return Verdict(killed_by=None, ran=len(names))
    if process.returncode != pytest.ExitCode.NO_TESTS_COLLECTED:  # tests failed, or could not even be imported
        failed = [line.split()[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return Verdict(killed_by=failed[0] if failed else "the import", ran=len(names))
    raise RuntimeError(f"pytest ended with {process.returncode}: {output[-2000:]}")


def main() -> int:
    """Serve jobs."""
    tree = Path(sys.argv[1])
    answers = os.fdopen(int(os.environ["CTXFS_MUTANTS_FD"]), "w")
    jobs = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no test reads jobs
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[_Server(tree, jobs, answers)]))


if __name__ == "__main__":
    sys.exit(main())
