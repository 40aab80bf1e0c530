"""Sessions in a real Postgres server."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from ctxfs.errors import ConfigError, OutcomeUnknown, SessionLocked, SessionNotFound, StorageError, WriteFailed
from ctxfs.storage import NewFile, SharedStore
from ctxfs.storage.postgres import Database, PostgresDatabase, PostgresStore, Statement, open_database
from ctxfs.storage.postgres.sessions import PostgresSessions, stores_at
from ctxfs.testing.shared_store_conformance import Machine, SharedStoreConformance
from storage.contest import CONTROLS, TAKE_OVERS, contest
from storage.networks import NetworkDatabase, UnfencedDatabase, found_out, shared_rows
from storage.object_servers import free_ports
from storage.postgres_server import pgbouncer, postgres

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as server:
        yield server.url


@pytest.fixture(scope="module")
def database(url: str) -> Iterator[PostgresDatabase]:
    database = open_database(url)
    yield database
    database.close()


@pytest.fixture(scope="module")
def pooled(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresDatabase]:
    with pgbouncer(url, tmp_path_factory.mktemp("pgbouncer")) as through:
        database = open_database(through)
        yield database
        database.close()


class OnPostgres(SharedStoreConformance):
    """Sessions in ``self.database``."""

    database: Database
    network_database = NetworkDatabase

    def new_shared(self) -> Callable[[Machine], SharedStore]:
        return shared_rows(self.database, self.network_database)


@pytest.mark.anyio
class TestOnPostgres(OnPostgres):
    @pytest.fixture(autouse=True)
    def connected(self, database: PostgresDatabase) -> None:
        self.database = database


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestBehindATransactionPool(OnPostgres):
    """Many clients share three connections, and each statement may go through another one."""

    @pytest.fixture(autouse=True)
    def connected(self, pooled: PostgresDatabase) -> None:
        self.database = pooled


class Unfenced(OnPostgres):
    network_database = UnfencedDatabase


def test_a_store_that_does_not_ask_for_the_epoch_is_found_out(database: PostgresDatabase) -> None:
    suite = Unfenced()
    suite.database = database
    failed = found_out(suite)
    assert "test_a_writer_that_was_stopped_past_its_lease_is_fenced" in failed
    assert "test_a_request_that_arrives_after_the_take_over_does_nothing" in failed
    assert "test_acknowledged_means_there_once_and_in_order" in failed


# What a database refuses -------------------------------------------------------------------------------------------


def test_a_url_of_something_else_is_refused() -> None:
    for url in ("mysql://localhost/x", "nonsense", "postgresql://localhost/x?colour=red"):
        with pytest.raises(ConfigError, match="Postgres"):
            open_database(url)
    for connections in (0, True, 1.5, "4"):
        with pytest.raises(ConfigError, match=r"connections is .* use a whole number, 1 or more"):
            open_database("postgresql://localhost/x", connections=connections)  # type: ignore[arg-type]


@pytest.fixture
def nothing() -> PostgresDatabase:
    (port,) = free_ports(1)
    return open_database(f"postgresql://nobody@127.0.0.1:{port}/x")


@pytest.mark.anyio
async def test_a_server_that_is_not_there_stored_nothing(nothing: PostgresDatabase) -> None:
    store = PostgresStore(nothing, "session", give_up_s=0)
    with pytest.raises(WriteFailed) as failed:
        await store.open(create=True, write=True)
    assert not isinstance(failed.value, OutcomeUnknown)
    with pytest.raises(StorageError, match="cannot be reached"):
        await store.open(create=False, write=False)


@pytest.mark.anyio
async def test_large_contents_are_rows_of_bounded_size(database: PostgresDatabase) -> None:
    data = os.urandom(3_500_000)
    store = PostgresStore(database, session_id := f"session_{uuid4().hex}")
    await store.open(create=True, write=True)
    await store.commit([NewFile(name="a", chunks=[data])], lambda: b"line\n")
    await store.replace("a", data[:1_200_000])
    await store.replace("b", data)
    await store.replace("a", data[:-1])
    await store.replace("a", data[: 1 << 20])
    assert await store.size("a") == 1 << 20
    assert await store.read("a") == data[: 1 << 20]
    assert await store.read("b", (1 << 20) - 3, 6) == data[(1 << 20) - 3 :][:6]
    assert await store.read("b", 3_499_999, 6) == data[-1:]
    sizes = database.query(
        Statement("select max(octet_length(data)) from ctxfs_part where session = %(id)s", {"id": session_id})
    )
    assert sizes == [(1 << 20,)]
    await store.close()


@pytest.mark.anyio
async def test_a_commit_that_no_statement_can_carry_is_refused_before_it_is_sent(database: PostgresDatabase) -> None:
    piece = bytes(100_000_000)
    store = PostgresStore(database, f"session_{uuid4().hex}")
    await store.open(create=True, write=True)
    files = [NewFile(name="a", chunks=[piece]), NewFile(name="b", chunks=(piece for _ in range(9)))]
    with pytest.raises(WriteFailed, match="object store") as failed:
        await store.commit(files, lambda: b"line\n")
    assert not isinstance(failed.value, OutcomeUnknown)
    assert await store.names() == []
    await store.commit([NewFile(name="a", chunks=[b"small"])], lambda: b"line\n")
    assert await store.names() == ["a"]
    await store.close()


@pytest.mark.anyio
async def test_a_removed_session_is_gone_and_its_sleeping_writer_stays_out(database: PostgresDatabase) -> None:
    def store() -> PostgresStore:
        return PostgresStore(database, session_id, ttl_s=0)

    session_id = f"session_{uuid4().hex}"
    sleeper, remover, late = store(), store(), store()
    await sleeper.open(create=True, write=True)
    await sleeper.commit([NewFile(name="a", chunks=[b"1"])], lambda: b"line\n")
    await remover.open(create=False, write=True)
    await remover.remove()
    for write in (True, False):
        with pytest.raises(SessionNotFound):
            await store().open(create=False, write=write)
    with pytest.raises(SessionLocked):
        await sleeper.commit([], lambda: b"late\n")
    await late.open(create=True, write=True)
    assert (await late.names(), await late.read_log(), late.epoch) == ([], b"", 3)
    await late.close()


@pytest.mark.anyio
async def test_sessions_are_listed_and_removed(database: PostgresDatabase) -> None:
    stores = PostgresSessions(database, url="postgresql://host/name")
    names = [f"listed_{uuid4().hex}" for _ in range(2)]
    for name in names:
        store = stores.store(name)
        await store.open(create=True, write=True)
        await store.close()
    before = {one.session_id: one.version for one in await stores.sessions()}
    assert before.keys() >= set(names)
    assert list(before) == sorted(before)
    await stores.remove(names[0])
    with pytest.raises(SessionNotFound):
        await stores.remove(names[0])
    after = {one.session_id: one.version for one in await stores.sessions()}
    assert names[0] not in after
    assert after[names[1]] == before[names[1]]


def test_no_password_is_shown() -> None:
    assert stores_at("postgresql://me:secret@host:5433/name?sslmode=require").url == "postgresql://host:5433/name"


FORKED = """
import os, sys
from ctxfs.storage.postgres import Statement, open_database
database = open_database(sys.argv[1])
one = Statement("select pg_backend_pid()", {})
mine = database.query(one)
if (child := os.fork()) == 0:
    os._exit(7 if database.query(one) != mine else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert database.query(one) == mine
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_gets_connections_of_its_own(url: str) -> None:
    subprocess.run([sys.executable, "-c", FORKED, url], check=True)


# Several processes that want one session -----------------------------------------------------------------------------


def test_a_contest_in_postgres_loses_nothing(url: str) -> None:
    outcome = contest(url, {}, seconds=6)
    assert outcome.violations == []
    assert outcome.acknowledged > 0
    assert outcome.turns > outcome.take_overs >= TAKE_OVERS


def test_a_contest_finds_a_store_that_does_not_ask_for_the_epoch() -> None:
    """The control; each round in an empty database. One contest may have luck, not all."""
    for _ in range(CONTROLS):
        with postgres() as server:
            if contest(server.url, {}, seconds=3, broken=True).violations:
                return
    raise AssertionError("it lost nothing")
