"""Whatever an id is: no byte outside the session, and never two ids in one file, also where case does not count."""

import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from ctxfs.errors import ConfigError, StorageError, UnsafePath
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content
from ctxfs.messages.names import ENVELOPE, TEXT, Layout, NameAllocator, artifact_name, check_session_id
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.base import check_name
from ctxfs.storage.local import LocalStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.tools import offload_tool_result, offload_tool_results
from ctxfs.tools.workspace.artifacts import Artifact
from ctxfs.tools.workspace.service import KnowledgeService
from prove.folding_fs import FoldingFileSystem
from prove.hostile_ids import CURATED, folded, generated
from prove.parts import MEMORY, Part, Result, seed_in
from session_items import tool_result

__all__ = ["PART", "audit", "claims", "controls", "on_disk", "raw_messages", "session_ids", "workspace"]

GENERATED = 100_000
SECRET = "nothing may change here"
BATCH = 500
ROUNDS = 5


def claims(raws: Iterable[str], names: NameAllocator | None = None) -> Iterator[tuple[str, str]]:
    """Claim a name for each id: as a call's id, as a tool's name, and as both."""
    names = names or NameAllocator()
    for raw in raws:
        yield names.allocate(ItemType.TOOL_RESULT, raw, "Read")
        yield names.allocate(ItemType.TOOL_RESULT, "call_1", raw)
        yield names.allocate(ItemType.TOOL_RESULT, raw, raw)


def audit(made: Iterable[tuple[str, str]]) -> list[str]:
    """Say which names could leave the session, cannot exist everywhere, or meet another one."""
    wrong: list[str] = []
    ids: set[str] = set()
    files: set[str] = set()
    for item_id, name in made:
        wrong += [f"{name!r}: {problem}" for problem in _problems(item_id, name)]
        names = (name, artifact_name(item_id, is_json=True), artifact_name(item_id, is_json=False))
        keys = {folded(each) for each in names}
        if folded(item_id) in ids or not files.isdisjoint(keys):
            wrong.append(f"{name!r}: it meets another id's")
        ids.add(folded(item_id))
        files |= keys
    return wrong


def _problems(item_id: str, name: str) -> Iterator[str]:
    try:
        parts = check_name(name)
    except UnsafePath:
        yield "it is no plain relative name"
        return
    if len(parts) > 3 or not name.isascii() or not item_id.isprintable():
        yield "it is not shaped like a name of ours"
    for part in parts:
        stem = part.split(".")[0].lower()
        if part[-1] in ". " or part[0] in ".-" or stem in {"con", "prn", "aux", "nul", "com1", "lpt9"}:
            yield f"{part!r} is none on Windows, or is hidden"
        if not part.isprintable() or set(part) & set('<>:"|?*\\') or len(part) > 130:
            yield f"{part!r} has characters that some systems refuse, or is too long"


class _AsItComes(NameAllocator):
    """A broken naming: the id is the file's name."""

    def allocate(
        self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None, content: Content | None = None
    ) -> tuple[str, str]:
        return raw_id or "", f"{item_type}/{tool_name}/{raw_id}.json"


class _Replacing(NameAllocator):
    """A broken naming: what is unsafe becomes an underscore, and nothing else tells the ids apart."""

    def allocate(
        self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None, content: Content | None = None
    ) -> tuple[str, str]:
        safe = "".join(c if c.isascii() and c.isalnum() else "_" for c in raw_id or "")[:100]
        return f"x{safe}", f"{item_type}/tool/x{safe}.json"


class _CaseCounts(NameAllocator):
    """A broken naming: ids that differ in case are taken for different files."""

    def allocate(
        self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None, content: Content | None = None
    ) -> tuple[str, str]:
        return NameAllocator(layout=self.layout).allocate(item_type, raw_id, "Read", content)


