"""A program ends while it uses a session: nothing acknowledged is lost, no journal is damaged, whoever cancels what."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxfs.text.jsontext import codec as json_codec
from prove.endings import WAYS
from prove.parts import MEMORY, Part, Result, seed_in

__all__ = ["PART", "Ended", "end", "why_not"]

_RUNS = 1_000
"""How many programs end in each way."""

_AT_ONCE = 100
"""How many programs one process ends: to load what they need costs as much CPU time as some twenty-five endings."""

_CONTROL_RUNS = 20

_MOST_WAITING = 0.01
"""The share of programs that may wait for ever, since Ctrl-C can cut Python's own event loop."""

_PROGRAM = Path(__file__).with_name("endings.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What came of ending ``runs`` programs, which had been told that ``acknowledged`` items are durable.

    ``waited``: how many never ended, and were killed.
    """

    runs: int
    acknowledged: int
    waited: int
    wrong: list[str]


def why_not() -> str | None:
    """Why programs cannot be ended here; None: they can."""
    return None if hasattr(os, "fork") else "this system does not fork"


def end(way: str, first: int, runs: int, *, broken: bool = False) -> Ended:
    """End programs in this ``way``, with the seeds from ``first`` on; ``broken``: as before this was mended."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        command = [sys.executable, str(_PROGRAM), folder, way, str(first), str(runs), *["broken"] * broken]
        paths = os.pathsep.join([str(_PROGRAM.parent.parent), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
        )
    if ran.returncode:
        return Ended(runs=0, acknowledged=0, waited=0, wrong=[f"{way}: the programs did not run: {ran.stderr[-500:]}"])
    return Ended(**json.loads(ran.stdout))


def _run(budget_s: float, state_dir: Path) -> Result:
    if reason := why_not():
        return Result(violations=[f"NOT TESTED: {reason}"])
    started = time.monotonic()
    file = state_dir / "endings.json"
    done: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    seed = seed_in(state_dir)
    while short := [way for way in WAYS if done.get(way, {"runs": 0})["runs"] < _RUNS]:
        if time.monotonic() - started > budget_s:
            break
        way = min(short, key=lambda one: done.get(one, {"runs": 0})["runs"])
        so_far = done.setdefault(way, {"runs": 0, "acknowledged": 0, "waited": 0, "wrong": []})
        ended = end(way, seed + so_far["runs"], _AT_ONCE)
        so_far["runs"] += ended.runs or _RUNS
        so_far["acknowledged"] += ended.acknowledged
        so_far["waited"] += ended.waited
        so_far["wrong"] += ended.wrong
        file.write_bytes(json_codec.dumps(done))
        print(f"endings: {way}: {so_far['runs']} runs, {len(so_far['wrong'])} violations", flush=True)
    figures = {way: one["runs"] for way, one in done.items()}
    figures["acknowledged"] = sum(one["acknowledged"] for one in done.values())
    figures["never ended"] = sum(one["waited"] for one in done.values())
    violations = [what for one in done.values() for what in one["wrong"]]
    violations += [
        f"{way}: {one['waited']} of {one['runs']} programs never ended"
        for way, one in done.items()
        if one["waited"] > max(1, _MOST_WAITING * one["runs"])
    ]
    control = {
        f"{way}, tasks that the loop lists": bool(end(way, seed, _CONTROL_RUNS, broken=True).wrong)
        for way in ("asyncio.run ends", "all_tasks() are cancelled")
    }
    return Result(figures=figures, violations=violations, controls=control, complete=not short)


PART = Part(name="endings", title="Programs that end while they use a session", run=_run)
