"""Test whether a store admits one writer only: several try to open a session at the same time, repeatedly. Blocks."""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ctxfs.errors import SessionLocked, StorageError
from ctxfs.storage.base import NewFile
from ctxfs.storage.opened import OpenedSession

__all__ = ["Trial", "try_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a trial.

    ``races``: how often ``writers`` opened the session at once. ``commit_ms``: the median time of a commit;
    None: there was none. ``problem``: what the store did wrong, or why it could not be tested; None: nothing.
    """

    races: int
    writers: int
    commit_ms: float | None
    problem: str | None


def try_store(make: Callable[[], OpenedSession], *, races: int = 20, writers: int = 8) -> Trial:
    """Let ``writers`` threads race for one session, which ``make`` opens; its lease must be longer than a race.

    In each race one of them must become the writer, and no other; what it commits must be visible to the next one at
    once. The session is left as it is afterwards.
    """
    taken: list[float] = []
    problem: str | None = None
    race = 0
    try:
        while race < races and problem is None:
            opened = _race(make, writers)
            problem = _settle(opened, b"race %d\n" % race, race, taken)
            race += 1
    except StorageError as error:
        problem = str(error)
    commit_ms = statistics.median(taken) * 1e3 if taken else None
    return Trial(races=race, writers=writers, commit_ms=commit_ms, problem=problem)


def _race(make: Callable[[], OpenedSession], writers: int) -> list[OpenedSession]:
    """Return those that became the writer."""
    starts = threading.Barrier(writers)

    def run(_: int) -> OpenedSession | None:
        session = make()
        starts.wait()
        try:
            session.open(create=True, write=True)
        except SessionLocked:
            return None
        return session

    with ThreadPoolExecutor(writers) as threads:
        return [session for session in threads.map(run, range(writers)) if session is not None]


def _settle(opened: Sequence[OpenedSession], line: bytes, race: int, taken: list[float]) -> str | None:
    """Let the one writer commit; return what is wrong."""
    if len(opened) != 1:
        return f"{len(opened)} of several writers got the session at the same time: the store allows more than one"
    (session,) = opened
    before = session.read_log(0)
    if before != b"".join(b"race %d\n" % number for number in range(race)):
        return "the next writer does not see at once what was committed"
    started = time.perf_counter()
    session.commit([NewFile(name=f"race-{race}", chunks=[line])], lambda: line)
    taken.append(time.perf_counter() - started)
    session.close()
    return None
