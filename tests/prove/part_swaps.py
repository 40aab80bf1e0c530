"""Another process swaps what lies in a session for links, pipes, devices and directories, while the session is in use.

Whatever is swapped in: no byte of what lies outside is read or changed, nothing is made there, every error is one of
ours, and what was acknowledged is there once everything is in its place again.
"""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import anyio

from ctxfs.errors import CtxfsError
from ctxfs.messages import CharsCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.tools.base import Tool
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools
from prove.parts import MEMORY, Part, Result, seed_in
from session_items import tool_result

__all__ = ["KINDS", "PART", "Kind", "Swapper", "attack", "controls", "kinds", "session"]

SWAPPER = Path(__file__).with_name("swapper.py")
SECRET = "SECRET"
ROUNDS = 1_000
CHUNK = 50
LARGE = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is swapped: ``target`` below the playground, and what ``plant`` puts in its place."""

    name: str
    target: str
    plant: Callable[["Playground", Path], None]


@dataclass(slots=True)
class Playground:
    """A session, its neighbour, a directory that a model may read, and around them what nobody may touch."""

    top: Path
    outside_before: dict[str, bytes] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.top / "sessions"

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def work(self) -> Path:
        return self.top / "work"

    async def build(self) -> None:
        """Make all of it, with one content small and one large in each session."""
        _make_directories(self)
        for session_id, text in (("other", SECRET), ("mine", "mine")):
            async with session(self.root, session_id) as fs:
                await fs.writer.store([tool_result(fs, text, "call_1"), tool_result(fs, _large(text), "call_2")])
        shutil.copytree(self.root / "other", self.outside / "session")
        self.outside_before = self.around()

    def around(self) -> dict[str, bytes]:
        """Everything outside the session and outside what is swapped in."""
        places = (self.outside, self.root / "other")
        files = [path for place in places for path in place.rglob("*")]
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in files}


def _large(text: str) -> str:
    return f"{text * 15}\n" * (LARGE // (15 * len(text)))


def _make_directories(ground: Playground) -> None:
    shutil.rmtree(ground.top, ignore_errors=True)
    (ground.work / "sub").mkdir(parents=True)
    (ground.work / "sub" / "a.txt").write_text("allowed")
    ground.outside.mkdir()
    for name in ("a.txt", "call_1.json", "journal.jsonl", f"{SECRET}-name"):
        (ground.outside / name).write_text(f"{SECRET}\n" * 20)


def _link(place: str) -> Callable[[Playground, Path], None]:
    return lambda ground, stage: stage.symlink_to(ground.top / place)


def _hard_link(place: str) -> Callable[[Playground, Path], None]:
    return lambda ground, stage: stage.hardlink_to(ground.top / place)


def _special(mode: int, device: int = 0) -> Callable[[Playground, Path], None]:
    return lambda ground, stage: os.mknod(stage, mode | 0o600, device)


def _directory(ground: Playground, stage: Path) -> None:
    stage.mkdir(mode=0o700)
    (stage / "a.txt").write_text("planted")


def _file(ground: Playground, stage: Path) -> None:
    stage.write_text("planted")


_FIFO = _special(stat.S_IFIFO)
_SOCKET = _special(stat.S_IFSOCK)
_ZERO = _special(stat.S_IFCHR, os.makedev(1, 5))
_CONTENT = "sessions/mine/tool_result/Read/call_1.json"
_OTHERS = "sessions/other/tool_result/Read/call_1.json"
_JOURNAL = "sessions/mine/journal.jsonl"
_LOCK = "sessions/mine/.lock"
_INDEX = "sessions/mine/index.json"

KINDS: tuple[Kind, ...] = (
    Kind(name="content: link", target=_CONTENT, plant=_link("outside/call_1.json")),
    Kind(name="content: hard link", target=_CONTENT, plant=_hard_link("outside/call_1.json")),
    Kind(name="content: pipe", target=_CONTENT, plant=_FIFO),
    Kind(name="content: socket", target=_CONTENT, plant=_SOCKET),
    Kind(name="content: device", target=_CONTENT, plant=_ZERO),
    Kind(name="content: directory", target=_CONTENT, plant=_directory),
    Kind(name="content: link to itself", target=_CONTENT, plant=_link(_CONTENT)),
    Kind(name="content: link to nothing", target=_CONTENT, plant=_link("outside/new")),
    Kind(name="content: link to another session's", target=_CONTENT, plant=_link(_OTHERS)),
    Kind(name="content: hard link to another session's", target=_CONTENT, plant=_hard_link(_OTHERS)),
    Kind(
        name="block index: link", target="sessions/mine/tool_result/Read/call_2.json.idx", plant=_link("outside/a.txt")
    ),
    Kind(name="tool's directory: link", target="sessions/mine/tool_result/Read", plant=_link("outside")),
    Kind(
        name="tool's directory: another's",
        target="sessions/mine/tool_result/Read",
        plant=_link("sessions/other/tool_result/Read"),
    ),
    Kind(name="tool's directory: file", target="sessions/mine/tool_result/Read", plant=_file),
    Kind(name="tool's directory: pipe", target="sessions/mine/tool_result/Read", plant=_FIFO),
    Kind(
        name="results' directory: link", target="sessions/mine/tool_result", plant=_link("sessions/other/tool_result")
    ),
    Kind(name="journal: link", target=_JOURNAL, plant=_link("outside/journal.jsonl")),
    Kind(name="journal: hard link", target=_JOURNAL, plant=_hard_link("outside/journal.jsonl")),
    Kind(
        name="journal: hard link to another session's",
        target=_JOURNAL,
        plant=_hard_link("sessions/other/journal.jsonl"),
    ),
    Kind(name="journal: pipe", target=_JOURNAL, plant=_FIFO),
    Kind(name="journal: directory", target=_JOURNAL, plant=_directory),
    Kind(name="lock: link", target=_LOCK, plant=_link("outside/a.txt")),
    Kind(name="lock: hard link", target=_LOCK, plant=_hard_link("outside/a.txt")),
    Kind(name="lock: pipe", target=_LOCK, plant=_FIFO),
    Kind(name="index: link", target=_INDEX, plant=_link("outside/a.txt")),
    Kind(name="index: hard link", target=_INDEX, plant=_hard_link("sessions/other/index.json")),
    Kind(name="index: directory", target=_INDEX, plant=_directory),
    Kind(name="session: link", target="sessions/mine", plant=_link("outside/session")),
    Kind(name="session: another's", target="sessions/mine", plant=_link("sessions/other")),
    Kind(name="session: file", target="sessions/mine", plant=_file),
    Kind(name="allowed file: link", target="work/sub/a.txt", plant=_link("outside/a.txt")),
    Kind(name="allowed file: pipe", target="work/sub/a.txt", plant=_FIFO),
    Kind(name="allowed directory: link", target="work/sub", plant=_link("outside")),
)


class Swapper:
    """The other process. Use it as a context manager."""

    def __init__(self) -> None:
        command = [sys.executable, str(SWAPPER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.exchanges = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    @contextmanager
    def swapping(self, first: Path, second: Path) -> Iterator[None]:
        """Swap the two for the time being."""
        self._say(json.dumps([str(first), str(second)]))
        try:
            yield
        finally:
            self.exchanges += int(self._say("stop"))


def session(root: Path, session_id: str) -> ContextFileSystem:
    store = LocalStore(root, session_id, durability="process")
    return ContextFileSystem(session_id, root_path=root, store=store, inline_limit_chars=0)


@dataclass(slots=True)
class _Victim:
    """Uses the session in every way, and keeps what it was told."""

    ground: Playground
    acknowledged: dict[str, str] = field(default_factory=lambda: {"call_1": "mine"})
    wrong: list[str] = field(default_factory=list)
    refused: int = 0

    async def use(self, number: int) -> None:
        """Write and read once; what is refused must be refused with an error of ours."""
        try:
            async with session(self.ground.root, "mine") as fs:
                await self._write(fs, number)
                await self._read(fs)
        except CtxfsError:
            self.refused += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self.wrong.append(f"an error that is none of ours: {error!r}")

    async def _write(self, fs: ContextFileSystem, number: int) -> None:
        item = tool_result(fs, f"mine {number}", f"new_{number}")
        try:
            await fs.writer.add([item])
            self.acknowledged[item.id] = f"mine {number}"
            await fs.writer.flush()
        except CtxfsError:
            self.refused += 1

    async def _read(self, fs: ContextFileSystem) -> None:
        tools: list[Tool] = [read_tool(fs, roots=[self.ground.work], counter=CharsCounter())]
        tools += retrieval_tools(fs, counter=CharsCounter())
        path = str(fs.session_path / "tool_result/Read/call_1.json")
        for tool in tools:
            for ref in (path, "call_2", str(self.ground.work / "sub" / "a.txt"), "sub"):
                wanted = {"Read": {"file_path": ref}, "context_list": {}}.get(tool.name, {"ref": ref})
                more = {"pattern": "."} if tool.name == "context_grep" else {}
                told = str((await tool.run({**wanted, **more})).content)
                if SECRET in told:
                    self.wrong.append(f"{tool.name} showed what lies outside: {told[:200]}")
        for item_id in ("call_1", "call_2"):
            try:
                content = str(await fs.load(item_id))
            except CtxfsError:
                self.refused += 1
                continue
            if SECRET in content or not content.startswith("mine"):
                self.wrong.append(f"{item_id} was read as {content[:200]!r}")

    async def end(self) -> None:
        """Look at everything again, when it is where it was."""
        try:
            async with session(self.ground.root, "mine") as fs:
                for item_id, content in self.acknowledged.items():
                    if await fs.load(item_id) != content:
                        self.wrong.append(f"the acknowledged {item_id} is another")
        except CtxfsError as error:
            self.wrong.append(f"acknowledged content is lost: {error}")

    async def remove(self) -> None:
        """Remove the session, and list what there is."""
        try:
            await list_sessions(self.ground.root)
            await remove_session(self.ground.root, "mine")
        except CtxfsError:
            self.refused += 1


async def attack(kind: Kind, swapper: Swapper, top: Path, rounds: int) -> tuple[list[str], int]:
    """Use a session ``rounds`` times while ``kind`` is swapped in and out; what was wrong, and how often it refused."""
    ground = Playground(top)
    await ground.build()
    victim = _Victim(ground)
    stage = top / "stage"
    kind.plant(ground, stage)
    with swapper.swapping(top / kind.target, stage):
        for number in range(rounds):
            await victim.use(number)
    await victim.end()
    with swapper.swapping(top / kind.target, stage):
        await victim.remove()
    now = ground.around()
    touched = sorted(
        path for path in {*now, *ground.outside_before} if now.get(path) != ground.outside_before.get(path)
    )
    victim.wrong += [f"{path} was touched" for path in touched]
    await anyio.to_thread.run_sync(lambda: shutil.rmtree(top, ignore_errors=True))
    return [f"{kind.name}: {problem}" for problem in dict.fromkeys(victim.wrong)], victim.refused


class _Following(LocalStore):
    """A broken store: it opens by path, and follows links."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        data = (self._root / self._session_id / name).read_bytes()
        return data[offset:] if length is None else data[offset : offset + length]


