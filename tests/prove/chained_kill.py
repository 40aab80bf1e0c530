"""Kill a writer at random moments, again and again in one directory; nothing that it acknowledged may be lost.

As a program: ``chained_kill.py <directory> <rounds> <seed> <writes> [option …]``; prints the tally as JSON. Each
round's child opens the session that the last one left, checks that all is there that was ever acknowledged, writes on,
and says so through a pipe; it is killed a moment after it has acknowledged up to ``writes`` writes. How much is
acknowledged is thus a matter of the seed, and not of the machine's speed.

This proves order, atomicity and recovery; not what a power failure leaves, for the system's cache survives the process.
With the option ``power`` the directory is one of ``volatile_fuse.py``, and what was not synced is lost at every kill.
Three options must be noticed: ``broken``, to acknowledge before writing, ``unreturned``, to acknowledge that items came
back into the context when they did not, and ``unsynced``, to leave out the syncs.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.timeline.back import restored
from ctxfs.session.timeline.bring_back import bring_back
from ctxfs.storage.local import Durability, LocalStore
from session_items import PLACEHOLDER, claimed_item, evicted, tool_result

__all__ = ["Setting", "Tally", "content_of", "run_chain"]

SESSION_ID = "session_1"
INLINE_LIMIT_CHARS = 600
KILLED_EARLY = 0.2
EARLY_S = 0.05
MOMENT_S = 0.002
CHECK_EVERY = 100
LOADED_A_ROUND = 5
WRITERS = 3
LOSE = ".lose"
ADDED, LEFT, OPENED, LOST = "+", "-", "o", "!"
ARCHIVED, GOING, BACK = "a", "?", "b"
"""``GOING`` is said before items leave in an archive or come back: until that is acknowledged, both may be so."""


@dataclass(slots=True)
class Tally:
    """What happened.

    ``opened`` counts rounds that got as far as writing, ``repaired`` those that found a torn tail, ``returned`` items
    that came back into the context.
    """

    rounds: int = 0
    opened: int = 0
    acknowledged: int = 0
    repaired: int = 0
    returned: int = 0
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a chain is like; see above."""

    root: Path
    writes: int
    options: frozenset[str] = frozenset()

    def session(self) -> ContextFileSystem:
        """Return the session of all rounds."""
        durability: Durability = "process" if "unsynced" in self.options else "full"
        store = LocalStore(self.root, SESSION_ID, durability=durability)
        return ContextFileSystem(SESSION_ID, root_path=self.root, store=store, inline_limit_chars=INLINE_LIMIT_CHARS)


@dataclass(slots=True)
class Model:
    """What was acknowledged: the ids in the context, those of them whose content left, and those in an archive.

    Those that are ``going`` are in the context, with their content or without, or in an archive.
    """

    added: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    archived: set[str] = field(default_factory=set)
    back: set[str] = field(default_factory=set)
    going: set[str] = field(default_factory=set)

    def move(self, item_ids: Sequence[str], to: set[str]) -> None:
        """Items are in this set, and in no other."""
        for each in (self.added, self.left, self.archived, self.back, self.going):
            each.difference_update(item_ids)
        to.update(item_ids)


def content_of(item_id: str) -> str:
    """Return the content of an item: its id says it all."""
    rng = random.Random(item_id)
    return f"{item_id} {rng.getrandbits(64):x}\n" * rng.choice((1, 2, 10, 30, 60))


# ---- the child


async def write_until_killed(setting: Setting, number: int, model: Model, say: Callable[[str, str], None]) -> None:
    """Open the session, check it against the model, and write until the end."""
    fs = setting.session()
    await fs.open()
    items = {item.id: item for item in await fs.items(load=False)}
    for problem in _missing(fs, items, model):
        say(LOST, problem)
    rng = random.Random(number)
    for item_id in rng.sample(sorted(model.added & fs.state.stored.keys()), min(LOADED_A_ROUND, len(model.left))):
        if await fs.load(item_id) != content_of(item_id):
            say(LOST, f"{item_id} is not what was stored")
    say(OPENED, str(fs.recovery.cut_bytes))
    async with anyio.create_task_group() as group:
        for writer in range(WRITERS):
            group.start_soon(
                _write, fs, f"r{number}w{writer}", random.Random(f"{number}.{writer}"), say, setting.options
            )


