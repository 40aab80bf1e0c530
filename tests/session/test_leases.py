"""Leases: several processes take turns in one session, each without opening it again for its turn."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from ctxfs.errors import ConfigError, SessionClosed, SessionLocked, SessionNotFound, WriteFailed
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.session.records import CallMade, Closed, ItemAdded, WriterOpened
from ctxfs.session.shared import SharedFileSystem
from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from failing_fs import FailingFileSystem, as_port
from patience import HANGS_S
from prove.cancelling import WAYS, backend_of, cancelled_at
from session_items import tool_result, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops, pytest.mark.not_measured]

Opener = Callable[[], SharedFileSystem]


@pytest.fixture(params=["disk", "memory"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Gives a file system of one session at each call, as another process would have it."""
    disk = MemoryDisk()

    def opened() -> SharedFileSystem:
        store: Store = LocalStore(tmp_path, "s") if request.param == "disk" else MemoryStore("s", disk)
        return SharedFileSystem("s", root_path=tmp_path, store=store)

    return opened


async def test_two_writers_take_turns_and_each_has_what_the_other_one_recorded(session: Opener) -> None:
    first, second = session(), session()
    await first.open()
    with pytest.raises(SessionLocked):
        await second.open()
    await first.release()
    await second.open()
    await second.release()
    expected: list[str] = []
    for turn in range(6):
        fs = (first, second)[turn % 2]
        gained = await fs.acquire()
        assert [record.item.id for record in gained if isinstance(record, ItemAdded)] == expected[-1:]
        item = user_message(fs, f"turn {turn}")
        await fs.writer.add([item])
        expected.append(item.id)
        assert [item.id for item in await fs.items()] == expected
        await fs.release()
    assert expected == [f"msg_{n:03}" for n in range(1, 7)]
    await first.close()
    await second.close()
    async with session() as fs:
        assert ([item.id for item in await fs.items()], fs.recovery.clean) == (expected, True)


async def test_every_line_is_of_the_writer_that_was_recorded_last(session: Opener) -> None:
    """Who takes the session over says so in the first line that he writes; who writes nothing says nothing."""
    first, second = session(), session()
    await first.open()
    await first.release()
    await second.open()
    await second.release()
    for fs, writes in ((first, True), (first, True), (second, False), (first, True), (second, True), (first, False)):
        await fs.acquire()
        if writes:
            await fs.writer.record_call(Usage(input_tokens=1 if fs is first else 2), "m")
        await fs.release()
    written = [
        f"epoch {record.epoch}" if isinstance(record, WriterOpened) else record.usage.input_tokens
        for record in await first.history()
        if isinstance(record, WriterOpened | CallMade)
    ]
    assert written == ["epoch 1", "epoch 2", "epoch 3", 1, 1, 1, "epoch 4", 2]
    assert first.state.epoch == 4
    assert [call.number for call in first.state.calls] == [1, 2, 3, 4]
    await first.close()
    await second.close()


async def test_nothing_is_written_while_a_session_is_released_and_everything_is_read(session: Opener) -> None:
    fs = session()
    await fs.open()
    item = tool_result(fs, "a line\n" * 100_000)
    await fs.writer.store([item])
    await fs.release()
    await fs.release()
    before = await fs.history()
    with pytest.raises(SessionClosed, match="released"):
        await fs.writer.store([tool_result(fs, "x", "call_2")])
    assert await fs.load(item.id) == "a line\n" * 100_000
    assert await fs.history() == before
    assert await fs.acquire() == ()
    assert await fs.acquire() == ()
    await fs.writer.store([tool_result(fs, "x", "call_3")])
    await fs.release()
    await fs.close()
    async with session() as again:
        assert set(again.state.stored) == {"call_1", "call_3"}
        assert not any(isinstance(record, Closed) for record in await again.history())


async def test_a_block_index_that_was_lost_is_not_missed_while_a_session_is_released() -> None:
    disk = MemoryDisk()
    fs = SharedFileSystem("s", store=MemoryStore("s", disk))
    await fs.open()
    item = tool_result(fs, "a line\n" * 100_000)
    await fs.writer.store([item])
    await fs.close()
    del disk.files[f"{item.name}.idx"]
    async with SharedFileSystem("s", store=MemoryStore("s", disk)) as fs:
        await fs.release()
        assert await fs.load(item.id) == "a line\n" * 100_000
        assert f"{item.name}.idx" not in disk.files


class Watched(MemoryStore):
    """A store that notes how many bytes of the log are read."""

    read_bytes = 0

    def read_log(self, offset: int = 0) -> bytes:
        data = super().read_log(offset)
        self.read_bytes += len(data)
        return data


