"""Histories that a framework owns: random ones, played, and one whose processes are killed; no rule is ever broken."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part as HistoryPart
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing.history_conformance import Played, play, rewritten_parts
from prove.history_killed import conversation
from prove.parts import MEMORY, Part, Result, seed_in

__all__ = ["PART", "controls", "kills", "plays"]

CALLS = 100_000
KILLS = 40
STEPS = 80
WORKER = Path(__file__).with_name("history_killed.py")


def plays(first_seed: int, calls: int, until: float) -> tuple[int, Played]:
    """Play histories from ``first_seed`` on, for so many calls or until the time is up; the next seed, and the sum."""
    total, seed = Played(), first_seed
    while total.calls < calls and time.monotonic() < until:
        with tempfile.TemporaryDirectory(dir=MEMORY) as root:
            one = play(seed, Path(root), steps=STEPS)
        total.calls += one.calls
        total.replaced += one.replaced
        total.decisions += one.decisions
        total.violations += one.violations
        seed += 1
    return seed, total


def kills(count: int, seed: int) -> tuple[int, list[str]]:
    """Kill the process that rewrites one history ``count`` times; how many rewrites it gave out, and what was wrong."""
    draw, given, wrong, rewrites, exchanges = random.Random(seed), dict[str, str](), list[str](), 0, 1
    root = tempfile.mkdtemp(dir=MEMORY)
    for _ in range(count):
        for line in _killed(root, exchanges, draw.randint(1, 12), draw.random() * 0.01):
            rewrites, exchanges = rewrites + 1, line["exchanges"]
            for place, sha256 in line["given"].items():
                if given.setdefault(place, sha256) != sha256:
                    wrong.append(f"{place} was {given[place]}, and is {sha256} now")
            wrong += [f"{place} was taken back" for place in given if place not in line["given"]]
    wrong += anyio.run(_lost, root, sorted(given))
    shutil.rmtree(root)
    return rewrites, wrong


def _killed(root: str, exchanges: int, lines: int, pause_s: float) -> list[dict[str, Any]]:
    """What a process gave out before it was killed, a moment after so many lines."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    command = [sys.executable, str(WORKER), root, str(exchanges)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}) as process:
        assert process.stdout is not None
        found = [process.stdout.readline() for _ in range(lines)]
        time.sleep(pause_s)
        process.kill()
        found += process.stdout.readlines()
    return [json.loads(line) for line in found if line.endswith(b"\n")]


async def _lost(root: str, places: Sequence[str]) -> list[str]:
    """Which of the replaced results cannot be read back as they were."""
    originals = {str(part.place): part for part in conversation(1 + max((int(p[1:]) for p in places), default=0))}
    async with ContextFileSystem("killed", root_path=root, read_only=True) as fs:
        contents = {f"o{d.call_id[1:]}": await fs.load(d.item_id) for d in fs.state.decisions}
    return [f"{place} is lost" for place in places if contents.get(place) != originals[place].content]


def _forgets(history: History, parts: Sequence[HistoryPart], branch: str) -> list[Any]:
    return [part.content for part in parts] if len(parts) > 30 else rewritten_parts(history, parts, branch)


def _repeats(history: History, parts: Sequence[HistoryPart], branch: str) -> list[Any]:
    first = rewritten_parts(history, parts, branch)
    return [
        f"{new}." if new != part.content and isinstance(new, str) else new
        for part, new in zip(parts, first, strict=True)
    ]


def controls() -> dict[str, bool]:
    """Adapters that break a rule, and whether that was seen."""
    found = {}
    for name, broken, rule in (("takes back", _forgets, "taken back"), ("rewrites again", _repeats, "settled")):
        rules: set[str] = set()
        for seed in range(12):
            with tempfile.TemporaryDirectory(dir=MEMORY) as root:
                rules |= {violation.rule for violation in play(seed, Path(root), steps=40, rewritten=broken).violations}
            if rule in rules:
                break
        found[name] = rule in rules
    return found


def run(budget_s: float, state_dir: Path) -> Result:
    """Go on where the last run ended."""
    until, file = time.monotonic() + budget_s, state_dir / "history.json"
    done = json.loads(file.read_text()) if file.exists() else {"calls": 0, "replaced": 0, "rewrites": 0, "kills": 0}
    done.setdefault("seed", seed_in(state_dir))
    violations: list[str] = []
    if done["kills"] < KILLS:
        rewrites, violations = kills(KILLS - done["kills"], done["seed"])
        done["kills"], done["rewrites"] = KILLS, done["rewrites"] + rewrites
    done["seed"], played = plays(done["seed"], CALLS - done["calls"], until)
    done["calls"] += played.calls
    done["replaced"] += played.replaced
    violations += [repr(violation) for violation in played.violations]
    file.write_text(json.dumps(done))
    print(f"history: {done['calls']:,} of {CALLS:,} calls, {done['kills']} kills", flush=True)
    figures = {name: done[name] for name in ("calls", "replaced", "kills", "rewrites")}
    return Result(figures=figures, violations=violations, controls=controls(), complete=done["calls"] >= CALLS)


PART = Part(name="history", title="A framework's histories: nothing taken back, nothing lost", run=run)
