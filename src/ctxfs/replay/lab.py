"""Recorded sessions under policies, on two cores, without a model."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar

from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.errors import ConfigError, ReplayFormatError
from ctxfs.replay.cost import Cached, Policy, replay_session
from ctxfs.replay.formats import EXPECTED, load_any
from ctxfs.replay.oracle import oracle_cost
from ctxfs.replay.policies import DEFAULT_POLICIES, Never, policy_named
from ctxfs.replay.report import PolicyRun, Report, SessionReport
from ctxfs.replay.session import Session, prepare
from ctxfs.tokens import CharsCounter, default_counter

__all__ = ["PROCESSES", "Progress", "Tokens", "counter_named", "map_sessions", "replay_files", "run_policies"]

PROCESSES: Final = 2

Tokens = Literal["o200k", "chars4"]
"""How tokens are counted: exactly, or as characters / 4."""

Progress = Callable[[int, int], None]
"""Told how many files are done, of how many."""

_T = TypeVar("_T")
_FEW_BYTES = 400_000


def counter_named(tokens: Tokens) -> Callable[[str], int]:
    """The counter of that name.

    Raises:
        ConfigError: no such counter.
    """
    if tokens == "chars4":
        return CharsCounter().count
    if tokens == "o200k":
        return default_counter().count
    raise ConfigError(f"no counter {tokens!r}: use o200k or chars4")


def replay_files(
    files: Sequence[Path],
    policies: Sequence[str] = (),
    tokens: Tokens = "o200k",
    *,
    rates: Rates = ANTHROPIC_RATES,
    cached: Cached = "prefix",
    progress: Progress | None = None,
) -> Report:
    """Replay recorded sessions under the named policies; without names, under those worth comparing.

    Files without a reply of a model are left out, and named in the report.

    Raises:
        ConfigError: no files, or an unknown policy or counter.
        ReplayFormatError: a file is in no known format, or none has a reply in it.
        OSError: a file cannot be read.
    """
    if not files:
        raise ConfigError("no recorded sessions to replay: name at least one file")
    policies = policies or DEFAULT_POLICIES
    for name in policies:
        policy_named(name, rates=rates, count=len)  # a wrong name is found before any work
    one = partial(_replay_one, policies=tuple(policies), tokens=tokens, rates=rates, cached=cached)
    sessions, left_out = map_sessions(one, files, tokens, progress)
    return Report(tokens=tokens, cached=cached, sessions=tuple(s for _, s in sessions), left_out=left_out)


def run_policies(
    session: Session, policies: Sequence[Policy], rates: Rates, *, cached: Cached = "prefix"
) -> SessionReport:
    """Replay one session under each policy, and under none at all for comparison."""
    none = replay_session(session, Never(), rates, cached=cached).cost
    return SessionReport(
        session=session.name,
        calls=len(session.turns),
        cost_of_none=none,
        oracle_results=oracle_cost(session, rates, tool_inputs=False) / none,
        oracle_results_and_inputs=oracle_cost(session, rates, tool_inputs=True) / none,
        runs=tuple(_timed(session, policy, rates, cached, none) for policy in policies),
    )


def map_sessions(
    one: Callable[[Session], _T], files: Sequence[Path], tokens: Tokens, progress: Progress | None
) -> tuple[list[tuple[Path, _T]], tuple[Path, ...]]:
    """Each file with ``one`` of its session, in order; and the files that have no reply of a model in them.

    Raises:
        ReplayFormatError: a file is in no known format, or none has a reply in it.
        OSError: a file cannot be read.
    """
    read = partial(_of_file, one=one, tokens=tokens)
    found = list(zip(files, _mapped(read, files, progress), strict=True))
    done = [(path, value) for path, value in found if value is not None]
    if not done:
        raise ReplayFormatError(f"{files[0]}: no reply of a model in it, so nothing to replay; expected {EXPECTED}")
    return done, tuple(path for path, value in found if value is None)


def _of_file(path: Path, *, one: Callable[[Session], _T], tokens: Tokens) -> _T | None:
    recording = load_any(path)
    return one(prepare(recording, counter_named(tokens))) if recording.has_reply else None


def _mapped(one: Callable[[Path], _T], files: Sequence[Path], progress: Progress | None) -> Iterator[_T]:
    """``one`` of each file in order, on ``PROCESSES`` processes when the work is worth starting them."""
    if len(files) == 1 or sum(f.stat().st_size for f in files) < _FEW_BYTES:
        done = map(one, files)
        yield from _counted(done, len(files), progress)
        return
    context = multiprocessing.get_context("spawn")  # forking a program that has threads is not safe
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(PROCESSES, context, _end_when_interrupted) as pool:
        largest_first = sorted(range(len(files)), key=lambda n: -files[n].stat().st_size)
        futures = {n: pool.submit(one, files[n]) for n in largest_first}
        try:
            for _ in _counted((done.result() for done in as_completed(futures.values())), len(futures), progress):
                pass  # in the order in which they end, so that progress is told, and a wrong file, at once
            yield from (futures[n].result() for n in range(len(files)))
        except BaseException:  # nobody waits for the rest any more
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()
            raise


def _end_when_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback: the program says what there is to say


def _counted(done: Iterator[_T], total: int, progress: Progress | None) -> Iterator[_T]:
    for number, found in enumerate(done, 1):
        if progress:
            progress(number, total)
        yield found


def _replay_one(
    session: Session, *, policies: tuple[str, ...], tokens: Tokens, rates: Rates, cached: Cached
) -> SessionReport:
    count = counter_named(tokens)
    named = [policy_named(name, rates=rates, count=count) for name in policies]
    return run_policies(session, named, rates, cached=cached)


def _timed(session: Session, policy: Policy, rates: Rates, cached: Cached, none: float) -> PolicyRun:
    start = time.perf_counter()
    cost = replay_session(session, policy, rates, cached=cached)
    seconds = time.perf_counter() - start
    return PolicyRun(policy=policy.name, figures=cost, relative_cost=cost.cost / none, seconds=seconds)
