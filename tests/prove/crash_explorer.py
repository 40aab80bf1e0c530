"""Workloads, every crash of each, and every crash of the recovery and the write that follow."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import product
from pathlib import Path

from ctxfs.errors import CtxfsError
from prove.crash_check import Fixed, check
from prove.crash_disk import CrashDisk, State
from prove.crash_session import (
    EXPORTS,
    OPERATIONS,
    Expected,
    Moment,
    Run,
    Snapshot,
    Variant,
    add_huge,
    fork_all,
    make_base,
    remove_one,
    return_one,
    undo_one,
)
from prove.workers import no_threads

__all__ = [
    "FORK",
    "HUGE",
    "REMOVE",
    "RETURN",
    "START",
    "UNDO",
    "Explorer",
    "OutOfTime",
    "Tally",
    "Workload",
    "workloads",
]

START = "start"
HUGE = "add huge"
REMOVE = "remove"
FORK = "fork"
UNDO = "undo and pin"
RETURN = "undo an archive"
ALONE = {
    START: OPERATIONS["add"],
    HUGE: add_huge,
    REMOVE: remove_one,
    FORK: fork_all,
    UNDO: undo_one,
    RETURN: return_one,
}
"""The operations of workloads of their own: one begins with nothing on the disk, one is slow to look at, some rare."""

SHOWN = 50

Workload = tuple[str, ...]


class OutOfTime(Exception):
    """The time was up in the middle of a workload."""


@dataclass(slots=True)
class Tally:
    """What was looked at.

    ``crashes`` counts states before, ``states`` and ``second_states`` after the same ones were told apart; ``kills``
    the moments at which a process was killed and the power failed later.
    """

    workloads: int = 0
    kills: int = 0
    crashes: int = 0
    states: int = 0
    second_states: int = 0
    broken: int = 0
    violations: list[str] = field(default_factory=list)


def workloads(longest: int) -> list[Workload]:
    """Every sequence of operations up to a length, the short ones first."""
    found: list[Workload] = [(name,) for name in ALONE]
    for length in range(1, longest + 1):
        found += product(OPERATIONS, repeat=length)
    return found


class Explorer:
    """Looks at workload after workload; each state once, whatever led there.

    ``over`` tells when the time is up; ``seen`` are digests of the states that were looked at before.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        variant: Variant | None = None,
        over: Callable[[], bool] = lambda: False,
        seen: Iterable[bytes] = (),
        enough: int | None = None,
    ) -> None:
        self._scratch = scratch
        self._variant = variant or Variant()
        self._over = over
        self._enough = enough
        self._archive = scratch / "to-import.ctxfs"
        self._imported: Snapshot = ()
        self._recovered: set[bytes] = set()
        self.seen = set(seen)
        self.new: list[bytes] = []
        self.tally = Tally()

    async def prepare(self) -> None:
        """Make the archive that imports read."""
        run = Run(CrashDisk(), self._archive)
        await make_base(run)
        for item in (await run.in_context())[:2]:
            await run.store([item])
        await run.export()
        name = run.now.archives[0][0]
        data = run.disk.contents().files[f"{EXPORTS}/{name}"]
        assert data is not None
        self._archive.write_bytes(data)
        self._imported = run.now.snapshots[0]

    async def explore(self, workload: Workload, second: Iterable[str] = ()) -> None:
        """Look at every crash in the last operation (those in the others belong to shorter workloads).

        From each state go on: recover, do each operation of ``second``, and crash in these. The same after each moment
        at which the process, but not the system, may be killed. Worker threads would change nothing but the time.
        """
        with no_threads():
            await self._explore(workload, tuple(second))

    async def _explore(self, workload: Workload, second: tuple[str, ...]) -> None:
        run = await self._run(workload)
        self.tally.workloads += 1
        story = " > ".join(workload)
        for death in reversed(run.deaths if second else []):
            self.tally.kills += 1
            await self._second_epoch(partial(death.captured.survived, 2), death.expected, f"{story} > kill", second)
        async for state, expected in self._new_states(run.moments):
            self.tally.states += 1
            if await self._look(state, expected, story) and second:
                await self._second_epoch(partial(CrashDisk, state, process=2), expected, f"{story} > crash", second)

    async def _run(self, workload: Workload) -> Run:
        run = Run(CrashDisk(), self._archive)
        if workload != (START,):
            await make_base(run)
            if self._variant != Variant():
                run.kill()
        run.variant = self._variant
        *before, last = workload
        for name in before:
            await OPERATIONS[name](run)
        run.forget()
        await (ALONE | OPERATIONS)[last](run)
        run.keep()
        return run

    async def _second_epoch(
        self, crashed: Callable[[], CrashDisk], expected: Expected, story: str, second: tuple[str, ...]
    ) -> None:
        """Recover, once; and go on from what recovery made of it, unless that was seen."""
        story += " > recover"
        for name in (None, *second):
            run = Run(crashed(), self._archive, variant=self._variant, expected=expected)
            try:
                await run.session()
                if name is not None:
                    run.forget()
                    await OPERATIONS[name](run)
            except CtxfsError as error:
                self._note([f"{type(error).__name__}: {error}"], f"{story} > {name}")
                return
            run.keep()
            await self._look_at_second(run.moments, story if name is None else f"{story} > {name}")
            if name is None and self._was_recovered(run):
                return

    def _was_recovered(self, run: Run) -> bool:
        """Whether a recovery that was seen before made the same of it."""
        recovered = _digest(run.disk.contents(), run.now) + bytes([min(run.disk.unsynced(), 255)])
        known = recovered in self._recovered
        self._recovered.add(recovered)
        return known

    async def _look_at_second(self, moments: list[Moment], story: str) -> None:
        async for state, expected in self._new_states(moments):
            self.tally.second_states += 1
            await self._look(state, expected, story)

    async def _new_states(self, moments: list[Moment]) -> AsyncIterator[tuple[State, Expected]]:
        for moment in reversed(moments):  # the last ones are the interesting ones
            for state in moment.captured.states():
                self.tally.crashes += 1
                digest = _digest(state, moment.expected)
                if digest not in self.seen:
                    self.seen.add(digest)
                    self.new.append(digest)
                    yield state, moment.expected

    async def _look(self, state: State, expected: Expected, story: str) -> bool:
        if self._over():
            raise OutOfTime
        fixed = Fixed(store=self._variant.store, imported=self._imported, scratch=self._scratch / "scratch")
        return not self._note(await check(state, expected, fixed), story)

    def _note(self, broken: list[str], story: str) -> bool:
        if broken:
            self.tally.broken += 1
            if len(self.tally.violations) < SHOWN:
                self.tally.violations.append(f"{story}: {broken[0]}")
            if self._enough is not None and self.tally.broken >= self._enough:
                raise OutOfTime
        return bool(broken)


def _digest(state: State, expected: Expected) -> bytes:
    """Tell states apart, and what must hold in them."""
    contents = sorted(expected.contents)
    rest = (expected.snapshots, sorted(expected.must), contents, expected.started, expected.sessions, expected.archives)
    removal = (sorted(expected.going), sorted(expected.gone))
    return blake2b(state.key + repr((rest, removal)).encode(), digest_size=16).digest()