async def test_only_what_the_others_appended_is_read() -> None:
    store = Watched("s")
    fs = SharedFileSystem("s", store=store)
    await fs.open()
    for number in range(20):
        await fs.writer.add([user_message(fs, f"message {number}")])
    await fs.release()
    store.read_bytes = 0
    await fs.acquire()
    assert store.read_bytes == 1, "the end of the last line, to know the journal by"
    await fs.release()
    async with SharedFileSystem("s", store=store.peer()) as other:
        length = len(store.disk.log)
        await other.writer.record_call(Usage(input_tokens=7), "m")
    store.read_bytes = 0
    gained = await fs.acquire()
    assert [type(record).__name__ for record in gained] == ["WriterOpened", "CallMade", "Closed"]
    assert store.read_bytes < len(store.disk.log) - length + 300
    await fs.close()


async def test_who_waits_gets_the_session_when_the_other_one_is_done(session: Opener) -> None:
    first, second = session(), session()
    await first.open()

    async def waits() -> None:
        await second.open(wait_s=HANGS_S)
        await second.release()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits)
        await anyio.sleep(0.005)
        assert not second.is_open
        await first.release()
    assert second.is_open
    await second.acquire()
    with pytest.raises(SessionLocked):
        await first.acquire(wait_s=0.01)
    assert first.is_open
    await second.close()
    await first.acquire()
    await first.close()


async def test_a_session_with_a_command_that_runs_is_not_released(tmp_path: Path) -> None:
    async with SharedFileSystem("s", root_path=tmp_path) as fs:
        log = await fs.writer.grow("Bash")
        with pytest.raises(ConfigError, match="terminal_001 is being written: finish it"):
            await fs.release()
        await log.finish({})
        await fs.release()
        writer = fs.writer
    with pytest.raises(SessionClosed):  # also where the session was released when it was closed
        await writer.flush()
    async with SharedFileSystem("s", root_path=tmp_path, read_only=True) as reader:
        for change in (reader.release, reader.acquire):
            with pytest.raises(SessionClosed, match="reading only"):
                await change()


async def test_a_session_that_was_removed_meanwhile_is_not_there(tmp_path: Path) -> None:
    fs, again = (SharedFileSystem("s", root_path=tmp_path) for _ in range(2))
    await fs.open()
    await fs.release()
    await remove_session(tmp_path, "s")
    with pytest.raises(SessionNotFound):
        await fs.acquire()
    async with again:  # another session, of the same id
        with pytest.raises(SessionNotFound):
            await fs.acquire()
        await again.writer.record_call(Usage(input_tokens=1), "m")
    with pytest.raises(SessionClosed, match="released"):
        await fs.writer.record_call(Usage(input_tokens=1), "m")
    await fs.close()
    assert await list_sessions(tmp_path) == ["s"]


def test_a_session_that_was_moved_away_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        fs = SharedFileSystem("s", root_path=tmp_path)
        await fs.open()
        await fs.release()
        (tmp_path / "s").rename(tmp_path / "moved")
        (tmp_path / "s").mkdir(mode=0o700)
        before = (tmp_path / "moved" / LOG_NAME).read_bytes()
        with pytest.raises(SessionNotFound):
            await fs.acquire()
        await fs.close()
        assert (tmp_path / "moved" / LOG_NAME).read_bytes() == before
        assert not list((tmp_path / "s").iterdir())

    anyio.run(scenario)


@pytest.mark.parametrize("broken", [{"sync"}, {"unlink"}])
async def test_who_leaves_something_half_written_leaves_word_of_it(tmp_path: Path, broken: set[str]) -> None:
    """What a failed commit could neither write nor take back: whoever writes next looks for it first."""
    other = ThreadedStore(LocalStore(tmp_path, "s"))
    await other.open(create=True, write=True)
    await other.release()
    disk = FailingFileSystem(lambda number, name: name in broken)
    disk.armed = False
    store = ThreadedStore(LocalStore(tmp_path, "s", fs=as_port(disk)))
    await store.open(create=True, write=True)
    disk.armed = True
    files = [NewFile(name="a", chunks=[b"1"])] if "unlink" in broken else []
    with pytest.raises(WriteFailed):
        await store.commit(files, lambda: b"line\n")
    await store.release()
    assert await other.acquire() is False
    await other.close()
    await store.close()


@pytest.mark.parametrize("cut", [1, 10])
async def test_a_journal_that_was_cut_meanwhile_is_read_again(cut: int) -> None:
    store = MemoryStore("s")
    fs = SharedFileSystem("s", store=store)
    await fs.open()
    await fs.writer.add([user_message(fs, "one")])
    length = len(store.disk.log)
    await fs.writer.add([user_message(fs, "two")])
    await fs.release()
    del store.disk.log[length if cut > 1 else -1 :]
    await fs.acquire()
    assert [item.id for item in await fs.items()] == ["msg_001"]
    assert fs.writer.allocate(ItemType.USER_MESSAGE, None)[0] == "msg_002"
    await fs.close()


