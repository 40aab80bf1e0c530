"""Whatever call fails, falls short or is the last: what was acknowledged is there, and nothing is left behind."""

from pathlib import Path

import pytest

from ctxfs.errors import ConfigError
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.threaded import ThreadedStore
from failing_fs import as_port
from prove.faults import ERRORS, Fault, FaultyFileSystem
from prove.operations import OPERATIONS, SESSION_ID, Bench, Operation, filled
from prove.part_syscalls import controls
from prove.port_faults import run_all
from prove.workers import no_threads

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # the calls are the same
    pytest.mark.usefixtures("loop_may_block"),
    pytest.mark.slow,
]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
async def test_every_call_of_an_operation_fails_once(operation: Operation, fast_path: Path) -> None:
    with no_threads():
        tally = await run_all([operation], fast_path, every_fault=False)
    assert tally.violations == []
    assert tally.unhit == 0
    assert tally.runs > tally.calls > 0


async def test_what_is_broken_on_purpose_is_noticed() -> None:
    with no_threads():
        assert set((await controls()).values()) == {True}


@pytest.mark.parametrize("name", ["unlock", "close"])
async def test_a_close_that_fails_releases_the_session_all_the_same(tmp_path: Path, name: str) -> None:
    await filled(Bench(tmp_path / "root"))
    port = FaultyFileSystem(Fault(kind="error", at=1, for_good=True))
    port.armed = False
    store = ThreadedStore(LocalStore(tmp_path / "root", SESSION_ID, fs=as_port(port)))
    await store.open(create=False, write=True)
    port.armed = True
    await store.close()
    assert name in port.log
    assert port.handles == set()
    await remove_session(tmp_path / "root", SESSION_ID)


async def test_no_session_is_left_out_of_the_list_for_want_of_descriptors(tmp_path: Path) -> None:
    await filled(Bench(tmp_path / "root"))
    assert await list_sessions(tmp_path / "root") == [SESSION_ID]
    for at in (1, 2, 3, 4):
        port = FaultyFileSystem(Fault(kind="error", at=at, error=ERRORS["EMFILE"]))
        with pytest.raises(ConfigError):
            await list_sessions(tmp_path / "root", fs=as_port(port))
        assert port.handles == set()