def controls() -> dict[str, bool]:
    """Whether the audit finds what is wrong with each broken naming."""
    distinct = dict.fromkeys(CURATED)
    broken: dict[str, Callable[[], Iterable[tuple[str, str]]]] = {
        "ids as they come": lambda: (_AsItComes().allocate(ItemType.TOOL_RESULT, raw, "t") for raw in distinct),
        "unsafe characters replaced": lambda: (
            _Replacing().allocate(ItemType.TOOL_RESULT, raw, "t") for raw in distinct
        ),
        "case counts": lambda: (_CaseCounts().allocate(ItemType.TOOL_RESULT, raw, "t") for raw in distinct),
    }
    return {name: bool(audit(make())) for name, make in broken.items()}


async def on_disk(root: Path, raws: Sequence[str], layout: Layout) -> list[str]:
    """Store a content under every id where case does not count, and read each back, also after opening again."""
    wrong: list[str] = []
    port = FoldingFileSystem()
    expected: dict[str, str] = {}
    for reopened in (False, True):
        store = LocalStore(root, "session_1", fs=port, durability="process")
        async with ContextFileSystem("session_1", root_path=root, layout=layout, store=store) as fs:
            if reopened and not fs.recovery.clean:
                wrong.append(f"opening again had to repair {fs.recovery}")
            for number, some in enumerate(raws[start : start + BATCH] for start in range(0, len(raws), BATCH)):
                items = [tool_result(fs, f"{reopened} {number} {n} {raw!r}", raw, raw) for n, raw in enumerate(some)]
                await fs.writer.add(items)
                await fs.writer.store(items)
                expected |= {item.id: str(item.message.content) for item in items}
            for item_id, content in expected.items():
                if await fs.load(item_id) != content or fs.find(_path(fs, item_id)) != item_id:
                    wrong.append(f"{item_id!r} reads back as something else")
            if not (await fs.verify()).ok:
                wrong.append("verify found damage")
    wrong += [f"{name!r} was asked for" for name in port.escapes]
    return wrong


def _path(fs: ContextFileSystem, item_id: str) -> str:
    return str(fs.session_path / fs.state.stored[item_id].name)


async def session_ids(root: Path, raws: Iterable[str]) -> list[str]:
    """Open a session of every id: it is refused, or lies in a directory of its own."""
    wrong: list[str] = []
    port = FoldingFileSystem()
    opened: set[str] = set()
    for raw in raws:
        with suppress(UnsafePath):
            LocalStore(root, raw)  # the store alone only promises to stay below its root
        try:
            check_session_id(raw)
        except ConfigError:
            continue
        store = ThreadedStore(LocalStore(root, raw, fs=port, durability="process"))
        try:
            await store.open(create=True, write=True)
        except UnsafePath:
            if folded(raw) not in opened:
                wrong.append(f"the session id {raw!r} is refused for no reason")
            continue
        if folded(raw) in opened and not (root / raw / "journal.jsonl").is_file():
            wrong.append(f"the session id {raw!r} opens another session")
        opened.add(folded(raw))
        await store.close()
    return wrong + [f"the session id {name!r} was asked for" for name in port.escapes]


async def raw_messages(root: Path, raws: Sequence[str]) -> list[str]:
    """Offload raw messages under every id, as the call's and as the session's."""
    wrong: list[str] = []
    taken: dict[str, str] = {}
    for raw in raws:
        message = _raw_message([raw], raw)
        for session_id in ("s", raw):
            with suppress(StorageError):
                done = await offload_tool_result(message, session_id=session_id, output_dir=root / "direct")
                wrong += _misplaced(root / "direct", done.file, raw)
        with suppress(StorageError):
            listed = await offload_tool_results([message], output_dir=root / "listed", threshold_chars=0)
            wrong += _misplaced(root / "listed", listed.files[0], raw)
            if taken.setdefault(listed.files[0], raw) != raw:
                wrong.append(f"{raw!r} and {taken[listed.files[0]]!r} meet in one file")
    return wrong


def _raw_message(ids: Sequence[str], text: str) -> dict[str, object]:
    blocks = [{"type": "tool_result", "tool_use_id": each, "content": f"of {text!r}"} for each in ids]
    return {"role": "user", "content": blocks}


def _misplaced(root: Path, file: str, raw: str) -> list[str]:
    path = Path(file)
    return [] if _lies_in(root, file) and path.read_text() == f"of {raw!r}" else [f"{raw!r} went to {file}"]


