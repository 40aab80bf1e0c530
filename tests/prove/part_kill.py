"""Part: writers killed at random moments, in chains of recoveries; 10,000 rounds and 400,000 acknowledgements.

And removals of a session, killed before each of their calls.
"""

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from prove import chained_kill, killed_removal
from prove.chained_kill import Tally
from prove.parts import MEMORY, Part, Result, seed_in

__all__ = ["PART", "chain", "removals", "run"]

ROUNDS = 10_000
ACKNOWLEDGED = 400_000
ROUNDS_A_CHAIN = 50
WRITES = 40
WORKERS = 2


def chain(rounds: int, seed: int, writes: int, *options: str, root: Path | None = None) -> Tally:
    """Run a chain in a process of its own, which forks; by default in memory, for a kill leaves the cache as it is."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as base:
        command = [sys.executable, chained_kill.__file__, str(root or base), str(rounds), str(seed), str(writes)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        return Tally(lost=[f"chain {seed}: the harness failed: {done.stderr[-500:]}"])
    return Tally(**json.loads(done.stdout))


def removals(*options: str) -> killed_removal.Tally:
    """Kill a removal before each of its calls, in children of a process of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as base:
        command = [sys.executable, killed_removal.__file__, base, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return killed_removal.Tally(broken=[f"the harness failed: {done.stderr[-500:]}"])
    return killed_removal.Tally(**json.loads(done.stdout))


def run(budget_s: float, state_dir: Path) -> Result:
    """Run chains until there are enough; each one that is done is kept."""
    ends_at = time.monotonic() + budget_s
    kept = state_dir / "chains.jsonl"
    tallies = [Tally(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    with ThreadPoolExecutor(WORKERS) as pool, kept.open("a") as file:
        while not _enough(tallies) and time.monotonic() < ends_at:
            first = seed_in(state_dir) + len(tallies)
            seeds = range(first, first + WORKERS)
            for tally in pool.map(partial(chain, ROUNDS_A_CHAIN, writes=WRITES), seeds):
                tallies.append(tally)
                file.write(json.dumps(asdict(tally)) + "\n")
            file.flush()
            print(f"  {_sum(tallies, 'rounds'):,} rounds, {_sum(tallies, 'acknowledged'):,} acknowledged", flush=True)
    removed = removals()
    lost = [problem for tally in tallies for problem in tally.lost]
    return Result(
        figures={
            "rounds": _sum(tallies, "rounds"),
            "chains": len(tallies),
            "acknowledged": _sum(tallies, "acknowledged"),
            "came back": _sum(tallies, "returned"),
            "lost": len(lost),
            "removals killed": removed.kills,
        },
        violations=[*lost, *removed.broken],
        controls={
            "acknowledged before it is written": bool(chain(ROUNDS_A_CHAIN, 0, WRITES, "broken").lost),
            "back, and not there": bool(chain(ROUNDS_A_CHAIN, 0, WRITES, "unreturned").lost),
            "removed in place": bool(removals("in-place").broken),
        },
        complete=_enough(tallies),
    )


def _enough(tallies: list[Tally]) -> bool:
    return _sum(tallies, "rounds") >= ROUNDS and _sum(tallies, "acknowledged") >= ACKNOWLEDGED


def _sum(tallies: list[Tally], name: str) -> int:
    return sum(getattr(tally, name) for tally in tallies)


PART = Part(name="kill", title="writers killed at random moments, in chains of recoveries", run=run, share=1.0)
