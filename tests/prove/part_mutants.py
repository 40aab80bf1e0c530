"""Part: the code with one small change, or without one of its guards: a test must fail."""

import hashlib
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from prove.mutant_equivalents import is_equivalent
from prove.mutant_removals import removals
from prove.mutant_run import Laboratory, copy_of, laboratory
from prove.mutant_tests import TestMap, learn
from prove.mutations import Mutant, mutants_of, removal
from prove.parts import Part, Result

__all__ = ["MODULES", "PART", "TESTS", "run"]

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = 1200
"""Mutants that are tried, of all modules together, chosen by a hash; a module has its share of them."""
LEAST_KILLED = 0.9
WORKERS = min(4, os.cpu_count() or 1)
"""Copies of the project, each with a process that tries mutants in it."""
_ROOMS = {
    "storage": "base directories failures files local log_file port threaded threads",
    "session": "discovery field_types filesystem index item_records journal records recovery state verify writer",
    "session/content": "blocks encoding file growing reader",
    "messages": "messages names rates",
    "eviction": "budget compaction keep_recent reduction window",
    "eviction/economics": "economy held ledger parameters planner plans",
    "context": "commit entry repair transcript",
}
MODULES = tuple(f"{room}/{name}.py" for room, names in _ROOMS.items() for name in names.split())
_FAULTS = "tests/prove/test_port_faults.py::test_every_call_of_an_operation_fails_once"
TESTS = (
    *(f"tests/{name}" for name in ("agent", "cleanup", "content", "context", "economics", "errors")),
    *(f"tests/{name}" for name in ("eviction", "history", "jsontext", "llm", "materialize", "messages", "models")),
    *(f"tests/{name}" for name in ("placeholder", "recall", "replay", "session", "storage", "testing", "text")),
    *(f"tests/{name}" for name in ("timeline", "tools", "transfer", "workspace")),
    *(f"tests/prove/test_{name}.py" for name in ("cancellation", "crash", "forgery", "fuzz", "names")),
    "tests/prove/test_port_faults.py",
    *(f"--deselect={_FAULTS}[{name}-asyncio]" for name in ("export", "import")),  # half a minute each
)

WATCH_SYNCS = ("tests/storage/", "tests/prove/test_crash.py", "tests/prove/test_port_faults.py")


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a mutant; ``killed_by`` None: no test failed."""

    mutant: str
    module: str
    killed_by: str | None


class _Kept:
    """What was tried before, in a file; what a module looked like then is a part of the key.

    Who survived other tests than these (``tests`` is their checksum) is tried again.
    """

    def __init__(self, path: Path, tests: str) -> None:
        self._path = path
        self._tests = tests
        self._lock = threading.Lock()
        self._tried: dict[str, Tried] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        for key, of_tests, data in map(json.loads, lines):
            tried = Tried(**data)
            if tried.killed_by is not None or of_tests == tests:
                self._tried[key] = tried

    def get(self, key: str) -> Tried | None:
        return self._tried.get(key)

    def put(self, key: str, tried: Tried) -> None:
        with self._lock, self._path.open("a") as file:
            self._tried[key] = tried
            file.write(json.dumps([key, self._tests, asdict(tried)]) + "\n")


def sample(mutants: Mapping[str, Sequence[Mutant]], count: int) -> list[Mutant]:
    """Choose ``count`` mutants, the same ones every time, from each module its share."""
    total = sum(len(found) for found in mutants.values())
    chosen = []
    for found in mutants.values():
        share = -(-len(found) * count // total)
        chosen += sorted(found, key=lambda mutant: mutant.rank)[:share]
    return sorted(chosen, key=lambda mutant: mutant.rank)


def run(budget_s: float, state_dir: Path) -> Result:
    """Try every guard's removal, then the sample, and go on where the last run ended."""
    ends_at = time.monotonic() + budget_s
    with tempfile.TemporaryDirectory() as base, ExitStack() as stack:
        work = Path(base)
        trees = [work / f"copy-{number}" for number in range(WORKERS)]
        for tree in trees:
            copy_of(ROOT, tree)
        tests, of_tests = _test_map(trees, work, state_dir / "tests.json")
        tries = [stack.enter_context(laboratory(tree, tests, TESTS)) for tree in trees]
        return _tried(tries, _Kept(state_dir / "tried.jsonl", of_tests), ends_at, state_dir / "survivors.txt")


def _test_map(trees: Sequence[Path], work: Path, kept: Path) -> tuple[TestMap, str]:
    """Learn which tests run which lines, unless that is known of this code and these tests; and their checksum."""
    tree = trees[0]
    files = sorted(path for name in ("src", "tests") for path in (tree / name).rglob("*.py"))
    known = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if before.get("of") == known:
        return TestMap.from_json(before["map"]), known
    print("  running the tests once, to learn which lines they run", flush=True)
    tests = learn(trees, work, TESTS)
    kept.write_text(json.dumps({"of": known, "map": tests.to_json()}))
    return tests, known


