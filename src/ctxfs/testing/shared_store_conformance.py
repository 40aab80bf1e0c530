"""What a store that several machines share must do, as tests to inherit: take-over, fencing, lost answers, clocks.

::

    @pytest.mark.anyio
    class TestMyStore(SharedStoreConformance):
        def new_shared(self) -> Callable[[Machine], SharedStore]:
            session_id = f"session_{uuid4().hex}"
            return lambda machine: MyStore(session_id, ttl_s=machine.ttl_s, ...)

A store sends each request that writes through ``machine.network``: the tests decide there what becomes of it. Where a
store has no clock of its own, because the server's decides, ``ahead_s`` has no meaning for it.

What must fail this suite: a store that writes without the condition that nobody else wrote, and one that does not ask
whether its writer was taken over. Try both with your own.
"""

import asyncio
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from typing_extensions import override

from ctxfs.errors import OutcomeUnknown, SessionClosed, SessionLocked, WriteFailed
from ctxfs.errors.checks import names_settings
from ctxfs.storage.base import NewFile, SharedStore, Store
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.testing.network import FATES, Network
from ctxfs.testing.store_conformance import StoreConformance

__all__ = ["Machine", "SharedStoreConformance"]

TURNS = 30


@names_settings()
@dataclass(frozen=True, kw_only=True)
class Machine:
    """On what a store runs.

    Args:
        ttl_s: for so many seconds a silent writer is not taken over; the tests use 0, and an hour.
        give_up_s: for so many seconds a request without an answer is repeated.
        ahead_s: by so many seconds the machine's clock is ahead of the others'.
        network: what its requests that write go through.
    """

    ttl_s: float = 3_600.0
    give_up_s: float = 0.0
    ahead_s: float = 0.0
    network: Network = field(default_factory=Network)


Make = Callable[[Machine], ThreadedStore]


async def _commit(store: ThreadedStore, name: str) -> None:
    await store.commit([NewFile(name=name, chunks=[name.encode()])], f"{name}\n".encode)


async def _opened(make: Make, machine: Machine) -> ThreadedStore:
    store = make(machine)
    await store.open(create=True, write=True)
    return store


@asynccontextmanager
async def _reader(make: Make) -> AsyncIterator[ThreadedStore]:
    store = make(Machine())
    await store.open(create=False, write=False)
    try:
        yield store
    finally:
        await store.close()


async def _found(make: Make) -> list[str]:
    """The log, by lines, as somebody reads it who was not there; each has its file, and no file is without its line."""
    async with _reader(make) as store:
        lines = (await store.read_log()).decode().split()
        assert await store.names() == sorted(lines), "a commit is whole or absent"
        for name in lines:
            assert await store.read(name) == name.encode()
        return lines


async def _refused(kind: type[Exception], *actions: Callable[[], Awaitable[object]]) -> None:
    for action in actions:
        try:
            await action()
        except kind:
            continue
        raise AssertionError(f"{kind.__name__} was not raised")