def _missing(fs: ContextFileSystem, items: dict[str, ContextItem], model: Model) -> list[str]:
    found = [f"{item_id} was added" for item_id in (model.added | model.back) - items.keys()]
    found += [
        f"{item_id} came back, and left again"
        for item_id in model.back
        if item_id in items and items[item_id].offloaded
    ]
    found += [
        f"{item_id} is not in its archive, or in the context too"
        for item_id in model.archived
        if item_id in items or fs.state.archived.get(item_id) not in items
    ]
    found += [
        f"{item_id} was going, and is neither there nor in an archive"
        for item_id in model.going - items.keys()
        if fs.state.archived.get(item_id) not in items
    ]
    found += [f"{item_id} left, and is not stored" for item_id in model.left - fs.state.stored.keys()]
    found += [
        f"{item_id} left, and is back" for item_id in model.left if item_id in items and not items[item_id].offloaded
    ]
    return found


async def _write(
    fs: ContextFileSystem, prefix: str, rng: random.Random, say: Callable[[str, str], None], options: frozenset[str]
) -> None:
    inside: list[ContextItem] = []
    broken, returns = "broken" in options, "unreturned" not in options
    for count in range(1_000_000):
        new = []
        for part in range(rng.choice((1, 1, 3))):
            raw_id = f"{prefix}n{count}p{part}"
            new.append(tool_result(fs, content_of(raw_id), raw_id))
        ids = " ".join(item.id for item in new)
        if broken:
            say(ADDED, ids)
        await fs.writer.add(new)
        if not broken:
            say(ADDED, ids)
        inside += new
        if rng.random() < 0.5:
            going, inside = inside[:4], inside[4:]
            await fs.writer.evict([(item, evicted(fs, item), "test") for item in going])
            say(LEFT, " ".join(item.id for item in going))
        match rng.randrange(20):
            case 0:
                await fs.writer.flush()
            case 1:
                await fs.writer.record_call(Usage(input_tokens=1, output_tokens=1), "model")
            case 2 | 3 if inside:
                going, inside = inside[:2], inside[2:]
                await _archive(fs, going, say)
                if rng.random() < 0.7:
                    await _bring_back(fs, going, say, returns=returns)
            case 4 | 5 if inside:
                one, inside = inside[0], inside[1:]
                say(GOING, one.id)
                await fs.writer.evict([(one, evicted(fs, one), "test")])
                await _bring_back(fs, [one], say, returns=returns)


async def _archive(fs: ContextFileSystem, going: Sequence[ContextItem], say: Callable[[str, str], None]) -> None:
    ids = " ".join(item.id for item in going)
    archive = claimed_item(fs, UserMessage(PLACEHOLDER), kind=ItemType.COMPACTION_SUMMARY, content_tokens=9)
    archive = replace(archive, offload_path=f"{fs.base}/{archive.name}")
    say(GOING, ids)
    await fs.writer.archive(archive, f"archive of {ids}\n", [item.id for item in going], before=None, reason="test")
    say(ARCHIVED, ids)


async def _bring_back(
    fs: ContextFileSystem, items: Sequence[ContextItem], say: Callable[[str, str], None], *, returns: bool
) -> None:
    """Items come back, one after the other, as by the undo of an eviction or of a compaction."""
    ids = " ".join(item.id for item in items)
    say(GOING, ids)
    for item in items if returns else ():
        await bring_back(fs, restored(await fs.history(), item.id))
    say(BACK, ids)


# ---- the parent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """When to kill: ``seconds`` after the child has said so many ``lines``."""

    lines: int
    seconds: float


