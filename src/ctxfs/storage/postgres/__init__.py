"""Sessions in Postgres: `PostgresStore`, and the database that it needs."""

from ctxfs.storage.answers import NoAnswer
from ctxfs.storage.postgres.database import Conflict, Database, PostgresDatabase, open_database
from ctxfs.storage.postgres.sessions import PostgresSessions
from ctxfs.storage.postgres.statements import Statement
from ctxfs.storage.postgres.store import PostgresStore

__all__ = [
    "Conflict",
    "Database",
    "NoAnswer",
    "PostgresDatabase",
    "PostgresSessions",
    "PostgresStore",
    "Statement",
    "open_database",
]
