"""What another process swaps into a session is noticed, or does no harm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs.errors import UnsafePath
from ctxfs.messages import CharsCounter
from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.tools.read import read_tool
from prove.part_swaps import KINDS, Kind, Swapper, attack, controls, kinds, session
from prove.workers import no_threads
from session_items import tool_result

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROUNDS = 10


@pytest.fixture(scope="module")
def swapper() -> Iterator[Swapper]:
    with Swapper() as started:
        yield started


@pytest.mark.usefixtures("loop_may_block")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_nothing_outside_is_read_or_touched(kind: Kind, swapper: Swapper, tmp_path: Path) -> None:
    if kind not in kinds():
        pytest.skip("NOT TESTED: a device node needs root")
    with no_threads():
        wrong, _ = await attack(kind, swapper, tmp_path / "ground", ROUNDS)
    assert wrong == []


async def test_a_store_that_follows_links_would_be_noticed(tmp_path: Path) -> None:
    seen = await controls(tmp_path / "ground")
    assert all(seen.values()), seen


@pytest.mark.parametrize("name", ["journal.jsonl", ".lock"])
async def test_what_is_written_in_place_has_no_second_name(tmp_path: Path, name: str) -> None:
    store = ThreadedStore(LocalStore(tmp_path, "session_1"))
    await store.open(create=True, write=True)
    await store.commit([NewFile(name="a", chunks=[b"1"])], lambda: b"1\n")
    await store.close()
    precious = tmp_path / "precious"
    (tmp_path / "session_1" / name).rename(precious)
    (tmp_path / "session_1" / name).hardlink_to(precious)
    before = precious.read_bytes()
    with pytest.raises(UnsafePath, match="hard link"):
        await store.open(create=False, write=True)
    assert precious.read_bytes() == before


async def test_a_session_without_its_journal_is_still_no_file_of_anybody(tmp_path: Path) -> None:
    for session_id, text in (("mine", "mine"), ("other", "SECRET")):
        async with session(tmp_path, session_id) as fs:
            await fs.writer.store([tool_result(fs, text)])
    (tmp_path / "other" / "journal.jsonl").unlink()
    async with session(tmp_path, "mine") as fs:
        read = read_tool(fs, roots=[tmp_path], counter=CharsCounter())
        told = await read.run({"file_path": str(tmp_path / "other" / "tool_result" / "Read" / "call_1.json")})
    assert told.is_error
    assert "SECRET" not in str(told.content)
