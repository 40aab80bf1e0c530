"""Every call of the file-system port fails, falls short or is the last, in every operation: no privilege is needed.

The real code runs on the real file system; only the chosen call is kept from it.
"""

import itertools
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ctxfs.errors import CtxfsError
from failing_fs import as_port
from prove.faults import ERRORS, Fault, FaultyFileSystem, Killed
from prove.operations import Bench, Operation, check, left_behind, try_again

__all__ = ["Ground", "Tally", "all_faults", "count_calls", "examine", "one_of_each", "run_all"]


LATE = {"link", "sync", "truncate", "unlink", "write"}
"""Calls that may happen and fail all the same. (After such a ``create`` the next opening cleans up.)"""


@dataclass(slots=True)
class Tally:
    """What was run, and what was wrong."""

    calls: int = 0
    runs: int = 0
    unhit: int = 0
    violations: list[str] = field(default_factory=list)


class Ground:
    """The disk before each operation, made once and copied for each run."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._numbers = itertools.count()

    async def prepare(self, operation: Operation) -> None:
        """Make the operation's ground, unless it is there."""
        template = self._template(operation)
        if not template.exists():
            await operation.prepare(Bench(template))

    def copy(self, operation: Operation) -> Path:
        """Return a fresh copy of it, to be removed after use."""
        root = self._base / f"run-{next(self._numbers)}"
        shutil.copytree(self._template(operation), root)
        return root

    def _template(self, operation: Operation) -> Path:
        return self._base / operation.name.replace(" ", "-")


async def count_calls(operation: Operation, ground: Ground) -> list[str]:
    """Name the calls that the operation makes, in order."""
    root = ground.copy(operation)
    port = FaultyFileSystem()
    bench = await _bench(operation, root, port)
    await operation.run(bench)
    port.armed = False
    await bench.close()
    shutil.rmtree(root)
    return port.log


async def _bench(operation: Operation, root: Path, port: FaultyFileSystem) -> Bench:
    bench = Bench(root, as_port(port))
    port.armed = False
    await operation.begin(bench)
    port.armed = True
    return bench


def all_faults(calls: Sequence[str]) -> Iterator[Fault]:
    """Every fault at every call."""
    for at, name in enumerate(calls, 1):
        yield Fault(kind="kill", at=at)
        for error, for_good in itertools.product(ERRORS.values(), (False, True)):
            yield Fault(kind="error", at=at, error=error, for_good=for_good)
        yield from _special_faults(at, name)


def one_of_each(calls: Sequence[str]) -> Iterator[Fault]:
    """At every call an error, in turn another one, once or for good; at every third call the end."""
    errors = itertools.cycle(itertools.product(ERRORS.values(), (False, True)))
    for at, name in enumerate(calls, 1):
        if at % 3 == 1:
            yield Fault(kind="kill", at=at)
        error, for_good = next(errors)
        yield Fault(kind="error", at=at, error=error, for_good=for_good)
        yield from _special_faults(at, name)


def _special_faults(at: int, name: str) -> Iterator[Fault]:
    if name in LATE:
        yield Fault(kind="late", at=at)
    if name == "write":
        yield Fault(kind="tear", at=at)
        yield Fault(kind="short", at=at)
        yield Fault(kind="short", at=at, for_good=True)


async def examine(
    operation: Operation,
    ground: Ground,
    fault: Fault,
    *,
    make: Callable[[Fault], FaultyFileSystem] = FaultyFileSystem,
) -> tuple[int, list[str]]:
    """Run the operation under a fault; return how often it was hit, and what should not be so."""
    root = ground.copy(operation)
    port = make(fault)
    bench = await _bench(operation, root, port)
    before = dict(bench.fs.state.stored) if bench.fs is not None else {}
    found: list[str] = []
    acknowledged = False
    try:
        await operation.run(bench)
        acknowledged = True
    except Killed:
        port.bury()
    except Exception as error:  # noqa: BLE001 - what is not ours is a finding
        if not isinstance(error, CtxfsError):
            found.append(f"it raised {error!r}, which is no error of ctxfs")
        found += _after_failure(operation, bench, port, fault, before)
    if not port.dead:
        port.armed = False
        if not acknowledged and operation.again:
            try:
                await try_again(operation, bench)
                acknowledged = True
            except CtxfsError as error:
                found.append(f"it fails again without a fault: {error}")
        await bench.close()
        found += [f"left open: {len(port.handles)} handles"] * bool(port.handles)
    found += await check(operation, root, acknowledged=acknowledged)
    shutil.rmtree(root)
    return port.hits, found


def _after_failure(
    operation: Operation, bench: Bench, port: FaultyFileSystem, fault: Fault, before: object
) -> list[str]:
    """Say what a refused operation has left that it should not have."""
    found: list[str] = []
    if bench.fs is not None and operation.again and dict(bench.fs.state.stored) != before:
        found.append("a failed operation changed what is stored")
    if not operation.opened and port.handles:
        found.append(f"a failed opening left {len(port.handles)} handles open")
    if not fault.for_good and port.log[fault.at - 1] not in {"unlink", "remove_dir"}:
        found += left_behind(operation, bench.root)
    return found


async def run_all(
    operations: Iterable[Operation], base: Path, *, every_fault: bool, ends_at: float = float("inf")
) -> Tally:
    """Examine operations, one fault after the other, until all is done or it is ``ends_at`` (monotonic, seconds)."""
    tally = Tally()
    ground = Ground(base)
    for operation in operations:
        with anyio.CancelScope(shield=True):
            await ground.prepare(operation)
        calls = await count_calls(operation, ground)
        tally.calls += len(calls)
        for fault in all_faults(calls) if every_fault else one_of_each(calls):
            if time.monotonic() > ends_at:
                return tally
            hits, found = await examine(operation, ground, fault)
            tally.runs += 1
            tally.unhit += not hits
            tally.violations += [f"{operation.name}, {fault} ({calls[fault.at - 1]}): {problem}" for problem in found]
    return tally
