"""The journal at work: who waits together is written together, and who gives up learns the outcome first."""

import threading
from collections.abc import Iterable, Sequence

import anyio
import pytest
from anyio import to_thread, wait_all_tasks_blocked

from ctxfs.context.fs import ContextFileSystem
from ctxfs.context.index import INDEX_NAME, parse_index
from ctxfs.context.journal import SessionState
from ctxfs.context.records import CallMade, Record
from ctxfs.context.recovery import Found
from ctxfs.context.session_log import SessionLog
from ctxfs.errors import WriteFailed
from ctxfs.llm.base import Usage
from ctxfs.storage.memory import MemoryStore
from session_items import tool_result

pytestmark = pytest.mark.anyio

LONGEST_S = 30.0


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

    def make(self) -> Sequence[Record]:
        self._began.set()
        self._goes_on.wait(LONGEST_S)
        return [self._record]

    async def began(self) -> None:
        await to_thread.run_sync(self._began.wait, LONGEST_S)

    def go_on(self) -> None:
        self._goes_on.set()


async def test_who_gives_up_while_another_one_writes_for_him_waits_until_it_is_written() -> None:
    store = MemoryStore("session_1")
    await store.open(create=True, write=True)
    log = SessionLog(store, "session_1", Found(state=SessionState(), last_seq=0, log_end=0, new=True))
    first, second, third = Held(1), Held(2), Held(3)
    third.go_on()
    scope = anyio.CancelScope()
    known_when_told: list[list[int]] = []

    async def gives_up() -> None:
        with scope:
            await log.commit(third.make)
        known_when_told.append([call.number for call in log.state.calls])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.make)
        await first.began()
        tasks.start_soon(log.commit, second.make)
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
    log = SessionLog(store, "session_1", Found(state=SessionState(), last_seq=0, log_end=0, new=True))
    first, second = Held(1), Held(2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.commit, first.make)
        await first.began()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.commit(second.make)
        first.go_on()
    assert [call.number for call in log.state.calls] == [1]


async def test_an_index_that_is_refused_is_not_tried_again_each_time() -> None:
    store = FullStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        store.full = True
        for number in range(100):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
        assert 1 <= store.refused <= 3
        store.full = False
        await fs.flush()
        assert len(parse_index(await store.read(INDEX_NAME)).items) == 100
