"""The sessions in a bucket of an object store."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from ctxfs.errors import ConfigError, NotStored
from ctxfs.storage.sessions import SessionFound
from ctxfs.storage.threads import run_to_completion
from ctxfs.stores.answers import GIVE_UP_S, TTL_S
from ctxfs.stores.objects.bucket import Bucket, open_bucket
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.row import SESSIONS, session_prefix
from ctxfs.stores.objects.segments import decode, is_segment_key
from ctxfs.stores.objects.store import ObjectStore, session_ids
from ctxfs.stores.remote import RemoteSessionStores

__all__ = ["ObjectSessions", "stores_at"]

_AT_ONCE: Final = 16
"""Up to this many requests are made at the same time to list sessions."""


class ObjectSessions(RemoteSessionStores):
    """See ``SessionStores``: the sessions in a bucket.

    Args:
        bucket: see ``open_bucket``.
        url: the name under which the bucket is shown.
        ttl_s: see ``ObjectStore``.
        give_up_s: see ``ObjectStore``.
        cache: see ``ObjectStore``; all sessions share it.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        url: str,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        cache: ReadCache | None = None,
    ) -> None:
        super().__init__(url, ttl_s=ttl_s, give_up_s=give_up_s)
        self._bucket = bucket
        self._cache = cache

    def store(self, session_id: str) -> ObjectStore:
        """See ``SessionStores.store``."""
        return ObjectStore(
            self._bucket,
            session_id,
            ttl_s=self._ttl_s,
            give_up_s=self._give_up_s,
            cache=self._cache,
            place=self._url,
        )

    async def sessions(self) -> list[SessionFound]:
        """See ``SessionStores.sessions``: one request for each 1,000 sessions, and two more for each session."""
        return await run_to_completion(self._sessions, waits=True)

    def forget(self, session_id: str) -> None:
        """Delete all objects of a session, also those that keep a sleeping writer of it out. Blocks.

        Its id must never be used again, and no writer of it may still be running. Raises ``StorageError``.
        """
        prefixes = (session_prefix(session_id), f"{SESSIONS}{session_id}/")
        self._bucket.delete([key for prefix in prefixes for key in self._bucket.keys(prefix)])

    def _sessions(self) -> list[SessionFound]:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ctxfs") as threads:
            found = threads.map(self._found, session_ids(self._bucket))
            return [one for one in found if one is not None]

    def _found(self, session_id: str) -> SessionFound | None:
        """Describe a session by its last segment; None: it was removed, or its creation was interrupted."""
        prefix = session_prefix(session_id)
        keys = [key.removeprefix(prefix) for key in self._bucket.keys(f"{prefix}s/")]
        last = max(filter(is_segment_key, keys), default=None)
        if last is None:
            return None
        try:
            head = decode(last, self._bucket.get(prefix + last)).head
        except NotStored:
            return None
        return None if head.removed else SessionFound(session_id, f"{head.identity}-{last}", head.at)


def stores_at(url: str) -> ObjectSessions:
    """Return the sessions in the bucket at ``url``, as for ``open_bucket``; ``objects+file:///…`` is a directory.

    With ``?cache=DIRECTORY`` at the end, pages that were read are kept in that directory; see ``ReadCache``.

    Raises ``ConfigError`` for another setting, or a directory that is not absolute.
    """
    place, _, settings = url.partition("?")
    given = parse_qs(settings, keep_blank_values=True)
    directories = given.pop("cache", [])
    if given or len(directories) > 1 or not all(Path(directory).is_absolute() for directory in directories):
        raise ConfigError(f"{url!r}: after the '?' of a bucket's URL, only cache=DIRECTORY (absolute) is valid")
    cache = ReadCache(Path(directories[0])) if directories else None
    return ObjectSessions(open_bucket(place.removeprefix("objects+")), url=place, cache=cache)
