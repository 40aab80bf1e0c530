"""The journal at work: who waits together is written together, and who gives up learns the outcome first."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import anyio
import pytest
from anyio import lowlevel, to_thread, wait_all_tasks_blocked

from ctxfs.errors import InvalidRecord, SessionClosed, WriteFailed
from ctxfs.messages.base import Usage
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME, parse_index
from ctxfs.session.journal_writer import Commit, JournalWriter, Outcome
from ctxfs.session.records import CallMade, Record, Removed
from ctxfs.storage.base import NewFile
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from patience import HANGS_S
from session_items import evicted, stored_record, tool_result

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops, pytest.mark.not_measured]


class FullStore(MemoryStore):
    """A store that takes no index while ``full``."""

    full = False
    refused = 0

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        if self.full:
            self.refused += 1
            raise WriteFailed(name, "no space")
        super().replace(name, data)


class Held(Sequence[Record]):
    """Records whose writing begins, and goes on when it is let: they are read in the thread that writes them."""

    def __init__(self, *records: Record) -> None:
        self._records = records
        self._began, self._goes_on = threading.Event(), threading.Event()

    @property
    def commit(self) -> Commit:
        return Commit(records=self)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | Sequence[Record]:
        return self._records[at]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        self._began.set()
        self._goes_on.wait(HANGS_S)
        return iter(self._records)

    async def began(self) -> None:
        await to_thread.run_sync(self._began.wait, HANGS_S)

    def go_on(self) -> None:
        self._goes_on.set()


async def test_who_gives_up_while_another_one_writes_for_him_waits_until_it_is_written() -> None:
    store = ThreadedStore(MemoryStore("session_1"))
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    first, second, third = Held(call(1)), Held(call(2)), Held(call(3))
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
    store = ThreadedStore(MemoryStore("session_1"))
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    first, second = Held(call(1)), Held(call(2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.commit)
        await first.began()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.commit(second.commit)
        first.go_on()
    assert [call.number for call in log.state.calls] == [1]


async def opened_log() -> JournalWriter:
    store = ThreadedStore(MemoryStore("session_1"))
    await store.open(create=True, write=True)
    return JournalWriter(store, "session_1")


def call(number: int) -> CallMade:
    return CallMade(number=number, usage=Usage(input_tokens=1), model="m")


async def test_an_invalid_record_is_raised_in_its_caller_and_in_no_other() -> None:
    log = await opened_log()
    first = Held(call(1))
    wrong: Any = 3
    invalid = CallMade(number=1, usage=Usage(input_tokens=1), model=wrong)
    told: list[int] = []

    async def commits(number: int) -> None:
        await log.commit(Commit(records=[call(number)]))

    async def fails(number: int) -> None:
        with pytest.raises(InvalidRecord, match="model"):
            await log.commit(Commit(records=[call(number), invalid]))
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


OTHERS_GO_ON_S = 0.002
"""Long for an event loop that has something to do."""


class Interrupted(MemoryStore):
    """A store that lets others go on between reading or writing the log and saying so."""

    def read_log(self, offset: int = 0) -> bytes:
        data = super().read_log(offset)
        time.sleep(OTHERS_GO_ON_S)
        return data

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        super().commit(files, log)
        time.sleep(OTHERS_GO_ON_S)


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
    disk = MemoryDisk()
    store = ThreadedStore(MemoryStore("session_1", disk))
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    held = Held(*[stored_record(f"call_{number}") for number in range(100)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, held.commit)
        await held.began()
        log.end()
        held.go_on()  # what was begun is written, and acknowledged
    assert len(log.state.stored) == 100
    before = bytes(disk.log)
    with pytest.raises(SessionClosed, match="was closed in the meantime"):
        await log.commit(Commit(records=[call(2)]))
    assert (bytes(disk.log), disk.files) == (before, {})


async def test_an_index_that_is_refused_is_not_tried_again_each_time() -> None:
    store = FullStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        store.full = True
        for number in range(100):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
        assert 1 <= store.refused <= 3
        store.full = False
        await fs.writer.flush()
        assert len(parse_index(store.read(INDEX_NAME)).items) == 100


class Refusing(MemoryStore):
    """A store that takes no line with one of these texts."""

    refused: tuple[bytes, ...] = ()
    lines = 0

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        def checked() -> bytes:
            line = log()
            if any(text in line for text in self.refused):
                raise WriteFailed("journal.jsonl", "refused")
            return line

        super().commit(files, checked)
        self.lines += 1


async def refusing_log(*refused: bytes) -> tuple[JournalWriter, Refusing]:
    store = Refusing("session_1")
    threaded = ThreadedStore(store)
    await threaded.open(create=True, write=True)
    store.refused = refused
    return JournalWriter(threaded, "session_1"), store


def removed(item_id: str) -> Commit:
    return Commit(records=[Removed(item_ids=(item_id,), reason="test", archive="file")])


async def test_commits_of_one_call_are_one_line_and_one_change() -> None:
    log, store = await refusing_log()
    outcomes = await log.commit_each([removed("a"), removed("b")])
    assert outcomes == [Outcome(None, 1), Outcome(None, 1)]
    assert store.lines == 1


async def test_a_commit_that_is_refused_takes_with_it_only_those_that_need_it() -> None:
    log, store = await refusing_log(b"refused")
    first = removed("refused")
    outcomes = await log.commit_each([first, Commit(records=removed("a").records, needs=first), removed("b")])
    assert [type(outcome.error) for outcome in outcomes] == [WriteFailed, WriteFailed, type(None)]
    assert outcomes[1].error is outcomes[0].error
    assert store.lines == 1
    assert b'"b"' in store.disk.log
    assert b'"a"' not in store.disk.log


async def test_commits_that_are_written_one_by_one_are_changes_of_their_own() -> None:
    log, store = await refusing_log(b"refused")
    outcomes = await log.commit_each([removed("a"), removed("refused"), removed("b")])
    assert [outcome.change for outcome in outcomes if outcome.error is None] == [1, 2]
    assert store.lines == 2


async def test_a_commit_waits_for_one_that_it_needs_and_that_another_caller_holds_back() -> None:
    """Both callers store a file of the same name, so the second one's commit is written after the first one's."""
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store, inline_limit_chars=100) as fs:
        item = tool_result(fs, "x" * 10_000)
        other = tool_result(fs, "y", "call_2")
        errors: list[Exception | None] = []

        async def admits() -> None:
            steps = [(item, evicted(fs, item), "test"), (other, other, "test")]
            admitted = await fs.writer.admit([item, other], steps=steps)
            errors.extend(outcome.error for outcome in (admitted.joined, *admitted.evicted.values()))

        held = Held(call(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fs.writer.journal.commit, held.commit)
            await held.began()
            tasks.start_soon(fs.writer.store, [item])
            await wait_all_tasks_blocked()
            tasks.start_soon(admits)
            await wait_all_tasks_blocked()
            held.go_on()
        assert errors == [None, None, None]
        types = [type(record).__name__ for record in await fs.history()]
        assert types.index("ItemAdded") < types.index("Replaced")
        assert types.count("Stored") == 2


class Stopped(MemoryStore):
    """A store in which Ctrl-C hits each call as often as ``presses`` says."""

    presses = 0

    def _press(self) -> None:
        if self.presses:
            self.presses -= 1
            raise KeyboardInterrupt

    def acquire(self) -> bool:
        self._press()
        return super().acquire()

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        self._press()
        super().commit(files, log)


async def test_what_an_interrupt_kept_from_being_written_is_not_written_for_the_next_caller() -> None:
    """Its caller still has it, and writes it again: it would be in the journal twice."""
    stopped = Stopped("session_1")
    store = ThreadedStore(stopped)
    await store.open(create=True, write=True)
    log = JournalWriter(store, "session_1")
    stopped.presses = 2
    for number in (1, 2):  # the first is begun, and the second waits until what became of it is known
        with pytest.raises(KeyboardInterrupt):
            await log.commit(Commit(records=[call(number)]))
    await log.commit(Commit(records=[call(3)]))
    assert [one.number for one in log.state.calls] == [3]