def _moment(rng: random.Random, writes: int) -> _Moment:
    if rng.random() < KILLED_EARLY:
        return _Moment(lines=0, seconds=rng.uniform(0, EARLY_S))
    opened = 1
    return _Moment(lines=opened + rng.randint(1, writes), seconds=rng.uniform(0, MOMENT_S))


def run_chain(setting: Setting, rounds: int, seed: int) -> Tally:
    """Run so many rounds in one directory, and check all of it every now and then and at the end.

    One round in five is killed while it starts and recovers; the others acknowledge one to ``writes`` writes first.
    """
    anyio.run(anyio.sleep, 0)  # loads here what each child would load anew
    rng = random.Random(seed)
    tally, model = Tally(), Model()
    for number in range(1, rounds + 1):
        _round(setting, number, model, tally, _moment(rng, setting.writes))
        if number % CHECK_EVERY == 0 or number == rounds:
            tally.lost += anyio.run(_check_all, setting, model)
        if tally.lost:
            break
    return tally


def _round(setting: Setting, number: int, model: Model, tally: Tally, moment: _Moment) -> None:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_end)
        try:
            anyio.run(write_until_killed, setting, number, model, partial(_say, write_end))
        finally:
            os._exit(1)
    os.close(write_end)
    told = _listen(read_end, moment, pid)
    os.close(read_end)
    if not os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
        tally.lost.append(f"round {number}: the writer ended by itself")
    if "power" in setting.options:
        with suppress(OSError):  # it is never made
            (setting.root / LOSE).mkdir()
    tally.rounds += 1
    *lines, _ = told.decode().split("\n")
    for line in lines:
        _take(line[0], line[1:], model, tally)


def _say(fd: int, kind: str, text: str) -> None:
    os.write(fd, f"{kind}{text}\n".encode())


def _listen(fd: int, moment: _Moment, pid: int) -> bytes:
    """Read what the child says, kill it when the moment has come, and read the rest."""
    told = bytearray()
    while told.count(b"\n") < moment.lines and (data := os.read(fd, 1 << 16)):
        told += data
    ends_at = time.monotonic() + moment.seconds
    while (left := ends_at - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            data = os.read(fd, 1 << 16)
            if not data:
                break
            told += data
    os.kill(pid, signal.SIGKILL)
    while data := os.read(fd, 1 << 16):
        told += data
    return bytes(told)


def _take(kind: str, text: str, model: Model, tally: Tally) -> None:
    ids = text.split(" ")
    match kind:
        case "+":
            model.added.update(ids)
            tally.acknowledged += len(ids)
        case "-":
            model.left.update(ids)
            tally.acknowledged += len(ids)
        case "?":
            model.move(ids, model.going)
        case "a":
            model.move(ids, model.archived)
            tally.acknowledged += len(ids)
        case "b":
            model.move(ids, model.back)
            tally.acknowledged += len(ids)
            tally.returned += len(ids)
        case "o":
            tally.opened += 1
            tally.repaired += text != "0"
        case _:
            tally.lost.append(f"round {tally.rounds}: {text}")


async def _check_all(setting: Setting, model: Model) -> list[str]:
    """Load every content, and compare."""
    async with setting.session() as fs:
        items = {item.id: item for item in await fs.items()}
        found = _missing(fs, items, model)
        for item_id, item in items.items():
            if item.item_type is ItemType.COMPACTION_SUMMARY:
                continue
            content = await fs.load(item_id) if item.offloaded else item.message.content
            if content != content_of(item_id):
                found.append(f"{item_id} is not what was added")
        found += [str(problem) for problem in (await fs.verify()).problems]
    return found


if __name__ == "__main__":
    directory, count, start, most, *options = sys.argv[1:]
    chosen = Setting(root=Path(directory), writes=int(most), options=frozenset(options))
    print(json.dumps(asdict(run_chain(chosen, int(count), int(start)))))
