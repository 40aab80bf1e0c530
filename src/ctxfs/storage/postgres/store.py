"""Sessions in Postgres: each has a row with an epoch, and rows for its log and its files."""

from ctxfs.storage.answers import GIVE_UP_S, TTL_S, Terms
from ctxfs.storage.postgres.database import Database
from ctxfs.storage.postgres.opened import OpenedPostgresSession
from ctxfs.storage.remote import RemoteStore

__all__ = ["PostgresStore"]


class PostgresStore(RemoteStore[OpenedPostgresSession]):
    """A ``Store`` in a Postgres database, for one session, which any machine that reaches the database can open.

    A commit is one statement, a transaction of its own, which does nothing unless this writer's epoch is still the
    session's. So a writer that was taken over, however long it slept, fails at its next commit with ``SessionLocked``.
    An acknowledged commit is in the database, and is as durable as the database.

    Args:
        database: where the sessions are; see ``open_database``.
        session_id: the id of the session.
        ttl_s: the lease: how many seconds after its last commit, by the server's clock, a writer that did not release
            the session may be taken over. It only avoids needless take-overs: correctness does not depend on it.
        give_up_s: for how many seconds a statement that gets no answer is repeated before ``OutcomeUnknown`` is raised.
        place: the database's name, for errors.

    Raises:
        UnsafePath: the session id is invalid.
        ConfigError: a time that is negative, or not a number.
    """

    def __init__(
        self,
        database: Database,
        session_id: str,
        *,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        place: str = "this database",
    ) -> None:
        super().__init__(session_id, place)
        self._database = database
        self._terms = Terms(ttl_s=ttl_s, give_up_s=give_up_s)

    def _new(self) -> OpenedPostgresSession:
        return OpenedPostgresSession(self._database, self._session_id, self._terms, mine=self._mine, place=self._place)
