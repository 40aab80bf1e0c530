"""Play the sessions of a comparison: paired, in random order, in parallel, inside the budget.

Each is written down when it ends.
"""

import hashlib
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread

from ctxfs.errors import BudgetSpent, ConfigError
from ctxfs.errors.checks import names_settings, require_int, require_number
from ctxfs.lab.ab.arms import Arm, Clearing, checked_arms
from ctxfs.lab.ab.directory import SessionDirectory, exit_code
from ctxfs.lab.ab.meter import Budget, Meter, Pricing
from ctxfs.lab.ab.report import Comparison
from ctxfs.lab.ab.results import LEFT_OUT, Header, Outcome, Results, SessionKey, SessionResult
from ctxfs.lab.ab.session import Metered, Session
from ctxfs.lab.ab.tasks import Task, checked_tasks, fingerprint
from ctxfs.storage.task_group import TaskGroup
from ctxfs.storage.threads import result_of, run_to_completion, uninterrupted


@dataclass(frozen=True, slots=True)
class Pair:
    """One task in each arm, in the order in which they are played."""

    task: Task
    repeat: int
    arms: tuple[Arm, ...]

    def key(self, arm: Arm) -> SessionKey:
        """Which session an arm's is."""
        return SessionKey(self.task.id, self.repeat, arm.name)


def pairs_in_order(tasks: Sequence[Task], arms: Sequence[Arm], repeats: int, seed: int) -> list[Pair]:
    """All pairs, shuffled, and the arms of each: the same seed gives the same order.

    Each repeat is shuffled alone, so that a budget that ends early has every task about as often.
    """
    draw = random.Random(seed)  # noqa: S311 - an order, and no secret
    pairs = []
    for repeat in range(repeats):
        shuffled = list(tasks)
        draw.shuffle(shuffled)
        for task in shuffled:
            order = list(arms)
            draw.shuffle(order)
            pairs.append(Pair(task, repeat, tuple(order)))
    return pairs


def left_to_play(pair: Pair, ended: Collection[SessionResult]) -> list[Arm]:
    """The arms of a pair whose session did not end, or is left out and played again."""
    done = {result.key for result in ended if result.outcome not in LEFT_OUT}
    return [arm for arm in pair.arms if pair.key(arm) not in done]


def pair_cost_usd(ended: Collection[SessionResult], arms: int) -> float:
    """What the next pair may need: as much as the dearest sessions so far; 0 before the first one.

    The last session of a pair needs what one reserves at most, which is more than what it costs.
    """
    dearest = max((result.usd for result in ended), default=0.0)
    most = max((result.most_usd for result in ended), default=0.0)
    return (arms - 1) * dearest + most


_log = logging.getLogger("ctxfs.lab")

_NOTE_CHARS = 300
_IN_PATHS = str.maketrans(dict.fromkeys("/\\ \t\n'\"$`;&|<>()*?[]{}!#~", "-"))
"""What a path in a placeholder must not have: a model puts it into a command of a shell as it is."""

Solve = Callable[[Task, Session], Awaitable[Any]]
"""Plays one session: an async function of the task and of what its arm gives it."""


