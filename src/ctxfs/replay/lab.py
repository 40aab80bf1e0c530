"""Recorded sessions under policies, on two cores, without a model."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.errors import ConfigError, MissingExtra, ReplayFormatError
from ctxfs.recordings.formats.table import EXPECTED, load
from ctxfs.replay.cost import Cached, Policy, replay_session
from ctxfs.replay.oracle import oracle_cost
from ctxfs.replay.policies import DEFAULT_POLICIES, Never, policy_named
from ctxfs.replay.report import PolicyRun, Report, SessionReport, Skipped, summed
from ctxfs.replay.session import Session, prepare
from ctxfs.tokens import CharsCounter, default_counter

__all__ = ["PROCESSES", "Mapped", "Progress", "Tokens", "counter_named", "map_sessions", "replay_files", "run_policies"]

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

    Files without a reply of a model, and files that cannot be read, are left out and named in the report.

    Raises:
        ConfigError: no files, or an unknown policy or counter.
        ReplayFormatError: no file has a reply of a model in it that can be read.
    """
    if not files:
        raise ConfigError("no recorded sessions to replay: name at least one file")
    policies = policies or DEFAULT_POLICIES
    for name in policies:
        policy_named(name, rates=rates, count=len)  # a wrong name is found before any work
    one = partial(_replay_one, policies=tuple(policies), tokens=tokens, rates=rates, cached=cached)
    found = map_sessions(one, files, tokens, progress)
    sessions = tuple(s for _, s in found.sessions)
    return Report(tokens=tokens, cached=cached, sessions=sessions, left_out=found.left_out, skipped=found.skipped)


def run_policies(
    threads: Sequence[Session], policies: Sequence[Policy], rates: Rates, *, cached: Cached = "prefix"
) -> SessionReport:
    """Replay the threads of one session under each policy, and under none at all for comparison."""
    none = sum(replay_session(thread, Never(), rates, cached=cached).cost for thread in threads)
    results, both = (sum(oracle_cost(t, rates, tool_inputs=inputs) for t in threads) / none for inputs in (False, True))
    return SessionReport(
        session=threads[0].name,
        calls=sum(len(thread.turns) for thread in threads),
        cost_of_none=none,
        oracle_results=results,
        oracle_results_and_inputs=both,
        runs=tuple(_timed(threads, policy, rates, cached, none) for policy in policies),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped(Generic[_T]):
    """The outcome of each session, by its file and in order; the files without a reply, and unreadable files."""

    sessions: tuple[tuple[Path, _T], ...]
    left_out: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class _OfFile(Generic[_T]):
    """What came of the sessions in one file; ``error``: why it cannot be read."""

    values: tuple[_T, ...] = ()
    error: str = ""


def map_sessions(
    one: Callable[[Sequence[Session]], _T], files: Sequence[Path], tokens: Tokens, progress: Progress | None
) -> Mapped[_T]:
    """``one`` of the threads of each session in the files.

    Raises:
        ReplayFormatError: no file has a reply of a model in it that can be read.
    """
    read = partial(_of_file, one=one, tokens=tokens)
    found = list(zip(files, _mapped(read, files, progress), strict=True))
    done = tuple((path, value) for path, of_file in found for value in of_file.values)
    if not done:
        why = found[0][1].error or f"{files[0]}: no reply of a model in it, so nothing to replay; expected {EXPECTED}"
        raise ReplayFormatError(why if len(files) == 1 else f"none of {len(files):,} files can be replayed; {why}")
    return Mapped(
        sessions=done,
        left_out=tuple(path for path, of_file in found if not of_file.values and not of_file.error),
        skipped=tuple(Skipped(path, of_file.error) for path, of_file in found if of_file.error),
    )


def _of_file(path: Path, *, one: Callable[[Sequence[Session]], _T], tokens: Tokens) -> _OfFile[_T]:
    count = counter_named(tokens)
    try:
        recordings = [recording.threads() for recording in load(path)]
    except OSError as error:
        return _OfFile(error=f"{path}: {error.strerror}")
    except (ReplayFormatError, MissingExtra) as error:
        return _OfFile(error=str(error))
    return _OfFile(tuple(one([prepare(thread, count) for thread in threads]) for threads in recordings if threads))


def _mapped(one: Callable[[Path], _T], files: Sequence[Path], progress: Progress | None) -> Iterator[_T]:
    """``one`` of each file in order, on ``PROCESSES`` processes when the work is worth starting them."""
    if len(files) == 1 or sum(map(_size, files)) < _FEW_BYTES:
        done = map(one, files)
        yield from _counted(done, len(files), progress)
        return
    context = multiprocessing.get_context("spawn")  # forking a program that has threads is not safe
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(PROCESSES, context, _end_when_interrupted) as pool:
        largest_first = sorted(range(len(files)), key=lambda n: -_size(files[n]))
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


def _size(path: Path) -> int:
    """The size in bytes; 0 if the file cannot be read, which its reader reports."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _end_when_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback: the program says what there is to say


def _counted(done: Iterator[_T], total: int, progress: Progress | None) -> Iterator[_T]:
    for number, found in enumerate(done, 1):
        if progress:
            progress(number, total)
        yield found


def _replay_one(
    threads: Sequence[Session], *, policies: tuple[str, ...], tokens: Tokens, rates: Rates, cached: Cached
) -> SessionReport:
    count = counter_named(tokens)
    named = [policy_named(name, rates=rates, count=count) for name in policies]
    return run_policies(threads, named, rates, cached=cached)


def _timed(threads: Sequence[Session], policy: Policy, rates: Rates, cached: Cached, none: float) -> PolicyRun:
    start = time.perf_counter()
    cost = summed([replay_session(thread, policy, rates, cached=cached) for thread in threads])
    seconds = time.perf_counter() - start
    return PolicyRun(policy=policy.name, figures=cost, relative_cost=cost.cost / none, seconds=seconds)
