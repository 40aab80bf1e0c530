"""Recorded sessions under policies, on two cores, without a model.

A bill that stands in two files counts once.
"""

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from ctxfs.errors import ConfigError, MissingExtra, ReplayFormatError
from ctxfs.errors.checks import names_settings
from ctxfs.lab.recordings.formats.table import EXPECTED, load
from ctxfs.lab.recordings.recording import Recording
from ctxfs.lab.replay.cost import READ_BACK_OUTPUT_TOKENS, Cached, Cost, Policy, replay_session
from ctxfs.lab.replay.policies import DEFAULT_POLICIES, AsRecorded, Never, oracle_cost, policy_named
from ctxfs.lab.replay.prediction import Prediction, calibrated, predicted_together
from ctxfs.lab.replay.report import (
    Eviction,
    PolicyRun,
    Report,
    SessionReport,
    Share,
    Skipped,
    Watched,
    by_tool,
    composition,
    summed,
)
from ctxfs.lab.replay.session import Session, Turn, prepare
from ctxfs.lab.replay.tariff import PriceOptions, Tariff, billed_calls, tariff_of
from ctxfs.messages.rates import ANTHROPIC_RATES
from ctxfs.messages.tokens import CharsCounter, default_counter


def written_tokens(session: Session, cost: Cost) -> int:
    """What the model wrote: its replies as billed, or as counted where that is more, and the read-backs."""
    return sum(map(reply_tokens, session.turns)) + cost.read_backs * READ_BACK_OUTPUT_TOKENS


def session_usd(threads: Sequence[tuple[Session, Tariff]], costs: Sequence[Cost]) -> float | None:
    """What replays of all threads cost; None: the price of one is not known. Read-backs' output is in their cost."""
    total = 0.0
    for (session, tariff), cost in zip(threads, costs, strict=True):
        if tariff.usd_per_token is None:
            return None
        output = sum(map(reply_tokens, session.turns))
        total += (cost.cost + tariff.rates.output * output) * tariff.usd_per_token
    return total


def reply_tokens(turn: Turn) -> int:
    """The tokens of a reply: as billed, or as counted where that is more.

    Some recordings have only the beginning of what was billed for output: what they hold cannot be less.
    """
    billed = turn.call.usage.output_tokens if turn.call is not None and turn.call.usage is not None else 0
    return max(billed, sum(item.tokens for item in turn.reply))


def once_billed(sessions: Iterable[SessionReport]) -> tuple[SessionReport, ...]:
    """The sessions with each call in the bill of one only: agents copy a session's beginning when they resume it."""
    seen: set[str] = set()
    found = []
    for session in sessions:
        own = tuple(call for call in session.bill if not call.id or call.id not in seen)
        seen.update(call.id for call in own if call.id)
        found.append(replace(session, bill=own, repeated_calls=len(session.bill) - len(own)))
    return tuple(found)


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


