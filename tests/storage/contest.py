"""Several processes want one session: they are stopped for longer than a lease, killed, and started again.

    python tests/storage/contest.py URL OPTIONS ME [broken]      one of them, until it is killed

Each prints what was acknowledged to it. ``contest`` runs them, and says what became of it: all that was acknowledged is
in the log, once, in order, and no writer's lines stand between those of another one.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

TESTS = Path(__file__).resolve().parent.parent
TTL_S: Final = 0.4
TAKE_OVER_S: Final = 20.0
"""On a busy machine, so long may it take until another process has taken the session over from one that is stopped."""
TAKE_OVERS: Final = 3
"""A contest lasts until at least so many were seen: without them, a broken store could not lose anything."""
PAUSE_S: Final = 0.01
"""At most so long a writer waits after a commit: it is the stops and kills that a contest is about, not the load."""
CONTROLS: Final = 60
"""At most so many contests of a broken store are tried until one loses something; the first or second does."""

sys.path[:0] = [str(TESTS)] if str(TESTS) not in sys.path else []

from ctxfs.errors import SessionLocked, StorageError, WriteFailed  # noqa: E402 - a program, and a module
from ctxfs.storage import NewFile  # noqa: E402
from ctxfs.stores import Bucket, ObjectStore, PostgresBucket, open_bucket  # noqa: E402
from patience import HANGS_S  # noqa: E402


class Overwriting:
    """The control: it makes an object also where the key exists."""

    def __init__(self, bucket: Bucket) -> None:
        self.create = self.put = bucket.put
        self.get = bucket.get
        self.get_range = bucket.get_range
        self.keys = bucket.keys
        self.delete = bucket.delete


def maker(url: str, options: Mapping[str, Any], *, broken: bool = False) -> Callable[[], ObjectStore]:
    """Return a function that makes an opening of the session, which is not open yet."""
    whole = bucket_at(url, options)
    bucket = Overwriting(whole) if broken else whole
    return lambda: ObjectStore(bucket, "contest", ttl_s=TTL_S, give_up_s=5)


def bucket_at(url: str, options: Mapping[str, Any]) -> Bucket:
    """Return the bucket, without retries of its own."""
    if url.startswith("postgresql:"):
        return PostgresBucket(url, connections=1)
    patience = timedelta(seconds=HANGS_S)
    client = {"client_options": {"allow_http": True, "timeout": patience}} if options else {}
    retry = {"retry_config": {"max_retries": 0, "retry_timeout": patience}} if options else {}
    return open_bucket(url, {**options, **client, **retry})


def write_for_ever(make: Callable[[], ObjectStore], me: str) -> None:
    """Take the session again and again, and write some lines each time."""
    turn = 0
    while True:
        try:
            session = make().open(create=True, write=True)
        except StorageError:
            time.sleep(random.uniform(0.02, 0.1))
            continue
        except SessionLocked:
            time.sleep(random.uniform(0.02, 0.1))
            continue
        turn += 1
        try:
            commits, releases = random.randint(3, 40), random.random() < 0.5
            for number in range(commits):
                line = f"{me}.{turn} {number}"
                file = NewFile(name=f"{me}/{turn}/{number}", chunks=[line.encode()])
                commit = session.commit_and_release if releases and number == commits - 1 else session.commit
                commit([file], f"{line}\n".encode)
                print(line, flush=True)
                time.sleep(random.uniform(0, PAUSE_S))
            session.close()
        except (SessionLocked, WriteFailed):
            continue


@dataclass(slots=True)
class Outcome:
    """What became of a contest; all from ``lost`` on are violations.

    ``take_overs``: how often another process wrote while the one that had written last was stopped.
    """

    acknowledged: int = 0
    written: int = 0
    turns: int = 0
    stops_and_kills: int = 0
    take_overs: int = 0
    restarts: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    interleaved: list[str] = field(default_factory=list)
    unreadable: str = ""

    @property
    def violations(self) -> list[str]:
        return [
            *self.lost,
            *self.twice,
            *self.disordered,
            *self.interleaved,
            *([self.unreadable] * bool(self.unreadable)),
        ]


class Group:
    """The processes of a contest, by their names, and what was acknowledged to all of them, in the order heard."""

    def __init__(self, arguments: Sequence[str], *, broken: bool) -> None:
        self.acknowledged: list[str] = []
        self._arguments = arguments
        self._last = ["broken"] * broken
        self._names = count()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []

    def start(self) -> None:
        name = f"w{next(self._names)}"
        program = [sys.executable, str(Path(__file__).resolve()), *self._arguments, name, *self._last]
        self._running[name] = process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=TESTS)
        self._listeners.append(threading.Thread(target=self._listen, args=(process,)))
        self._listeners[-1].start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            self.acknowledged.extend(line.strip() for line in process.stdout if line.endswith("\n"))
        process.wait()

    def disturb(self, outcome: Outcome) -> None:
        """Stop the one that wrote last until another has taken over, or any one past its lease, or kill one."""
        last = self.acknowledged[-1].partition(".")[0] if self.acknowledged else ""
        name = random.choice(list(self._running))
        drawn = random.random()
        if drawn < 0.4 and last in self._running:
            outcome.take_overs += self._stop(last, until_taken_over=True)
        elif drawn < 0.7:
            self._stop(name, until_taken_over=False)
        else:
            process = self._running.pop(name)
            process.kill()
            process.wait()
            self.start()
        outcome.stops_and_kills += 1

    def _stop(self, name: str, *, until_taken_over: bool) -> bool:
        """Stop a process; returns whether another one wrote meanwhile, after its lease had run out."""
        self._running[name].send_signal(signal.SIGSTOP)
        time.sleep(TTL_S + random.uniform(0.1, 0.4))
        ends_at = time.monotonic() + TAKE_OVER_S * until_taken_over
        heard = len(self.acknowledged)
        while not (taken_over := len(self.acknowledged) > heard) and time.monotonic() < ends_at:
            time.sleep(0.01)
        self._running[name].send_signal(signal.SIGCONT)
        return taken_over

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
        for listener in self._listeners:
            listener.join()


def contest(
    url: str,
    options: Mapping[str, Any],
    *,
    seconds: float,
    processes: int = 4,
    broken: bool = False,
    restart: Callable[[], None] | None = None,
    restart_each_s: float = 60,
) -> Outcome:
    """Run a contest for so many seconds; ``restart`` kills the server and starts it again."""
    group = Group([url, json.dumps(options)], broken=broken)
    outcome = Outcome()
    began = restarted = time.monotonic()

    def is_enough() -> bool:
        """On a busy machine it takes a while until several have written."""
        lasted = time.monotonic() - began
        return lasted > seconds and (outcome.take_overs >= TAKE_OVERS or lasted > seconds + HANGS_S)

    try:
        for _ in range(processes):
            group.start()
        while not is_enough():
            if restart is not None and time.monotonic() > restarted + restart_each_s:
                restart()
                outcome.restarts += 1
                restarted = time.monotonic()
            group.disturb(outcome)
            time.sleep(random.uniform(0.05, 0.2))
    finally:
        group.end()
    acknowledged = group.acknowledged
    return judge(outcome, acknowledged, maker(url, options))


def judge(outcome: Outcome, acknowledged: list[str], make: Callable[[], ObjectStore]) -> Outcome:
    """Compare what was acknowledged with what is there."""
    outcome.acknowledged = len(acknowledged)
    try:
        lines, names = _read(make, HANGS_S if outcome.restarts else 0)
    except StorageError as error:
        outcome.unreadable = str(error)
        return outcome
    outcome.written = len(lines)
    outcome.lost = sorted(set(acknowledged) - set(lines))
    outcome.lost += [line for line in acknowledged if line.replace(".", "/").replace(" ", "/") not in names]
    last: dict[str, int] = {}
    turns: list[str] = []
    for line in lines:
        turn, number = line.rsplit(" ", 1)
        if int(number) == last.get(turn, -1):
            outcome.twice.append(line)
        elif int(number) != last.get(turn, -1) + 1:
            outcome.disordered.append(line)
        last[turn] = int(number)
        if not turns or turns[-1] != turn:
            if turn in turns:
                outcome.interleaved.append(line)
            turns.append(turn)
    outcome.turns = len(turns)
    return outcome


def _read(make: Callable[[], ObjectStore], patience_s: float) -> tuple[list[str], set[str]]:
    """The log's lines, and the names of the files. A server that was just started may need a while to find its data."""
    waits_until = time.monotonic() + patience_s
    while True:
        try:
            session = make().open(create=False, write=False)
            return session.read_log(0).decode().splitlines(), set(session.names(""))
        except StorageError:
            if time.monotonic() > waits_until:
                raise
            time.sleep(1)


if __name__ == "__main__":
    write_for_ever(maker(sys.argv[1], json.loads(sys.argv[2]), broken=sys.argv[4:] == ["broken"]), sys.argv[3])