class SharedStoreConformance(StoreConformance):
    """Inherit, say how a store is made on a machine, and run; ``StoreConformance`` is part of it.

    ``histories``: how many random histories of three writers are played, each of some 30 commits.
    """

    histories = 6

    @abstractmethod
    def new_shared(self) -> Callable[[Machine], SharedStore]:
        """Return a function that makes a store of one and the same session, a new one, on a machine."""

    def _shared(self) -> Make:
        """``new_shared``, each store as a session uses it."""
        make = self.new_shared()
        return lambda machine: ThreadedStore(make(machine))

    @override
    def new_session(self) -> Callable[[], Store]:
        make = self.new_shared()
        return lambda: make(Machine())

    async def test_a_killed_writer_is_taken_over_when_its_lease_has_run_out(self) -> None:
        """Nothing that was acknowledged to it is lost."""
        make = self._shared()
        killed = await _opened(make, Machine(ttl_s=0))
        await _commit(killed, "a")
        second = await _opened(make, Machine(ttl_s=0))
        assert await second.read_log() == b"a\n"
        await _commit(second, "b")
        await second.close()
        assert await _found(make) == ["a", "b"]

    async def test_a_writer_keeps_the_session_while_its_lease_runs(self) -> None:
        """Also a silent one; when it lets go, the next one comes in at once."""
        make = self._shared()
        first = await _opened(make, Machine())
        await _refused(SessionLocked, lambda: _opened(make, Machine()))
        await _commit(first, "a")
        await first.close()
        second = await _opened(make, Machine())
        await _commit(second, "b")
        await second.close()
        assert await _found(make) == ["a", "b"]

    async def test_the_last_commit_releases_the_session(self) -> None:
        """Whole, and in one step: the next writer has it at once, and finds the commit."""
        make = self._shared()
        first = await _opened(make, Machine())
        await first.commit_and_release([NewFile(name="a", chunks=[b"a"])], lambda: b"a\n")
        await _refused(SessionClosed, lambda: _commit(first, "b"))
        second = await _opened(make, Machine())
        assert second.epoch > 0 == first.epoch
        await second.commit_and_release([], lambda: b"")
        assert await first.acquire() is True
        await _commit(first, "c")
        await first.close()
        assert await _found(make) == ["a", "c"]

    async def test_the_last_commit_of_a_fenced_writer_is_refused(self) -> None:
        """It leaves no trace, and the writer that has the session goes on."""
        make = self._shared()
        stopped = await _opened(make, Machine(ttl_s=0))
        second = await _opened(make, Machine(ttl_s=0))
        last = [NewFile(name="a", chunks=[b"a"])]
        await _refused(SessionLocked, lambda: stopped.commit_and_release(last, lambda: b"a\n"))
        await stopped.close()
        await _commit(second, "b")
        await second.close()
        assert await _found(make) == ["b"]

    async def test_a_writer_that_was_stopped_past_its_lease_is_fenced(self) -> None:
        """Whatever it tries then raises ``SessionLocked``, and leaves no trace."""
        make = self._shared()
        stopped = await _opened(make, Machine(ttl_s=0))
        await _commit(stopped, "a")
        second = await _opened(make, Machine(ttl_s=0))
        await _commit(second, "b")
        for _ in range(2):
            await _refused(
                SessionLocked,
                lambda: _commit(stopped, "c"),
                lambda: stopped.replace("a", b"x"),
                lambda: stopped.delete(["a"]),
                lambda: stopped.truncate_log(0),
                lambda: stopped.commit_and_release([], lambda: b"c\n"),
            )
        assert stopped.epoch == 0
        await stopped.close()
        await _commit(second, "d")
        await second.close()
        assert await _found(make) == ["a", "b", "d"]

    async def test_each_kind_of_change_is_fenced(self) -> None:
        """Also when it is the first that a writer tries after it was taken over."""
        changes: list[Callable[[ThreadedStore], Awaitable[None]]] = [
            lambda store: store.replace("a", b"x"),
            lambda store: store.delete(["a"]),
            lambda store: store.truncate_log(0),
        ]
        for change in changes:
            make = self._shared()
            stopped = await _opened(make, Machine(ttl_s=0))
            await _commit(stopped, "a")
            second = await _opened(make, Machine(ttl_s=0))
            await _refused(SessionLocked, partial(change, stopped))
            await stopped.close()
            await second.close()
            assert await _found(make) == ["a"]

    async def test_writers_are_numbered(self) -> None:
        """Each has a higher epoch than all before it; all but the last are fenced."""
        make = self._shared()
        writers: list[ThreadedStore] = []
        epochs = []
        for number in range(5):
            writers.append(await _opened(make, Machine(ttl_s=0)))
            epochs.append(writers[-1].epoch)
            await _commit(writers[-1], f"{number}")
        assert sorted(set(epochs)) == epochs
        assert epochs[0] > 0
        for writer in writers[:-1]:
            await _refused(SessionLocked, partial(_commit, writer, "x"))
        await _commit(writers[-1], "5")
        await writers[-1].close()
        assert writers[-1].epoch == 0
        async with _reader(make) as reader:
            assert reader.epoch == 0
        assert await _found(make) == ["0", "1", "2", "3", "4", "5"]

    async def test_a_writer_that_was_taken_over_comes_back(self) -> None:
        """It is told that a writer died meanwhile, and sees what that one wrote."""
        make = self._shared()
        first = await _opened(make, Machine(ttl_s=0))
        await _commit(first, "a")
        second = await _opened(make, Machine(ttl_s=0))
        await _commit(second, "b")
        await _refused(SessionLocked, lambda: _commit(first, "x"))
        assert await first.acquire() is False
        assert await first.read_log() == b"a\nb\n"
        await _commit(first, "c")
        await _refused(SessionLocked, lambda: _commit(second, "x"))
        await first.close()
        assert await _found(make) == ["a", "b", "c"]

    async def test_a_request_without_an_answer_is_repeated(self) -> None:
        """Whether it was lost, its answer was lost, it arrives late, or twice: it is done once."""
        for fate in FATES:
            make = self._shared()
            network = Network()
            store = await _opened(make, Machine(give_up_s=60, network=network))
            for name in ("a", "b", "c"):
                network.fates = [fate]
                await _commit(store, name)
            await _commit(store, "d")
            network.fates = [fate]
            await store.commit_and_release([NewFile(name="e", chunks=[b"e"])], lambda: b"e\n")
            await store.close()
            network.arrive()
            assert await _found(make) == ["a", "b", "c", "d", "e"], fate

    async def test_what_stays_without_an_answer_is_unknown(self) -> None:
        """Nothing more is written until the session is opened again; then it is known, and stays so."""
        for fate in FATES[:-1]:
            make = self._shared()
            network = Network()
            store = await _opened(make, Machine(network=network))
            await _commit(store, "a")
            network.fates = [fate]
            await _refused(OutcomeUnknown, partial(_commit, store, "b"), partial(_commit, store, "c"))
            await store.close()
            second = await _opened(make, Machine())
            before = await second.read_log()
            await _commit(second, "d")
            network.arrive()
            await _commit(second, "e")
            await second.close()
            assert before in (b"a\n", b"a\nb\n"), fate
            assert await _found(make) == [*before.decode().split(), "d", "e"], fate

    async def test_a_writer_does_not_wait_for_its_own_lease(self) -> None:
        """After a commit without an answer it takes the session again at once."""
        make = self._shared()
        network = Network()
        store = await _opened(make, Machine(network=network))
        network.fates = ["lost"]
        await _refused(OutcomeUnknown, lambda: _commit(store, "a"))
        assert await store.acquire() is False
        await _commit(store, "b")
        await store.close()
        assert await _found(make) == ["b"]

    async def test_a_request_that_arrives_after_the_take_over_does_nothing(self) -> None:
        """However late: a writer's machine may be slow, and so may be the way to the server."""
        make = self._shared()
        network = Network()
        first = await _opened(make, Machine(ttl_s=0, network=network))
        await _commit(first, "a")
        network.holding = True
        await _refused(OutcomeUnknown, lambda: _commit(first, "x"))
        second = await _opened(make, Machine(ttl_s=0))
        await _commit(second, "b")
        network.arrive()
        assert await _found(make) == ["a", "b"]
        await _commit(second, "c")
        await second.close()
        assert await _found(make) == ["a", "b", "c"]

    async def test_a_caller_that_is_cancelled_leaves_a_silent_server(self) -> None:
        """It is not held for as long as the server is waited for; what became of its commit is known afterwards.

        On asyncio; trio's threads are waited for.
        """
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            return
        make, network = self._shared(), Network()
        store = await _opened(make, Machine(network=network))
        await _commit(store, "a")
        network.fates = ["swallowed"]
        with anyio.move_on_after(0.05) as scope:
            await _commit(store, "b")
        assert scope.cancelled_caught
        await _refused(OutcomeUnknown, partial(_commit, store, "c"))
        second = await _opened(make, Machine(ttl_s=0))
        before = await second.read_log()
        await _commit(second, "d")
        await second.close()
        network.arrive()
        await store.close()
        assert before in (b"a\n", b"a\nb\n")
        assert await _found(make) == [*before.decode().split(), "d"]

    async def test_clocks_that_disagree_cost_politeness_only(self) -> None:
        """Whoever gets the session, there is one writer, and one history."""
        for ahead_s in (-10_000.0, 10_000.0):
            make = self._shared()
            first = await _opened(make, Machine(ttl_s=30))
            await _commit(first, "a")
            second = make(Machine(ttl_s=30, ahead_s=ahead_s))
            try:
                await second.open(create=True, write=True)
            except SessionLocked:
                await _commit(first, "b")
                await first.close()
            else:
                await _commit(second, "b")
                await _refused(SessionLocked, partial(_commit, first, "x"))
                await second.close()
            assert await _found(make) == ["a", "b"]

    async def test_a_fenced_writer_rewrites_nothing(self) -> None:
        """Of a ``RewritingStore``: also when its request arrives late."""
        for late in (False, True):
            make, network = self._shared(), Network()
            stopped = await _opened(make, Machine(ttl_s=0, network=network))
            if not stopped.can_rewrite:
                return
            rewriting = partial(stopped.rewrite, b"x\n")
            await _commit(stopped, "a")
            network.holding = late
            await _refused(OutcomeUnknown, *[rewriting] * late)
            second = await _opened(make, Machine(ttl_s=0))
            network.arrive()
            await _refused(OutcomeUnknown if late else SessionLocked, rewriting)
            await stopped.close()
            await second.close()
            assert await _found(make) == ["a"]

    async def test_a_rewriting_without_an_answer_is_repeated(self) -> None:
        """Of a ``RewritingStore``: it is done once; the writer that was stopped before it stays out."""
        for fate in FATES:
            make, network = self._shared(), Network()
            stopped = await _opened(make, Machine(ttl_s=0))
            await _commit(stopped, "b")
            store = await _opened(make, Machine(ttl_s=0, give_up_s=60, network=network))
            if not store.can_rewrite:
                return
            network.fates = [fate]
            await store.rewrite(b"b\n")
            await _refused(SessionLocked, partial(_commit, stopped, "x"))
            await _commit(store, "c")
            await store.close()
            network.arrive()
            assert await _found(make) == ["b", "c"], fate

    async def test_growing_output_of_a_fenced_writer_is_not_written(self) -> None:
        """What was synced is there for the next writer, and nothing that came later."""
        make = self._shared()
        stopped = await _opened(make, Machine(ttl_s=0))
        grow = stopped.append
        await grow("log", b"1")
        assert await stopped.read("log") == b"1"
        await grow("log", b"2", sync=True)
        await grow("log", b"3")
        assert (await stopped.size("log"), await stopped.read("log", 1, 5)) == (3, b"23")
        second = await _opened(make, Machine(ttl_s=0))
        kept = await second.read("log")
        assert b"123".startswith(kept)
        assert kept.startswith(b"12")
        await _refused(SessionLocked, partial(grow, "log", b"x", sync=True))
        await stopped.close()
        await second.append("log", b"4", sync=True)
        await second.close()
        async with _reader(make) as reader:
            assert await reader.read("log") == kept + b"4"
            assert await reader.read("log", len(kept)) == b"4"

    async def test_acknowledged_means_there_once_and_in_order(self) -> None:
        """Random histories of three writers that are stopped, lose requests, and take each other's session over."""
        for seed in range(self.histories):
            make, chance = self._shared(), random.Random(seed)  # noqa: S311 - the same histories each time
            networks = [Network() for _ in range(3)]
            writers: list[ThreadedStore | None] = [None, None, None]
            acknowledged: list[str] = []
            for turn in range(TURNS):
                who = chance.randrange(3)
                networks[who].fates = [chance.choice(FATES)] if chance.random() < 0.3 else []
                name = f"{who}-{turn}"
                try:
                    writer = writers[who] = writers[who] or await _opened(make, Machine(ttl_s=0, network=networks[who]))
                    await _commit(writer, name)
                    acknowledged.append(name)
                    if chance.random() < 0.2:
                        await writer.close()
                        writers[who] = None
                except (SessionLocked, WriteFailed):
                    if (lost := writers[who]) is not None and chance.random() < 0.5:
                        await lost.close()
                    writers[who] = None
            for network in networks:
                network.arrive()
            last = await _opened(make, Machine(ttl_s=0))
            await last.close()
            found = await _found(make)
            assert len(set(found)) == len(found), f"history {seed}: a commit was done twice"
            there = [line for line in found if line in set(acknowledged)]
            assert there == acknowledged, f"history {seed}: what was acknowledged is not there"
