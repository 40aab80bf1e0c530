"""Trying mutants: a copy of the project, the tests that run each line of it, and a process that serves."""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import IO

from prove import mutant_worker
from prove.mutant_tests import TestMap, environment
from prove.mutant_worker import Job, Verdict, changed_functions
from prove.mutations import Mutant

__all__ = ["Laboratory", "copy_of", "laboratory"]

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "htmlcov")
LONGEST_S = 8.0
ALL_S = 30.0
"""A test that takes longer is not asked, and no more tests than take that together; who survives these survives."""


def copy_of(root: Path, tree: Path) -> None:
    """Copy the project, without what git and tools keep beside it."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(root, tree, ignore=NOT_COPIED, symlinks=True)


class Laboratory:
    """Tries mutants, one at a time."""

    def __init__(self, tree: Path, tests: TestMap, jobs: IO[str], answers: IO[str]) -> None:
        self._tree = tree
        self._tests = tests
        self._jobs = jobs
        self._answers = answers
        self._killers: dict[tuple[str, str], list[str]] = defaultdict(list)

    def source(self, module: str) -> str:
        """Return a module's text."""
        return (self._tree / "src" / "ctxfs" / module).read_text()

    def tried(self, mutant: Mutant, first: tuple[str, ...] = ()) -> Verdict:
        """Run the tests that reach the mutant: those that killed its neighbours, those in ``first``, the quickest."""
        path, source = f"src/ctxfs/{mutant.module}", self.source(mutant.module)
        text = mutant.applied(source)
        changed = changed_functions(str(self._tree / path), source, text)
        if changed is None:
            names, place = self._tests.of_module(mutant.module), (mutant.module, "")
        else:
            last = mutant.line + mutant.before.count("\n")
            names, place = self._tests.of_lines(mutant.module, mutant.line, last), (mutant.module, str(sorted(changed)))
            if not names:  # a line without code of its own
                low, high = _lines_of(changed.values())
                names = self._tests.of_lines(mutant.module, low, high)
        anew = changed is None or not names
        if not names:  # it runs when the module is imported
            names = self._tests.of_module(mutant.module)
        asked = self._in_order(names, first or _about(mutant.module), self._killers[place])
        if not asked:
            return Verdict(killed_by=None)
        seconds = self._tests.seconds
        verdict = self._answer(Job(path=path, text=text, tests=[(name, seconds[name]) for name in asked], anew=anew))
        if verdict.killed_by is not None and verdict.killed_by in seconds:
            others = [name for name in self._killers[place] if name != verdict.killed_by]
            self._killers[place] = [verdict.killed_by, *others][:8]
        return verdict

    def _in_order(self, names: Sequence[str], first: tuple[str, ...], killers: Sequence[str]) -> list[str]:
        seconds = self._tests.seconds
        early = [name for part in first for name in names if part in name.split("::")[0]]
        asked: list[str] = []
        left = ALL_S
        for name in dict.fromkeys([*(name for name in killers if name in names), *early, *names]):
            if seconds[name] <= min(LONGEST_S, left):
                asked.append(name)
                left -= seconds[name]
        return asked

    def _answer(self, job: Job) -> Verdict:
        print(json.dumps(asdict(job)), file=self._jobs, flush=True)
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the process that tries mutants died")
        return Verdict(**json.loads(line))


def _about(module: str) -> tuple[str, ...]:
    """What the paths of the test files have in them that are about a module, the nearest first."""
    stem = Path(module).stem
    return (f"test_{stem}", f"test_pure_{stem}", f"test_{stem.split('_')[0]}", f"tests/{Path(module).parent}/")


def _lines_of(codes: Iterable[CodeType]) -> tuple[int, int]:
    lines = [line for code in codes for _, _, line in code.co_lines() if line is not None]
    return min(lines) + 1, max(lines)  # its first line runs when it is defined


@contextmanager
def laboratory(tree: Path, tests: TestMap, arguments: Sequence[str]) -> Iterator[Laboratory]:
    """Start a process that has collected the tests in ``arguments``, and end it. It writes beside the copy, too."""
    work = tree.with_name(f"{tree.name}-work")
    work.mkdir()
    reads, writes = os.pipe()
    log = work / "worker.log"
    command = [sys.executable, mutant_worker.__file__, str(tree), f"--basetemp={work / 'temporary'}", *arguments]
    names = {**environment(tree, work), "CTXFS_MUTANTS_FD": str(writes)}
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=names,
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            text=True,
            pass_fds=[writes],
        )
    os.close(writes)
    assert process.stdin is not None
    with os.fdopen(reads) as answers, process.stdin as jobs:
        if not answers.readline():
            raise RuntimeError(f"the tests could not be collected: {log.read_text()[-2000:]}")
        try:
            yield Laboratory(tree, tests, jobs, answers)
        finally:
            process.terminate()
            process.wait()
