"""Sessions in Postgres: a table of objects, which is one more bucket."""

import os
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from typing_extensions import override

from ctxfs.errors import ConfigError, MissingExtra, NotStored, StorageError, StoreRefused, WriteFailed
from ctxfs.errors.checks import names_settings, require_int, require_number
from ctxfs.storage.failures import NoAnswer, NotSent
from ctxfs.storage.roots import list_path
from ctxfs.stores.answers import SILENT_S
from ctxfs.stores.objects.bucket import Bucket, Taken
from ctxfs.stores.objects.sessions import ObjectSessions

CONNECTIONS: Final = 16
IDLE_S: Final = 60.0
"""A connection that nobody uses is closed: a hundred workers that do nothing must not hold 1,600 of them."""

SCHEMES: Final = frozenset({"postgres", "postgresql"})

OBJECT_BYTES: Final = 900_000_000
"""A Postgres statement, with its values, must be smaller than 1 GiB."""

SCHEMA_VERSION: Final = 1

_CREATE: Final = f"""
select pg_advisory_xact_lock(hashtext('ctxfs_schema'));
create table if not exists ctxfs_meta (version integer not null);
create table if not exists ctxfs_object (key text collate "C" primary key, data bytea not null);
alter table ctxfs_object alter data set storage external;
insert into ctxfs_meta select {SCHEMA_VERSION} where not exists (select from ctxfs_meta);
"""  # noqa: S608 - the version is our own number
"""Storage EXTERNAL is not compressed, so reading a range is cheap; ctxfs compresses contents itself."""

_INIT: Final = "run `ctxfs doctor --store URL --init` once, as a role that may create tables"

_ALIVE: Final[dict[str, Any]] = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5}

_REFUSED_CONNECTION: Final = {
    "no such database": "create the database, or correct the URL",
    "no such user": "create the role, or correct the URL",
    "database": "create the database, or correct the URL",
    "role": "create the role, or correct the URL",
    "authentication failed": "check the account and its password (PGPASSWORD, or ~/.pgpass)",
    "no password supplied": "give a password (PGPASSWORD, or ~/.pgpass)",
    "no pg_hba.conf entry": "allow this account from this machine in pg_hba.conf",
    "not permitted to log in": "give the role the right to log in",
    "permission denied": "give the role the right to connect to the database",
}
"""What to do, by a text of a server that refuses a connection for good: libpq passes no error code on for these."""

_REFUSED_STATEMENT: Final = {
    "42501": "give the role the rights to select, insert, update and delete in the tables ctxfs_meta and ctxfs_object",
    "42P01": f"the tables of ctxfs do not exist in this database: {_INIT}",
}
"""What to do, by the SQLSTATE of a statement that no later try can carry out."""


def stores_at(url: str) -> ObjectSessions:
    """Return the sessions in the database at ``url``; see ``PostgresBucket``."""
    return ObjectSessions(PostgresBucket(url), url=shown_url(url), list_path=list_path(shown_url(url)))


def shown_url(url: str) -> str:
    """Return the URL of a store as it may be shown: without account, password and options."""
    netloc = urlsplit(url).netloc
    return url.partition("?")[0].replace(netloc, netloc.rpartition("@")[2], 1)


