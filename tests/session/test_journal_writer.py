"""The journal at work: who waits together is written together, and who gives up learns the outcome first."""

import threading
from collections.abc import Callable, Iterable, Sequence

import anyio
import pytest
from anyio import lowlevel, to_thread, wait_all_tasks_blocked

from ctxfs.errors import SessionClosed, WriteFailed
from ctxfs.messages.base import Usage
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index
from ctxfs.session.journal_writer import Commit, JournalWriter
from ctxfs.session.records import CallMade, Record
from ctxfs.storage.base import NewFile
from ctxfs.storage.memory import MemoryStore
from patience import HANGS_S
from session_items import stored_record, tool_result

pytestmark = pytest.mark.anyio


class FullStore(MemoryStore):
    """A store that takes no index while ``full``."""

    full = False
    refused = 0

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        if self.full:
            self.refused += 1
            raise WriteFailed(name, "no space")
        await super().replace(name, data)


class Held:
    """Records whose writing begins, and goes on when it is let."""

    def __init__(self, number: int) -> None:
        self._record = CallMade(number=number, usage=Usage(input_tokens=1), model="m")
        self._began, self._goes_on = threading.Event(), threading.Event()

    @property
    def commit(self) -> Commit:
        return Commit(deferred=self.records)

    def records(self) -> Sequence[Record]:
        self._began.set()
        self._goes_on.wait(HANGS_S)
        return [self._record]

    async def began(self) -> None:
        await to_thread.run_sync(self._began.wait, HANGS_S)

    def go_on(self) -> None:
        self._goes_on.set()


async def test_who_gives_up_while_another_one_writes_for_him_waits_until_it_is_written() -> None:
    store = MemoryStore("session_1")
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    first, second, third = Held(1), Held(2), Held(3)
    third.go_on()
    scope = anyio.CancelScope()
    known_when_told: list[list[int]] = []

    async def gives_up() -> None:
        with scope:
            await log.commit(third.commit)
            await lowlevel.checkpoint()  # where the cancellation of a scope is raised
        known_when_told.append([call.number for call in log.state.calls])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.commit)
        await first.began()
        tasks.start_soon(log.commit, second.commit)
        await wait_all_tasks_blocked()
        tasks.start_soon(gives_up)
        await wait_all_tasks_blocked()
        first.go_on()
        await second.began()  # and the third with it
        scope.cancel()
        await wait_all_tasks_blocked()
        assert known_when_told == []
        second.go_on()
    assert scope.cancelled_caught
    assert known_when_told == [[1, 2, 3]]


async def test_who_gives_up_before_his_turn_is_not_written() -> None:
    store = MemoryStore("session_1")
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    first, second = Held(1), Held(2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.commit)
        await first.began()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.commit(second.commit)
        first.go_on()
    assert [call.number for call in log.state.calls] == [1]


async def opened_log() -> JournalWriter:
    store = MemoryStore("session_1")
    await store.open(create=True, write=True)
    return JournalWriter(store, "session_1")


def call(number: int) -> CallMade:
    return CallMade(number=number, usage=Usage(input_tokens=1), model="m")


def undecided() -> Sequence[Record]:
    raise LookupError("which records?")


async def test_who_cannot_say_what_he_records_is_told_and_nobody_else() -> None:
    log = await opened_log()
    first = Held(1)
    told: list[int] = []

    async def commits(number: int) -> None:
        await log.commit(Commit(records=[call(number)]))

    async def fails(number: int) -> None:
        with pytest.raises(LookupError, match="which records"):
            await log.commit(Commit(records=[call(number)], deferred=undecided))
        told.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.commit)
        await first.began()
        for number in range(2, 8):  # they wait together, whoever writes for all
            tasks.start_soon(commits if number % 2 else fails, number)
            await wait_all_tasks_blocked()
        first.go_on()
    assert told == [2, 4, 6]
    await fails(8)
    await commits(9)
    assert [made.number for made in log.state.calls] == [1, 3, 5, 7, 9]


class Interrupted(MemoryStore):
    """A store that lets others go on between reading or writing the log and saying so."""

    async def read_log(self, offset: int = 0) -> bytes:
        data = await super().read_log(offset)
        await others_go_on(5)
        return data

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        await super().commit(files, log)
        await others_go_on(50)


async def others_go_on(turns: int) -> None:
    for _ in range(turns):
        await lowlevel.checkpoint()


async def test_a_reader_that_looks_several_times_at_once_sees_every_line_once() -> None:
    store = Interrupted("session_1")
    peer = Interrupted("session_1", store.disk)
    async with (
        ContextFileSystem("session_1", store=store) as writer,
        ContextFileSystem("session_1", store=peer, read_only=True) as reader,
    ):
        for number in range(1, 4):
            await writer.writer.record_call(Usage(input_tokens=number), "m")
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(reader.refresh)
            assert reader.state.calls == writer.state.calls


async def test_what_a_writer_has_is_current_also_while_it_writes() -> None:
    """Were it read back, lines of its own that it has not counted yet would be taken in twice."""
    async with ContextFileSystem("session_1", store=Interrupted("session_1")) as writer:

        async def looks_all_the_time() -> None:
            while True:
                await writer.refresh()
                await lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looks_all_the_time)
            for number in range(8):
                await writer.writer.record_call(Usage(input_tokens=number), "m")
            tasks.cancel_scope.cancel()
        assert len(writer.state.calls) == 8
        await writer.writer.record_call(Usage(input_tokens=9), "m")
        journal = await writer.history()
    assert sum(isinstance(record, CallMade) for record in journal) == len(writer.state.calls) == 9


async def test_calls_that_are_recorded_together_are_numbered_one_after_the_other() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        async with anyio.create_task_group() as tasks:
            for tokens in range(5):
                tasks.start_soon(fs.writer.record_call, Usage(input_tokens=tokens), "m")
        await fs.writer.record_call(Usage(input_tokens=5), "m")
        assert [call.number for call in fs.state.calls] == [1, 2, 3, 4, 5, 6]
        assert sorted(call.usage.input_tokens for call in fs.state.calls) == [0, 1, 2, 3, 4, 5]


async def test_a_content_that_another_one_stored_meanwhile_is_not_written_twice() -> None:
    """Both were decided before either was written; the file of an item is written once, and never replaced."""
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        item = tool_result(fs, "x" * 10_000)
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(fs.writer.store, [item])
            tasks.start_soon(fs.writer.add, [item])
        assert await fs.items() == (item,)
        assert sum(isinstance(record, Stored) for record in await fs.history()) == 1


async def test_a_log_that_has_ended_writes_neither_lines_nor_an_index() -> None:
    store = MemoryStore("session_1")
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    held = Held(1)

    stored = [stored_record(f"call_{number}") for number in range(100)]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, Commit(records=stored, deferred=held.records))
        await held.began()
        log.end()
        held.go_on()  # what was begun is written, and acknowledged
    assert len(log.state.stored) == 100
    before = bytes(store.disk.log)
    with pytest.raises(SessionClosed, match="was closed in the meantime"):
        await log.commit(Commit(records=[call(2)]))
    assert (bytes(store.disk.log), store.disk.files) == (before, {})


async def test_an_index_that_is_refused_is_not_tried_again_each_time() -> None:
    store = FullStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        store.full = True
        for number in range(100):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
        assert 1 <= store.refused <= 3
        store.full = False
        await fs.writer.flush()
        assert len(parse_index(await store.read(INDEX_NAME)).items) == 100
