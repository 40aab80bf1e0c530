"""Sessions in a real Postgres server, where a table of objects is one more bucket."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from ctxfs.cli.app import run
from ctxfs.errors import ConfigError, NotStored, OutcomeUnknown, StorageError, StoreRefused, WriteFailed
from ctxfs.storage import NewFile, stores_at
from ctxfs.storage.failures import NoAnswer, NotSent
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import ObjectStore, PostgresBucket, Taken
from ctxfs.stores.postgres import SCHEMA_VERSION
from patience import HANGS_S
from storage.contest import CONTROLS, TAKE_OVERS, contest
from storage.networks import OverwritingBucket, found_out
from storage.object_servers import free_ports
from storage.postgres_server import Postgres, pgbouncer, postgres
from storage.test_objects import OnObjects

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def bucket(server: Postgres) -> Iterator[PostgresBucket]:
    bucket = PostgresBucket(server.url)
    yield bucket
    bucket.close()


@pytest.fixture(scope="module")
def pooled(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresBucket]:
    with pgbouncer(server.url, tmp_path_factory.mktemp("pgbouncer")) as through:
        bucket = PostgresBucket(through)
        yield bucket
        bucket.close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestOnPostgres(OnObjects):
    """On one event loop: only threads touch a bucket, and ``storage.test_objects`` has both loops hand it to them."""

    histories = 2  # the same are played in memory, and more; here a server must refuse what they write too late

    @pytest.fixture(autouse=True)
    def connected(self, bucket: PostgresBucket) -> None:
        self.bucket = bucket


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestBehindATransactionPool(OnObjects):
    """Many clients share three connections, and each statement may go through another one."""

    histories = 2

    @pytest.fixture(autouse=True)
    def connected(self, pooled: PostgresBucket) -> None:
        self.bucket = pooled


class Overwriting(OnObjects):
    histories = TestOnPostgres.histories
    network_bucket = OverwritingBucket


def test_a_database_that_overwrites_is_found_out(bucket: PostgresBucket) -> None:
    suite = Overwriting()
    suite.bucket = bucket
    failed = found_out(suite)
    assert "test_a_writer_that_was_stopped_past_its_lease_is_fenced" in failed
    assert "test_acknowledged_means_there_once_and_in_order" in failed


# Objects -----------------------------------------------------------------------------------------------------------


def test_objects_are_created_once_read_listed_and_deleted(bucket: PostgresBucket) -> None:
    prefix = f"{uuid4().hex}/"
    data = os.urandom(100_000)
    bucket.create(f"{prefix}b", data)
    with pytest.raises(Taken):
        bucket.create(f"{prefix}b", b"another")
    bucket.put(f"{prefix}a", b"1")
    bucket.put(f"{prefix}a", b"")
    bucket.create(f"{prefix}ä\U0010fffe", b"2")
    assert (bucket.get(f"{prefix}b"), bucket.get(f"{prefix}a")) == (data, b"")
    assert bucket.get_range(f"{prefix}b", 99_000, 1_000) == data[99_000:]
    assert list(bucket.keys(prefix)) == [f"{prefix}a", f"{prefix}b", f"{prefix}ä\U0010fffe"]
    assert list(bucket.keys(prefix, after=f"{prefix}a")) == [f"{prefix}b", f"{prefix}ä\U0010fffe"]
    bucket.delete([f"{prefix}a", f"{prefix}b", f"{prefix}never"])
    assert list(bucket.keys(prefix)) == [f"{prefix}ä\U0010fffe"]
    with pytest.raises(NotStored):
        bucket.get(f"{prefix}a")
    with pytest.raises(NotStored):
        bucket.get_range(f"{prefix}a", 0, 1)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_object_that_no_statement_can_carry_is_refused_before_it_is_sent(bucket: PostgresBucket) -> None:
    piece = bytes(100_000_000)
    store = ThreadedStore(ObjectStore(bucket, f"session_{uuid4().hex}"))
    await store.open(create=True, write=True)
    files = [NewFile(name="a", chunks=(piece for _ in range(10)))]
    with pytest.raises(WriteFailed, match="object store") as failed:
        await store.commit(files, lambda: b"line\n")
    assert not isinstance(failed.value, OutcomeUnknown)
    assert await store.names() == []
    await store.commit([NewFile(name="a", chunks=[b"small"])], lambda: b"line\n")
    assert await store.names() == ["a"]
    await store.close()


# What a database refuses -------------------------------------------------------------------------------------------


def test_a_url_of_something_else_is_refused() -> None:
    for url in ("mysql://localhost/x", "nonsense", "postgresql://localhost/x?colour=red"):
        with pytest.raises(ConfigError, match="Postgres"):
            PostgresBucket(url)
    for connections in (0, True, 1.5, "4"):
        with pytest.raises(ConfigError, match=r"connections is .* use a whole number, 1 or more"):
            PostgresBucket("postgresql://localhost/x", connections=connections)  # type: ignore[arg-type]


def test_no_password_is_shown() -> None:
    assert stores_at("postgresql://me:secret@host:5433/name?sslmode=require").url == "postgresql://host:5433/name"


@pytest.mark.anyio
async def test_a_server_that_is_not_there_stored_nothing() -> None:
    (port,) = free_ports(1)
    nothing = PostgresBucket(f"postgresql://nobody@127.0.0.1:{port}/x")
    store = ThreadedStore(ObjectStore(nothing, "session", give_up_s=0))
    with pytest.raises(StorageError, match="cannot be reached"):
        await store.open(create=True, write=True)
    with pytest.raises(NotSent):
        nothing.create("key", b"")


def _as(server: Postgres, *, user: str | None = None, database: str | None = None) -> str:
    """The server's URL with another account, or of another database."""
    host = server.url.partition("?")[2]
    return f"postgresql://{user or 'postgres'}@/{database or 'postgres'}?{host}"