@names_settings()
class PostgresBucket(Bucket):
    """A ``Bucket`` in the database at ``url``, such as ``postgresql://user@host/name``.

    ``create_tables`` comes first, once for each database. Everything else needs only the rights to select, insert,
    update and delete in the tables ``ctxfs_meta`` and ``ctxfs_object``.

    Each request is one statement and a transaction of its own, without prepared statements and without settings, so a
    connection pooler in transaction mode, such as PgBouncer, will do. Nothing connects before the first request.
    Settings that the URL leaves out come from the environment, as with Postgres's own tools.

    Args:
        url: where the database is.
        connections: how many connections each process may open; all its sessions and threads share them.
        idle_s: for how many seconds a connection that nobody uses stays open.
        silent_s: for how many seconds a server may send and take nothing before a request counts as unanswered; less
            than half of the ``give_up_s`` of the sessions.

    Raises:
        MissingExtra: psycopg is not installed.
        ConfigError: the URL is invalid, ``connections`` is not a whole number from 1 on, or a time is negative.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, idle_s: float = IDLE_S, silent_s: float = SILENT_S
    ) -> None:
        try:
            import psycopg  # noqa: PLC0415 - an extra
            from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("postgres", "psycopg") from error
        if urlsplit(url).scheme not in SCHEMES:
            raise ConfigError(f"{url.partition(':')[0]!r} is not a Postgres URL: use postgresql://user@host/name")
        require_int("connections", connections, at_least=1)
        require_number("idle_s", idle_s, at_least=0)
        require_number("silent_s", silent_s, at_least=0)
        self._psycopg = psycopg
        self._url = url
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise ConfigError(f"the URL of Postgres is not valid: {_line(error)}") from error
        self._settings = {name: value for name, value in _ALIVE.items() if name not in given}
        self._connection = _connection_class(psycopg, silent_s)
        self._silent_s = silent_s
        self._count = connections
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._has_tables = False

    @override
    def create(self, key: str, data: bytes) -> None:
        _check_size(key, data)
        if not self._changed("insert into ctxfs_object values (%s, %s) on conflict do nothing", key, data):
            raise Taken(key)

    @override
    def put(self, key: str, data: bytes) -> None:
        _check_size(key, data)
        upsert = "insert into ctxfs_object values (%s, %s) on conflict (key) do update set data = excluded.data"
        self._changed(upsert, key, data)

    @override
    def get(self, key: str) -> bytes:
        rows = self._read("select data from ctxfs_object where key = %s", key)
        if not rows:
            raise NotStored(key)
        return bytes(rows[0][0])

    @override
    def get_range(self, key: str, offset: int, size: int) -> bytes:
        part = "select substr(data, %s::int, %s::int) from ctxfs_object where key = %s"
        rows = self._read(part, offset + 1, size, key)
        if not rows:
            raise NotStored(key)
        data = bytes(rows[0][0])
        if len(data) != size:  # Postgres gives less; a bucket refuses, and the session is then read again
            raise StorageError(f"{key} ends before byte {offset + size:,}")
        return data

    @override
    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        listed = "select key from ctxfs_object where key >= %s and key < %s and key > %s order by key"
        end = f"{prefix}\U0010ffff"  # the last character in the order of bytes, which is that of this column
        for (key,) in self._read(listed, prefix, end, after):
            yield key

    @override
    def delete(self, keys: Sequence[str]) -> None:
        self._changed("delete from ctxfs_object where key = any(%s::text[])", list(keys))

    def create_tables(self) -> None:
        """Create the tables in the database; tables that exist stay as they are.

        Raises:
            StoreRefused: the database does not exist, or the role may not create tables in it, or another version of
                ctxfs made the tables.
            StorageError: the database cannot be reached.
        """
        with self._connected(tables=False) as connection:
            connection.execute(_CREATE)
            self._check_version(connection)

    def close(self) -> None:
        """Close idle connections; later requests open new ones."""
        self._process_pool().close_idle(0)

    # ---- statements

    def _changed(self, sql: str, *values: object) -> int:
        """Return how many rows a statement changed."""
        with self._connected() as connection:
            count: int = connection.execute(sql, values, binary=True).rowcount
            return count

    def _read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that changes nothing. If its connection was lost, it is repeated once."""
        try:
            return self._rows(sql, values)
        except NotSent:
            raise
        except NoAnswer:
            return self._rows(sql, values)
        except WriteFailed as error:
            raise StorageError(f"the database could not be read: {error.reason}") from error

    def _rows(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return list(connection.execute(sql, values, binary=True).fetchall())

    # ---- connections

    @contextmanager
    def _connected(self, *, tables: bool = True) -> Iterator[Any]:
        """Yield a connection for one statement, and name its errors."""
        pool = self._process_pool()
        if not pool.slots.acquire(timeout=self._silent_s or None):
            raise NotSent(f"all {self._count} connections to the database are in use")
        connection = None
        try:
            connection = pool.idle() or self._new_connection()
            if tables and not self._has_tables:
                self._check_version(connection)
            yield connection
        except self._psycopg.Error as error:
            raise self._named(error, connection) from error
        except BaseException:
            if connection is not None:  # in the middle of a statement: nobody else can use it
                connection.close()
            raise
        finally:
            if connection is not None and not connection.closed:
                pool.keep(connection)
            pool.slots.release()

    def _new_connection(self) -> Any:
        try:
            return self._connection.connect(self._url, autocommit=True, prepare_threshold=None, **self._settings)
        except self._psycopg.Error as error:
            said = _line(error)
            for sign, advice in _REFUSED_CONNECTION.items():
                if sign in said and ("does not exist" in said or sign not in {"database", "role"}):
                    raise StoreRefused(f"{said}: {advice}") from error
            raise NotSent(f"the database cannot be reached: {said}") from error

    def _check_version(self, connection: Any) -> None:
        row = connection.execute("select max(version) from ctxfs_meta").fetchone()
        version = row[0]
        if version is None:
            raise StoreRefused(f"the tables of ctxfs in this database are not complete: {_INIT}")
        if version != SCHEMA_VERSION:
            raise StoreRefused(
                f"the tables of ctxfs in this database are of version {version}, and this ctxfs needs "
                f"{SCHEMA_VERSION}: install the version of ctxfs that made them"
            )
        self._has_tables = True

    def _named(self, error: Any, connection: Any) -> StorageError:
        """Return what an error of psycopg means for a request."""
        said = _line(error)
        advice = _REFUSED_STATEMENT.get(error.sqlstate or "")
        if advice is not None:
            return StoreRefused(f"{said}: {advice}")
        if connection.broken or connection.closed:
            # The server has probably closed the others too: what waits for an answer must not try them one by one.
            self._process_pool().close_idle(0)
            return NoAnswer(f"the connection to the database was lost: {said}")
        return WriteFailed("the session", said)

    def _process_pool(self) -> "_Pool":
        """The connections of this process; those of a process that it was forked from must not be touched."""
        with self._lock:
            if self._pool is None or self._pool.process != os.getpid():
                self._pool = _Pool(self._count, self._idle_s)
                weakref.finalize(self, self._pool.close_idle, 0)
            return self._pool


class _Pool:
    """Connections of one process that nobody uses now; ``slots`` counts those that may still be taken.

    It is not psycopg_pool's, which connects in threads of its own: there a refused connection is only a time-out, and
    a forked process has a pool without threads.
    """

    def __init__(self, count: int, idle_s: float) -> None:
        self.process = os.getpid()
        self._idle_s = idle_s
        self.slots = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Any]] = []  # since when, and the connection; the one used last is the last
        self._timer: threading.Timer | None = None

    def idle(self) -> Any:
        """Return the connection that was used last; None: there is none."""
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def keep(self, connection: Any) -> None:
        """Keep a connection for the next request."""
        with self._lock:
            self._idle.append((time.monotonic(), connection))
            self._watch()

    def close_idle(self, idle_s: float) -> None:
        """Close the connections that nobody has used for ``idle_s`` seconds."""
        if self.process != os.getpid():
            self._idle.clear()  # the sockets belong to the process that opened them
            return
        with self._lock:
            before = time.monotonic() - idle_s
            old = [connection for since, connection in self._idle if since <= before]
            self._idle = [(since, connection) for since, connection in self._idle if since > before]
            self._timer = None
            self._watch()
        for connection in old:
            connection.close()

    def _watch(self) -> None:
        """Look again later, while there are idle connections."""
        if self._idle and self._timer is None:
            self._timer = threading.Timer(self._idle_s, self.close_idle, [self._idle_s])
            self._timer.daemon = True
            self._timer.start()


