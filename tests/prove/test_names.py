"""Ids of every kind: none leaves its place, no two meet."""

from pathlib import Path

import pytest

from ctxfs.errors import UnsafePath
from ctxfs.storage.local import LocalStore
from ctxfs.storage.threaded import ThreadedStore
from prove.folding_fs import FoldingFileSystem
from prove.hostile_ids import CURATED, generated
from prove.part_names import audit, check_places, claims, controls
from prove.workers import no_threads

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def test_no_name_leaves_the_session_and_no_two_meet() -> None:
    assert len(CURATED) >= 500
    assert audit(claims([*CURATED, *generated(1, 2_000)])) == []


def test_a_broken_naming_is_noticed() -> None:
    assert all(controls().values()), controls()


@pytest.mark.usefixtures("loop_may_block")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # names have nothing to do with event loops
async def test_every_id_reads_back_from_a_file_of_its_own(fast_path: Path) -> None:
    with no_threads():
        assert await check_places(fast_path, CURATED, synced=8) == []


async def test_a_session_is_opened_by_its_exact_id_where_case_does_not_count(tmp_path: Path) -> None:
    fs = FoldingFileSystem()
    store = ThreadedStore(LocalStore(tmp_path, "Session_a", fs=fs))
    await store.open(create=True, write=True)
    await store.close()
    for create in (False, True):
        with pytest.raises(UnsafePath, match=r"differs .* only in case"):
            await ThreadedStore(LocalStore(tmp_path, "session_A", fs=fs)).open(create=create, write=create)
    await store.open(create=False, write=True)
    await store.close()
