"""Every state that a crash may leave: all workloads of up to three operations, two epochs deep."""

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import anyio

from prove.crash_controls import CONTROLS
from prove.crash_explorer import HUGE, REMOVE, Explorer, OutOfTime, Tally, Workload, workloads
from prove.parts import Part, Result
from prove.workers import PROCESSES

__all__ = ["PART", "run_control"]

LONGEST = 3
SECOND_AFTER: dict[int, tuple[str, ...]] = {1: ("offload", "add", "evict"), 2: ("offload", "add", "evict"), 3: ("add",)}
"""The writes that follow crash and recovery, by the length of the workload before."""

OTHERS_FILES = ("export", "import")
"""What they leave half done lies outside the session: a second epoch is looked at after these alone, not after more."""

CONTROL_WORKLOADS: list[Workload] = [("offload",), ("evict",), ("add",), ("recover",), ("offload", "evict"), (REMOVE,)]
CONTROL_SECOND = ("add", "evict")
PROGRESS_NAME = "progress.json"
SEEN_NAME = "seen.bin"
DIGEST_BYTES = 16


class _Progress:
    """What was done in earlier runs, on disk: how many workloads, their tally, and the states that were seen."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS_NAME
        self._seen = folder / SEEN_NAME
        data = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.done = int(data.get("done", 0))
        self.tally = Tally(**data.get("tally", {}))
        self._seen_bytes = int(data.get("seen_bytes", 0))

    def seen(self) -> list[bytes]:
        if not self._seen_bytes:
            return []
        data = self._seen.read_bytes()[: self._seen_bytes]
        self._seen.write_bytes(data)  # without what a run wrote that was ended before it was done
        return [data[start : start + DIGEST_BYTES] for start in range(0, len(data), DIGEST_BYTES)]

    def save(self, done: int, explorer: Explorer) -> None:
        with self._seen.open("ab") as file:
            file.write(b"".join(explorer.new))
        self._seen_bytes += DIGEST_BYTES * len(explorer.new)
        explorer.new.clear()
        self.done = done
        temp = self._path.with_suffix(".new")
        temp.write_text(json.dumps({"done": done, "tally": asdict(explorer.tally), "seen_bytes": self._seen_bytes}))
        temp.replace(self._path)


async def _explore(share: int, deadline: float, state_dir: Path) -> tuple[Tally, bool]:
    """Look at every ``PROCESSES``-th workload, from where the run before ended."""
    folder = state_dir / f"share-{share}"
    folder.mkdir(exist_ok=True)
    progress = _Progress(folder)
    explorer = Explorer(folder, over=partial(_is_over, deadline, os.getppid()), seen=progress.seen())
    explorer.tally = progress.tally
    await explorer.prepare()
    plan = workloads(LONGEST)[share::PROCESSES]
    told = time.monotonic()
    for number in range(progress.done, len(plan)):
        try:
            await explorer.explore(plan[number], _second(plan[number]))
        except OutOfTime:
            return _Progress(folder).tally, False
        progress.save(number + 1, explorer)
        if time.monotonic() - told > 30:
            told, tally = time.monotonic(), explorer.tally
            states = tally.states + tally.second_states
            print(f"   {number + 1}/{len(plan)} workloads, {states:,} states, {tally.broken} broken", flush=True)
    return explorer.tally, True


def _is_over(deadline: float, parent: int) -> bool:
    if os.getppid() != parent:
        os._exit(1)  # the parent was killed: nobody waits for what is found here
    return time.monotonic() > deadline


def _second(workload: Workload) -> tuple[str, ...]:
    if workload == (HUGE,) or (len(workload) > 1 and workload[-1] in OTHERS_FILES):
        return ()
    return SECOND_AFTER[len(workload)]


def _explore_share(share: int, deadline: float, state_dir: Path) -> tuple[Tally, bool]:
    return anyio.run(_explore, share, deadline, state_dir)


async def run_control(name: str, scratch: Path) -> Tally:
    """Look at a broken variant until it is found out, however slow the machine is."""
    variant = CONTROLS[name]
    explorer = Explorer(scratch, variant=variant, enough=1)
    await explorer.prepare()
    # What removes wrongly is found where something is removed.
    workloads_of_it = sorted(CONTROL_WORKLOADS, key=lambda one: (one == (REMOVE,)) is not variant.file_first)
    try:
        for workload in workloads_of_it:
            await explorer.explore(workload, CONTROL_SECOND)
    except OutOfTime:
        pass
    return explorer.tally


def run(budget_s: float, state_dir: Path) -> Result:
    """See ``Part``."""
    started = time.monotonic()
    controls: dict[str, bool] = {}
    figures: dict[str, int | float | str] = {}
    for name in CONTROLS:
        tally = anyio.run(partial(run_control, name, state_dir))
        controls[name] = tally.broken > 0
        states = tally.states + tally.second_states
        print(f"   control: {name}: {tally.broken:,} broken of {states:,} states", flush=True)
    deadline = started + budget_s
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        work = [pool.submit(_explore_share, share, deadline, state_dir) for share in range(PROCESSES)]
        done = [future.result() for future in work]
    tallies = [tally for tally, _ in done]
    figures["workloads"] = sum(tally.workloads for tally in tallies)
    figures["crashes"] = sum(tally.crashes for tally in tallies)
    figures["states"] = sum(tally.states + tally.second_states for tally in tallies)
    figures["of them in the second epoch"] = sum(tally.second_states for tally in tallies)
    figures["kills before a power failure"] = sum(tally.kills for tally in tallies)
    violations = [violation for tally in tallies for violation in tally.violations]
    complete = all(complete for _, complete in done)
    return Result(figures=figures, violations=violations, controls=controls, complete=complete)


PART = Part(name="crash", title="every state that a crash may leave, two epochs deep", run=run, share=4.0)
