"""The operations of a session, each of whose system calls is made to fail, and what must hold after it did."""

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ctxfs.errors import ArchiveError, SessionNotFound
from ctxfs.messages.items import ContextItem
from ctxfs.session import export_session, import_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index
from ctxfs.storage.local import LocalStore
from ctxfs.storage.port import FileSystem, OsFileSystem
from session_items import PLACEHOLDER, evicted, tool_result

__all__ = ["OPERATIONS", "SESSION_ID", "Bench", "Operation", "check", "filled", "left_behind", "try_again"]

SESSION_ID = "session_1"
INLINE_LIMIT_CHARS = 256
CONTENTS = {
    "old_small": "small\n" * 3,
    "old_large": "a line of the old content\n" * 40,
    "old_evicted": "a line of what left\n" * 40,
    "new_small": "new\n" * 3,
    "new_large": "a line of the new content\n" * 40,
    "new_blocks": "0123456789abcde\n" * 17_000,
}
LEFT_BEHIND = (".ctxfs-tmp-", ".ctxfs-import-")


@dataclass(slots=True)
class Bench:
    """What an operation works on. ``port`` None is the real file system."""

    root: Path
    port: FileSystem | None = None
    fs: ContextFileSystem | None = None
    items: dict[str, ContextItem] = field(default_factory=dict)

    @property
    def session(self) -> ContextFileSystem:
        assert self.fs is not None
        return self.fs

    async def open(self) -> None:
        port = self.port or OsFileSystem()
        fs = ContextFileSystem(
            SESSION_ID,
            root_path=self.root,
            store=LocalStore(self.root, SESSION_ID, fs=port),
            inline_limit_chars=INLINE_LIMIT_CHARS,
        )
        await fs.open()
        self.fs = fs

    async def close(self) -> None:
        if self.fs is not None:
            await self.fs.close()

    def item(self, raw_id: str) -> ContextItem:
        """The same item each time, so that an operation can be tried again."""
        if raw_id not in self.items:
            self.items[raw_id] = tool_result(self.session, CONTENTS[raw_id], raw_id)
        return self.items[raw_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``run`` is what is examined; ``makes`` are the items that its acknowledgement promises.

    ``prepare`` makes the disk before it; ``opened``: it runs on a session that is open already, after
    ``first``. ``again``: when it failed it can be tried again.
    """

    name: str
    run: Callable[[Bench], Awaitable[None]]
    prepare: Callable[[Bench], Awaitable[None]]
    opened: bool = True
    makes: tuple[str, ...] = ()
    first: Callable[[Bench], Awaitable[None]] | None = None
    again: bool = True

    async def begin(self, bench: Bench) -> None:
        """Open the session if the operation needs that, and do what comes before it."""
        if self.opened:
            await bench.open()
        if self.first is not None:
            await self.first(bench)


# ---- the disk before


async def nothing(bench: Bench) -> None:
    bench.root.mkdir()


async def filled(bench: Bench) -> None:
    """Make a session with an item in its journal, one in its file, and one that left."""
    bench.root.mkdir()
    await bench.open()
    await bench.session.writer.add([bench.item("old_small"), bench.item("old_large"), bench.item("old_evicted")])
    left = bench.item("old_evicted")
    await bench.session.writer.evict([(left, evicted(bench.session, left), "test")])
    await bench.close()


async def crashed(bench: Bench) -> None:
    """Leave what a dead writer may leave: a torn line, temporary files, an unknown file, a damaged index."""
    await filled(bench)
    session = bench.root / SESSION_ID
    unknown = bench.root / "elsewhere"
    other = Bench(unknown)
    unknown.mkdir()
    await other.open()
    await other.session.offload(other.item("new_large"))
    await other.close()
    name = "tool_result/Read/new_large.json"
    (session / name).write_bytes((unknown / SESSION_ID / name).read_bytes())
    with (session / "journal.jsonl").open("ab") as log:
        log.write(b'{"v":1,"seq":9')
    for directory in (session, session / "tool_result" / "Read"):
        (directory / ".ctxfs-tmp-1-1").write_bytes(b"half")
    (session / INDEX_NAME).write_bytes(b'{"torn')


async def exported(bench: Bench) -> None:
    await filled(bench)
    await export_session(SESSION_ID, bench.root / "session.ctxfs", root_path=bench.root)


# ---- the operations


async def offload(bench: Bench) -> None:
    await bench.session.offload(bench.item("new_large"))


async def offload_blocks(bench: Bench) -> None:
    await bench.session.offload(bench.item("new_blocks"))


async def add(bench: Bench) -> None:
    await bench.session.writer.add([bench.item("new_small"), bench.item("new_large")])


async def evict(bench: Bench) -> None:
    items = [item for item in await bench.session.items() if not item.offloaded]
    await bench.session.writer.evict([(item, evicted(bench.session, item), "test") for item in items])


async def store_one(bench: Bench) -> None:
    await bench.session.offload(bench.item("new_small"))


async def flush(bench: Bench) -> None:
    await bench.session.writer.flush()


async def close(bench: Bench) -> None:
    await bench.close()


async def open_session(bench: Bench) -> None:
    await bench.open()


async def export(bench: Bench) -> None:
    await export_session(SESSION_ID, bench.root / "session.ctxfs", root_path=bench.root, fs=bench.port)


async def import_(bench: Bench) -> None:
    await import_session(bench.root / "session.ctxfs", root_path=bench.root / "elsewhere", fs=bench.port)


OPERATIONS: Mapping[str, Operation] = {
    op.name: op
    for op in (
        Operation(name="offload", run=offload, prepare=filled, makes=("new_large",)),
        Operation(name="offload of two blocks", run=offload_blocks, prepare=filled, makes=("new_blocks",)),
        Operation(name="add", run=add, prepare=filled, makes=("new_small", "new_large")),
        Operation(name="evict", run=evict, prepare=filled),
        Operation(name="flush", run=flush, prepare=filled, first=store_one, makes=("new_small",)),
        Operation(name="close", run=close, prepare=filled, again=False),
        Operation(name="open, new", run=open_session, prepare=nothing, opened=False),
        Operation(name="open, again", run=open_session, prepare=filled, opened=False),
        Operation(name="recovery", run=open_session, prepare=crashed, opened=False),
        Operation(name="export", run=export, prepare=filled, opened=False),
        Operation(name="import", run=import_, prepare=exported, opened=False),
    )
}


# ---- what must hold


def temp_files(root: Path) -> list[str]:
    """List what only a write under way may leave."""
    return [str(path) for path in root.rglob("*") if path.name.startswith(LEFT_BEHIND)]


async def try_again(operation: Operation, bench: Bench) -> None:
    """Run an operation that failed, now without a fault."""
    made = _made(operation, bench.root)
    if made is not None and made.is_file():  # what could not be removed then is the user's to remove
        made.unlink()
    elif made is not None and made.exists():
        shutil.rmtree(made)
    await operation.run(bench)


def left_behind(operation: Operation, root: Path) -> list[str]:
    """Say what an operation that was refused has left, though it could have removed it."""
    left = [path for path in temp_files(root) if not path.endswith("-tmp-1-1")]  # that one is the ground's
    made = _made(operation, root)
    if made is not None and made.exists():
        left.append(str(made))
    return [f"left behind at once: {path}" for path in left]


def _made(operation: Operation, root: Path) -> Path | None:
    return {"export": root / "session.ctxfs", "import": root / "elsewhere"}.get(operation.name)


async def check(operation: Operation, root: Path, *, acknowledged: bool) -> list[str]:
    """Open what is there as the next process would, twice, and say what should not be so."""
    before = set() if operation.prepare is nothing else {"old_small", "old_large", "old_evicted"}
    promised = before | (set(operation.makes) if acknowledged else set())
    found = await _check_session(root, promised)
    if operation.name == "export":
        found += await _check_archive(root, before, acknowledged=acknowledged)
    if operation.name == "import":
        if (root / "elsewhere" / SESSION_ID).exists():
            found += await _check_session(root / "elsewhere", before)
        elif acknowledged:
            found.append("the imported session is not there")
        for path in temp_files(root):
            os.utime(path, (0, 0))  # only what is old is taken for abandoned
        await import_session(root / "session.ctxfs", root_path=root / "elsewhere", session_id="session_2")
        found += [f"left behind: {path}" for path in temp_files(root)]
    return found


async def _check_archive(root: Path, promised: set[str], *, acknowledged: bool) -> list[str]:
    archive, elsewhere = root / "session.ctxfs", root / "imported"
    if not archive.exists():
        return ["the archive is not there"] if acknowledged else []
    try:
        await import_session(archive, root_path=elsewhere)
    except ArchiveError as error:
        return [f"the archive cannot be read: {error}"] if acknowledged else []
    return await _check_session(elsewhere, promised)


async def _check_session(root: Path, promised: set[str]) -> list[str]:
    found: list[str] = []
    try:
        async with ContextFileSystem(SESSION_ID, root_path=root, read_only=True) as reader:
            found += await _check_contents(reader, promised)
    except SessionNotFound:
        found += ["the session is not there"] if promised else []
    async with ContextFileSystem(SESSION_ID, root_path=root) as fs:
        found += await _check_contents(fs, promised)
        report = await fs.verify()
        found += [f"verify: {problem}" for problem in report.problems]
        index = parse_index((root / SESSION_ID / INDEX_NAME).read_bytes())
        if dict(index.items) != dict(fs.state.stored):
            found.append("the index is not what the journal says")
    found += [f"left behind: {path}" for path in temp_files(root / SESSION_ID)]
    async with ContextFileSystem(SESSION_ID, root_path=root) as fs:
        if not fs.recovery.clean:
            found.append(f"the second opening had to repair again: {fs.recovery}")
        found += await _check_contents(fs, promised)
    return found


async def _check_contents(fs: ContextFileSystem, promised: set[str]) -> list[str]:
    found: list[str] = []
    items = {item.id: item for item in await fs.items()}
    lost = promised - items.keys() - fs.state.stored.keys()
    found += [f"{item_id} was acknowledged and is lost" for item_id in lost]
    for item_id, item in items.items():
        content = item.message.content
        if item.offloaded:
            if content != PLACEHOLDER or item_id not in fs.state.stored:
                found.append(f"{item_id} is a placeholder without content")
        elif content != CONTENTS[item_id]:
            found.append(f"{item_id} is not what was added")
    stored = {item_id: await fs.load(item_id) for item_id in fs.state.stored}
    found += [f"{name} is not what was stored" for name, content in stored.items() if content != CONTENTS[name]]
    return found