async def workspace(root: Path, raws: Sequence[str]) -> list[str]:
    """Keep an artifact under every id, and get each back by that id."""
    wrong: list[str] = []
    async with KnowledgeService(root) as service:
        metadata = {"session_id": "session_2"}
        made = [
            Artifact(artifact_id=raw, content=f"of {raw!r}", metadata={**metadata, "tool_name": raw}) for raw in raws
        ]
        infos = await service.add_knowledge_list(made)
        if len({folded(info.path) for info in infos}) != len(raws):
            wrong.append("two artifacts meet in one file")
        for raw, info in zip(raws, infos, strict=True):
            if not _lies_in(root / "session_2", info.path):
                wrong.append(f"{raw!r} went to {info.path}")
            found = await service.get_knowledge_by_id(info.artifact_id, session_id="session_2")
            if found.content != f"of {raw!r}" or info.raw_id != raw:
                wrong.append(f"the artifact {raw!r} reads back as {found.content!r}")
    return wrong


def _lies_in(directory: Path, path: str) -> bool:
    return Path(path).resolve().is_relative_to(directory.resolve())


class _Surroundings:
    """A directory in which everything but ``root`` must stay as it is."""

    def __init__(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        self._directory = directory
        self.root = directory / "home" / "sessions"
        self.root.mkdir(parents=True, mode=0o700)
        for place in (directory, directory / "home"):
            for name in ("journal.jsonl", "call_1.json", "passwd"):
                (place / name).write_text(SECRET)
        self._before = self._outside()

    def _outside(self) -> dict[str, str]:
        files = [path for path in self._directory.rglob("*") if not path.is_relative_to(self.root)]
        return {str(path): path.read_text() if path.is_file() else "" for path in files}

    def changes(self) -> list[str]:
        now = self._outside()
        return [
            f"{path} was touched" for path in sorted({*now, *self._before}) if now.get(path) != self._before.get(path)
        ]


async def check_places(directory: Path, raws: Sequence[str], *, synced: int = 1) -> list[str]:
    """Run every id through everything that names files, and look at what is around the root afterwards.

    Where every write is synced, which takes its time, only each ``synced``-th id is tried.
    """
    places: dict[str, Callable[[Path], Awaitable[list[str]]]] = {
        "envelope": lambda root: on_disk(root, raws, ENVELOPE),
        "text": lambda root: on_disk(root, raws, TEXT),
        "sessions": lambda root: session_ids(root, [*raws, *(raw.swapcase() for raw in raws)]),
        "messages": lambda root: raw_messages(root, raws[::synced]),
        "workspace": lambda root: workspace(root, raws[::synced]),
    }
    wrong: list[str] = []
    for name, place in places.items():
        around = _Surroundings(directory / name)
        wrong += [f"{name}: {problem}" for problem in await place(around.root)]
        wrong += [f"{name}: {problem}" for problem in around.changes()]
    return wrong


def run(budget_s: float, state_dir: Path) -> Result:
    """Curated ids on the disk, then generated ones by their names, and some of these on the disk too."""
    ends = time.monotonic() + budget_s
    seed = seed_in(state_dir)
    violations = audit(claims([*CURATED, *generated(seed, GENERATED)]))
    violations += _in_places(CURATED)
    rounds = 0
    rng = random.Random(seed)
    while rounds < ROUNDS and time.monotonic() < ends:
        violations += _in_places(list(dict.fromkeys(generated(rng.randrange(1 << 30), 1_000))))
        rounds += 1
    figures: dict[str, int | float | str] = {
        "curated ids": len(CURATED),
        "generated ids": GENERATED,
        "names given out": 3 * (GENERATED + len(CURATED)),
        "rounds of 1,000 generated ids on disk": rounds,
        "escapes and collisions": len(violations),
    }
    return Result(figures=figures, violations=violations, controls=controls(), complete=rounds == ROUNDS)


def _in_places(raws: Sequence[str]) -> list[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as base:
        return anyio.run(check_places, Path(base), raws)


PART = Part(name="names", title="Hostile ids: no escape, no collision", run=run)
