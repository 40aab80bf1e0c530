"""Every reader of bytes from anywhere, fuzzed with atheris: errors of ours only, no endless run, bounded memory."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from prove.fuzz_targets import TARGETS
from prove.parts import Part, Result

__all__ = ["PART"]

MAIN = Path(__file__).with_name("fuzz_main.py")
INPUTS = 1_000_000
MAX_INPUT_BYTES = 8_192
MEMORY_MB = 1_024
ONE_INPUT_S = 20
AT_ONCE = 2


def _have_atheris() -> bool:
    """Install atheris when it is not there; whether it is now."""
    if importlib.util.find_spec("atheris") is None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "atheris>=3"]
        subprocess.run(command, check=False)
        importlib.invalidate_caches()
    return importlib.util.find_spec("atheris") is not None


@dataclass(frozen=True, slots=True)
class _Found:
    runs: int
    crash: str


def _fuzz(name: str, directory: Path, runs: int, seconds: float) -> _Found:
    """Run one target in a process of its own, from the inputs that earlier runs found interesting."""
    corpus = directory / name
    corpus.mkdir(parents=True, exist_ok=True)
    words = directory / f"{name}.dict"
    if target := TARGETS.get(name):
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed_{number}").write_bytes(seed)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words if len(word) < 60))
    else:
        words.write_text('"{"\n')
    limits = [f"-max_len={MAX_INPUT_BYTES}", f"-rss_limit_mb={MEMORY_MB}", f"-timeout={ONE_INPUT_S}"]
    limits += [f"-artifact_prefix={directory / name}-", "-print_final_stats=1", "-verbosity=1"]
    command = [sys.executable, str(MAIN), name, *limits]
    done = _output(
        [*command, f"-runs={runs}", f"-max_total_time={max(1, int(seconds))}", f"-dict={words}", str(corpus)]
    )
    counted = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr) or re.search(
        r"Done (\d+) runs", done.stderr
    )
    runs = int(counted[1]) if counted else 0
    slow = re.search(r"written to (.*-timeout-\w+)$", done.stderr, re.MULTILINE)
    if slow and _output([*command, slow[1]]).returncode == 0:  # its process was stopped for a while
        Path(slow[1]).unlink()
        return _Found(runs, "")
    crash = f"{name}: exit code {done.returncode}: {done.stdout[-1_500:]}{done.stderr[-1_500:]}"
    return _Found(runs, crash if done.returncode else "")


def _output(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


SLOWEST = ("archive", "journal", "content")
"""These begin, so that the others fill the time beside them."""


def _rounds(done: Mapping[str, int], ends: float) -> Iterator[list[str]]:
    """Targets that have not had their inputs, as long as there is time."""
    order = dict.fromkeys((*SLOWEST, *TARGETS))
    while (left := [name for name in order if done.get(name, 0) < INPUTS]) and time.monotonic() < ends:
        yield left


def run(budget_s: float, state_dir: Path) -> Result:
    """Give each target its inputs, two at a time; the figures add up over all runs."""
    ends = time.monotonic() + budget_s
    if not _have_atheris():
        return Result(violations=["atheris cannot be installed: NOT FUZZED; the twin in `make check` needs none"])
    notes = state_dir / "fuzz.json"
    done: dict[str, int] = json.loads(notes.read_text()) if notes.exists() else {}
    violations: list[str] = []
    control = _fuzz("control", state_dir, 200_000, 60)
    for left in _rounds(done, ends):
        share = max(10.0, (ends - time.monotonic()) * AT_ONCE / len(left))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = {name: pool.submit(_fuzz, name, state_dir, INPUTS - done.get(name, 0), share) for name in left}
        found = {name: job.result() for name, job in jobs.items()}
        for name, each in found.items():
            done[name] = done.get(name, 0) + each.runs
            print(f"  {name}: {done[name]:,} inputs")
        violations += [each.crash for each in found.values() if each.crash]
        notes.write_text(json.dumps(done))
        if violations:
            break
    figures: dict[str, int | float | str] = {f"inputs to {name}": done.get(name, 0) for name in TARGETS}
    complete = all(done.get(name, 0) >= INPUTS for name in TARGETS)
    seen = {"a reader with a mistake": bool(control.crash)}
    return Result(figures=figures, violations=violations, controls=seen, complete=complete)


PART = Part(name="fuzz", title="Any bytes: errors of ours only, memory bounded", run=run, share=3.0)
