"""A server that stays connected and says nothing: an outcome within ``give_up_s``, and a caller that can leave."""

import asyncio
import contextlib
import math
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agent.test_unknown_outcomes import Shop
from ctxfs import Agent, AgentConfig, tool
from ctxfs.errors import CtxfsError, OutcomeUnknown, SessionLocked, StorageError
from ctxfs.messages import ToolCall
from ctxfs.storage import NewFile
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import uninterrupted
from ctxfs.stores import Bucket, ObjectSessions, ObjectStore, PostgresBucket, open_bucket
from ctxfs.testing import ScriptedModel
from ctxfs.testing.network import Network
from patience import HANGS_S
from storage.buckets import MemoryBucket
from storage.networks import NetworkBucket
from storage.object_servers import S3, moto
from storage.postgres_server import postgres


class Muting:
    """A way to a server, on which one answer can be swallowed: that connection stays open, and silent."""

    def __init__(self, reach: tuple[socket.AddressFamily, str | tuple[str | None, int | None]]) -> None:
        self._reach = reach
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.armed = threading.Event()
        self.swallowed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server = socket.socket(self._reach[0])
        server.connect(self._reach[1])
        muted = threading.Event()
        threading.Thread(target=self._back, args=(server, client, muted), daemon=True).start()
        with client, server, contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self.armed.is_set() and (self._reach[0] is not socket.AF_INET or data.startswith(b"PUT")):
                    self.armed.clear()
                    self.swallowed += 1
                    muted.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _back(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if not muted.is_set():
                    client.sendall(data)

    def close(self) -> None:
        self._listener.close()


class Silent(NamedTuple):
    """One bucket behind such a way, reached twice.

    ``bucket``: gives a silent server up after half a second. ``patient``: waits for what a busy machine answers late.
    """

    way: Muting
    bucket: Bucket
    patient: Bucket


@pytest.fixture(scope="module", params=["postgres", "s3"])
def silent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Silent]:
    if request.param == "postgres":
        with postgres() as server:
            parts = urlsplit(server.url)
            directory = dict(pair.split("=", 1) for pair in parts.query.split("&"))["host"]
            way = Muting((socket.AF_UNIX, f"{directory}/.s.PGSQL.5432"))
            url = f"postgresql://postgres@127.0.0.1:{way.port}/postgres"
            buckets = [PostgresBucket(url, silent_s=silent_s) for silent_s in (0.5, HANGS_S)]
            yield Silent(way, *buckets)
            for bucket in buckets:
                bucket.close()
    else:
        with moto(tmp_path_factory.mktemp("moto")) as server:
            parts = urlsplit(server.options["endpoint"])
            way = Muting((socket.AF_INET, (parts.hostname, parts.port)))
            place = {**S3, "endpoint": f"http://127.0.0.1:{way.port}"}
            yield Silent(
                way,
                *(
                    open_bucket(server.url, {**place, "client_options": {"allow_http": True, "timeout": timeout}})
                    for timeout in ("500ms", f"{HANGS_S:.0f}s")
                ),
            )
    way.close()


@pytest.mark.service
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is a thread that the server leaves waiting
async def test_a_silent_answer_is_given_up_and_looked_up(silent: Silent) -> None:
    """The commit is made once, and acknowledged."""
    way, bucket, _ = silent
    before = way.swallowed
    store = ThreadedStore(ObjectStore(bucket, f"session_{uuid4().hex}"))
    await store.open(create=True, write=True)
    await store.commit([], lambda: b"one\n")
    way.armed.set()
    await store.commit([NewFile(name="x", chunks=[b"x"])], lambda: b"two\n")
    assert way.swallowed == before + 1
    assert (await store.read_log(), await store.names()) == (b"one\ntwo\n", ["x"])
    await store.commit([], lambda: b"three\n")
    await store.close()


