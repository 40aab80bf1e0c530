"""Which tests run which lines, and how long they take: a run of the tests under coverage, as a plugin of pytest.

``CTXFS_MUTANTS_TIMES`` names the file that the plugin writes; pytest-cov's contexts say who ran a line. Of the tests
it runs a share: ``CTXFS_MUTANTS_SHARE=0/2`` every second one, from the first.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData

__all__ = ["TestMap", "environment", "learn"]

HERE = Path(__file__).resolve().parent.parent
_seconds: dict[str, float] = defaultdict(float)
_left_out: set[str] = set()
_failed: set[str] = set()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of other shares to others."""
    number, count = os.environ.get("CTXFS_MUTANTS_SHARE", "0/1").split("/")
    items[:] = items[int(number) :: int(count)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what a phase of a test took and came to."""
    _seconds[report.nodeid] += report.duration
    if report.skipped:
        _left_out.add(report.nodeid)
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was noted."""
    data = {"seconds": _seconds, "left_out": sorted(_left_out), "failed": sorted(_failed)}
    Path(os.environ["CTXFS_MUTANTS_TIMES"]).write_text(json.dumps(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestMap:
    """``seconds`` of each test that can be asked, and ``lines``: by module and line, the tests that run it."""

    __test__ = False

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Sequence[str]]] = field(repr=False)

    def of_lines(self, module: str, first: int, last: int) -> list[str]:
        """Return the tests that run any of the lines, the quickest first."""
        found = {name for line in range(first, last + 1) for name in self.lines.get(module, {}).get(line, ())}
        return sorted((name for name in found if name in self.seconds), key=lambda name: (self.seconds[name], name))

    def of_module(self, module: str) -> list[str]:
        """Return the tests that run anything of the module's functions, the quickest first."""
        return self.of_lines(module, 1, max(self.lines.get(module, {}), default=0))

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON data, each test's name once."""
        number = {name: n for n, name in enumerate(self.seconds)}
        lines = {
            module: {str(line): [number[name] for name in names if name in number] for line, names in found.items()}
            for module, found in self.lines.items()
        }
        return {"seconds": dict(self.seconds), "lines": lines}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TestMap":
        """Return the map that became ``data``."""
        names = list(data["seconds"])
        lines = {
            module: {int(line): [names[n] for n in numbers] for line, numbers in found.items()}
            for module, found in data["lines"].items()
        }
        return cls(seconds=data["seconds"], lines=lines)


def environment(tree: Path, work: Path) -> dict[str, str]:
    """Return what the tests of a copy run under: its own code, and the same examples every time."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests"), str(HERE)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "default",
        "CTXFS_MUTANTS_TIMES": str(work / "times.json"),
        "COVERAGE_FILE": str(work / "coverage"),
    }


def learn(trees: Sequence[Path], work: Path, tests: Sequence[str]) -> TestMap:
    """Run the tests once and return what they run: a share of them in each copy, at the same time.

    Raises RuntimeError when one fails.
    """
    settings = work / "coveragerc"
    settings.write_text("[run]\nsource = ctxfs\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "prove.mutant_tests"]
    command += ["--cov=ctxfs", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *tests]
    shares = {tree: work / f"learn-{number}" for number, tree in enumerate(trees)}
    running = []
    for number, (tree, share) in enumerate(shares.items()):
        share.mkdir()
        names = {**environment(tree, share), "CTXFS_MUTANTS_SHARE": f"{number}/{len(trees)}"}
        with (share / "output").open("w") as output:
            running.append(
                subprocess.Popen(
                    [*command, f"--basetemp={share / 'temporary'}"],
                    cwd=tree,
                    env=names,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
    failed = [share for process, share in zip(running, shares.values(), strict=True) if process.wait()]
    if failed:
        raise RuntimeError(f"the tests fail without a mutant: {(failed[0] / 'output').read_text()[-3000:]}")
    return _read_map(shares)


def _read_map(shares: Mapping[Path, Path]) -> TestMap:
    """Read what runs under coverage left; ``shares``: by copy, where its run left it."""
    usable: dict[str, float] = {}
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for tree, share in shares.items():
        told = json.loads((share / "times.json").read_text())
        usable |= {name: seconds for name, seconds in told["seconds"].items() if name not in told["left_out"]}
        data = CoverageData(str(share / "coverage"))
        data.read()
        for path in data.measured_files():
            module = Path(path).relative_to(tree / "src" / "ctxfs").as_posix()
            for line, names in data.contexts_by_lineno(path).items():
                lines[module][line] |= _tests_of(names)
    sorted_lines = {
        module: {line: sorted(names) for line, names in sorted(found.items())} for module, found in lines.items()
    }
    return TestMap(seconds=usable, lines=sorted_lines)


def _tests_of(contexts: Iterable[str]) -> set[str]:
    """The tests among coverage's contexts, which are a test and its phase each; what ran before any test has none."""
    return {name.rsplit("|", 1)[0] for name in contexts if name}
