"""Every reader of bytes from anywhere, fuzzed with atheris: errors of ours only, no endless run, bounded memory."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
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
INPUTS_A_JOB = 250_000
SLOWEST = ("archive", "journal", "content")
"""These begin, so that the others fill the time beside their last ones."""


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


def _prepare(name: str, directory: Path) -> None:
    """Lay out a target's seeds, in the directory of all inputs that were found interesting, and its words."""
    corpus = directory / name
    corpus.mkdir(parents=True, exist_ok=True)
    target = TARGETS.get(name)
    for number, seed in enumerate(target.seeds if target else ()):
        (corpus / f"seed_{number}").write_bytes(seed)
    words = [word for word in (target.words if target else (b"{",)) if len(word) < 60]
    (directory / f"{name}.dict").write_text("".join(f'"{_escaped(word)}"\n' for word in words))


def _fuzz(name: str, directory: Path, runs: int, ends: float) -> _Found:
    """Run one target in a process of its own, from the inputs that others found interesting."""
    seconds = int(ends - time.monotonic())
    if seconds < 1:
        return _Found(0, "")
    limits = [f"-max_len={MAX_INPUT_BYTES}", f"-rss_limit_mb={MEMORY_MB}", f"-timeout={ONE_INPUT_S}"]
    limits += [f"-artifact_prefix={directory / name}-", "-print_final_stats=1", "-verbosity=1"]
    command = [sys.executable, str(MAIN), name, *limits]
    found = [f"-dict={directory / name}.dict", str(directory / name)]
    done = _output([*command, f"-runs={runs}", f"-max_total_time={seconds}", *found])
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


def _jobs(done: Mapping[str, int]) -> list[tuple[str, int]]:
    """What is left to do: targets, the slowest first, and how many inputs for each."""
    left = {name: INPUTS - done.get(name, 0) for name in (*SLOWEST, *TARGETS)}
    return [(name, min(INPUTS_A_JOB, some)) for name in left for some in range(left[name], 0, -INPUTS_A_JOB)]


def run(budget_s: float, state_dir: Path) -> Result:
    """Give each target its inputs, two processes at a time; the figures add up over all runs."""
    ends = time.monotonic() + budget_s
    if not _have_atheris():
        return Result(violations=["atheris cannot be installed: NOT FUZZED; the twin in `make check` needs none"])
    notes = state_dir / "fuzz.json"
    done: dict[str, int] = json.loads(notes.read_text()) if notes.exists() else {}
    violations: list[str] = []
    for name in ("control", *TARGETS):
        _prepare(name, state_dir)
    control = _fuzz("control", state_dir, 200_000, time.monotonic() + 60)
    while (jobs := _jobs(done)) and time.monotonic() < ends - 1 and not violations:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            begun = [(name, pool.submit(_fuzz, name, state_dir, inputs, ends)) for name, inputs in jobs]
            for name, job in begun:
                found = job.result()
                done[name] = done.get(name, 0) + found.runs
                violations += [found.crash] * bool(found.crash)
                notes.write_text(json.dumps(done))
                print(f"  {name}: {done[name]:,} inputs", flush=True)
                if violations:
                    pool.shutdown(cancel_futures=True)
                    break
    figures: dict[str, int | float | str] = {f"inputs to {name}": done.get(name, 0) for name in TARGETS}
    complete = all(done.get(name, 0) >= INPUTS for name in TARGETS)
    seen = {"a reader with a mistake": bool(control.crash)}
    return Result(figures=figures, violations=violations, controls=seen, complete=complete)


PART = Part(name="fuzz", title="Any bytes: errors of ours only, memory bounded", run=run, share=2.2)
