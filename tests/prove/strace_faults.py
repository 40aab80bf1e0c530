"""Every system call of every operation fails, or is the process's last: by strace, on the real file system.

As a program: ``strace_faults.py <operation> <directory> <seconds> [--some]``; prints the tally as JSON, and goes on
where it was when it is started again in the same directory. ``--some``: one kill and one error a call, not all.

The operation runs in a child process, and in there all that touches files in one worker thread: strace is attached to
that thread just before the operation and counts only its calls. A short write cannot be had this way (strace can only
lie about how much was written); the port and RLIMIT_FSIZE make those.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ctxfs.errors import CtxfsError
from ctxfs.storage import threads
from ctxfs.storage.pool import Pool
from ctxfs.storage.threads import run_to_completion
from patience import HANGS_S
from prove.operations import OPERATIONS, Bench, Operation, check, left_behind, try_again
from prove.parts import MEMORY

__all__ = ["Tally", "run_operation", "why_not"]

STRACE = shutil.which("strace")
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EROFS", "EDQUOT", "EINTR")
INTERRUPTIONS = 20
"""EINTR for good would be an endless loop in Python itself, which repeats an interrupted call: so many in a row."""

FILE_CALLS = """
access chdir chmod chown close creat dup dup2 dup3 faccessat faccessat2 fallocate fchmod fchmodat fchown fcntl
fadvise64 fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents64 getxattr ioctl link linkat lseek lstat mkdir
mkdirat open openat openat2 pread64 preadv pwrite64 pwritev read readlink readlinkat readv rename renameat
renameat2 rmdir stat statfs statx symlink symlinkat sync_file_range truncate unlink unlinkat utimensat write
writev newfstatat
"""
OTHER_CALLS = """
brk clock_gettime clock_nanosleep clone clone3 exit futex futex_waitv geteuid getpid getrandom gettid getuid
madvise mmap mprotect mremap munmap restart_syscall rseq rt_sigaction rt_sigprocmask sched_getaffinity
sched_yield sendto set_robust_list
"""
"""Memory, threads, and the wake-up of the event loop: nothing that a file depends on."""


@dataclass(slots=True)
class Tally:
    """What was run so far. ``done`` counts runs in their order; ``hits`` those whose fault was seen to happen."""

    calls: int = 0
    done: int = 0
    hits: int = 0
    complete: bool = False
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A fault at the ``ordinal``-th call ``name``: killed (``error`` None), or an error, once or for good."""

    name: str
    ordinal: int
    error: str | None
    for_good: bool = False

    @property
    def injection(self) -> str:
        """What strace is told."""
        if self.error is None:
            return f"inject={self.name}:signal=SIGKILL:when={self.ordinal}"
        when = str(self.ordinal)
        if self.for_good:
            when += f"..{self.ordinal + INTERRUPTIONS}" if self.error == "EINTR" else "+"
        return f"inject={self.name}:error={self.error}:when={when}"


def why_not() -> str | None:
    """Say why this cannot be run here; None when it can."""
    if STRACE is None:
        return "strace is not installed"
    probe = subprocess.run([STRACE, "-e", "inject=getpid:error=EIO", "true"], capture_output=True, check=False)
    return "strace may not trace here" if probe.returncode else None


# ---- the child


class Child:
    """A process that runs an operation once it is told to."""

    def __init__(self, operation: Operation, root: Path) -> None:
        tell_read, tell_write = os.pipe()
        go_read, go_write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(tell_read)
            os.close(go_write)
            try:
                anyio.run(_play, operation, root, tell_write, go_read)
            finally:
                os._exit(0)
        os.close(tell_write)
        os.close(go_read)
        self._tell, self._go = os.fdopen(tell_read, "rb"), go_write

    def told(self) -> Any:
        """Return what it tells next; None when it is gone."""
        line = self._tell.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def go(self) -> None:
        """Let it go on."""
        os.write(self._go, b"g")

    def end(self) -> int:
        """Wait for its end; return its wait status."""
        self._tell.close()
        os.close(self._go)
        return os.waitpid(self.pid, 0)[1]


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _play(operation: Operation, root: Path, tell: int, go: int) -> None:
    def say(value: Any) -> None:
        os.write(tell, json.dumps(value).encode() + b"\n")

    bench = Bench(root)
    one = Pool(1)
    threads._threads = lambda *_: one  # type: ignore[assignment]  # noqa: SLF001 - so that all is done in the traced thread
    await run_to_completion(threading.get_native_id)
    descriptors = _descriptors()
    await operation.begin(bench)
    say(await run_to_completion(threading.get_native_id))
    os.read(go, 1)
    failure = await _outcome(operation.run(bench))
    say(failure)
    os.read(go, 1)
    if failure and operation.again:
        failure = await _outcome(try_again(operation, bench))
    await bench.close()
    say([failure, _descriptors() - descriptors])
    os.read(go, 1)


async def _outcome(work: Awaitable[None]) -> str:
    try:
        await work
    except CtxfsError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - told, and a violation there
        return f"NOT OURS: {error!r}"
    return ""


# ---- the parent


