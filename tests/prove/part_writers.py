"""Processes that contend for one session: exactly one writes at a time, and nothing acknowledged is lost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import scan
from ctxfs.session.records import ItemAdded, WriterOpened
from ctxfs.text.jsontext import codec as json_codec
from patience import HANGS_S
from prove.parts import MEMORY, Part, Result
from prove.writer_process import SESSION_ID, content_of
from session_items import tool_result

__all__ = ["PART", "contend", "controls", "one_writer_at_a_time"]

ROUNDS = 40
_WRITERS = 4
_STOPPED_S = 0.4


class _Contest:
    """The processes of one round."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.counted: Counter[str] = Counter()
        self.wrong: list[str] = []
        (root / "sessions").mkdir(mode=0o700)

    def start(self, kind: str, name: str) -> None:
        tests = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "prove.writer_process", kind, str(self._root), name]
        self._processes[name] = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})

    def lines(self, name: str) -> list[str]:
        file = self._root / f"{name}.log"
        return file.read_text().splitlines() if file.exists() else []

    def holder(self) -> str | None:
        """Who has the session just now, as far as one can tell from outside."""
        for name in self._processes:
            states = [line for line in self.lines(name) if line.startswith(("opened", "closing"))]
            if states and states[-1].startswith("opened"):
                return name
        return None

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for ``condition``; it is a failure of the machine or the code when it does not come."""
        until = time.monotonic() + HANGS_S
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"it did not come about in {HANGS_S} s that {what}")
            time.sleep(0.005)

    def turns(self) -> int:
        return sum(line.startswith("opened") for line in self.all_lines())

    def all_lines(self) -> list[str]:
        """Of those that were killed too."""
        return [line for log in sorted(self._root.glob("*.log")) for line in log.read_text().splitlines()]

    def acknowledged(self) -> list[str]:
        return [line.removeprefix("ack ") for line in self.all_lines() if line.startswith("ack ")]

    def stop_one(self) -> None:
        """Stop the holder for a while: nobody else gets the session meanwhile."""
        while True:
            self.wait("somebody writes", lambda: self.holder() is not None)
            name = self.holder()
            if name is None:
                continue
            process = self._processes[name]
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # all of its threads have stopped
            if self.holder() == name:
                break
            process.send_signal(signal.SIGCONT)
        turns, acks = self.turns(), len(self.acknowledged())
        time.sleep(_STOPPED_S)
        if (self.turns(), len(self.acknowledged())) != (turns, acks):
            self.wrong.append(f"somebody wrote while {name}, which was stopped, had the session")
        process.send_signal(signal.SIGCONT)
        self.counted["stopped"] += 1

    def kill_one(self) -> None:
        """Kill a holder; the session goes on with another."""
        self.wait("somebody writes", lambda: self.holder() is not None)
        name = self.holder()
        if name is None:
            return
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        turns = self.turns()
        self.wait("another takes over", lambda: self.turns() > turns)
        self.counted["killed"] += 1

    def end(self) -> None:
        """End the writers, then the reader."""
        for kind in ("writer", "reader"):
            (self._root / f"stop-{kind}").touch()
            for name, process in self._processes.items():
                if (name == "reader") == (kind == "reader") and process.wait(HANGS_S) != 0:
                    self.wrong.append(f"{name} ended with {process.returncode}")

    def abandon(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    async def check(self) -> None:
        """After all is over: what was acknowledged is there, and no two wrote at a time."""
        root = self._root / "sessions"
        journal = (root / SESSION_ID / "journal.jsonl").read_bytes()
        self.wrong += one_writer_at_a_time(journal)
        acknowledged = self.acknowledged()
        self.counted["acknowledged"] += len(acknowledged)
        self.counted["turns"] += self.turns()
        async with ContextFileSystem(SESSION_ID, root_path=root) as fs:
            there = {item.id: item.message.content for item in await fs.items()}
            lost = [i for i in acknowledged if there.get(i) != content_of(i)]
            self.wrong += [f"{item_id} was acknowledged and is lost" for item_id in lost]
            self.wrong += [f"{p.name}: {p.detail}" for p in (await fs.verify()).problems]
        lines = self.all_lines()
        self.counted["forks"] += lines.count("fork refused")
        self.wrong += [line for line in lines if line.startswith("wrong")]
        seen = [line for line in self.lines("reader") if line.startswith("seen")]
        self.counted["readings"] += len(seen)
        if not seen or int(seen[-1].split()[1]) < len(acknowledged):
            self.wrong.append(f"the reader saw {seen[-1:]} of {len(acknowledged)}")


def one_writer_at_a_time(journal: bytes) -> list[str]:
    """What is wrong with a journal in which every item is called after the turn that wrote it."""
    found = scan(journal)
    wrong = [f"damage in the journal: {damage.reason}" for damage in found.damages]
    return wrong + list(_strangers(found.records))


def _strangers(records: Any) -> Iterator[str]:
    epoch, writer = 0, None
    for record in records:
        if isinstance(record, WriterOpened):
            if record.epoch <= epoch:
                yield f"epoch {record.epoch} after {epoch}"
            epoch, writer = record.epoch, None
        elif isinstance(record, ItemAdded):
            name, turn, _ = record.item.id.split("-")
            if int(turn) != epoch or writer not in (None, name):
                yield f"{record.item.id} was written in the turn of epoch {epoch}"
            writer = name


def contend(*, turns: int = 12) -> tuple[Counter[str], list[str]]:
    """One round with at least ``turns`` turns; what was counted, and everything that was wrong."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        contest = _Contest(Path(folder))
        try:
            contest.start("reader", "reader")
            for number in range(_WRITERS):
                contest.start("writer", f"w{number}")
            contest.wait("they have begun", lambda: contest.turns() >= 3)
            contest.stop_one()
            contest.kill_one()
            contest.wait("enough was written", lambda: contest.turns() >= turns)
            contest.end()
            anyio.run(contest.check)
        finally:
            contest.abandon()
        return contest.counted, contest.wrong


def controls() -> dict[str, bool]:
    """Journals of two writers at a time have to be noticed."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        journal = anyio.run(_two_writers, Path(folder))
    return {"two writers at a time": bool(one_writer_at_a_time(journal))}


async def _two_writers(root: Path) -> bytes:
    async with ContextFileSystem(SESSION_ID, root_path=root) as fs:
        await fs.writer.add([tool_result(fs, "a", "w0-1-0"), tool_result(fs, "b", "w1-1-0")])
    return (root / SESSION_ID / "journal.jsonl").read_bytes()


def _run(budget_s: float, state_dir: Path) -> Result:
    started = time.monotonic()
    file = state_dir / "writers.json"
    state: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    counted: Counter[str] = Counter(state.get("counted", {}))
    wrong: list[str] = state.get("wrong", [])
    while counted["rounds"] < ROUNDS and time.monotonic() - started < budget_s:
        more, bad = contend(turns=20)
        counted += more
        counted["rounds"] += 1
        wrong += bad
        file.write_bytes(json_codec.dumps({"counted": dict(counted), "wrong": wrong}))
        if counted["rounds"] % 10 == 0:
            print(f"writers: {counted['rounds']} of {ROUNDS} rounds, {len(wrong)} violations", flush=True)
    complete = counted["rounds"] >= ROUNDS
    return Result(figures=dict(counted), violations=wrong, controls=controls(), complete=complete)


PART = Part(name="writers", title="Four processes contend for one session", run=_run, share=0.5)
