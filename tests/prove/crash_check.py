"""Is a disk as a crash left it all right? Asked of the real code, for reading and for writing."""

from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ctxfs.errors import ArchiveError, CtxfsError, SessionNotFound
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index
from ctxfs.session.journal import scan
from ctxfs.session.state import SessionState, fold
from ctxfs.session.transfer.archive import ArchiveReader
from ctxfs.storage.files import TEMP_PREFIX
from ctxfs.storage.local import LocalStore
from ctxfs.text.jsontext import codec as json_codec
from prove.crash_disk import CrashDisk, State
from prove.crash_session import (
    EXPORTS,
    INLINE_CHARS,
    ROOT,
    SESSION_ID,
    Expected,
    MakeStore,
    Snapshot,
    snapshot_of,
)

__all__ = ["Fixed", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What does not change from state to state: how the store is made, what an import brings, room for a file."""

    store: MakeStore
    imported: Snapshot
    scratch: Path


@dataclass(frozen=True, slots=True)
class _Seen:
    items: Snapshot
    stored: dict[str, Stored]


async def check(state: State, expected: Expected, fixed: Fixed) -> list[str]:
    """Return everything that is wrong with what a crash left."""
    broken: list[str] = []
    try:
        read = await _check_reading(CrashDisk(state), expected, broken)
        await _check_writing(CrashDisk(state), expected, fixed, read, broken)
        for session_id, must in expected.sessions:
            await _check_made(CrashDisk(state), session_id, fixed.imported, broken, must=must)
        for session_id, snapshot, must in expected.forks:
            await _check_made(CrashDisk(state), session_id, snapshot, broken, must=must)
        for name, must in expected.archives:
            await _check_archive(state, name, fixed, broken, must=must)
    except CtxfsError as error:
        broken.append(f"{type(error).__name__}: {error}")
    return broken


async def _check_reading(disk: CrashDisk, expected: Expected, broken: list[str]) -> _Seen | None:
    fs = _session(LocalStore(ROOT, SESSION_ID, fs=disk), read_only=True)
    try:
        await fs.open()
    except SessionNotFound:
        if expected.started:
            broken.append("reading: the session is gone")
        return None
    seen = await _look(fs, expected, broken, "reading")
    await fs.close()
    return seen


async def _check_writing(
    disk: CrashDisk, expected: Expected, fixed: Fixed, read: _Seen | None, broken: list[str]
) -> None:
    """Recover, and recover again: all is there, the index says so, and the second time there is nothing to do."""
    fs = _session(fixed.store(disk))
    await fs.open()
    seen = await _look(fs, expected, broken, "recovered", read=read)
    found = fs.recovery
    if found.foreign:
        broken.append(f"recovered: files that are nobody's: {', '.join(found.foreign)}")
    if found.rebuilt_journal and expected.started:
        broken.append("recovered: the journal was lost")
    if read is not None and not seen.stored.items() >= read.stored.items():
        broken.append("recovered: a reader saw contents that are gone")
    report = await fs.verify()
    broken += [f"verify: {problem.name}: {problem.detail}" for problem in report.problems]
    inside = [path for path in disk.contents().files if path.startswith(f"{ROOT}/{SESSION_ID}/")]
    broken += [f"a temporary file stays: {path}" for path in inside if TEMP_PREFIX in path]
    names = {entry.name for entry in fs.state.removed.values()}
    broken += [f"the file of a removed content stays: {path}" for path in inside if path.split("/", 3)[-1] in names]
    await _check_index(disk, seen, broken)
    disk.kill()
    again = _session(fixed.store(disk))
    await again.open()
    if not again.recovery.clean:
        broken.append(f"the second recovery found more: {again.recovery}")
    if (await snapshot_of(again), again.state.stored) != (seen.items, seen.stored):
        broken.append("the second recovery made something else of it")


async def _look(
    fs: ContextFileSystem, expected: Expected, broken: list[str], when: str, *, read: _Seen | None = None
) -> _Seen:
    """Compare what a session shows with what must and may be there; ``read``: what was compared before."""
    broken += [f"{when}: a damaged line: {damage.reason}" for damage in fs.recovery.damages]
    stored = fs.state.stored
    contents = dict(expected.contents)
    broken += [f"{when}: the acknowledged content of {name} is gone" for name in sorted(expected.must - stored.keys())]
    for item_id, entry in stored.items():
        if read is not None and read.stored.get(item_id) == entry:
            continue  # the same digest, which `verify` checks
        if item_id not in contents:
            broken.append(f"{when}: {item_id} is stored, and nobody asked for it")
        elif json_codec.dumps(await fs.load(item_id)) != contents[item_id]:
            broken.append(f"{when}: the content of {item_id} is another")
    items = await snapshot_of(fs)
    if items not in expected.snapshots and (items or expected.started):
        broken.append(f"{when}: the context is neither as before nor as after: {[item[0] for item in items]}")
    removed = fs.state.removed
    broken += [
        f"{when}: {i} has neither content nor tombstone" for i in expected.going - stored.keys() - removed.keys()
    ]
    broken += [f"{when}: the removed content of {i} is back" for i in expected.gone & stored.keys()]
    for item_id, _, offloaded in items:
        if offloaded and item_id not in stored:
            broken.append(f"{when}: a placeholder stands for {item_id}, whose content is gone")
    return _Seen(items, stored)


async def _check_index(disk: CrashDisk, seen: _Seen, broken: list[str]) -> None:
    data = disk.contents().files.get(f"{ROOT}/{SESSION_ID}/{INDEX_NAME}")
    try:
        index = parse_index(data or b"")
    except ValueError as error:
        broken.append(f"recovered: the index: {error}")
    else:
        if dict(index.items) != seen.stored:
            broken.append("recovered: the index is not what the journal adds up to")


async def _check_made(disk: CrashDisk, session_id: str, whole: Snapshot, broken: list[str], *, must: bool) -> None:
    """Look at a session that was imported or forked: whole, or not there."""
    fs = ContextFileSystem(session_id, root_path=ROOT, store=LocalStore(ROOT, session_id, fs=disk), read_only=True)
    try:
        await fs.open()
    except SessionNotFound:
        if must:
            broken.append(f"the new session {session_id} is gone")
        return
    if await snapshot_of(fs) != whole:
        broken.append(f"the new session {session_id} is not whole")
    broken += [f"imported or forked: {problem.name}: {problem.detail}" for problem in (await fs.verify()).problems]
    await fs.close()


async def _check_archive(state: State, name: str, fixed: Fixed, broken: list[str], *, must: bool) -> None:
    """Look at an export: whole; one that was not acknowledged may be missing, or cut in a way that import refuses."""
    data = state.files.get(f"{EXPORTS}/{name}")
    if data is None:
        if must:
            broken.append(f"the export {name} is gone")
        return
    problem = await to_thread.run_sync(archive_problem, data, fixed.scratch)
    if problem is not None and must:
        broken.append(f"the export {name}: {problem}")


def archive_problem(data: bytes, scratch: Path) -> str | None:
    """Read a whole archive, with its checksums; tell why it is none."""
    scratch.write_bytes(data)
    try:
        reader = ArchiveReader.open(scratch, 1 << 30, 1000)
    except ArchiveError as error:
        return str(error)
    try:
        stored = fold(SessionState(), scan(reader.journal()).records).stored.values()
        for name in sorted(entry.name for entry in stored):
            for _ in reader.part(name, reader.open_part(name)):
                pass
        reader.end()
    except ArchiveError as error:
        return str(error)
    finally:
        reader.close()
    return None


def _session(store: LocalStore, *, read_only: bool = False) -> ContextFileSystem:
    return ContextFileSystem(
        SESSION_ID,
        root_path=ROOT,
        store=store,
        clock=lambda: 1_700_000_000.0,
        inline_limit_chars=INLINE_CHARS,
        read_only=read_only,
    )