def _connection_class(psycopg: Any, silent_s: float) -> Any:
    """Return psycopg's connection, which waits for ``silent_s`` seconds only while its socket is silent."""

    class Connection(psycopg.Connection):  # type: ignore[misc]  # the package is imported when it is needed
        def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
            try:
                return super().wait(_while_heard(gen, silent_s), *args, **settings)
            except _Silent as error:
                self.close()
                raise psycopg.OperationalError(f"the server was silent for {silent_s:g} s") from error

    return Connection


class _Silent(Exception):
    """Nothing came from the server, and nothing went to it."""


def _while_heard(waits: Any, silent_s: float) -> Generator[Any, Any, Any]:
    """Pass on what psycopg waits for, until nothing happened for ``silent_s`` seconds.

    psycopg sends 0 into its generators several times a second, and another number when the socket is ready. A large
    object on a slow connection therefore takes as long as it takes.
    """
    heard = time.monotonic()
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                heard = now
            elif now - heard > silent_s:
                raise _Silent
            wanted = waits.send(ready)
    except StopIteration as ended:
        return ended.value


def _check_size(key: str, data: bytes) -> None:
    """Raise ``WriteFailed`` for what no statement can carry."""
    if len(data) > OBJECT_BYTES:
        limit = f"over {OBJECT_BYTES:,} bytes, and Postgres accepts no statement that is much larger"
        raise WriteFailed(key, f"{limit}: keep this session in an object store, such as s3://")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
