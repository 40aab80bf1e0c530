"""Whether a store that several machines share allows only one writer, for ``ctxfs doctor``."""

from dataclasses import dataclass
from uuid import uuid4

from ctxfs.storage.answers import Terms
from ctxfs.storage.objects import open_bucket
from ctxfs.storage.objects.opened import OpenedObjectSession
from ctxfs.storage.objects.row import SESSIONS, session_prefix
from ctxfs.storage.postgres import open_database
from ctxfs.storage.postgres.database import SCHEMES, shown_url
from ctxfs.storage.postgres.opened import OpenedPostgresSession
from ctxfs.storage.postgres.statements import forget
from ctxfs.storage.stores import scheme_of
from ctxfs.storage.trial import Trial, try_store

__all__ = ["StoreCheck", "store_at"]

_TERMS = Terms(ttl_s=600)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """The result of testing the store at ``url``, which is shown without a password."""

    url: str
    trial: Trial

    @property
    def problem(self) -> str | None:
        """What is wrong; None if nothing is."""
        return None if self.trial.problem is None else f"{self.url}: {self.trial.problem}"

    def __str__(self) -> str:
        """One line for people."""
        if self.trial.problem is not None:
            return self.problem or ""
        raced = f"one writer in each of {self.trial.races} races of {self.trial.writers}"
        return f"{self.url}: {raced}; a commit takes {self.trial.commit_ms or 0:.1f} ms"


def store_at(url: str) -> StoreCheck:
    """Test the store at ``url`` with a session of its own, which is then removed.

    ``objects+file:`` and ``file:`` mean the same: a directory that is used as an object store.
    Raises ``ConfigError`` and ``MissingExtra``.
    """
    session_id = f"ctxfs-doctor-{uuid4().hex}"
    shown = shown_url(url)
    if scheme_of(url) in SCHEMES:
        database = open_database(url)
        trial = try_store(lambda: OpenedPostgresSession(database, session_id, _TERMS))
        if trial.races:
            database.change(forget(session_id))
        database.close()
        return StoreCheck(url=shown, trial=trial)
    bucket = open_bucket(url.removeprefix("objects+"))
    trial = try_store(lambda: OpenedObjectSession(bucket, session_id, _TERMS))
    if trial.races:
        prefixes = (session_prefix(session_id), f"{SESSIONS}{session_id}/")
        bucket.delete([key for prefix in prefixes for key in bucket.keys(prefix)])
    return StoreCheck(url=shown, trial=trial)