@dataclass(frozen=True, slots=True)
class _Asked:
    """A mutant to try, by name, and the tests to ask first."""

    name: str
    mutant: Mutant
    first: tuple[str, ...] = ()


def _tried(tries: Sequence[Laboratory], kept: _Kept, ends_at: float, survivors: Path) -> Result:
    source = tries[0].source
    guards = removals(source)
    mutants = {module: [m for m in mutants_of(module, source(module)) if not is_equivalent(m)] for module in MODULES}
    chosen = sample(mutants, SAMPLE)
    asked = [
        _Asked(f"without {name}", mutant, WATCH_SYNCS if name.startswith("sync") else ())
        for name, mutant in guards.items()
    ]
    asked += [_Asked(mutant.key, mutant) for mutant in chosen]
    results: dict[str, Tried] = {}
    for number, found in enumerate(_all_tried(tries, asked, kept, ends_at)):
        if found is None:
            continue
        results[found.mutant] = found
        if number % 100 == 0 or found.killed_by is None:
            survived = "" if found.killed_by else f", survived: {found.mutant}"
            print(f"  {number:5} of {len(asked)}{survived}", flush=True)
    alive = [name for name, found in results.items() if found.killed_by is None]
    survivors.write_text("".join(f"{name}\n" for name in alive))
    return _result(
        guards, [mutant.key for mutant in chosen], results, sum(map(len, mutants.values())), _harmless(tries[0])
    )


def _all_tried(
    tries: Sequence[Laboratory], asked: Sequence[_Asked], kept: _Kept, ends_at: float
) -> Iterator[Tried | None]:
    """Yield what came of each, in order; None where the time was up. A mutant is tried where there is a place."""
    modules = {one.mutant.module for one in asked}
    versions = {module: hashlib.sha256(tries[0].source(module).encode()).hexdigest()[:12] for module in modules}
    free: SimpleQueue[Laboratory] = SimpleQueue()
    for place in tries:
        free.put(place)

    def tried(one: _Asked) -> Tried | None:
        key = f"{versions[one.mutant.module]} {one.mutant.rank} {one.name}"
        found = kept.get(key)
        if found is not None or time.monotonic() >= ends_at:
            return found
        place = free.get()
        try:
            found = Tried(one.name, one.mutant.module, place.tried(one.mutant, one.first).killed_by)
        finally:
            free.put(place)
        kept.put(key, found)
        return found

    pool = ThreadPoolExecutor(len(tries))
    try:
        yield from pool.map(tried, asked)
    finally:
        pool.shutdown(cancel_futures=True)


def _harmless(tries: Laboratory) -> bool:
    """Whether a change that changes nothing survives: what kills the others is the change."""
    module, before = "messages/names.py", "return SAFE.fullmatch(raw) is not None"
    mutant = removal(module, tries.source(module), before, "return None is not SAFE.fullmatch(raw)")
    return tries.tried(mutant).killed_by is None


def _result(
    guards: Mapping[str, Any], sampled: Sequence[str], results: Mapping[str, Tried], total: int, harmless: bool
) -> Result:
    without = [results[f"without {name}"] for name in guards if f"without {name}" in results]
    chosen = [results[name] for name in dict.fromkeys(sampled) if name in results]
    killed = sum(tried.killed_by is not None for tried in chosen)
    of_module = Counter(tried.module for tried in chosen)
    alive = Counter(tried.module for tried in chosen if tried.killed_by is None)
    for module, count in sorted(of_module.items()):
        print(f"  {module:36} {count - alive[module]:4} of {count:4} killed", flush=True)
    violations = [f"no test fails {tried.mutant}" for tried in without if tried.killed_by is None]
    complete = len(without) == len(guards) and len(chosen) == len(dict.fromkeys(sampled))
    if complete and killed < LEAST_KILLED * len(chosen):
        violations.append(f"{killed} of {len(chosen)} mutants are killed, less than {LEAST_KILLED:.0%}")
    return Result(
        figures={
            "guards": len(without),
            "guards seen missing": sum(tried.killed_by is not None for tried in without),
            "mutants": total,
            "tried": len(chosen),
            "killed": killed,
            "per cent": 100.0 * killed / max(1, len(chosen)),
        },
        violations=violations,
        controls={"a change that changes nothing survives": harmless},
        complete=complete,
    )


PART = Part(name="mutants", title="code with one small change, or without one guard", run=run, share=4.0)