class Harness:
    """One operation's ground, and its runs."""

    def __init__(self, operation: Operation, base: Path) -> None:
        self._operation = operation
        self._base = base
        self._template = base / "template"
        self._log = base / "strace.log"
        if not self._template.exists():
            anyio.run(operation.prepare, Bench(self._template))

    def calls(self) -> list[str]:
        """Name the calls of the operation that touch files, in order. Raises ValueError for a call that is unknown."""
        root = self._fresh()
        child = Child(self._operation, root)
        tracer = self._attach(child, child.told(), [])
        child.go()
        failure = child.told()
        self._detach(tracer)
        child.go()
        child.told()
        child.go()
        child.end()
        shutil.rmtree(root)
        if failure:
            raise ValueError(f"the operation fails by itself: {failure}")
        touching = set(FILE_CALLS.split())
        names = [line.split("(", 1)[0] for line in self._log.read_text().splitlines() if "(" in line]
        names = [name.removeprefix("<... ").split(" ")[0] for name in names if "resumed>" not in name]
        if unknown := set(names) - touching - set(OTHER_CALLS.split()):
            raise ValueError(f"calls that are not known to touch files or not: {sorted(unknown)}")
        return [name for name in names if name in touching]

    def run(self, case: Case) -> tuple[bool, list[str]]:
        """Run the operation under a fault; whether that happened, and what should not be so after it."""
        root = self._fresh()
        child = Child(self._operation, root)
        tracer = self._attach(child, child.told(), ["-e", f"trace={case.name}", "-e", case.injection])
        alarm = threading.Timer(HANGS_S, os.kill, (child.pid, signal.SIGKILL))
        alarm.start()
        try:
            child.go()
            failure = child.told()
            self._detach(tracer)
            injected = self._log.read_text().count("(INJECTED)")
            found: list[str] = []
            acknowledged = failure == ""
            if failure is not None:
                found = self._after(case, root, failure)
                child.go()
                acknowledged = self._finish(case, child, injected, acknowledged=acknowledged, found=found)
            status = child.end()
        finally:
            alarm.cancel()
        killed = os.WIFSIGNALED(status)
        if killed and case.error is not None:
            found.append("it hung or died")
        found += anyio.run(lambda: check(self._operation, root, acknowledged=acknowledged))
        shutil.rmtree(root)
        return killed if case.error is None else injected > 0, found

    def _finish(self, case: Case, child: Child, injected: int, *, acknowledged: bool, found: list[str]) -> bool:
        told = child.told()
        if told is None:
            return acknowledged
        failure, leaked = told
        child.go()
        if failure and self._operation.again:
            found.append(f"it fails again without a fault: {failure}")
        if leaked > (injected if case.name == "close" else 0):  # a close that strace refuses did not happen
            found.append(f"{leaked} descriptors are left open")
        return acknowledged or not failure

    def _after(self, case: Case, root: Path, failure: str) -> list[str]:
        """Say what a refused operation left that it should not have."""
        if failure.startswith("NOT OURS"):
            return [failure]
        if not failure or case.for_good or case.name.startswith(("unlink", "rmdir")):
            return []
        return left_behind(self._operation, root)

    def _fresh(self) -> Path:
        root = self._base / "root"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self._template, root)
        return root

    def _attach(self, child: Child, thread: int, options: list[str]) -> "subprocess.Popen[bytes]":
        assert STRACE is not None
        command = [STRACE, "-q", "-o", str(self._log), *options, "-p", str(thread)]
        self._log.write_text("")
        tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        status = Path(f"/proc/{child.pid}/task/{thread}/status")
        while re.search(r"^TracerPid:\t0$", status.read_text(), re.MULTILINE):
            if tracer.poll() is not None:
                raise OSError("strace could not be attached")
            time.sleep(0.001)
        return tracer

    def _detach(self, tracer: "subprocess.Popen[bytes]") -> None:
        tracer.terminate()
        tracer.wait()


def cases(calls: list[str], *, some: bool) -> Iterator[Case]:
    """Every fault at every call, or one at each."""
    seen: Counter[str] = Counter()
    errors = itertools.cycle(itertools.product(ERRORS, (False, True)))
    for name in calls:
        seen[name] += 1
        yield Case(name, seen[name], None)
        for error, for_good in [next(errors)] if some else itertools.product(ERRORS, (False, True)):
            yield Case(name, seen[name], error, for_good)


def run_operation(operation: Operation, base: Path, budget_s: float, *, some: int | None = None) -> Tally:
    """Run what is left of an operation's cases; which these are is kept in ``base``.

    ``some``: at most so many of them, of all its calls.
    """
    ends_at = time.monotonic() + budget_s
    base.mkdir(parents=True, exist_ok=True)
    state = base / "tally.json"
    tally = Tally(**json.loads(state.read_text())) if state.exists() else Tally()
    with tempfile.TemporaryDirectory(dir=MEMORY) as ground:
        harness = Harness(operation, Path(ground))
        calls = harness.calls()
        tally.calls = len(calls)
        chosen = list(cases(calls, some=some is not None))
        chosen = chosen[:: -(-len(chosen) // (some or len(chosen)))]
        for case in chosen[tally.done :]:
            if time.monotonic() > ends_at:
                return tally
            hit, found = harness.run(case)
            tally.done += 1
            tally.hits += hit
            if not hit:
                found = [*found, "the fault did not happen"]
            tally.violations += [f"{operation.name}, {case.injection}: {problem}" for problem in found]
            if tally.done % 20 == 0:
                state.write_text(json.dumps(asdict(tally)))
    tally.complete = True
    state.write_text(json.dumps(asdict(tally)))
    return tally


if __name__ == "__main__":
    named, directory, seconds, *most = sys.argv[1:]
    some = int(most[0]) if most else None
    print(json.dumps(asdict(run_operation(OPERATIONS[named], Path(directory), float(seconds), some=some))))