def _execute(server: Postgres, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_what_is_refused_for_good_is_named_at_once(server: Postgres) -> None:
    """None of it is repeated: a role, a database, a right or a table does not appear by waiting."""
    role = f"role_{uuid4().hex[:8]}"
    empty = f"empty_{uuid4().hex[:8]}"
    _execute(server, f"create role {role} login", f"create database {empty}")
    refused = {
        _as(server, database="no_such_one"): 'database "no_such_one" does not exist: create the database',
        _as(server, user="nobody_at_all"): 'role "nobody_at_all" does not exist: create the role',
        _as(server, user=role): "permission denied for table ctxfs_meta: give the role the rights",
        _as(
            server, database=empty
        ): "the tables of ctxfs do not exist in this database: run `ctxfs doctor --store URL --init",
    }
    for url, text in refused.items():
        bucket = PostgresBucket(url)
        for act in (
            lambda bucket=bucket: bucket.create("key", b""),
            lambda bucket=bucket: list(bucket.keys("")),
        ):
            with pytest.raises(StoreRefused) as raised:
                act()
            assert text in str(raised.value)
        bucket.close()


def test_run_time_needs_no_right_to_create_tables(server: Postgres) -> None:
    role = f"worker_{uuid4().hex[:8]}"
    _execute(
        server,
        "revoke create on schema public from public",
        f"create role {role} login",
        f"grant select, insert, update, delete on ctxfs_meta, ctxfs_object to {role}",
    )
    bucket = PostgresBucket(_as(server, user=role))
    bucket.create(f"{role}/key", b"1")
    assert bucket.get(f"{role}/key") == b"1"
    with pytest.raises(StoreRefused, match="permission denied"):
        bucket.create_tables()
    bucket.close()


def test_the_tables_of_another_version_are_refused(server: Postgres) -> None:
    other = f"other_{uuid4().hex[:8]}"
    _execute(server, f"create database {other}")
    bucket = PostgresBucket(_as(server, database=other))
    bucket.create_tables()
    bucket.create_tables()
    bucket.create("key", b"1")
    _change_version(_as(server, database=other), SCHEMA_VERSION + 1)
    later = PostgresBucket(_as(server, database=other))
    text = f"of version {SCHEMA_VERSION + 1}, and this ctxfs needs"
    with pytest.raises(StoreRefused, match=text):
        later.create_tables()
    with pytest.raises(StoreRefused, match=text):
        later.get("key")
    bucket.close()
    later.close()


def _change_version(url: str, version: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update ctxfs_meta set version = %s", (version,))


def test_the_command_prepares_a_database(server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"fresh_{uuid4().hex[:8]}"
    _execute(server, f"create database {name}")
    url = _as(server, database=name)
    assert run(["sessions", "--store", url]) != 0
    assert "ctxfs doctor --store URL --init" in capsys.readouterr().err
    assert run(["doctor", "--init", "--store", url]) == 0
    assert run(["sessions", "--store", url]) == 0
    assert run(["doctor", "--store", url]) == 0
    bucket = PostgresBucket(url)
    assert list(bucket.keys("")) == [], "doctor leaves nothing"
    bucket.close()


# Connections -------------------------------------------------------------------------------------------------------


def test_a_server_that_restarts_costs_a_read_nothing(server: Postgres) -> None:
    """Every idle connection is lost at once: a request that waits must not try one after the other."""
    bucket = PostgresBucket(server.url)
    bucket.put("kept", b"1")
    _use_at_once(bucket, 8)
    server.restart()
    assert bucket.get("kept") == b"1"
    bucket.close()


def test_a_write_on_a_lost_connection_has_no_answer(server: Postgres) -> None:
    bucket = PostgresBucket(server.url)
    bucket.put("kept", b"1")
    server.restart()
    with pytest.raises(NoAnswer):
        bucket.put("kept", b"2")
    bucket.put("kept", b"3")
    assert bucket.get("kept") == b"3"
    bucket.close()


def _use_at_once(bucket: PostgresBucket, count: int) -> None:
    """Let several threads read at the same time, each on a connection of its own."""
    together = threading.Barrier(count)

    def read() -> None:
        together.wait()
        bucket.get("kept")

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connections(url: str, name: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where application_name = %s", (name,))
        count: int = (row.fetchone() or (0,))[0]
        return count


def test_idle_connections_are_closed(server: Postgres) -> None:
    bucket = PostgresBucket(f"{server.url}&application_name=idle", idle_s=0.5)
    bucket.put("kept", b"1")
    _use_at_once(bucket, 4)
    ends_at = time.monotonic() + HANGS_S
    while _connections(server.url, "idle"):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    assert bucket.get("kept") == b"1"
    assert _connections(server.url, "idle") == 1
    bucket.close()


FORKED = """
import os, sys
import psycopg
from ctxfs.stores import PostgresBucket
bucket = PostgresBucket(sys.argv[1] + "&application_name=forked")
bucket.put("fork", b"1")
if (child := os.fork()) == 0:
    bucket.get("fork")
    with psycopg.connect(sys.argv[1]) as other:
        sql = "select count(*) from pg_stat_activity where application_name = 'forked'"
        os._exit(7 if other.execute(sql).fetchone() == (2,) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert bucket.get("fork") == b"1"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_gets_connections_of_its_own(server: Postgres) -> None:
    subprocess.run([sys.executable, "-c", FORKED, server.url], check=True)


# Several processes that want one session -----------------------------------------------------------------------------


def test_a_contest_in_postgres_loses_nothing(server: Postgres) -> None:
    outcome = contest(server.url, {}, seconds=6)
    assert outcome.violations == []
    assert outcome.acknowledged > 0
    assert outcome.turns > outcome.take_overs >= TAKE_OVERS


def test_a_contest_finds_a_database_that_overwrites() -> None:
    """The control; each round in an empty database. One contest may have luck, not all."""
    for _ in range(CONTROLS):
        with postgres() as server:
            if contest(server.url, {}, seconds=3, broken=True).violations:
                return
    raise AssertionError("it lost nothing")