class Silenced(NetworkBucket):
    """A bucket of which the answer to write number ``at`` is swallowed; all else is waited for."""

    def __init__(self, silent: Silent, at: int) -> None:
        super().__init__(silent.patient, Network())
        self._silent = silent
        self._at = at
        self.writes = 0

    def _reached(self) -> Bucket:
        self.writes += 1
        if self.writes != self._at:
            return self._silent.patient
        self._connect()
        self._silent.way.armed.set()
        return self._silent.bucket

    def _connect(self) -> None:
        """Have a connection before the way becomes silent: the write must reach the server."""
        while True:
            with contextlib.suppress(StorageError):
                list(self._silent.bucket.keys("none"))
                return

    def create(self, key: str, data: bytes) -> None:
        self._reached().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._reached().put(key, data)


@pytest.mark.service
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is a thread that the server leaves waiting
async def test_an_agent_goes_on_after_an_outcome_that_a_silent_server_left_unknown(silent: Silent) -> None:
    """Whichever answer is missing: no call is charged twice, nothing is answered that is not durable."""
    way = silent.way

    async def run(at: int) -> tuple[Shop, int]:
        held = Silenced(silent, at)
        shop = Shop(ObjectSessions(held, url="silent", ttl_s=0, give_up_s=0), f"session_{uuid4().hex}")
        for number in range(2):
            assert await shop.query(f"charge {number}")
        writes = held.writes
        await shop.close()
        return shop, writes

    undisturbed, writes = await run(0)
    first = 3  # before it, the session is opened: an opening without an answer raises
    for at in range(first, writes + 1):
        before = way.swallowed
        shop, _ = await run(at)
        assert way.swallowed == before + 1
        assert (at, shop.wrong, shop.charged) == (at, [], [0, 1])
        assert shop.requests() == undisturbed.requests()


# A caller that is cancelled -------------------------------------------------------------------------------------------


class SilentBucket(NetworkBucket):
    """Also its reads are never answered while ``mute``."""

    def __init__(self, bucket: Bucket, network: Network) -> None:
        super().__init__(bucket, network)
        self.mute = False
        self.ended = threading.Event()

    def get(self, key: str) -> bytes:
        if self.mute:
            self.ended.wait()
        return super().get(key)


@pytest.mark.slow
def test_a_timeout_around_a_query_ends_it_though_the_server_is_silent() -> None:
    """The agent's next query, or the next opening, shows what became of it."""
    network, objects = Network(), MemoryBucket()
    stores = ObjectSessions(NetworkBucket(objects, network), url="test", ttl_s=0)
    ran = 0

    @tool("Do it")
    async def do(n: int) -> str:
        nonlocal ran
        ran += 1
        network.fates = ["swallowed"] * 100
        return f"did {n}"

    async def play() -> None:
        agent = Agent(
            ScriptedModel([[ToolCall("do", {"n": 1})], "done"]),
            AgentConfig(offload_root_path=stores, session_id="s", tools=[do]),
        )
        await agent.__aenter__()
        with pytest.raises((TimeoutError, OutcomeUnknown)):  # it says so if the clean-up is not answered either
            async with asyncio.timeout(1):
                await agent.query("do it")
        network.fates.clear()
        network.arrive()
        with contextlib.suppress(CtxfsError):
            await agent.close()
        async with Agent(
            ScriptedModel(["here"]),
            AgentConfig(offload_root_path=ObjectSessions(objects, url="test", ttl_s=0), session_id="s"),
        ) as after:
            assert await after.query("and now?") == "here"
            assert after.context.items[0].message.content == "do it"
        assert ran == 1

    asyncio.run(asyncio.wait_for(play(), 60))


async def _opened(network: Network, objects: MemoryBucket) -> ThreadedStore:
    store = ThreadedStore(ObjectStore(NetworkBucket(objects, network), "s", ttl_s=0))
    await store.open(create=True, write=True)
    await store.commit([], lambda: b"a\n")
    return store


TIMEOUT = "asyncio.timeout()"
LEAVING = [("asyncio", TIMEOUT), *((loop, by) for loop in ("asyncio", "trio") for by in ("a deadline", "cancel()"))]


