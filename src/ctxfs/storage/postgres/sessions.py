"""The sessions in a Postgres database."""

from ctxfs.storage.answers import GIVE_UP_S, TTL_S
from ctxfs.storage.postgres.database import Database, open_database, shown_url
from ctxfs.storage.postgres.statements import list_sessions
from ctxfs.storage.postgres.store import PostgresStore
from ctxfs.storage.remote import RemoteSessionStores
from ctxfs.storage.sessions import SessionFound
from ctxfs.storage.threads import run_to_completion

__all__ = ["PostgresSessions", "stores_at"]


class PostgresSessions(RemoteSessionStores):
    """See ``SessionStores``: the sessions in a database.

    Args:
        database: see ``open_database``.
        url: the name under which the database is shown, without a password.
        ttl_s: see ``PostgresStore``.
        give_up_s: see ``PostgresStore``.
    """

    def __init__(self, database: Database, *, url: str, ttl_s: float = TTL_S, give_up_s: float = GIVE_UP_S) -> None:
        super().__init__(url, ttl_s=ttl_s, give_up_s=give_up_s)
        self._database = database

    def store(self, session_id: str) -> PostgresStore:
        """See ``SessionStores.store``."""
        return PostgresStore(self._database, session_id, ttl_s=self._ttl_s, give_up_s=self._give_up_s, place=self._url)

    async def sessions(self) -> list[SessionFound]:
        """See ``SessionStores.sessions``; this is one request."""
        rows = await run_to_completion(lambda: self._database.query(list_sessions()), waits=True)
        return [
            SessionFound(session_id, f"{epoch}-{commits}", float(changed))
            for session_id, epoch, commits, changed in rows
        ]


def stores_at(url: str) -> PostgresSessions:
    """Return the sessions in the database at ``url``, as for ``open_database``."""
    return PostgresSessions(open_database(url), url=shown_url(url))