DYING = """
import os, sys, anyio
from pathlib import Path
from ctxfs.messages.base import Usage
from ctxfs.session.shared import SharedFileSystem
from session_items import tool_result, user_message

class Dying(list):
    def __iter__(self):  # the contents are written, and the line is not
        os._exit(9)

async def main():
    fs = SharedFileSystem("s", root_path=Path(sys.argv[1]))
    await fs.open()
    await fs.writer.add([user_message(fs, "recorded")])
    await fs.release()
    await fs.acquire()
    item = tool_result(fs, "stored, and not recorded " * 1000)
    await fs.writer.decide([item], Dying([None]))

anyio.run(main)
"""


def environment() -> dict[str, str]:
    tests = Path(__file__).resolve().parent.parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))}


async def test_a_session_whose_last_writer_died_is_opened_again(tmp_path: Path) -> None:
    fs = SharedFileSystem("s", root_path=tmp_path)
    await fs.open()
    await fs.writer.add([user_message(fs, "before")])
    await fs.release()
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    done = await anyio.run_process(command, check=False, env=environment())
    assert done.returncode == 9, done.stderr
    gained = await fs.acquire()
    assert fs.recovery.adopted == ("tool_result/Read/call_1.json",)
    assert [item.id for item in await fs.items()] == ["msg_001", "msg_002"]
    assert [record.item.id for record in gained if isinstance(record, ItemAdded)] == ["msg_002"]
    assert await fs.load("call_1") == "stored, and not recorded " * 1000
    assert fs.writer.allocate(ItemType.TOOL_RESULT, "call_1", "Read")[0] == "call_1~2"
    await fs.close()
    async with SharedFileSystem("s", root_path=tmp_path) as again:
        assert again.recovery.clean


TURNS = """
import sys, anyio
from pathlib import Path
from ctxfs.session.shared import SharedFileSystem
from session_items import tool_result

async def main():
    root, name, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    fs = SharedFileSystem("s", root_path=root, inline_limit_chars=100)
    await fs.open(wait_s=600)
    await fs.release()
    for turn in range(turns):
        await fs.acquire(wait_s=600)
        item = tool_result(fs, f"{name} {turn}\\n" * 50, "call")
        await fs.writer.add([item])
        print(item.id, flush=True)
        await fs.release()
    await fs.close()

anyio.run(main)
"""


@pytest.mark.service
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as in the processes, which do what is tested
async def test_processes_that_take_turns_lose_nothing_and_share_no_id(tmp_path: Path) -> None:
    turns, names = 12, ("a", "b", "c")
    acknowledged: list[str] = []

    async def takes_turns(name: str) -> None:
        done = await anyio.run_process(
            [sys.executable, "-c", TURNS, str(tmp_path), name, str(turns)], check=True, env=environment()
        )
        acknowledged.extend(done.stdout.decode().split())

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(takes_turns, name)
    async with SharedFileSystem("s", root_path=tmp_path) as fs:
        assert fs.recovery.clean
        assert sorted(item.id for item in await fs.items()) == sorted(acknowledged)
        assert len(set(acknowledged)) == turns * len(names)
        texts = {str(await fs.load(item_id)).split("\n")[0] for item_id in acknowledged}
        assert texts == {f"{name} {turn}" for name in names for turn in range(turns)}
        assert (await fs.verify()).ok


class TestCancelled:
    """A lease that is cancelled has begun, or not; one that is given back and cancelled is given back, or not."""

    pytestmark = pytest.mark.parametrize("way", WAYS)

    def test_acquire(self, session: Opener, way: str) -> None:
        async def scenario(number: int) -> bool:
            fs, other = session(), session()
            await fs.open()
            await fs.release()
            async with other:
                await other.writer.add([user_message(other, "the other one's")])
            cancelled = await cancelled_at(way, number, fs.acquire)
            await fs.acquire()
            await fs.writer.add([user_message(fs, "ours")])
            count = len(await fs.items())
            await fs.close()
            async with session() as again:
                assert (len(await again.items()), again.recovery.clean) == (count, True)
            assert count == 2 * number
            return bool(cancelled)

        self.until_it_is_not_cancelled(way, scenario)

    def test_release(self, session: Opener, way: str) -> None:
        async def scenario(number: int) -> bool:
            fs = session()
            await fs.open()
            cancelled = await cancelled_at(way, number, fs.release)
            await fs.release()
            async with session() as other:
                await other.writer.add([user_message(other, "the other one's")])
            assert len(await fs.acquire()) == 3
            await fs.close()
            return bool(cancelled)

        self.until_it_is_not_cancelled(way, scenario)

    def until_it_is_not_cancelled(self, way: str, scenario: Callable[[int], Awaitable[bool]]) -> None:
        number = 1
        while anyio.run(scenario, number, backend=backend_of(way)):
            number += 1
        assert number > 1