class Play(Protocol):
    """Plays one session to its end, inside its time, and says how it ended; a note says why."""

    async def __call__(self, task: Task, arm: Arm, meter: Meter, directory: SessionDirectory) -> tuple[Outcome, str]:
        """Play it in ``directory``."""


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a comparison is run.

    Args:
        results: the file of results; the same file goes on where it stopped.
        repeats: how often each task is played in each arm.
        seed: of the order of pairs, and of the arms in each.
        parallel: how many pairs at a time; the sessions of a pair follow each other.
        budget_usd: what all calls may cost, by list prices; None: no limit.
        session_usd: what one session may cost; one that wants more is not solved. None: no limit.
        pricing: how calls are turned into dollars.
        keep: where each session's directory is kept; None: it is removed at its end.

    Raises:
        ConfigError: a number that cannot work.

    """

    results: Path
    repeats: int = 1
    seed: int = 0
    parallel: int = 1
    budget_usd: float | None = None
    session_usd: float | None = None
    pricing: Pricing = field(default_factory=Pricing)
    keep: Path | None = None

    def __post_init__(self) -> None:
        require_int("repeats", self.repeats, at_least=1)
        require_int("seed", self.seed, at_least=0)
        require_int("parallel", self.parallel, at_least=1)
        for name in ("budget_usd", "session_usd"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), at_least=0)


@names_settings()
async def run(tasks: Sequence[Task], arms: Sequence[Arm | str], solve: Solve, settings: Settings) -> Comparison:
    """Compare arms on tasks: ``solve`` plays each task in each arm, in pairs, in random order.

    It gets the task and a ``Session``, whose arm it must use: a client (``Session.client``), and a ``Context`` or a
    ``History``. What it returns says whether the task is solved, unless the task has a ``check``, which gets it. If it
    raises, its session counts as crashed, and no other is touched.

    Args:
        tasks: what is played.
        arms: the first one is what the others are compared with; see ``ARM_NAMES`` for those that have a name.
        solve: plays one session.
        settings: how it is run.

    Raises:
        ConfigError: tasks or arms that cannot work, or a file of results of another comparison.

    """
    checked = checked_arms(arms)
    for arm in checked:
        if arm.clears_above_tokens is not None:
            raise ConfigError(f"the arm {arm.name} works through the proxy only: see `ctxfs ab`")

    async def play(task: Task, arm: Arm, meter: Meter, directory: SessionDirectory) -> tuple[Outcome, str]:
        counted = partial(Metered, meter=meter)
        session = Session(arm, directory=directory.work, root_path=directory.stored, counted=counted)
        return await _solved(task, solve, session)

    return await run_sessions(tasks, checked, play, settings)


async def run_sessions(
    tasks: Sequence[Task], arms: Sequence[Arm], play: Play, settings: Settings, *, command: str = ""
) -> Comparison:
    """``run``, with anything that plays a session; ``command`` identifies what it runs."""
    checked_tasks(tasks)
    names = tuple(arm.name for arm in arms)
    header = Header(seed=settings.seed, arms=names, repeats=settings.repeats, tasks=fingerprint(tasks), command=command)
    results = await to_thread.run_sync(Results, settings.results, header)
    with results:
        running = _Running(tasks, arms, play, settings, results)
        await running.all()
        return Comparison(
            arms=names,
            tasks=len(tasks),
            repeats=settings.repeats,
            sessions=results.sessions,
            spent_usd=results.spent_usd,
        )


class _Running:
    """The pairs that are still to be played, taken by workers one after the other."""

    def __init__(
        self, tasks: Sequence[Task], arms: Sequence[Arm], play: Play, settings: Settings, results: Results
    ) -> None:
        self._arms = arms
        self._play = play
        self._settings = settings
        self._results = results
        self._budget = Budget(settings.budget_usd, results.spent_usd)
        self._pairs = iter(pairs_in_order(tasks, arms, settings.repeats, settings.seed))

    async def all(self) -> None:
        """Play until no pair is left, or none that can be afforded."""
        async with TaskGroup() as workers:
            for _ in range(self._settings.parallel):
                workers.start_soon(self._work)

    async def _work(self) -> None:
        for pair in self._pairs:
            ended = self._results.sessions
            arms = left_to_play(pair, ended)
            if not arms:
                continue
            if self._budget.left_usd <= 0 or self._budget.left_usd < pair_cost_usd(ended, len(arms)):
                return
            for arm in arms:
                result = await self._session(pair, arm)
                if result.outcome == "budget" or self._fails_from_the_start():
                    return

    def _fails_from_the_start(self) -> bool:
        """Whether no session could be played so far: the others would fail as this one did."""
        return all(one.outcome == "failed" for one in self._results.sessions)

    async def _session(self, pair: Pair, arm: Arm) -> SessionResult:
        """Play one session in a directory of its own; nothing of it reaches another one but what it spent.

        Once it has ended, it is written down, whatever is cancelled: it is paid.
        """
        position = pair.arms.index(arm)
        name = f"{_in_paths(pair.task.id)}-{pair.repeat}-{position}"
        make = partial(SessionDirectory.made, self._settings.keep, name, pair.task.directory)
        directory = await result_of(make)
        clears = arm.clears_above_tokens
        meter = Meter(
            pair.key(arm),
            self._results,
            self._budget,
            pricing=self._settings.pricing,
            stored_in=str(directory.stored),
            limit_usd=self._settings.session_usd,
            clearing=None if clears is None else Clearing(clears, arm.clear_keeps),
        )
        start = time.monotonic()
        result: SessionResult | None = None
        try:
            try:
                outcome, note = await self._play(pair.task, arm, meter, directory)
            except Exception as error:  # noqa: BLE001 - whatever went wrong here must not end the other sessions
                _log.warning("session %s failed: %r", "/".join(map(str, pair.key(arm))), error)
                outcome, note = "failed", repr(error)[:_NOTE_CHARS]
            if meter.stopped is not None and outcome != "solved":
                outcome = meter.stopped
            result = meter.result(outcome, wall_s=time.monotonic() - start, note=note)
        finally:
            await self._ended(result, directory)
        return result

    @uninterrupted
    async def _ended(self, result: SessionResult | None, directory: SessionDirectory) -> None:
        try:
            if result is not None:
                await run_to_completion(lambda: self._results.ended(result))
        finally:
            await run_to_completion(directory.remove)


def _in_paths(task_id: str) -> str:
    """An id as a part of a path; one that was changed differs from all others by its digest."""
    part = task_id.translate(_IN_PATHS)
    return part if part == task_id else f"{part}-{hashlib.sha256(task_id.encode()).hexdigest()[:8]}"


async def _solved(task: Task, solve: Solve, session: Session) -> tuple[Outcome, str]:
    """Play one session with a function, and ask the task's check."""
    try:
        with anyio.move_on_after(task.timeout_s) as limit:
            said = await solve(task, session)
    except BudgetSpent as error:
        return "unsolved", str(error)
    except Exception as error:  # noqa: BLE001 - whatever the function raises ends its own session only
        return "crashed", repr(error)[:_NOTE_CHARS]
    if limit.cancelled_caught:
        return "timeout", f"after {task.timeout_s:g} s"
    if isinstance(task.check, tuple):
        is_solved = await passes(task, task.check, session.directory)
    elif task.check is not None:
        is_solved = task.check(task, said)
    else:
        is_solved = said
    if not isinstance(is_solved, bool):
        raise ConfigError(
            f"task {task.id}: solve returned {said!r:.60}: return True or False, or give the task a check"
        )
    return ("solved" if is_solved else "unsolved"), ""


async def passes(task: Task, check: tuple[str, ...], directory: Path) -> bool:
    """Whether a task's command says that it is solved; one that does not end in the task's time says no."""
    output = directory.parent / "check.txt"
    code = await exit_code(check, cwd=directory, env=dict(os.environ), output=output, timeout_s=task.timeout_s)
    return code == 0