async def controls(top: Path) -> dict[str, bool]:
    """Whether a link that is followed would be noticed: by what it shows, and by what it changes."""
    ground = Playground(top)
    await ground.build()
    store = ThreadedStore(_Following(ground.root, "mine"))
    path = top / _CONTENT
    path.unlink()
    path.symlink_to(top / _OTHERS)
    await store.open(create=False, write=False)
    shown = SECRET.encode() in await store.read("tool_result/Read/call_1.json")
    await store.close()
    with path.open("a") as file:
        file.write("changed")
    return {"a store that follows links": shown, "a write through a link": ground.around() != ground.outside_before}


def kinds() -> list[Kind]:
    """Those that this user can make; others are told."""
    if os.geteuid() == 0:
        return list(KINDS)
    print("NOT TESTED: swapping in a device needs root")
    return [kind for kind in KINDS if kind.plant is not _ZERO]


def run(budget_s: float, state_dir: Path) -> Result:
    """Each kind ``ROUNDS`` times, in chunks with a fresh session, in random order."""
    ends = time.monotonic() + budget_s
    notes = state_dir / "swaps.json"
    done: dict[str, int] = json.loads(notes.read_text()) if notes.exists() else {}
    left = [kind for kind in kinds() for _ in range((ROUNDS - done.get(kind.name, 0)) // CHUNK)]
    random.Random(seed_in(state_dir)).shuffle(left)
    violations: list[str] = []
    refused = 0
    with Swapper() as swapper, tempfile.TemporaryDirectory(dir=MEMORY) as base:
        while left and time.monotonic() < ends:
            kind = left.pop()
            wrong, count = anyio.run(attack, kind, swapper, Path(base, "ground"), CHUNK)
            violations += wrong
            refused += count
            done[kind.name] = done.get(kind.name, 0) + CHUNK
            notes.write_text(json.dumps(done))
        seen = anyio.run(controls, Path(base, "ground"))
    figures: dict[str, int | float | str] = {
        "kinds": len(kinds()),
        "rounds": sum(done.values()),
        "exchanges": swapper.exchanges,
        "operations refused": refused,
        "bytes read or written outside": len(violations),
    }
    return Result(figures=figures, violations=violations, controls=seen, complete=not left)


PART = Part(name="swaps", title="Links, pipes, devices and directories swapped in while in use", run=run)
