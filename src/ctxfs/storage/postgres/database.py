"""A Postgres server: statements that are transactions of their own, on connections that all sessions share."""

import os
import queue
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from ctxfs.checks import require_int
from ctxfs.errors import ConfigError, CtxfsError, MissingExtra, StorageError, WriteFailed
from ctxfs.storage.answers import NoAnswer, NotSent
from ctxfs.storage.postgres.statements import SCHEMA, Statement

__all__ = ["Conflict", "Database", "PostgresDatabase", "open_database", "shown_url"]

CONNECTIONS: Final = 16
SCHEMES: Final = frozenset({"postgres", "postgresql"})
ALIVE: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 20_000,
}


class Conflict(CtxfsError):
    """A row with this key already exists, so the statement changed nothing."""


class Database(Protocol):
    """Statements, each a transaction of its own. All methods block, and may be called in any thread."""

    def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement that changes nothing. Raises ``StorageError``."""

    def change(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement that changes something.

        Raises ``Conflict``, ``WriteFailed`` (it was not done, and will not be) and ``NoAnswer``.
        """


def open_database(url: str, *, connections: int = CONNECTIONS) -> "PostgresDatabase":
    """Return the database at ``url``, such as ``postgresql://user@host/name``, without connecting to it yet.

    Settings that the URL leaves out come from the environment, as with Postgres's own tools. The tables, whose names
    begin with ``ctxfs_``, are created if they do not exist. A server behind a connection pooler in transaction mode,
    such as PgBouncer, will do.

    Args:
        url: where the database is.
        connections: how many connections may be open; all sessions and threads share them.

    Raises:
        MissingExtra: psycopg is not installed.
        ConfigError: the URL is invalid, or ``connections`` is not a whole number from 1 on.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("postgres", "psycopg") from error
    if urlsplit(url).scheme not in SCHEMES:
        raise ConfigError(f"{url.partition(':')[0]!r} is not a Postgres URL: use postgresql://user@host/name")
    require_int("connections", connections, at_least=1)
    return PostgresDatabase(url, connections=connections)


def shown_url(url: str) -> str:
    """Return the URL of a store as it may be shown: without account, password and options."""
    netloc = urlsplit(url).netloc
    return url.partition("?")[0].replace(netloc, netloc.rpartition("@")[2], 1)


class PostgresDatabase:
    """A server, through psycopg 3. Connections are opened when they are needed, and reopened if they were lost."""

    def __init__(self, url: str, *, connections: int) -> None:
        import psycopg  # noqa: PLC0415 - an extra
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

        self._psycopg = psycopg
        self._url = url
        try:
            self._settings = {key: value for key, value in ALIVE.items() if key not in conninfo_to_dict(url)}
        except psycopg.Error as error:
            raise ConfigError(f"the URL of Postgres is not valid: {_line(error)}") from error
        self._count = connections
        self._lock = threading.Lock()
        self._has_tables = False
        self._process = 0
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        self._abandoned: list[Any] = []
        self._pool()

    def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """See ``Database.query``; if the connection was lost, the query is repeated on a new one."""
        try:
            return self._run(statement)
        except NoAnswer:
            return self._run(statement)
        except WriteFailed as error:
            raise StorageError(f"the database could not be read: {error.reason}") from error

    def change(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """See ``Database.change``."""
        return self._run(statement)

    def close(self) -> None:
        """Close idle connections; later uses open new ones."""
        free = self._pool()
        for _ in range(_close_free(os.getpid(), free)):
            free.put(None)

    def _run(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        errors = self._psycopg.errors
        free = self._pool()
        connection = free.get()
        try:
            if connection is None or connection.closed:
                connection = None
                connection = self._connected()
            cursor = connection.execute(statement.sql, statement.values, binary=True)
            return list(cursor.fetchall()) if cursor.description else []
        except errors.UniqueViolation as error:
            raise Conflict(str(error.diag.message_detail)) from error
        except self._psycopg.Error as error:
            if connection is None:
                raise NotSent(f"the database cannot be reached: {_line(error)}") from error
            if connection.broken or connection.closed:
                raise NoAnswer(f"the connection to the database was lost: {_line(error)}") from error
            raise WriteFailed("the session", _line(error)) from error
        finally:
            free.put(connection)

    def _connected(self) -> Any:
        connection = self._psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **self._settings)
        with self._lock:
            if not self._has_tables:
                row = connection.execute("select to_regclass('ctxfs_part')").fetchone()
                if row is None or row[0] is None:
                    connection.execute(SCHEMA)
                self._has_tables = True
        return connection

    def _pool(self) -> "queue.LifoQueue[Any]":
        """The connections of this process; those of a process that it was forked from must not be touched."""
        with self._lock:
            if self._process != os.getpid():
                self._abandoned.append(self._free)
                self._process, self._free = os.getpid(), queue.LifoQueue()
                for _ in range(self._count):
                    self._free.put(None)
                weakref.finalize(self, _close_free, self._process, self._free)
            return self._free


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _close_free(process: int, free: "queue.LifoQueue[Any]") -> int:
    """Take all idle connections out of the pool and close those of this process; return how many slots were taken."""
    taken = 0
    with suppress(queue.Empty):
        while True:
            connection = free.get_nowait()
            taken += 1
            if connection is not None and process == os.getpid():
                connection.close()
    return taken