@contextlib.asynccontextmanager
async def left(by: str) -> AsyncGenerator[None]:
    """A block that is left a moment after it began to wait."""
    if by == TIMEOUT:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                yield
        return
    async with anyio.create_task_group() as group:
        with anyio.CancelScope(deadline=anyio.current_time() + 0.05 if by == "a deadline" else math.inf) as scope:
            if by == "cancel()":

                async def cancel() -> None:
                    await anyio.sleep(0.05)
                    scope.cancel()

                group.start_soon(cancel)
            yield
    assert scope.cancelled_caught


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "by"), LEAVING)
@pytest.mark.parametrize("is_uninterrupted", [False, True])
async def test_who_leaves_a_silent_store_does_not_wait_and_it_goes_on(by: str, *, is_uninterrupted: bool) -> None:
    """Uninterrupted work gets an error for the request that is not answered, carries out what follows, and ends."""
    network, objects = Network(), MemoryBucket()
    store = await _opened(network, objects)
    network.fates = ["swallowed"]
    fallback = threading.Timer(20, network.arrive)
    fallback.start()
    seen: list[Exception] = []

    async def write() -> None:
        try:
            await store.commit([], lambda: b"b\n")
        except OutcomeUnknown as error:
            seen.append(error)
            raise

    async with left(by):
        if not is_uninterrupted:
            await write()
        elif by == TIMEOUT:
            await uninterrupted(write)()
        else:
            with pytest.raises(OutcomeUnknown):
                await uninterrupted(write)()
            await checkpoint()
    assert len(seen) == is_uninterrupted
    assert fallback.is_alive(), "nobody waited for the answer"
    fallback.cancel()
    network.arrive()
    assert await store.acquire() is False, "what was half-written has to be looked for"
    await store.commit([], lambda: b"c\n")
    assert await store.read_log() == b"a\nb\nc\n"
    await store.close()


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "by"), LEAVING)
async def test_a_store_that_was_left_is_closed_without_a_wait_and_opened_again(by: str) -> None:
    network, objects = Network(), MemoryBucket()
    store = await _opened(network, objects)
    network.fates = ["swallowed"]
    async with left(by):
        await store.commit([], lambda: b"b\n")
    await store.close()
    await store.open(create=False, write=True)
    assert await store.read_log() == b"a\nb\n"
    await store.commit([], lambda: b"c\n")
    await store.close()
    network.arrive()


async def taken_late(network: Network, objects: MemoryBucket) -> None:
    """Let the late opening arrive, and wait until it has taken the session: a segment more."""
    before = sum("/s/" in key for key in objects.objects)
    network.arrive()
    with anyio.fail_after(HANGS_S):
        while sum("/s/" in key for key in list(objects.objects)) == before:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.005)


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "by"), LEAVING)
async def test_a_session_that_opens_after_its_caller_left_is_released(by: str) -> None:
    network, objects = Network(), MemoryBucket()
    first = await _opened(network, objects)
    await first.close()
    late = ThreadedStore(ObjectStore(NetworkBucket(objects, network), "s", ttl_s=3_600, give_up_s=60))
    network.fates = ["swallowed"]
    async with left(by):
        await late.open(create=False, write=True)
    await taken_late(network, objects)
    second = ThreadedStore(ObjectStore(objects, "s", ttl_s=3_600))
    for _ in range(1_000):
        try:
            await second.open(create=False, write=True)
            break
        except SessionLocked:  # the late one is being released
            await anyio.sleep(0.01)
    await second.commit([], lambda: b"b\n")
    await second.close()


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "by"), LEAVING)
async def test_a_read_that_is_left_harms_nothing(by: str) -> None:
    bucket = SilentBucket(MemoryBucket(), Network())
    store = ThreadedStore(ObjectStore(bucket, "s"))
    await store.open(create=True, write=True)
    await store.commit([NewFile(name="x", chunks=[b"x" * 2_000_000])], lambda: b"a\n")
    reader = ThreadedStore(ObjectStore(bucket, "s"))
    bucket.mute = True
    async with left(by):
        await reader.open(create=False, write=False)
    bucket.mute = False
    bucket.ended.set()
    await store.commit([], lambda: b"b\n")
    assert await store.read_log() == b"a\nb\n"
    await store.close()