@names_settings()
def replay_files(
    files: Sequence[Path],
    policies: Sequence[str] = (),
    tokens: Tokens = "o200k",
    *,
    prices: PriceOptions = PriceOptions(),  # noqa: B008 - a frozen value
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
        policy_named(name, rates=ANTHROPIC_RATES, count=len)  # a wrong name is found before any work
    one = partial(run_policies, policies=tuple(policies), cached=cached)
    found = map_sessions(one, files, tokens, prices, progress)
    sessions = once_billed(replace(report, path=path, is_repriced=prices.is_own) for path, report in found.sessions)
    return Report(
        tokens=tokens,
        cached=cached,
        sessions=sessions,
        is_repriced=prices.is_own,
        left_out=found.left_out,
        skipped=found.skipped,
    )


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a recording, ready for replay, and what its tokens cost; ``count`` gives those of a text."""

    session: Session
    tariff: Tariff
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A recording and its threads."""

    recording: Recording
    threads: tuple[Thread, ...]
    prediction: Prediction


def run_policies(loaded: Loaded, *, policies: Sequence[str], cached: Cached = "prefix") -> SessionReport:
    """Replay the threads of one recording under each policy, and under none at all for comparison."""
    threads, recording = loaded.threads, loaded.recording
    never = summed([replay_thread(thread, Never(), cached) for thread in threads])
    none = never.cost
    turns = [turn for thread in threads for turn in thread.session.turns]
    replies = [(turn.call, sum(item.tokens for item in turn.reply)) for turn in turns if turn.call is not None]
    priced = [(thread.session, thread.tariff.rates) for thread in threads]
    results, both = (sum(oracle_cost(*p, tool_inputs=inputs) for p in priced) / none for inputs in (False, True))
    return SessionReport(
        session=recording.name,
        project=recording.project,
        agent=recording.agent,
        model=recording.model,
        compacts_at=threads[0].tariff.compacts_at,
        calls=sum(len(thread.session.turns) for thread in threads),
        bill=billed_calls(recording, replies),
        recorded=_run(threads, "as-recorded", lambda _: AsRecorded(), cached, none),
        cost_of_none=none,
        missed_cost_of_none=never.missed_cost,
        composition=_composition(threads),
        prediction=loaded.prediction,
        oracle_results=results,
        oracle_results_and_inputs=both,
        runs=tuple(_run(threads, _short(name), partial(policy_for, name, cached), cached, none) for name in policies),
    )


def _composition(threads: Sequence[Thread]) -> dict[Share, float]:
    """What the threads of a recording cost together if nothing is evicted, by part."""
    total = dict.fromkeys(Share, 0.0)
    for thread in threads:
        output_tokens = sum(map(reply_tokens, thread.session.turns))
        for share, cost in composition(thread.session, thread.tariff.rates, output_tokens).items():
            total[share] += cost
    return total


def _short(name: str) -> str:
    return Path(name).stem if name.endswith(".toml") else name


def policy_for(name: str, cached: Cached, thread: Thread) -> Policy:
    """The policy of that name, told of a thread's prices, how long its cache lasts and what a break rewrites."""
    tariff = thread.tariff
    rates = replace(tariff.rates, rewrites_all=cached == "tail")
    return policy_named(name, rates=rates, count=thread.count, compacts_at=tariff.compacts_at, ttl_s=ttl_of(thread))


def ttl_of(thread: Thread) -> float:
    """How long the cache keeps what nobody reads; for ever where no times were recorded."""
    return thread.tariff.ttl_s if any(turn.at for turn in thread.session.turns) else math.inf


def _run(
    threads: Sequence[Thread], name: str, policy: Callable[[Thread], Policy], cached: Cached, none: float
) -> PolicyRun:
    start = time.perf_counter()
    costs: list[Cost] = []
    evictions: list[Eviction] = []
    for thread in threads:
        watched = Watched(policy(thread))
        costs.append(replay_thread(thread, watched, cached))
        evictions += watched.evictions.values()
    seconds = time.perf_counter() - start
    figures = summed(costs)
    return PolicyRun(
        policy=name,
        figures=figures,
        relative_cost=figures.cost / none,
        output_tokens=sum(written_tokens(t.session, cost) for t, cost in zip(threads, costs, strict=True)),
        usd=session_usd([(t.session, t.tariff) for t in threads], costs),
        tools=by_tool(evictions),
        seconds=seconds,
    )


def replay_thread(thread: Thread, policy: Policy, cached: Cached = "prefix") -> Cost:
    """Replay a thread with the misses of its bill, or of its pauses where it has none."""
    is_billed = any(turn.call is not None and turn.call.usage is not None for turn in thread.session.turns)
    ttl_s = math.inf if is_billed else ttl_of(thread)  # a bill says what the cache had lost
    return replay_session(thread.session, policy, thread.tariff.rates, cached=cached, ttl_s=ttl_s)


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
    one: Callable[[Loaded], _T],
    files: Sequence[Path],
    tokens: Tokens,
    prices: PriceOptions,
    progress: Progress | None,
) -> Mapped[_T]:
    """``one`` of each recording in the files.

    Raises:
        ReplayFormatError: no file has a reply of a model in it that can be read.
    """
    read = partial(_of_file, one=one, tokens=tokens, prices=prices)
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


def _of_file(path: Path, *, one: Callable[[Loaded], _T], tokens: Tokens, prices: PriceOptions) -> _OfFile[_T]:
    try:
        recordings = load(path)
    except OSError as error:
        return _OfFile(error=f"{path}: {error.strerror}")
    except (ReplayFormatError, MissingExtra) as error:
        return _OfFile(error=str(error) if str(path) in str(error) else f"{path}: {error}")
    loaded = (load_threads(recording, tokens, prices) for recording in recordings)
    return _OfFile(tuple(one(found) for found in loaded if found.threads))


def load_threads(recording: Recording, tokens: Tokens, prices: PriceOptions) -> Loaded:
    """The threads of a recording in which a model replied to something, in the tokens that were billed."""
    count = counter_named(tokens)
    threads = recording.threads()
    counted = [prepare(thread, count) for thread in threads]
    sessions = calibrated(counted)
    return Loaded(
        recording=recording,
        prediction=predicted_together(counted),
        threads=tuple(
            Thread(session, tariff_of(thread, prices), partial(_scaled, count, session.scale))
            for thread, session in zip(threads, sessions, strict=True)
            if any(item.tokens for turn in session.turns for item in turn.added)
        ),
    )


def _scaled(count: Callable[[str], int], scale: float, text: str) -> int:
    return round(count(text) * scale)


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
