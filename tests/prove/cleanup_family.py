"""The sessions of a play, in a real directory: there a policy forgets them, and they are exported and imported."""

import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from ctxfs.errors import SessionNotFound
from ctxfs.session.cleanup.policy import ForgetPolicy
from ctxfs.session.cleanup.sessions import Clock, Forgotten, carry_out, forget, forget_plan
from ctxfs.storage.local import LocalStore
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.memory import MemoryDisk
from ctxfs.storage.threaded import ThreadedStore

__all__ = [
    "FAST",
    "Exported",
    "Forget",
    "Member",
    "forget_and_empty",
    "forget_properly",
    "forget_too_much",
    "lay_out",
    "random_policy",
    "read_back",
    "wrong_after",
]

Forget = Callable[[ForgetPolicy, Path, Clock], Awaitable[Forgotten]]

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else gettempdir()


@dataclass(frozen=True, slots=True)
class Member:
    """A session that a play may go on with: what it holds, what it may have lost, and when it changed last."""

    disk: MemoryDisk
    excused: frozenset[str]
    changed_at: float


@dataclass(frozen=True, slots=True)
class Exported:
    """A session as one file, with what it may have lost by then."""

    data: bytes
    excused: frozenset[str] = field(default_factory=frozenset)


async def forget_properly(policy: ForgetPolicy, root: Path, clock: Clock) -> Forgotten:
    """As it is meant."""
    return await forget(policy, root_path=root, clock=clock)


async def forget_and_empty(policy: ForgetPolicy, root: Path, clock: Clock) -> Forgotten:
    """A broken clean-up, for the control: it empties the files first, though a fork has them too."""
    plan = await forget_plan(policy, root_path=root, clock=clock)
    for verdict in plan.forgotten:
        for path in _files(root / verdict.session_id):
            os.truncate(path, 0)
    return await carry_out(plan, root_path=root, clock=clock)


async def forget_too_much(policy: ForgetPolicy, root: Path, clock: Clock) -> Forgotten:
    """Another one: it also removes a session that the policy keeps."""
    done = await forget(policy, root_path=root, clock=clock)
    for verdict in done.plan.verdicts:
        if not verdict.forget:
            shutil.rmtree(root / verdict.session_id)
            break
    return done


def random_policy(rng: random.Random) -> ForgetPolicy:
    """A policy by number, age and size: one of the rules, or several."""
    rules: tuple[dict[str, Any], ...] = (
        {"keep_last": rng.choice((1, 2))},
        {"older_than_s": rng.choice((0.0, 3.0, 60.0))},
        {"larger_than_bytes": rng.choice((0, 3_000, 10_000))},
        {"max_size_bytes": rng.choice((0, 5_000, 20_000))},
        {"keep_last": 0},
    )
    return ForgetPolicy(
        **{name: value for rule in rng.sample(rules, rng.choice((1, 1, 2))) for name, value in rule.items()}
    )


def lay_out(root: Path, members: Mapping[str, Member]) -> None:
    """Write sessions into a directory; contents that a fork shares become one file with two names."""
    placed: dict[tuple[str, int], Path] = {}
    for session_id, member in members.items():
        for name, data in member.disk.files.items():
            path, shared = root / session_id / name, placed.get((name, id(data)))
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if shared is None:
                placed[name, id(data)] = _written(path, data)
            else:
                path.hardlink_to(shared)
        (root / session_id).mkdir(parents=True, exist_ok=True, mode=0o700)
        journal = _written(root / session_id / LOG_NAME, bytes(member.disk.log))
        os.utime(journal, (member.changed_at, member.changed_at))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def read_back(root: Path, session_id: str, known: dict[int, bytes]) -> MemoryDisk:
    """What a session in the directory holds. ``known``: contents by inode; those of shared files are one object."""
    files = dict[str, bytes]()
    for path in _files(root / session_id):
        name = str(path.relative_to(root / session_id))
        if name != LOG_NAME and not any(part.startswith(".") for part in path.relative_to(root).parts):
            files[name] = known.setdefault(path.stat().st_ino, path.read_bytes())
    return MemoryDisk(files=files, log=bytearray((root / session_id / LOG_NAME).read_bytes()), exists=True)


def _files(session: Path) -> Iterator[Path]:
    return (path for path in sorted(session.rglob("*")) if path.is_file())


async def wrong_after(root: Path, members: Mapping[str, Member], done: Forgotten, running: str) -> list[str]:
    """What a forgetting did that it must not: to one that it kept, to one that is running, or to one that it forgot."""
    wrong = [f"{verdict.session_id} was not forgotten: {why}" for verdict, why in done.failed]
    removed, known = {verdict.session_id for verdict in done.removed}, dict[int, bytes]()
    wrong += [f"{running} was forgotten while an agent wrote to it"] * (running in removed)
    for session_id, member in members.items():
        if session_id in removed:
            wrong += await _wrong_of_removed(root, session_id)
        elif not (root / session_id / LOG_NAME).exists():
            wrong.append(f"{session_id} was kept, and is not there")
        elif session_id != running and (left := read_back(root, session_id, known)).files != member.disk.files:
            lost = [name for name, data in member.disk.files.items() if left.files.get(name) != data]
            wrong.append(f"{session_id} was kept, and changed: {lost}")
    return wrong


async def _wrong_of_removed(root: Path, session_id: str) -> list[str]:
    store = ThreadedStore(LocalStore(root, session_id))
    try:
        await store.open(create=False, write=False)
    except SessionNotFound as error:
        return [] if "removed on" in str(error) else [f"{session_id} was forgotten without a tombstone: {error}"]
    await store.close()
    return [f"{session_id} was forgotten, and is there"]
