"""Part: power failures on a file system that forgets what was not synced; 200 rounds."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from patience import HANGS_S
from prove.chained_kill import Tally
from prove.part_kill import chain
from prove.parts import Part, Result, seed_in

__all__ = ["PART", "fail_power", "why_not"]

CHAINS = 4
ROUNDS_A_CHAIN = 50
WRITES = 20
PROGRAM = Path(__file__).with_name("volatile_fuse.py")


def why_not() -> str | None:
    """Say why this cannot be tried here; None when it can."""
    if importlib.util.find_spec("mfusepy") is None:
        return "the package mfusepy is not installed"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is not installed"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there for this user"
    return None


@contextmanager
def _mounted() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as base:
        server = subprocess.Popen([sys.executable, str(PROGRAM), base])
        try:
            ends_at = time.monotonic() + HANGS_S
            while not os.path.ismount(base):
                if server.poll() is not None or time.monotonic() > ends_at:
                    raise OSError("the file system could not be mounted")
                time.sleep(0.02)
            yield Path(base)
        finally:
            subprocess.run(["fusermount3", "-u", base], check=False, capture_output=True)
            server.terminate()
            server.wait()


def fail_power(rounds: int, seed: int, *options: str) -> Tally:
    """Run a chain in which the power fails with every kill."""
    with _mounted() as base:
        root = base / "sessions"
        root.mkdir(mode=0o700)
        return chain(rounds, seed, WRITES, "power", *options, root=root)


def run(budget_s: float, state_dir: Path) -> Result:
    """Run what is left of the chains; each one that is done is kept."""
    reason = why_not()
    if reason is not None:
        return Result(figures={"rounds": f"NOT PROVED: {reason} (the crash states are simulated)"})
    ends_at = time.monotonic() + budget_s
    kept = state_dir / "chains.jsonl"
    tallies = [Tally(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    while len(tallies) < CHAINS and time.monotonic() < ends_at:
        tallies.append(fail_power(ROUNDS_A_CHAIN, seed_in(state_dir) + len(tallies)))
        with kept.open("a") as file:
            file.write(json.dumps(asdict(tallies[-1])) + "\n")
        print(f"  {tallies[-1]}", flush=True)
    lost = [problem for tally in tallies for problem in tally.lost]
    return Result(
        figures={
            "rounds": sum(tally.rounds for tally in tallies),
            "acknowledged": sum(tally.acknowledged for tally in tallies),
            "lost": len(lost),
        },
        violations=lost,
        controls={"without syncs": bool(fail_power(ROUNDS_A_CHAIN, 0, "unsynced").lost)},
        complete=len(tallies) == CHAINS,
    )


PART = Part(name="power", title="power failures on a file system that forgets what was not synced", run=run, share=0.5)
