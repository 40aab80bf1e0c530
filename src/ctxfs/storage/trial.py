"""Test whether a place admits only one writer of a session: several try to open it at once, repeatedly. Blocks."""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ctxfs.errors import SessionLocked, StorageError
from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.sessions import SessionStores


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a trial.

    ``races``: how often ``writers`` opened the session at once. ``commit_ms``: the median time of a commit;
    None: there was none. ``problem``: what the place did wrong, or why it could not be tested; None: nothing.
    """

    races: int
    writers: int
    commit_ms: float | None
    problem: str | None


@dataclass(slots=True)
class _Race:
    """What happened in one race; ``all_tried``: each of the writers has opened the session, or was refused."""

    number: int
    start: threading.Barrier
    all_tried: threading.Barrier
    opened: list[int] = field(default_factory=list)
    problem: str | None = None
    commit_s: float | None = None


def try_stores(stores: SessionStores, session_id: str, *, races: int = 20, writers: int = 8) -> Trial:
    """Let ``writers`` threads race for one session of a place, a new one; a race must be shorter than a lease.

    In each race one of them must become the writer, and no other; what it commits must be visible to the next one at
    once. The session is left as it is afterwards.
    """
    taken: list[float] = []
    problem: str | None = None
    number = 0
    with ThreadPoolExecutor(writers) as threads:
        while number < races and problem is None:
            race = _Race(number, threading.Barrier(writers), threading.Barrier(writers))
            running = [threads.submit(_run, stores.store(session_id), race, me) for me in range(writers)]
            for one in running:
                one.result()
            problem = race.problem
            if race.commit_s is not None:
                taken.append(race.commit_s)
            number += 1
    commit_ms = statistics.median(taken) * 1e3 if taken else None
    return Trial(races=number, writers=writers, commit_ms=commit_ms, problem=problem)


def _run(store: Store, race: _Race, me: int) -> None:
    """One writer's part in a race, in a thread of its own."""
    opened: Store | None = None
    race.start.wait()
    try:
        opened = store.open(create=True, write=True)
        race.opened.append(me)
    except SessionLocked:
        pass
    except StorageError as error:
        race.problem = str(error)
    finally:  # also of a store that fails otherwise: the others wait
        race.all_tried.wait()
    if opened is None:
        return
    try:
        if len(race.opened) != 1:
            several = f"{len(race.opened)} of several writers got the session at the same time"
            race.problem = f"{several}: the store allows more than one"
        else:
            _settle(opened, race)
    except StorageError as error:
        race.problem = str(error)
    finally:
        opened.close()


def _settle(store: Store, race: _Race) -> None:
    """As the one writer of a race, look for what the earlier ones committed, and commit."""
    before = store.read_log()
    if before != b"".join(b"race %d\n" % number for number in range(race.number)):
        race.problem = "the next writer does not see at once what was committed"
        return
    line = b"race %d\n" % race.number
    started = time.perf_counter()
    store.commit([NewFile(name=f"race-{race.number}", chunks=[line])], lambda: line)
    race.commit_s = time.perf_counter() - started
