"""Part: every system call of every operation, under every fault; in the port, and in the kernel by strace."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from ctxfs.errors import CtxfsError
from prove import port_faults, strace_faults
from prove.faults import Fault, FaultyFileSystem
from prove.operations import OPERATIONS, Bench, Operation
from prove.parts import MEMORY, Part, Result
from prove.workers import in_order, no_threads

__all__ = ["PART", "controls", "run"]

WORKERS = 2


def run(budget_s: float, state_dir: Path) -> Result:
    """Fail the port's calls first, then the kernel's."""
    ends_at = time.monotonic() + budget_s
    port = _port(ends_at, state_dir / "port.json")
    figures: dict[str, int | float | str] = {
        "port calls": port["calls"],
        "port runs": port["runs"],
        "not hit": port["unhit"],
    }
    violations = list(port["violations"])
    complete = bool(port["complete"])
    reason = strace_faults.why_not()
    if reason is None:
        with ThreadPoolExecutor(WORKERS) as pool:
            tallies = list(pool.map(partial(_strace, state_dir, ends_at), OPERATIONS))
        figures["system calls"] = sum(tally.calls for tally in tallies)
        figures["system call runs"] = runs = sum(tally.done for tally in tallies)
        figures["% hit"] = 100 * sum(tally.hits for tally in tallies) / max(1, runs)
        violations += [violation for tally in tallies for violation in tally.violations]
        complete = complete and all(tally.complete for tally in tallies)
    else:
        print(f"  NOT PROVED under strace: {reason}")
        figures["system calls"] = f"NOT PROVED: {reason}"
    return Result(figures=figures, violations=violations, controls=anyio.run(controls), complete=complete)


def _port(ends_at: float, kept: Path) -> dict[str, Any]:
    """Run what is left; an operation that is done is kept."""
    done: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    names = list(OPERATIONS)
    left = [number for number, name in enumerate(names) if name not in done]
    total = port_faults.Tally()
    for number, tally in zip(left, in_order(partial(_port_operation, ends_at), left, ends_at), strict=False):
        name = names[number]
        print(f"  port, {name}: {tally.calls} calls, {tally.runs} runs, {len(tally.violations)} broken", flush=True)
        if time.monotonic() < ends_at:
            done[name] = asdict(tally)
            kept.write_text(json.dumps(done))
        else:
            _add(total, tally)
    for data in done.values():
        _add(total, port_faults.Tally(**data))
    return {**asdict(total), "complete": len(done) == len(OPERATIONS)}


def _add(total: port_faults.Tally, more: port_faults.Tally) -> None:
    total.calls += more.calls
    total.runs += more.runs
    total.unhit += more.unhit
    total.violations += more.violations


def _port_operation(ends_at: float, number: int) -> port_faults.Tally:
    operation = list(OPERATIONS.values())[number]

    async def run(base: Path) -> port_faults.Tally:
        return await port_faults.run_all([operation], base, every_fault=True, ends_at=ends_at)

    with tempfile.TemporaryDirectory(dir=MEMORY) as base, no_threads():
        return anyio.run(run, Path(base))


def _strace(state_dir: Path, ends_at: float, name: str) -> strace_faults.Tally:
    """Run in a process of its own, which forks."""
    base = state_dir / name.replace(" ", "-").replace(",", "")
    budget = max(0.0, ends_at - time.monotonic())
    command = [sys.executable, strace_faults.__file__, name, str(base), str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return strace_faults.Tally(violations=[f"{name}: the harness failed: {done.stderr[-500:]}"])
    tally = strace_faults.Tally(**json.loads(done.stdout))
    print(f"  strace, {name}: {tally.calls} calls, {tally.done} runs, {len(tally.violations)} broken", flush=True)
    return tally


# ---- what must be seen failing


async def controls() -> dict[str, bool]:
    """Break something on purpose; whether each was noticed."""

    async def acknowledge_anyway(bench: Bench) -> None:
        with suppress(CtxfsError):
            await OPERATIONS["offload"].run(bench)

    liar = replace(OPERATIONS["offload"], run=acknowledge_anyway)
    return {
        "acknowledged though it failed": await _noticed(liar, "lost"),
        "temporary files not removed": await _noticed(OPERATIONS["offload"], "left behind", ignored="unlink"),
        "handles not closed": await _noticed(OPERATIONS["open, again"], "left open", ignored="close"),
    }


async def _noticed(operation: Operation, problem: str, *, ignored: str = "") -> bool:
    with tempfile.TemporaryDirectory(dir=MEMORY) as base:
        ground = port_faults.Ground(Path(base))
        await ground.prepare(operation)
        calls = await port_faults.count_calls(operation, ground)
        for at in range(1, len(calls) + 1):
            make: Callable[[Fault], FaultyFileSystem] = partial(_Ignoring, ignored)
            _, found = await port_faults.examine(operation, ground, Fault(kind="error", at=at), make=make)
            if any(problem in violation for violation in found):
                return True
    return False


class _Ignoring(FaultyFileSystem):
    """Does not do one of the calls, and says that it did."""

    def __init__(self, ignored: str, fault: Fault) -> None:
        super().__init__(fault)
        self._ignored = ignored

    def perform(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == self._ignored:
            return None
        return super().perform(name, method, arguments)

    def _close(self, call: Callable[[int], None], fd: int) -> None:
        if self._ignored != "close":
            super()._close(call, fd)


PART = Part(name="syscalls", title="every system call of every operation, under every fault", run=run, share=0.6)
