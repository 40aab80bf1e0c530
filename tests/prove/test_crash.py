"""Every state that a crash may leave, of short workloads; ``make prove`` looks at the long ones."""

from pathlib import Path

import pytest

from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from prove.crash_controls import CONTROLS
from prove.crash_disk import CrashDisk, DataChange, FileNode, State
from prove.crash_explorer import FORK, HUGE, REMOVE, RETURN, START, UNDO, Explorer, OutOfTime, Workload
from prove.crash_session import OPERATIONS, ROOT, SESSION_ID, Run, Variant, make_base
from prove.part_crash import run_control
from session_items import evicted, tool_result

pytestmark = [pytest.mark.usefixtures("loop_may_block"), pytest.mark.slow]

SHORT: list[Workload] = [
    (START,),
    (HUGE,),
    (REMOVE,),
    (FORK,),
    (UNDO,),
    (RETURN,),
    *((name,) for name in OPERATIONS),
    ("offload", "evict"),
    ("close", "add"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # one is enough here: the disk is the same


@pytest.mark.anyio
@pytest.mark.parametrize("workload", SHORT, ids=" then ".join)
async def test_a_crash_loses_nothing_that_was_acknowledged(tmp_path: Path, workload: Workload) -> None:
    explorer = Explorer(tmp_path)
    await explorer.prepare()
    await explorer.explore(workload)
    assert explorer.tally.violations == []
    assert explorer.tally.states > 0


@pytest.mark.anyio
@pytest.mark.parametrize("workload", [("add",), (START,), (REMOVE,)], ids=" then ".join)
async def test_a_crash_after_a_crash_loses_nothing_either(tmp_path: Path, workload: Workload) -> None:
    explorer = Explorer(tmp_path)
    await explorer.prepare()
    await explorer.explore(workload, second=("add",))
    assert explorer.tally.violations == []
    assert explorer.tally.second_states > 100
    assert explorer.tally.kills > 1


@pytest.mark.anyio
@pytest.mark.parametrize("name", CONTROLS)
async def test_broken_code_is_found_out(tmp_path: Path, name: str) -> None:
    assert (await run_control(name, tmp_path)).broken == 1


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["no directory sync", "no journal sync"])
async def test_a_fork_that_is_not_synced_is_found_out(tmp_path: Path, name: str) -> None:
    explorer = Explorer(tmp_path, variant=CONTROLS[name], enough=1)
    await explorer.prepare()
    with pytest.raises(OutOfTime):
        await explorer.explore((FORK,))
    assert explorer.tally.broken == 1


@pytest.mark.anyio
async def test_time_that_is_up_ends_a_run(tmp_path: Path) -> None:
    explorer = Explorer(tmp_path, over=lambda: True)
    await explorer.prepare()
    with pytest.raises(OutOfTime):
        await explorer.explore(("add",))


# ---- the disk itself


@pytest.mark.anyio
async def test_worker_threads_change_nothing(tmp_path: Path) -> None:
    """The proof leaves them out; the local store with them does the same to the disk, in the same order."""
    threaded = Variant(store=lambda disk: LocalStore(ROOT, SESSION_ID, fs=disk))
    seen = []
    for variant in (Variant(), threaded):
        run = Run(CrashDisk(), tmp_path / "none", variant=variant)
        await make_base(run)
        for name in ("offload", "add large", "evict", "close"):
            await OPERATIONS[name](run)
        seen.append([{state.key for state in moment.captured.states()} for moment in run.moments])
    assert seen[0] == seen[1]
    assert len(seen[0]) > 10


@pytest.mark.anyio
async def test_the_disk_in_memory_ends_up_like_a_real_one(tmp_path: Path) -> None:
    disk = CrashDisk()
    real = tmp_path / "sessions"
    for root, store in ((ROOT, LocalStore(ROOT, SESSION_ID, fs=disk)), (real, LocalStore(real, SESSION_ID))):
        fs = ContextFileSystem(SESSION_ID, root_path=root, store=store, clock=lambda: 1.0, inline_limit_chars=10)
        async with fs:
            items = [tool_result(fs, "a long result\n" * n, raw_id=f"c{n}") for n in (1, 2)]
            await fs.writer.add(items)
            await fs.writer.evict([(items[0], evicted(fs, items[0]), "test")])
    below = f"{ROOT}/{SESSION_ID}/"
    simulated = {path.removeprefix(below): data for path, data in disk.contents().files.items() if path > below}
    found = {str(path.relative_to(real / SESSION_ID)): path for path in sorted((real / SESSION_ID).rglob("*"))}
    assert simulated.keys() == found.keys()
    for name in simulated.keys() - {".lock", "journal.jsonl"}:  # they hold the process and the place
        assert simulated[name] == (found[name].read_bytes() if found[name].is_file() else None)


def written(*changes: DataChange) -> set[bytes]:
    node = FileNode(b"old", b"old")
    for change in changes:
        node = node.changed(change)
    return set(node.outcomes())


def test_what_an_unsynced_write_may_leave() -> None:
    assert written(DataChange(3, b"wxyz")) == {
        *(b"old", b"oldwxyz", b"oldw", b"oldwx", b"oldwxy"),
        *(b"old\0\0\0\0", b"oldwx\0\0", b"old\0\0yz"),
    }


def test_a_later_write_may_come_to_the_medium_before_an_earlier_one() -> None:
    assert b"old\0\0yz" in written(DataChange(3, b"wx"), DataChange(5, b"yz"))


def test_names_that_were_not_synced_are_any_subset() -> None:
    disk = CrashDisk()
    root = disk.open_root(Path("/"))
    disk.close(disk.create(root, "a"))
    disk.sync(root)
    disk.link(root, "a", "b")
    disk.unlink(root, "a")
    names = {tuple(state.files) for state in disk.capture().states()}
    assert names == {("/a",), ("/a", "/b"), (), ("/b",)}


def test_what_was_synced_is_there() -> None:
    disk = CrashDisk()
    root = disk.open_root(Path("/"))
    fd = disk.create(root, "a")
    disk.write(fd, b"bytes")
    disk.sync(fd)
    disk.sync(root)
    assert [state.files for state in disk.capture().states()] == [{"/a": b"bytes"}]


def test_a_state_keeps_which_names_are_one_file() -> None:
    disk = CrashDisk(State((("/a", b"x", 7), ("/b", b"x", 7))))
    root = disk.open_root(Path("/"))
    assert disk.stat(root, "a").links == 2
    assert disk.stat(root, "a").identity == disk.stat(root, "b").identity
